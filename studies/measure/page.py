"""docs/measure.md: what `measure` says of data whose answer is known, and of real ones.

python -m studies.measure.page [FILE ...]       take in rows of these files, then write page and figure
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.files import atomic_write
from headcount.measuring.paired_ratios import Compared
from headcount.measuring.splitting import MOST_SPLITS
from headcount.numerals import counted
from headcount.results.gathering import grouped
from studies.measure.bench import KEPT, LOOK_UPS, REAL_SECONDS
from studies.measure.beside import Beside, beside, plain_table, read_compared, with_comparisons
from studies.measure.chance import TOLERANCE, at_random, by_halves, means, near_least, shrunken
from studies.measure.picture import picture
from studies.measure.pool import read_rows, write_rows
from studies.measure.runs import WORKERS, Row
from studies.measure.sets import PLANTED, REAL

FORMS = {
    "quick": "one layer, 600 steps, five splits (`--quick`)",
    "quick, draw 1": "the same on other draws, with every rule as it stood (`--quick --draw 1`)",
    "120 s": "two minutes a set",
    "300 s": "five minutes, look-ups alone",
    "600 s": "ten minutes, four look-ups alone",
}
FIGURE_FILE = "images/measure_heads.svg"
_FORM = re.compile(r"([0-9.]+) s(?: of ([0-9]+) cores)?")
LEAST_SHOWN = 60.0  # seconds of a real set's run
WITHIN = 0.2  # of a budget: how far over it a run may end
INTRODUCTION = """# What `measure` says of data whose answer is known

Written by `python -m studies.docs` from `docs/data/measure_bench.json`, `measure_simulated.json` and
`measure_coverage.json`; measured by `python -m studies.measure.bench` (its first lines say where real sets come from),
whose rows `python -m studies.measure.page FILE` takes in, by `python -m studies.measure.simulated` and by
`python -m studies.measure.coverage`.

The network asked about is a standard encoder: a linear embedding (or a table of letters), learnt positions, pre-norm
attention and feed-forward with residuals, 48 wide throughout, read out from a class token. Zero heads are a
feed-forward for every token, the mean of all and a feed-forward of that, of the same widths. Everybody (a constant,
linear models of pooled and of flattened tokens, boosted trees, zero heads, each head count and depth) gets the same
splits, the same search on an inner part and the same stopping rule, and is judged on outer parts that nobody has seen;
linear models choose their penalty by quarters of the training part as well where the inner part is small. An error is
the loss over that of the best constant. There are five outer parts, and they come back with other inner parts. For
attention stand, on an outer part, all blocks within the tolerance of the best on its inner parts, by the mean of their
errors; they are compared with everybody without attention one by one.

A run with a budget has two processes of one thread; fixed steps and splits give the same rows on any machine. Attention
is worth it where beside each of the others the 90% interval of the ratio lies below 1 and the gain is at least 5% of
the error and 0.005 of the constant's; not worth it where beside one of them the gain is less than 5% and one of 20% is
excluded, or at most 0.005 of the constant's error is left to gain. A head count is enough within 5% of the best of
its depth, or within 0.005 of the constant's error; the block advised is the cheapest that is shown to be within that of
the best of all, by the upper end of the interval.

What was changed after looking at these planted sets: the 0.005, for heads and for the verdict (on one look-up one head
had 0.0015 and six had 0.0006, which is out of 25%); zero heads, which were two standard blocks with even weights until
they lost to attention on the squared mean and on log mean exp, where they are exact (their norms stood before the
mean); which counts are tried near the turn (on three look-ups three heads were not). The rare class was first "some
token exceeds a level", was called undecided, and was replaced, for a mean of steep feed-forwards says that, so
attention was not worth it there. Of 1,500 sequences, of which 75 are in the class, it is undecided by any rule tried
(zero heads 0.31 against 0.26 is a ratio of [0.55, 1.3] by seven splits), and was replaced once more, by 6,000. The
tables are therefore of sets that the rules were tried on; only another draw tests them.

