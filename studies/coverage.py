"""How often a 95% interval holds the truth: studies with a planted law or knee, 200 per design.

python -m studies.coverage                 measure, and write docs/data/coverage.json and docs/coverage.md
python -m studies.coverage --only knee     measure those designs anew and keep what is known of the others
python -m studies.coverage --page          write the page again from the data
python -m studies.coverage --studies 20 --print     a short look, nothing written
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headcount.fits import knee, power_law
from headcount.fits.knee import change_point
from headcount.numerals import today
from headcount.results import Study
from headcount.results.study import as_row

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE = DOCS / "data/coverage.json", DOCS / "coverage.md"
COMMAND = "python -m studies.coverage"
SIZES = (8, 16, 32, 64, 128, 256)
NOISE = 0.1  # decades, the standard deviation of a seed unless a design says otherwise
WANTED = 0.93

Levels = np.ndarray


@dataclass(frozen=True)
class Trial:
    """One study's answer: whether the interval held the truth, whether the truth was called refuted, its width."""

    covered: bool
    refuted: bool
    decided: bool
    width: float
    given: bool = False  # whether the claim carries a condition that the study could not see to be met


@dataclass(frozen=True)
class Design:
    """A kind of study with a planted truth."""

    name: str
    words: str
    trial: Callable[[np.random.Generator], Trial]


def rows(column: str, points: tuple[int, ...], logs: np.ndarray, length: int = 8) -> list[dict[str, Any]]:
    """Rows of `logs[point, seed]`, log10 of the NMSE."""
    fixed = {"heads": 4, "width": 32, "length": length}
    return [
        fixed | {column: point, "seed": seed, "nmse": float(10.0**value)}
        for point, line in zip(points, logs, strict=True)
        for seed, value in enumerate(line)
    ]


def law(
    *,
    seeds: int = 5,
    noise: tuple[float, float] = (NOISE, NOISE),
    shared: float = 0.0,
    share: float = 0.0,
    fail: float = 0.0,
    sizes: tuple[int, ...] = SIZES,
) -> Callable[[np.random.Generator], Trial]:
    """A power law in the width: `noise` of a seed at the smallest and largest size, `shared` that of a whole cell."""

    def trial(generator: np.random.Generator) -> Trial:
        exponent = generator.uniform(0.5, 2.0)
        size = np.array(sizes, dtype=float)
        floor = share / (1 - share) * size[-1] ** -exponent
        spread = np.geomspace(*noise, len(size))
        logs = np.log10(floor + size**-exponent) + shared * generator.standard_normal(len(size))
        logs = logs[:, None] + spread[:, None] * generator.standard_normal((len(size), seeds))
        logs += np.where(generator.random(logs.shape) < fail, generator.uniform(0.3, 1.5, logs.shape), 0.0)
        fitted = power_law(
            Study(tuple(as_row(row, "a row") for row in rows("width", sizes, logs - 1))), "width", predicted=exponent
        )
        low, high = fitted.exponent.low, fitted.exponent.high
        verdict = fitted.verdict
        assert verdict is not None
        outcome = verdict.outcome
        return Trial(low <= exponent <= high, outcome == "refuted", outcome != "unresolved", (high - low) / exponent)

    return trial


