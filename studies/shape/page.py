"""The pages of the study: the evidence with the grid of our own on it, and the answer in one screen."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from headcount.report import Exhibit, Passage
from headcount.report.tabular import table_lines
from headcount.sizing.evidence import EvidenceTable, parsed
from headcount.sizing.forest import ForestGroup, ForestLine, forest
from headcount.sizing.meta_analysis import left_out, pooled_change
from headcount.sizing.paired_difference import PairedDifference, paired_differences, pooled_deviation
from headcount.sizing.ranked_shapes import ShapeAnswer, shape
from headcount.sizing.shape_page import evidence_figure, evidence_page
from studies.shape.entering import own_rows, read
from studies.shape.grid import BASE
from studies.stored import DATA

COMMAND = "headcount shape --evidence --out DIR"
QUESTIONS: dict[str, dict[str, Any]] = {
    "a 10 M time-series encoder, context 512": {"budget": "10M", "context": 512, "encoder": True},
    "a 135 M language model, context 8k": {"budget": "135M", "context": 8192, "vocab": 49152},
    "a 1 B language model for a phone, 16 kB of cache a token": {
        "budget": "1B",
        "context": 4096,
        "vocab": 128256,
        "cache_per_token": 16384,
    },
}


def table(data: Path = DATA) -> EvidenceTable:
    """The evidence with the grid entered, if it was run."""
    texts = [(files("headcount.sizing") / "evidence.toml").read_text(encoding="utf-8")]
    grid = read(data / "shape_grid.json")
    return parsed([*texts, *([own_rows(grid)] if grid else [])])


def looked_up() -> str:
    """When the rows of others were last looked up."""
    return tomllib.loads((files("headcount.sizing") / "evidence.toml").read_text(encoding="utf-8"))["date"]


def evidence(data: Path = DATA) -> str:
    """docs/shape.html."""
    grid, settled, promise = (read(data / f"shape_{name}.json") for name in ("grid", "settled", "promise"))
    extra = [] if grid is None else [_grid(grid), *([] if not (settled and promise) else [_settled(settled, promise)])]
    experiment = read(data / "shape_experiment.json")
    extra += [] if experiment is None else [Passage("An experiment file, run as written", (_ran(experiment),))]
    return evidence_page(table(data), date=looked_up(), extra=extra, command=COMMAND)


def picture(data: Path = DATA) -> str:
    """docs/images/shape_evidence.svg."""
    return evidence_figure(table(data)).standalone()


def answer(data: Path = DATA) -> str:
    """docs/how-many-heads.md: the answer in one screen, then why."""
    known_evidence = table(data)
    answers = {words: shape(**arguments, table=known_evidence) for words, arguments in QUESTIONS.items()}
    grouping = pooled_change(known_evidence, "halve key-value heads")
    quoted = sum(row.checked == "quoted" for row in known_evidence.rows)
    assert grouping.mean is not None and grouping.interval is not None and grouping.prediction is not None
    return TEXT.format(
        step=grouping.mean,
        low=grouping.interval[0],
        high=grouping.interval[1],
        worst=grouping.prediction[1],
        best=grouping.prediction[0],
        sources=grouping.sources,
        rows=len(known_evidence.rows),
        of=len(known_evidence.sources),
        quoted=quoted,
        four=2 * grouping.mean,
        narrow=_counted(known_evidence, "head_dim 16 to 32", "head_dim 16 is worse than 32", -1),
        wide=_counted(known_evidence, "head_dim 64 to 128", "128 is worse than 64", 1),
        single=_counted(known_evidence, "one head for eight", "a single head is worse than eight", 1),
        quiet=min(n.deviation for n in known_evidence.noise),
        loud=max(n.deviation for n in known_evidence.noise),
        answers="\n".join(_lines(words, reply) for words, reply in answers.items()),
        pooled=_pooled(known_evidence),
        left=_left(known_evidence),
        own=_own(read(data / "shape_grid.json")),
        settled=_said(read(data / "shape_settled.json"), read(data / "shape_promise.json")),
        experiment=_ran(read(data / "shape_experiment.json")),
    )


def _lines(words: str, reply: ShapeAnswer) -> str:
    rows = [(r["model"], r["heads"], r["why it differs"]) for r in reply.beside()]
    head = f"**{words[:1].upper() + words[1:]}.** {reply.sentence} {reply.compared}".rstrip()
    return "\n".join([head, "", *table_lines(("model in use", "heads", "how it differs"), rows), ""])


def _counted(known_evidence: EvidenceTable, change: str, words: str, sign: int) -> str:
    """In how many measurements of a kind of change a statement held, in words."""
    values = [row.percent for row in known_evidence.of(change) if row.fits and row.percent is not None]
    true = sum(sign * value > 0 for value in values)
    return f"In {true} of {len(values)} comparisons {words}."


def _pooled(known_evidence: EvidenceTable) -> str:
    rows = []
    for change in known_evidence.changes:
        p = pooled_change(known_evidence, change)
        if p.mean is not None and p.interval is not None and p.prediction is not None:
            mean = "{:+.2f} [{:+.2f}, {:+.2f}]".format(p.mean, *p.interval)
            rows.append((change, p.sources, mean, "[{:+.2f}, {:+.2f}]".format(*p.prediction)))
        elif p.effects:
            effects = ", ".join(f"{e.value:+.2f} ({e.source.partition(', arXiv')[0]})" for e in p.effects)
            rows.append((change, p.sources, f"no number: {effects}", "-"))
    head = ("change", "sources", "percent of the loss for one step", "a further source")
    return "\n".join(table_lines(head, rows))


def _left(known_evidence: EvidenceTable) -> str:
    out = left_out(known_evidence)
    if not out:
        return "No kind has four sources yet, so none can be left out and still leave three."
    inside = sum(row["inside"] for row in out)
    where = "where the others predict them, their own noise allowed"
    return f"Left out one by one, {inside} of {len(out)} sources lie {where}."


def _own(grid: Mapping[str, Any] | None) -> str:
    if grid is None:
        return "The grid of our own has not been run yet: `python -m studies.shape`."
    differences = sorted(paired_differences(grid["rows"], BASE), key=lambda d: d.mean)
    deviation, free = pooled_deviation(differences)
    rows = []
    for d in differences:
        low, high = d.interval()
        rows.append((d.shape, f"{d.mean:+.2f}% [{low:+.2f}, {high:+.2f}]", f"{d.rate:g}{' (end)' if d.edge else ''}"))
    alone, together = (sum(_away(d, n) for d in differences) for n in (1, len(differences)))
    summary = (
        f"Of {len(differences)} comparisons {alone} lie away from zero one by one, {together} all at once (Bonferroni)."
    )
    spread = f"One seed's paired difference has a deviation of {deviation:.2f}% ({free} degrees of freedom)."
    return "\n".join(
        [*table_lines(("shape", f"against {BASE}", "best rate"), rows, numbers=1), "", summary, "", spread]
    )


def _away(paired: PairedDifference, comparisons: int) -> bool:
    low, high = paired.interval(comparisons=comparisons)
    return not low <= 0 <= high


def _said(settled: Mapping[str, Any] | None, promise: Mapping[str, Any] | None) -> str:
    if settled is None or promise is None:
        return ""
    (paired,) = paired_differences(settled["rows"], promise["first"])
    low, high = paired.interval()
    middle, least, most = promise["half_width"]
    return (
        f"The first two of the grid were trained again on {promise['seeds']} new seeds. Promised before: an interval "
        f"of ± {middle:.2f}% (nine of ten between {least:.2f} and {most:.2f}). Reached: {paired.shape} less "
        f"{paired.base}, {paired.mean:+.2f}% [{low:+.2f}, {high:+.2f}], ± {(high - low) / 2:.2f}%."
    )


def _ran(experiment: Mapping[str, Any] | None) -> str:
    """What a file of `--experiment` promised and what running it gave."""
    if experiment is None:
        return ""
    (paired,) = paired_differences(experiment["rows"], experiment["settled"]["first"])
    low, high = paired.interval()
    row, about = experiment["settled"], experiment["made"]
    least, most = row["promised range"]
    return (
        f"`{experiment['question']}` wrote such a file, `{experiment['command']}` ran it ({about['device']}, "
        f"{about['date']}): {len(experiment['rows'])} runs, {len(paired.percents)} paired seeds. Promised: an interval "
        f"of ± {row['promised half-width']:.2f}% (nine of ten between {least:.2f} and {most:.2f}). Reached: "
        f"{paired.shape} less {paired.base}, {paired.mean:+.2f}% [{low:+.2f}, {high:+.2f}], ± {(high - low) / 2:.2f}%."
    )


def _grid(grid: Mapping[str, Any]) -> Passage:
    differences = sorted(paired_differences(grid["rows"], BASE), key=lambda d: d.mean)
    lines = tuple(ForestLine(d.shape, d.mean, *d.interval(), ours=True) for d in differences)
    group = ForestGroup(f"against {BASE}", lines)
    words = "; ".join(f"{d.shape} {d.mean:+.2f}%" for d in differences)
    shown = [
        forest([group], title="Twelve shapes", words=words, axis="percent of the loss; right is worse", narrow=narrow)
        for narrow in (False, True)
    ]
    size, text = grid["rows"][0]["parameters"], grid["facts"]["text"]
    description = (
        f"Twelve shapes of {size:,} parameters, three rates, five seeds; the same seeds, starts and data order, "
        f"one pass over {text['train_windows']:,} windows of {text['length']} tokens (plays and web passages), "
        f"{grid['made'].get('device', 'cpu')}, {grid['made']['date']}. Each shape at its best rate; lines are 95% "
        "intervals of paired differences."
    )
    return Passage("A grid of our own", (description,), (Exhibit(shown[0], "Every dot is five seeds.", shown[1]),))


def _settled(settled: Mapping[str, Any], promise: Mapping[str, Any]) -> Passage:
    return Passage("What settled it", (_said(settled, promise),))


TEXT = """# How many heads should a transformer have?