What was changed after looking at the real sets, where nothing could be said of 12 of 18: three first splits became
five, steps end at a hundred epochs and take half of the time at most, so that a dozen splits judge; a block shown to be
out of the tolerance is trained no further; a gain of 20% excluded is enough for "not worth it" (5% before); heads are
enough within 5% (25% before). The interval of a ratio is that of its logarithm, by the variance between 32 blocks of
sequences plus that between the five outer parts (the corrected t-test before, which keeps a quarter of the variance
however many splits judge); it was chosen by the coverage of trained learners on other seeds than those below, not by
what it says of any set. What more steps might overturn is read off outer errors (inner ones before, of a few dozen
sequences), and asked of 6,000 steps, the most that a budget takes (of four times the steps, or sixteen times, before:
zero heads would then catch up on digits after 12,000). Inner parts also chose who stood for those without attention.
Who stops by them has the smaller error there: on breast cancer zero heads (0.09 on inner parts, 0.18 on outer ones) hid
a linear model (0.13 and 0.11), and "worth it" was said too often. Choosing by the other outer parts was tried and has
the opposite bias: who is best on four of them is worse on the fifth. Now nobody is chosen there. Linear models chose
their penalty on the inner part alone: breast cancer, separated by one of them, then had a linear error of 0.33 (2.2 in
one split) where 0.12 is what everybody gets. More splits were called missing wherever fewer than twenty had judged:
seventeen had on Japanese vowels, with a ratio of [0.35, 1.3]; then where what twenty may come to might tell, which it
did for none of four. Now they are where twenty would, if the ratio stayed and what differs between splits of one outer
part were averaged further.

"""
REAL_RULES = f"""Asked after rules had been changed by looking at these very sets (above), and judged by rules of
which two were changed while rows came in: everybody without attention one by one, and the three words for advice (the
best block was first chosen by half of the splits). So this table does not test them. A set has at most 64 tokens
(longer series are cut into patches) and about 1,200 training sequences.
Every row is by the rules in force: {REAL_SECONDS:g} s of two cores, of an idle machine that has no more, or of one
of 16 on which seven sets were asked at once. The plain encoder (`plain.py`: torch alone, `nn.TransformerEncoderLayer`,
the same widths, search, inner parts and stopping rule; 1,500 steps, 1, 2, 3, 4, 6 and 8 heads in one and two layers) is
trained on the same splits: ten, then ten more, for cells of ten are noisy, then ten with other inner parts, or from
other starts where there is none left.

- Ours over plain *at the same blocks*: in every split the mean error over the numbers of heads and layers that both
  have. *No worse*: the upper end of its 90% interval is at most 1.10. *Worse*: its lower end is above 1. *Wide*:
  neither; the splits do not tell.
- *As a rule* each side is the mean of those within the tolerance of the best on the inner parts of an outer part.
- Advice is judged by the plain encoder's own table: *near* if its error at the advised block is at most
  {1 + TOLERANCE:g} times the least of the table, or more by at most 0.005 of the constant's, the tolerance that
  `measure` advises by; *out* if the 90% interval of that ratio lies above {1 + TOLERANCE:g}; else *open*.