def turn(
    curve: Callable[[np.random.Generator], Levels],
    *,
    seeds: int = 5,
    noise: tuple[float, float] = (2 * NOISE, 2 * NOISE),
    lengths: int = 1,
    varied: float = 0.0,
    shared: float = 0.0,
    success: float = 1.0,
    failing: str = "one head fewer",
) -> Callable[[np.random.Generator], Trial]:
    """A curve over head counts whose knee is that of the curve without noise.

    `shared` is the deviation of what all seeds of a cell have in common, `success` the share of seeds that reach the
    curve; `failing` says where the others stay.
    """

    def trial(generator: np.random.Generator) -> Trial:
        levels = curve(generator)
        heads = np.arange(1, len(levels) + 1)
        truth = int(heads[change_point(levels, heads.astype(float))])
        spread = np.geomspace(*noise, len(levels))[:, None]
        study = []
        for length in range(1, lengths + 1):
            moved = levels * (1 + varied * generator.standard_normal())
            moved = moved + shared * generator.standard_normal(len(levels))
            reached = _reached(moved, seeds, success, failing, generator)
            logs = reached + spread * generator.standard_normal((len(levels), seeds))
            study += rows("heads", tuple(heads.tolist()), logs, 8 * length)
        answer = knee(Study(tuple(study)), predicted=truth)
        high = math.inf if answer.high is None else answer.high
        verdict = answer.verdict
        assert verdict is not None
        inside = sum(answer.low <= h <= high for h in answer.tested)
        covered, outcome, conditional = answer.low <= truth <= high, verdict.outcome, bool(answer.claim().assumed)
        return Trial(covered, outcome == "refuted", outcome != "unresolved", float(inside), conditional)

    return trial


def _reached(levels: Levels, seeds: int, success: float, failing: str, generator: np.random.Generator) -> Levels:
    """What each seed reaches: the level of its count, or that of a smaller one where it fails."""
    if success >= 1:
        return np.repeat(levels[:, None], seeds, 1)
    before = np.concatenate([[0.3 * levels[0]], levels])
    own = np.arange(1, len(before))[:, None]
    stays = {
        "one head fewer": own - 1,
        "no head": np.zeros_like(own),
        "some fewer": generator.integers(0, own, (len(levels), seeds)),
    }[failing]
    return before[np.where(generator.random((len(levels), seeds)) < success, own, stays)]


def gradual(most: float, rate: float, heads: int = 8) -> Callable[[np.random.Generator], Levels]:
    """log10 NMSE = -most (1 - e^(-rate h)): every head brings less than the one before, and nothing turns sharply."""
    return lambda generator: -most * generator.uniform(0.8, 1.2) * (1 - np.exp(-rate * np.arange(1, heads + 1)))


def sharp(at: int, heads: int = 6) -> Callable[[np.random.Generator], Levels]:
    """A decade for each head up to the knee and nothing after it."""
    return lambda generator: -np.minimum(np.arange(1, heads + 1), at) * generator.uniform(0.7, 1.5)