The answer in one screen; then why. `headcount shape 135M --context 8192` answers it for your sizes.

- **Heads of 64, as many as make up the width, are the safe start.** {narrow}
  {wide} {single} Many larger models in use take 128: habit, for no three comparisons of it have been published.
- **Sharing keys and values costs little:** {step:+.2f}% of the loss for each halving of the key-value heads
  [{low:+.2f}, {high:+.2f}], {sources} sources; about {four:+.1f}% for 4:1. A further source may find anything from
  {best:+.2f}% to {worst:+.2f}%. It divides the cache, which at long contexts is most of what decoding reads.
- **Let a limit decide.** Without a limit on cache, memory or speed, sharing buys nothing but parameters for the
  feed-forward. With one, take the fewest halvings that keep to it.
- **Do not take head_dim 80, 100 or 132:** kernels are compiled for 32, 64, 96, 128, 192 and 256, and pad the rest
  (132 ran at 219 TFLOP/s where 128 ran at 370).
- **Nobody knows for data that are not language.** For a time-series encoder there is habit; `headcount measure` asks
  your own data.

Everything above is {rows} rows from {of} sources ({quoted} read in the source's own text), most of them with one seed.
`headcount shape --evidence` prints them, [shape.html](shape.html) draws them.

![What was measured about heads](images/shape_evidence.svg)

## Three questions

{answers}
## Why so few numbers

Published comparisons contradict each other: grouped queries lose four points of benchmark average in one report, none
in another; latent attention is ahead in one and behind in another; the same change of heads, by the same people within
two days, came out at -0.7%, +2.4% and +3.2% with one seed each. So a kind of change gets a number only where three
sources measured a loss, with an interval that holds for few sources (random effects, Paule and Mandel's tau, Hartung
and Knapp's interval); else its rows are shown and that is all.

{pooled}

{left}

## A grid of our own

Decoders of 3.7 M parameters, twelve shapes, three rates, five seeds paired by data order, a single pass:

{own}

{settled}

## What a theorem says

- One head without a mask needs head_dim of length - 1 to weigh its tokens in every way (Bhojanapalli et al. 2020, one
  less than stated there): no model in use has that, so every head is a bottleneck, and none of them says which.
- With fewer heads than things to look up, one layer's error falls slowly in parameters (Yu et al. 2025); deeper shapes
  are judged by InfoFlow, strings by what is proved of their task: `headcount shape --task`.
- A causal mask takes the first away; the constants of two other theorems were not read, and they forbid nothing here.

## What would settle it

`headcount shape 135M --experiment settle.toml --text mine.txt` writes the sweep that decides between the first two
shapes on your own text: how many seeds, which, and how wide the interval will be; `headcount sweep settle.toml` runs
it. Seeds of one model lie {quiet:.2f}% to {loud:.2f}% of the loss apart elsewhere, so that one run of each shape tells
little about a difference of a quarter of a percent.

{experiment}
"""