- The least of twelve noisy errors is too small, and by chance alone cells differ by 2 to 20%. So the same is asked of
  the table *less chance*: logarithms of its cells drawn to their mean by the share of their spread that is noise
  (Efron and Morris's estimate, `studies/measure/chance.py`). Beside it stand what a block drawn at random would reach,
  and what the plain encoder's own table reaches: the block that half of its splits names, judged by the other half.
  These two, and this second reading, were fixed before the rows of ten minutes came in.
- *Heads alone* are judged among the counts of the advised number of layers. This reading was added last: after twenty
  splits of the plain encoder, by which it gave 15 of 18 for the rows before these, and before its last ten.
- "Not worth it" is wrong where the plain encoder beats every baseline by its interval, and by more than that 0.005.
"""
FIGURE = """![NMSE against heads, for planted numbers of look-ups](images/measure_heads.svg)
"""


def page(data: Path) -> str:
    """The page, of the files in a folder."""
    rows = json.loads((data / "measure_bench.json").read_text())
    drawn, covered = (json.loads((data / f"measure_{name}.json").read_text()) for name in ("simulated", "coverage"))
    parts = [
        INTRODUCTION + FIGURE,
        *_planted(rows),
        *_plain_planted(rows),
        *_busy(rows),
        *_real(rows),
        *_kept(rows),
        _simulated(drawn),
        _coverage(covered),
    ]
    return "\n".join(parts)


def _planted(rows: Sequence[Row]) -> Iterable[str]:
    names = [one.name for one in PLANTED]
    for form, words in FORMS.items():
        some = [row for row in rows if row["form"] == form and row.get("worth") is not None]
        some.sort(key=lambda row: names.index(row["set"]))
        if not some:
            continue
        right = sum(map(_right, some))
        counted = [row for row in some if row["truth"] is not None and row["verdict"] == "worth it"]
        inside = sum(row["one_layer"][1] <= row["truth"] <= row["one_layer"][2] for row in counted)
        yield f"## Planted sets: {words}\n"
        yield f"The verdict is right in {right} of {len(some)}; the planted number of look-ups lies inside the interval"
        yield f"of heads in one layer in {inside} of {len(counted)}. *Cannot say yet* counts as not right.\n"
        yield _table(PLANTED_COLUMNS, some)
        wanted = [name for name, seconds in LOOK_UPS.items() if form == f"{seconds:g} s"] or names
        missing = [name for name in wanted if name not in {row["set"] for row in some}]
        if missing:
            yield f"Not run in this form: {', '.join(missing)}.\n"


def _plain_planted(rows: Sequence[Row]) -> Iterable[str]:
    """What the plain encoder needs of the planted look-ups: its cheapest count is the truth where it is another one."""
    plain = {one.name: some for one in PLANTED if (some := _plain_rows(rows, one.name))}
    if not plain:
        return
    yield "## Planted look-ups, by the plain encoder\n"
    for name, some in plain.items():
        errors = {heads: error for (heads, layers), error in means(plain_table(some)).items() if layers == 1}
        least = min(errors, key=lambda heads: errors[heads])
        cheapest = min(heads for heads, error in errors.items() if near_least(error, errors[least]))
        yield f"{name}, one layer: the least error is {errors[least]:.2g} ({counted(least, 'head')}); the"
        yield f"cheapest count within the tolerance of it is {cheapest} ({errors[cheapest]:.2g}).\n"
    yield from _plain_tables(plain)


def _right(row: Row) -> bool:
    return row["verdict"] == ("worth it" if row["worth"] else "not worth it")


def _busy(rows: Sequence[Row]) -> Iterable[str]:
    """The same sets beside endless loops: the same words, or that it cannot say."""
    idle = {row["set"]: row for row in rows if row["form"] == "120 s" and row.get("worth") is not None}
    busy_rows = {row["set"]: row for row in rows if row["form"] == "120 s, busy"}
    pairs = [(idle[one.name], busy_rows[one.name]) for one in PLANTED if one.name in idle and one.name in busy_rows]
    if not pairs:
        return
    other = [busy for calm, busy in pairs if busy["verdict"] not in (calm["verdict"], "cannot say yet")]
    unsure = sum(busy["verdict"] == "cannot say yet" != calm["verdict"] for calm, busy in pairs)
    yield "## Planted sets on a busy machine: two minutes, four at once beside four endless loops on two cores\n"
    yield f"Of {len(pairs)} sets {len(other)} have another verdict than on idle cores, and {unsure} cannot be told"
    yield "any more.\n"
    columns: tuple[tuple[str, Callable[[tuple[Row, Row]], Any]], ...] = (
        ("set", lambda pair: pair[0]["set"]),
        ("idle", lambda pair: f"{pair[0]['verdict']}{_heads_in(pair[0])}"),
        ("busy", lambda pair: f"{pair[1]['verdict']}{_heads_in(pair[1])}"),
        ("CPU s, idle", lambda pair: f"{pair[0]['cpu_seconds']:.0f}"),
        ("CPU s, busy", lambda pair: f"{pair[1]['cpu_seconds']:.0f}"),
        ("wall s, busy", lambda pair: f"{pair[1]['wall_seconds']:.0f}"),
    )
    yield _table(columns, pairs)


def _heads_in(row: Row) -> str:
    interval = _interval(row)
    return "" if interval == "-" else f", {interval}"


def _real(rows: Sequence[Row]) -> Iterable[str]:
    names = [one.name for one in REAL]
    longest, both = longest_of(rows), besides(rows)
    plain = {name: _plain_rows(rows, name) for name in names}
    compared = [both[name] for name in names if both.get(name) is not None]
    yield "## Real sets\n"
    yield REAL_RULES
    yield from _tally([one for one in compared if one is not None], list(longest.values()))
    some = [(longest[name], both[name]) for name in names if name in longest]
    if some:
        yield _table(REAL_COLUMNS, some)
    missing = [name for name in names if name not in longest]
    if missing:
        yield f"Not run: {', '.join(missing)}. Those that no wheel of scikit-learn carries need `--data DIR`.\n"
    yield from _asked_twice(rows, longest)
    yield from _asked_again(rows, longest)
    yield from _plain_tables(plain)
    yield "Terms: " + "; ".join(f"{one.name} ({one.terms})" for one in REAL) + ".\n"


def _asked_twice(rows: Sequence[Row], last: Mapping[str, Row]) -> Iterable[str]:
    """The same time of processors given twice, to more cores and fewer: who has another verdict."""
    same = [row for row in rows if _of_real(row) and _budget(row) == REAL_SECONDS]
    earlier = {row["set"]: row for row in same if row is not last[row["set"]]}
    if not earlier:
        return
    words = [(name, row["verdict"], last[name]["verdict"]) for name, row in earlier.items()]
    moved = [f"{name} ({before}, then {after})" for name, before, after in words if before != after]
    times = " or ".join(sorted({time_of(row) for row in earlier.values()}))
    yield f"{counted(len(earlier), 'set')} had been asked before with as much time of processors ({times}; those of"
    yield "four by earlier rules). Another word was said then of"
    yield f"{len(moved)}{': ' + '; '.join(moved) if moved else ''}.\n"


def _asked_again(rows: Sequence[Row], last: Mapping[str, Row]) -> Iterable[str]:
    """What all splits say, for as long as they take, of sets of which it could not be said."""
    again = {row["set"]: row for row in rows if row["form"].endswith(f" {MOST_SPLITS} splits")}
    pairs = [(row, again[name]) for name, row in last.items() if name in again and row["verdict"] == "cannot say yet"]
    if not pairs:
        return
    settled = sum(row["verdict"] != "cannot say yet" for _, row in pairs)
    yield f"{counted(len(pairs), 'set')} of which it could not be said were asked again with all {MOST_SPLITS} splits"
    yield f"and the same steps, for the answer had named splits as what is missing: {settled} are settled. Splits that"
    yield "share an outer part share its sequences, and most of the chance is theirs. So splits are named now only"
    yield "where their own share of the variance would tell. That rule was made after these rows, and names sequences"
    yield "for them.\n"
    columns: tuple[tuple[str, Callable[[tuple[Row, Row]], Any]], ...] = (
        ("set", lambda pair: pair[0]["set"]),
        ("splits", lambda pair: f"{pair[0]['splits']}, then {pair[1]['splits']}"),
        ("with attention, over the best without", lambda pair: _deciding(pair[0])),
        ("with all splits", lambda pair: _deciding(pair[1])),
        ("verdict", lambda pair: _word(pair[1])),
        ("CPU s", lambda pair: f"{pair[1]['cpu_seconds']:.0f}"),
    )
    yield _table(columns, pairs)


def _deciding(row: Row) -> str:
    """The error with attention over that of the best without, as stored."""
    best = read_compared(row["compared"][0])
    return f"{_ratio(best)} of {best.other}"


def _word(row: Row) -> str:
    """The verdict, and what is missing."""
    return row["verdict"] + (f" ({row['missing']})" if row["missing"] else "")


def _plain_rows(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if (row["set"], row["form"]) == (name, "plain")]


def besides(rows: Sequence[Row]) -> dict[str, Beside | None]:
    """That row of every real set beside the plain encoder."""
    return {name: beside(row, _plain_rows(rows, name)) for name, row in longest_of(rows).items()}


def longest_of(rows: Iterable[Row]) -> dict[str, Row]:
    """The row of every real set that had most time."""
    return {row["set"]: row for row in sorted(filter(_of_real, rows), key=_budget)}


def _of_real(row: Row) -> bool:
    return row["form"] != "plain" and row["worth"] is None and _budget(row) >= LEAST_SHOWN


def _budget(row: Row) -> float:
    """Seconds of two cores."""
    form = _FORM.fullmatch(row["form"])
    return 0.0 if form is None else float(form[1]) * int(form[2] or WORKERS) / WORKERS


def time_of(row: Row) -> str:
    """The time that a row was given, with its cores, and the cores of the machine where they were more.

    >>> time_of({"form": "600 s"}), time_of({"form": "600 s", "cores": 16}), time_of({"form": "240 s of 5 cores"})
    ('600 s of 2 cores', '600 s of 2 cores of 16', '240 s of 5 cores')
    """
    form = _FORM.fullmatch(row["form"])
    if form is None or form[2]:
        return row["form"]
    more = f" of {row['cores']}" if row.get("cores", WORKERS) > WORKERS else ""
    return f"{row['form']} of {WORKERS} cores{more}"


def _tally(compared: Sequence[Beside], rows: Sequence[Row]) -> Iterable[str]:
    if not compared:
        return
    standing = [one.standing for one in compared]
    places = [one.advised for one in compared if one.advised]
    out = [
        f"{one.row['set']}{' by one split' if one.out_by_one_split else ''}" for one in compared if one.advised == "out"
    ]
    clear, alone = sum(one.near_less_chance for one in compared), sum(one.heads_near for one in compared)
    random = [sum(at_random(read(one.table)) for one in compared) for read in (means, shrunken)]
    halves = [named for one in compared for named in by_halves(one.table)]
    random_alone = sum(at_random(means(one.own_depth)) for one in compared)
    halves_alone = [named for one in compared for named in by_halves(one.own_depth)]
    unsure = sum(row["verdict"] == "cannot say yet" for row in rows)
    counts = ", ".join(f"{word} in {standing.count(word)}" for word in ("no worse", "wide", "worse"))
    denied = [one for one in compared if one.row["verdict"] == "not worth it" and one.beaten]
    wrong, little = ([one.row["set"] for one in denied if one.overlooked is which] for which in (True, False))
    yield f"Ours beside plain at the same blocks, of {counted(len(compared), 'set')}: {counts}. Of {len(places)} blocks"
    yield f"advised {places.count('near')} are near the least error of the plain table, {places.count('open')} open and"
    yield f"{len(out)} out{' (' + ', '.join(out) + ')' if out else ''}; of the table less chance {clear} are near."
    yield f"A block drawn at random is near in {random[0]:.1f} of {len(compared)}, less chance in {random[1]:.1f}; one"
    yield f"that half of the plain table names is near the least of the other half in {sum(halves)} of {len(halves)}"
    yield f"halves. Of heads alone {alone} are near, {random_alone:.1f} of those drawn at random, and what half of the"
    yield f"plain table names in {sum(halves_alone)} of {len(halves_alone)} halves."
    yield f"*Cannot say yet* on {unsure} of {len(rows)}."
    less = f"; by less than what counts: {', '.join(little)}" if little else ""
    yield f"*Not worth it* where the plain encoder beats every baseline: {', '.join(wrong) or 'never'}{less}.\n"


def _plain_tables(plain: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """The plain encoder's own errors, by heads and layers."""
    done = {name: rows for name, rows in plain.items() if rows}
    if not done:
        return
    places = sorted({(row["heads"], row["layers"]) for rows in done.values() for row in rows}, key=lambda p: p[::-1])
    yield "The plain encoder's own table: mean outer error over its splits, heads x layers, and its seconds on a"
    yield f"{' or '.join(sorted({row['device'] for rows in done.values() for row in rows}))} device.\n"
    lines = []
    for name, rows in done.items():
        cells = means(plain_table(rows))
        shown = [f"{cells[place]:.3g}" if place in cells else "-" for place in places]
        lines.append((name, *shown, f"{sum(row['seconds'] for row in rows):.0f}"))
    heading = ["set", *(f"{heads} x {layers}" for heads, layers in places), "s"]
    yield _table([(word, lambda line, i=i: line[i]) for i, word in enumerate(heading)], lines)


def _kept(rows: Sequence[Row]) -> Iterable[str]:
    """How budgets were kept, and whether the saved network is the one that the inner part chose."""
    timed = [row for row in rows if row.get("budget") and "wall_seconds" in row]
    if not timed:
        return
    yield "## Budgets, and the network that is saved\n"
    for word, some in (("on idle cores", _calm(timed)), ("beside endless loops", _loaded(timed))):
        if some:
            over = [row["wall_seconds"] / row["budget"] for row in some]
            inside = sum(one <= 1 + WITHIN for one in over)
            ends = f"{min(row['budget'] for row in some):g} to {max(row['budget'] for row in some):g} s"
            yield f"- {word}, budgets of {ends}: ended within a fifth over the budget in {inside} of {len(some)} runs;"
            yield f"  the longest took {max(over):.2f} times its budget, the shortest {min(over):.2f} times."
    saved = [row["saved"] for row in rows if row.get("saved")]
    same = sum(one["same"] for one in saved)
    yield "- the saved file has the least inner error of its block's networks, measured again from the file, in"
    yield f"  {same} of {len(saved)} runs.\n"


def _calm(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row["form"].endswith("busy")]


def _loaded(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["form"].endswith("busy")]


def _attends(name: str) -> bool:
    return "head" in name and name != "zero heads"


def _best(row: Row, attends: bool) -> str:
    levels = {n: v for n, v in row["levels"].items() if _attends(n) == attends and v is not None}
    if not levels:
        return "-"
    name = min(levels, key=lambda n: levels[n])
    return f"{row['levels'][name]:.3g} ({name})"


def _interval(row: Row) -> str:
    if row["one_layer"] is None or row["verdict"] != "worth it":
        return "-"
    heads, low, high = row["one_layer"]
    return f"{heads} [{low}, {high}]"


def _advised(row: Row) -> str:
    return f"{counted(row['heads'], 'head')}, {counted(row['layers'], 'layer')}" if row["heads"] else "-"


Column = tuple[str, Callable[[Row], Any]]
COMMON: tuple[Column, ...] = (
    ("without attention", lambda row: _best(row, False)),
    ("with", lambda row: _best(row, True)),
    ("verdict", lambda row: row["verdict"] + (f" (missing: {row['missing']})" if row["missing"] else "")),
    ("heads, one layer", _interval),
)
LAST: Column = ("CPU s", lambda row: f"{row['cpu_seconds']:.0f}")
PLANTED_COLUMNS: tuple[Column, ...] = (
    ("set", lambda row: row["set"]),
    ("truth", lambda row: counted(row["truth"], "head") if row["truth"] else "zero heads"),
    *COMMON,
    ("right", lambda row: "yes" if _right(row) else "no"),
    ("steps", lambda row: row["steps"]),
    ("splits", lambda row: row["splits"]),
    LAST,
)
RealPair = tuple[Row, "Beside | None"]
REAL_COLUMNS: tuple[tuple[str, Callable[[RealPair], Any]], ...] = (
    ("set", lambda pair: pair[0]["set"]),
    ("time", lambda pair: time_of(pair[0])),
    ("linear", lambda pair: _level(pair[0], "linear, pooled", "linear, flattened")),
    ("boosting", lambda pair: _level(pair[0], "gradient boosting")),
    ("zero heads", lambda pair: _level(pair[0], "zero heads")),
    ("ours", lambda pair: f"{pair[1].ours:.3g}" if pair[1] else _best(pair[0], True)),
    ("plain", lambda pair: f"{pair[1].plain:.3g}" if pair[1] else "-"),
    ("ours / plain", lambda pair: _ratio(pair[1] and pair[1].versus)),
    ("at the same blocks", lambda pair: _ratio(pair[1] and pair[1].alike)),
    ("", lambda pair: pair[1].standing if pair[1] else "-"),
    ("verdict", lambda pair: _word(pair[0])),
    ("advised", lambda pair: _advised(pair[0])),
    ("plain there / its least", lambda pair: _ratio(pair[1] and pair[1].advice)),
    ("", lambda pair: (pair[1] and pair[1].advised) or "-"),
    ("less chance", lambda pair: "-" if not pair[1] else "near" if pair[1].near_less_chance else "no"),
    ("heads alone", lambda pair: "-" if not pair[1] else "near" if pair[1].heads_near else "no"),
    ("CPU s", lambda pair: f"{pair[0]['cpu_seconds']:.0f}"),
)


def _level(row: Row, *names: str) -> str:
    levels = [row["levels"][name] for name in names if row["levels"].get(name) is not None]
    return f"{min(levels):.3g}" if levels else "-"


def _ratio(one: Compared | None) -> str:
    return "-" if one is None else f"{one.ratio:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _table(columns: Sequence[tuple[str, Callable[[Any], Any]]], rows: Sequence[Any]) -> str:
    lines = ["| " + " | ".join(name for name, _ in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(value(row)) for _, value in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _simulated(rows: Sequence[Row]) -> str:
    columns: tuple[Column, ...] = (
        ("gain", lambda row: f"{row['gain']:.0%}"),
        ("noise, decades", lambda row: row["noise"]),
        *((word, lambda row, word=word: row[word]) for word in ("worth it", "not worth it", "cannot say yet")),
    )
    words = "200 studies each of five splits, in which four head counts have so much less error than zero heads."
    return f"## Simulated contests\n\n{words}\n\n{_table(columns, rows)}"


def _coverage(rows: Sequence[Row]) -> str:
    ours, other = "blocks and folds", "corrected t-test"
    columns: tuple[Column, ...] = (
        ("targets", lambda row: row["targets"]),
        ("sequences", lambda row: row["sequences"]),
        ("splits", lambda row: row["splits"]),
        ("holds for new data", lambda row: f"{row[ours]['of new data']:.2f}"),
        ("for these networks", lambda row: f"{row[ours]['of these networks']:.2f}"),
        ("half width", lambda row: f"{row[ours]['half width']:.3f}"),
        (f"{other} holds", lambda row: f"{row[other]['of new data']:.2f}"),
        ("its half width", lambda row: f"{row[other]['half width']:.3f}"),
    )
    both = ("of new data", "of these networks")
    ends = grouped((row["targets"], row[ours][of]) for row in rows for of in both)
    shares = "; ".join(f"of {targets} in {min(some):.2f} to {max(some):.2f}" for targets, some in ends.items())
    words = (
        "How often the 90% interval holds the true ratio of two learners that are trained (a linear one, and one on\n"
        "random features drawn anew in every split), in 200 studies each; half widths are of logarithms, medians. It\n"
        f"holds, {shares}\n"
        "of the studies: where classes can nearly be told apart, few sequences carry all of the error, and of 80 or\n"
        "200 of them the interval is too narrow; narrower ones that were tried hold less often still. There is no\n"
        "attention in it: a network that fails in one split of many is not covered by this table."
    )
    return f"## Coverage\n\n{words}\n\n{_table(columns, rows)}"


def taken_in(rows: Sequence[Row], more: Iterable[Row]) -> list[Row]:
    """All rows, a later one in the place of an earlier one of the same run."""

    def run(row: Row) -> tuple[Any, ...]:
        return (
            row["set"],
            row["form"],
            *((row["heads"], row["layers"], *row["by_split"]) if row["form"] == "plain" else ()),
        )

    return list({run(row): row for row in (*rows, *more)}.values())


def main() -> None:
    """Take in the rows of files that are named, then write the page and its figure."""
    rows = read_rows(KEPT)
    for name in sys.argv[1:]:
        rows = taken_in(rows, read_rows(Path(name)))
    rows = with_comparisons(rows)
    write_rows(KEPT, rows)
    docs = KEPT.parents[1]
    for path, words in ((docs / "measure.md", page(KEPT.parent)), (docs / FIGURE_FILE, picture(rows).standalone())):
        with atomic_write(path) as scratch:
            Path(scratch).write_text(words)


if __name__ == "__main__":
    main()