DESIGNS = (
    Design("law: plain", "five seeds of one spread", law()),
    Design("law: floor", "the floor is half of the error at the largest width", law(share=0.5)),
    Design("law: failing seeds", "a tenth of the seeds stick 0.3 to 1.5 decades above", law(fail=0.1)),
    Design(
        "law: heteroscedastic", "seeds spread 0.02 decades at the smallest, 0.4 at the largest", law(noise=(0.02, 0.4))
    ),
    Design(
        "law: heteroscedastic, falling",
        "0.4 decades at the smallest width, 0.02 at the largest",
        law(noise=(0.4, 0.02)),
    ),
    Design("law: three seeds, heteroscedastic", "0.02 to 0.4 decades, three seeds", law(seeds=3, noise=(0.02, 0.4))),
    Design("law: one seed", "one seed for each of six widths", law(seeds=1)),
    Design("law: one seed, floor", "one seed, and a floor as above", law(seeds=1, share=0.5)),
    Design("law: one seed, heteroscedastic", "one seed, 0.02 to 0.4 decades", law(seeds=1, noise=(0.02, 0.4))),
    Design(
        "law: shared effects",
        "0.1 decades common to all seeds of a width, 0.02 of a seed",
        law(noise=(0.02, 0.02), shared=0.1),
    ),
    Design("law: shared effects, equal", "0.1 decades common to a width and 0.1 of a seed", law(shared=0.1)),
    Design(
        "law: shared effects, four widths",
        "as the first, four widths only",
        law(noise=(0.02, 0.02), shared=0.1, sizes=SIZES[:4]),
    ),
    Design("knee: sharp", "a decade per head up to the third of six", turn(sharp(3))),
    Design("knee: gradual, slow", "4 decades at rate 0.3, eight counts", turn(gradual(4, 0.3))),
    Design("knee: gradual, middling", "4 decades at rate 0.5", turn(gradual(4, 0.5))),
    Design("knee: gradual, quick", "3 decades at rate 0.8", turn(gradual(3, 0.8))),
    Design("knee: gradual, three seeds", "4 decades at rate 0.5, three seeds", turn(gradual(4, 0.5), seeds=3)),
    Design("knee: gradual, two seeds", "4 decades at rate 0.5, two seeds", turn(gradual(4, 0.5), seeds=2)),
    Design(
        "knee: gradual, two noisy seeds",
        "the same, 0.3 decades of a seed",
        turn(gradual(4, 0.5), seeds=2, noise=(0.3, 0.3)),
    ),
    Design(
        "knee: gradual, twelve counts",
        "6 decades at rate 0.3, twelve counts, two seeds of 0.3 decades",
        turn(gradual(6, 0.3, 12), seeds=2, noise=(0.3, 0.3)),
    ),
    Design(
        "knee: gradual, two quiet seeds",
        "4 decades at rate 0.4, 0.1 decades of a seed",
        turn(gradual(4, 0.4), seeds=2, noise=(0.1, 0.1)),
    ),
    Design("knee: gradual, ten seeds", "4 decades at rate 0.5, ten seeds", turn(gradual(4, 0.5), seeds=10)),
    Design(
        "knee: gradual, heteroscedastic", "seeds spread 0.05 to 0.4 decades", turn(gradual(4, 0.5), noise=(0.05, 0.4))
    ),
    Design(
        "knee: gradual, heteroscedastic, falling",
        "0.4 to 0.05 decades, three seeds",
        turn(gradual(4, 0.5), seeds=3, noise=(0.4, 0.05)),
    ),
    Design(
        "knee: gradual, five lengths",
        "three seeds at each of five lengths whose falls differ by a tenth",
        turn(gradual(4, 0.5), seeds=3, lengths=5, varied=0.1),
    ),
    *(
        Design(
            f"knee: seeds fail, {success:g} succeed, {seeds} seeds, {failing}",
            f"four of six heads; the others stay where {failing} would be",
            turn(sharp(4), seeds=seeds, noise=(NOISE, NOISE), success=success, failing=failing),
        )
        for success, seeds, failing in (
            (0.85, 5, "one head fewer"),
            (0.7, 5, "one head fewer"),
            (0.7, 5, "no head"),
            (0.7, 5, "some fewer"),
            (0.5, 5, "one head fewer"),
            (0.5, 3, "one head fewer"),
            (0.5, 5, "no head"),
            (0.5, 3, "some fewer"),
            (0.3, 5, "one head fewer"),
            (0.3, 8, "one head fewer"),
            (0.3, 5, "no head"),
            (0.3, 8, "some fewer"),
        )
    ),
    Design(
        "knee: seeds fail, five lengths",
        "a third of three seeds succeeds at each of five lengths",
        turn(sharp(4), seeds=3, lengths=5, noise=(NOISE, NOISE), success=0.33, failing="some fewer"),
    ),
    *(
        Design(
            f"knee: shared effects, {shared:g}, {heads} counts",
            f"{shared:g} decades common to all seeds of a cell, 0.1 of a seed, one length",
            turn(sharp(4, heads), noise=(NOISE, NOISE), shared=shared),
        )
        for shared, heads in ((0.1, 6), (0.2, 6), (0.4, 6), (0.4, 8))
    ),
    Design(
        "knee: shared effects, five lengths",
        "0.4 decades common to a cell's three seeds, five lengths",
        turn(sharp(4), seeds=3, lengths=5, noise=(NOISE, NOISE), shared=0.4),
    ),
)


