"""Contests without training: errors drawn around known levels, to see how often the verdict is right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headcount.files import atomic_write
from headcount.measuring.answer import answer
from headcount.measuring.paired_ratios import SplitErrors

NOISES = (0.005, 0.01, 0.02, 0.03)  # decades of an error from split to split, on the inner and on the outer part each
STUDIES = 200
KEPT = Path(__file__).parents[2] / "docs/data/measure_simulated.json"


def simulated(gain: float, noise: float, rng: np.random.Generator, splits: int = 5) -> str:
    """The verdict where four head counts have so much less error than zero heads, and differ by noise alone."""

    def split_errors(name: str, heads: int, level: float) -> SplitErrors:
        outer, inner = (dict(enumerate(level * 10 ** rng.normal(0, noise, splits))) for _ in range(2))
        return SplitErrors(name, heads, int(heads > 0), heads > 0, heads > 0, outer, inner, inner)

    counts = [split_errors(f"{h} heads", h, 0.2 * (1 - gain)) for h in (1, 2, 4, 8)]
    return answer([split_errors("linear", 0, 0.25), split_errors("zero heads", 0, 0.2), *counts]).verdict


def verdicts(gain: float, noise: float, seed: int = 0) -> dict[str, int]:
    """How often each verdict is given in 200 studies."""
    rng = np.random.default_rng(seed)
    words = [simulated(gain, noise, rng) for _ in range(STUDIES)]
    return {word: words.count(word) for word in ("worth it", "not worth it", "cannot say yet")}


def main() -> None:
    """Both gains at four noise levels, kept."""
    rows = [{"gain": g, "noise": n, **verdicts(g, n)} for g in (0.0, 0.2) for n in NOISES]
    with atomic_write(KEPT) as scratch:
        Path(scratch).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
