"""What a bench says: its rows in order, and whether ours comes first at equal budget or where not. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NotRequired, TypedDict

from headcount.fits.student import half_width
from headcount.numerals import counted

OURS = "headcount"


class BenchRow(TypedDict):
    """One method at one budget and length: perplexity over the original's, its interval, every window's loss.

    `seconds` of the clock and `processor` seconds: on a busy machine the second are what the work took.
    """

    method: str
    source: str
    part: str
    keep: float
    length: int
    ratio: float
    low: float
    high: float
    original: float
    windows: int
    tokens: int
    cache: float
    seconds: float
    processor: NotRequired[float]
    losses: list[float]


BenchSetup = TypedDict(
    "BenchSetup",
    {
        "seconds of calibration": float,
        "processor seconds of calibration": NotRequired[float],
        "perplexity": float,
        "tokens to calibrate on": int,
        "tokens to judge on": int,
    },
)


class MethodBench(TypedDict):
    """All rows of a bench, the model they are of, and how it was calibrated at each length (`at 512`)."""

    rows: list[BenchRow]
    setup: dict[str, str | BenchSetup]


def bench_lines(rows: Sequence[BenchRow]) -> list[dict[str, str]]:
    """Rows for people: by length, part and budget, the best first."""
    order = sorted(rows, key=lambda r: (r["length"], r["part"], -r["keep"], r["ratio"]))
    return [
        {
            "part": r["part"],
            "keep": f"{r['keep']:g}",
            "length": str(r["length"]),
            "method": r["method"],
            "perplexity x": f"{r['ratio']:.3f}",
            "interval": f"[{r['low']:.3f}, {r['high']:.3f}]" if not math.isnan(r["low"]) else "-",
            "cache": f"{r['cache']:.0%}",
        }
        for r in order
    ]


def beaten(rows: Sequence[BenchRow]) -> tuple[list[BenchRow], list[BenchRow]]:
    """The rows of others at a budget that we have too: those behind us by their paired interval, and all others."""
    behind: list[BenchRow] = []
    rest: list[BenchRow] = []
    for row in rows:
        ours = [r for r in rows if r["method"] == OURS and _cell(r) == _cell(row)]
        if ours and row["method"] != OURS:
            (behind if _lead(row["losses"], ours[0]["losses"]) > 0 else rest).append(row)
    return behind, rest


def bench_verdict(rows: Sequence[BenchRow]) -> str:
    """Ours first at equal budget, or where not.

    >>> row = {"part": "both", "keep": 0.75, "length": 512, "method": "headcount", "losses": [1.0, 1.1, 1.2]}
    >>> bench_verdict([row, row | {"method": "other", "losses": [2.0, 2.2, 2.2]}])
    'ours comes first at equal budget in the 1 comparison made'
    """
    behind, rest = beaten(rows)
    if not rest:
        return f"ours comes first at equal budget in the {counted(len(behind), 'comparison')} made"
    where = "; ".join(f"{r['method']} ({r['part']}, {r['keep']:g}, {r['length']} tokens)" for r in rest)
    compared = len(behind) + len(rest)
    return f"ours comes first in {len(behind)} of {compared} comparisons at equal budget, and not against {where}"


def _cell(row: BenchRow) -> tuple[str, float, int]:
    return row["part"], row["keep"], row["length"]


def _lead(losses: Sequence[float], ours: Sequence[float]) -> float:
    """By how much another loses more than we do, at the lower end of the paired 95% interval over windows."""
    change = [a - b for a, b in zip(losses, ours, strict=True)]
    return fmean(change) - (half_width(stdev(change), len(change)) if len(change) > 1 else 0.0)