def measure(design: Design, studies: int, seed: int) -> dict[str, Any]:
    """The coverage of one design."""
    start = time.perf_counter()
    generators = [np.random.default_rng([seed, i]) for i in range(studies)]
    trials = [design.trial(generator) for generator in generators]
    return {
        "design": design.name,
        "words": design.words,
        "studies": studies,
        "coverage": float(np.mean([t.covered for t in trials])),
        "refuted": float(np.mean([t.refuted for t in trials])),
        "decided": float(np.mean([t.decided for t in trials])),
        "width": float(np.median([t.width for t in trials])),
        "mean_width": float(np.mean([t.width for t in trials])),
        "seconds": round((time.perf_counter() - start) / studies, 4),
        "date": today(),
    }


CONDITIONED = 41
SHORT = "knee: shared effects, 0.4, 6 counts"  # the design that the rules do not bring to 0.93
BESIDE = (SHORT, "knee: shared effects, 0.4, 8 counts", "knee: shared effects, 0.2, 6 counts", "knee: sharp")
BESIDE += ("knee: gradual, heteroscedastic, falling", "knee: seeds fail, 0.3 succeed, 8 seeds, some fewer")


def by_condition(design: Design, studies: int, seed: int) -> dict[str, Any]:
    """How often claims hold the truth that carry a condition, and that carry none."""
    trials = [design.trial(np.random.default_rng([seed, i])) for i in range(studies)]
    coverages = {}
    for name, conditional in (("carried", True), ("none", False)):
        own = [t.covered for t in trials if t.given is conditional]
        coverages[name] = {"claims": len(own), "coverage": float(np.mean(own)) if own else None}
    return {"design": design.name, "studies": studies, "seed": seed, **coverages}


def merged(whole: dict[str, Any], measured: list[dict[str, Any]], studies: int, seed: int) -> dict[str, Any]:
    """The data with these designs measured anew, in the order of `DESIGNS`; others are kept if measured alike."""
    alike = whole.get("studies") == studies and whole.get("seed") == seed
    known = {row["design"]: {"date": whole.get("date", "")} | row for row in whole.get("designs", []) if alike}
    rows = known | {row["design"]: row for row in measured}
    listed = [rows[design.name] for design in DESIGNS if design.name in rows]
    dates = sorted({row["date"] for row in listed})
    spanned = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return whole | {"date": spanned, "command": COMMAND, "seed": seed, "studies": studies, "designs": listed}


def page(whole: dict[str, Any]) -> str:
    """docs/coverage.md, from the data."""
    before = whole.get("before", {}).get("coverage", {})
    lines = [_line(row, before.get(row["design"]), whole) for row in whole["designs"]]
    head = (
        "design",
        "what is planted",
        "covers",
        "fresh",
        "before",
        "truth refuted",
        "verdict given",
        "width",
        "times",
    )
    table = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * 7, *lines]
    low = [row["design"] for row in whole["designs"] if row["coverage"] < WANTED]
    short = f"All but {', '.join(low)} cover" if low else "All cover"
    return HEAD.format(short=short, wanted=WANTED, **whole) + "\n".join(table) + "\n" + TAIL + _conditions(whole)


def _conditions(stored: dict[str, Any]) -> str:
    """How often claims cover that carry the condition and that do not: it is the study that tells them apart."""
    lines = []
    for row in stored.get("conditions", ()):
        coverages = [
            f"{row[name]['coverage']:.3f} of {row[name]['claims']} that {words}"
            for name, words in (("carried", "carry the condition"), ("none", "carry none"))
            if row[name]["claims"]
        ]
        lines.append(f"| {row['design']} | {row['studies']} | {' and '.join(coverages)} |")
    if not lines:
        return ""
    head = f"""
Whether the condition stands in a claim is decided by the study, which looks for an effect that seeds share and widens
the interval where it sees one. Fresh studies (`python -m studies.coverage --conditions`, seed {CONDITIONED}):

| design | studies | claims that hold the truth |
|---|---:|---|
"""
    return head + "\n".join(lines) + "\n"


def widening(whole: dict[str, Any], name: str) -> float | None:
    """How many times as wide as by the older rules an interval is in the mean, on the same studies."""
    fresh, older = (whole.get(key, {}).get("designs", {}).get(name) for key in ("fresh", "older"))
    return None if fresh is None or older is None else fresh["mean_width"] / older["mean_width"]


def _line(row: dict[str, Any], before: float | None, stored: dict[str, Any]) -> str:
    fresh, times = stored.get("fresh", {}).get("designs", {}).get(row["design"]), widening(stored, row["design"])
    shown = (row["coverage"], fresh and fresh["coverage"], before, row["refuted"])
    numbers = " | ".join("" if value is None else f"{value:.3f}" for value in shown)
    wide = f"{row['decided']:.2f} | {row['width']:.2g} | {'' if times is None else f'{times:.2f}'}"
    return f"| {row['design']} | {row['words']} | {numbers} | {wide} |"


HEAD = """# How often a 95% interval holds the truth

Written by `python -m studies.coverage` from `docs/data/coverage.json`; measured {date} by `{command}`
({studies} studies per design, seed {seed}; study i of a design draws from `default_rng([{seed}, i])`).
{short} at least {wanted} of the time. The standard error of a share near 0.95 is 0.015.

*covers*: share of studies whose interval holds the planted exponent, or the knee of the curve without noise. *before*:
the same studies under the percentile bootstrap over seeds that stood here earlier; for seeds that fail and effects
shared by a cell, under the rule that looked at neither. *truth refuted*: share in which the
verdict on the truth is "refuted". *verdict given*: share in which it is not "unresolved". *width*: the median width,
for a law as a share of the exponent, for a knee as the number of tested counts inside. *fresh*: the same designs drawn
with seed {fresh[seed]}, on which no rule was chosen (200 studies, of laws 80). *times*: how many times as wide as by
the rules of commit {older[commit]} the interval is in the mean, on the fresh studies of a knee.

"""
TAIL = """
What was left: for laws, resampling cells and seeds (six cells leave draws with fewer sizes than the law has numbers,
so the profile takes its place; not measured); for knees, inverting tests of each count with Student's quantiles (0.99
to 1.00 over 100 studies per design, at twice the width: most intervals are everything tested). Where seeds spread
further at few heads than at many, the knee's interval lies too low; a study whose seeds are seen to spread twice as
far there refutes nothing, and its verdict says that they are too few to tell (three seeds do not always show it); from
four times on the interval of fewer than four seeds reaches to the next larger count. They single out no count. Seeds
that succeed or fail are told apart by gaps that normal seeds do not have; every second curve is then that of the seeds
that succeed, and a cell may hold none. What all seeds of a cell share is seen at one length only where the curve rises
by it: the claim of a knee at one or two lengths says "given no effect shared by a cell's seeds". A law through three
sizes has nothing to be held against, and its verdict says the same.
"""


def main() -> None:
    """Measure, print, and write data and page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--only", default="", help="designs whose name holds this")
    parser.add_argument("--print", action="store_true", dest="only_print", help="write nothing")
    parser.add_argument("--page", action="store_true", help="write the page again, measure nothing")
    parser.add_argument("--conditions", action="store_true", help="claims with the condition and without")
    options = parser.parse_args()
    if options.conditions:
        conditions = [
            by_condition(d, 400 if d.name == SHORT else 150, CONDITIONED) for d in DESIGNS if d.name in BESIDE
        ]
        DATA.write_text(json.dumps(json.loads(DATA.read_text()) | {"conditions": conditions}, indent=1) + "\n")
    elif not options.page:
        designs = []
        for design in DESIGNS:
            if options.only in design.name:
                designs.append(measure(design, options.studies, options.seed))
                print(
                    f"{design.name:44} {designs[-1]['coverage']:.3f}  {designs[-1]['seconds']:.3f} s per study",
                    flush=True,
                )
        if options.only_print:
            return
        stored = json.loads(DATA.read_text()) if DATA.exists() else {}
        DATA.write_text(json.dumps(merged(stored, designs, options.studies, options.seed), indent=1) + "\n")
    PAGE.write_text(page(json.loads(DATA.read_text())))


if __name__ == "__main__":
    main()
