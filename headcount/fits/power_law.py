"""Power laws with a floor: how an error falls as a size grows, with intervals for all three numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.fits.cells import Cells
from headcount.fits.profile import NUMBERS, standing
from headcount.fits.projection import EXPONENTS
from headcount.fits.seed_spread import normal_seeds, smooth_spread
from headcount.fits.settings import refuse_settings
from headcount.fits.verdict import Estimate, Verdict, judge, judged
from headcount.refusals import nearest
from headcount.results import Claim, Comparison, Evidence, Study

EDGE = 0.9  # of the largest exponent searched: beyond it an interval is as wide as the search, not as the data
# Sizes a law may run in, each with the size that follows it and so does not tell two laws apart.
SIZES = {
    "length": "",
    "heads": "head_dim",
    "head_dim": "",
    "embed_dim": "head_dim",
    "width": "",
    "depth": "",
    "parameters": "width",
    "feedforward_parameters": "width",
}
EDGE = 0.9  # of the largest exponent tried: a bound that ends there was not found
LEARNED = float(np.log10(0.5))  # half of the variance explained
PARTS = ("heads", "head_dim")  # sizes that the name of the layers holds
APART = ("task", "positions", "layers", "length", "heads", "head_dim", "width")


@dataclass(frozen=True)
class PowerLaw:
    """NMSE = floor + scale * size^(-exponent), each number with its interval; where it grows the exponent is negative.

    `gap` is the root mean square distance of the levels from the law, in decades; `shared` the standard deviation of
    what the seeds of a cell have in common and the law does not explain, None where single seeds cannot tell;
    `unlearned` the number of sizes at which the network explains less than half of the variance though a smaller one
    explains more: a law through those is one of failing to train.
    """

    column: str
    exponent: Estimate
    scale: Estimate
    floor: Estimate
    sizes: tuple[float, ...]
    gap: float
    confidence: float
    seeds: tuple[int, int]
    shared: float | None = None
    diverged: int = 0
    predicted: float | None = None
    unlearned: int = 0

    def __call__(self, size: float) -> float:
        """The law at a size."""
        return self.floor.value + self.scale.value * size**-self.exponent.value

    def __str__(self) -> str:
        floor = f"{self.floor.value:.2g} + " if self.floor.value else ""
        return f"NMSE = {floor}{self.scale.value:.3g} {self.column}^{-self.exponent.value:.3g}"

    @property
    def at_edge(self) -> bool:
        """Whether the exponent or an end of its interval lies at the end of the range that is searched."""
        ends = (self.exponent.value, self.exponent.low, self.exponent.high)
        return max(map(abs, ends)) > EDGE * float(max(EXPONENTS))

    @property
    def verdict(self) -> Verdict | None:
        """What the interval of the exponent says about the predicted one; None without a prediction."""
        claim = self.judged()
        return None if claim is None or self.predicted is None else Verdict.of(claim, self.predicted)

    def judged(self, compared: Comparison | None = None, *, sizes: str = "") -> Claim | None:
        """What the interval of the exponent says of the predicted one, by the one rule for verdict words."""
        if self.predicted is None:
            return None
        evidence = Evidence(
            planned=len(self.sizes),
            entered=len(self.sizes),
            diverged=self.diverged,
            interval=(self.exponent.low, self.exponent.high),
            level=self.confidence,
            at_edge=self.at_edge,
            settled=not self.unlearned,
            sizes=sizes,
        )
        read = judge(self.predicted, self.exponent.low, self.exponent.high)
        if len(self.sizes) <= NUMBERS:
            few = f"too few to tell: a law of {NUMBERS} numbers passes through any {NUMBERS} sizes"
            read = Verdict("unresolved", self.predicted, few)
        return judged("the exponent", read, evidence, compared or Comparison(f"{self.predicted:g}", "asked"))

    def as_row(self) -> dict[str, object]:
        """The law as one flat machine-readable row."""
        verdict = self.verdict
        numbers = {
            f"{name}{end}": getattr(getattr(self, name), end.lstrip("_") or "value")
            for name in ("exponent", "scale", "floor")
            for end in ("", "_low", "_high")
        }
        return {
            "column": self.column,
            **numbers,
            "gap": self.gap,
            "shared": self.shared,
            "sizes": list(self.sizes),
            "confidence": self.confidence,
            "seeds": list(self.seeds),
            "diverged": self.diverged,
            "predicted": self.predicted,
            "verdict": verdict.outcome if verdict else None,
        }


def power_law(
    study: Study,
    column: str,
    *,
    predicted: float | None = None,
    confidence: float = 0.95,
) -> PowerLaw:
    """The law NMSE = floor + scale * size^(-exponent) through the levels of one design, sizes from `column`.

    Distances are of logarithms, so that small errors count as much as large ones. The level of a cell is the median
    of its seeds, and the seeds' noise a smooth function of the size. Where the levels lie further from the nearest law
    than that noise explains, cells have effects that their seeds share, and the interval is as wide as these ask for:
    see `headcount.fits.profile`. With one seed per cell the distances from the law are all there is to go by.
    Departs: earlier versions drew seeds again, which called the true exponent refuted in 76% of studies with shared
    effects; docs/coverage.md has the coverage of both.

    >>> rows = tuple({"width": w, "length": 8, "seed": s, "nmse": 0.001 + 2.0 * w**-1.5}
    ...              for w in (4, 8, 16, 32, 64, 128) for s in (0, 1))
    >>> law = power_law(Study(rows), "width", predicted=1.5)
    >>> print(law)
    NMSE = 0.001 + 2 width^-1.5
    """
    refuse_settings(confidence)
    cells = _checked(study, column)
    sizes = np.array(cells.points, dtype=float)
    levels = cells.medians()[0]
    stands = standing(levels, sizes, _noise(cells), confidence)
    law = [Estimate(*map(float, three)) for three in zip(stands.fitted, stands.low, stands.high, strict=True)]
    counts = (int(cells.counts.min()), int(cells.counts.max()))
    gaps = levels - np.log10(law[2].value + law[1].value * sizes ** -law[0].value)
    return PowerLaw(
        column,
        *law,
        sizes=tuple(sizes.tolist()),
        gap=float(np.sqrt((gaps**2).mean())),
        confidence=confidence,
        seeds=counts,
        shared=stands.shared**0.5 if counts[0] > 1 else None,
        diverged=cells.diverged,
        predicted=predicted,
        unlearned=_lost(levels[np.argsort(sizes)]),
    )


def power_laws(study: Study, column: str, **settings: Any) -> dict[str, PowerLaw]:
    """One law in `column` for every design of the study, by what tells the designs apart."""
    _refuse_column(study, column)
    apart = [c for c in APART if c not in (column, SIZES[column]) and c in study.rows[0]]
    alike = column in PARTS and len({_pattern(row) for row in study}) == 1  # layers differ in the column alone
    apart = [c for c in apart if len({str(row[c]) for row in study}) > 1]
    apart = [c for c in apart if not (c == "layers" and ("heads" in apart or alike))]
    parts: dict[str, Study] = {}
    for values in dict.fromkeys(tuple(row[c] for c in apart) for row in study):
        name = ", ".join(f"{c} {v}" for c, v in zip(apart, values, strict=True))
        parts[name] = study.where(**dict(zip(apart, values, strict=True)))
    return {name: power_law(part, column, **settings) for name, part in parts.items()}


def _pattern(row: Mapping[str, Any]) -> str:
    """The layers of a row with letters for its own heads and head_dim.

    >>> _pattern({"layers": "2x8+2x8", "heads": 2, "head_dim": 8}), _pattern({"layers": "1x8", "heads": 1})
    ('hxn+hxn', 'hx8')
    """
    sizes = (part.split("x") for part in str(row.get("layers", "")).split("+") if "x" in part)
    own = {str(row.get("heads")): "h"}, {str(row.get("head_dim")): "n"}
    return "+".join("x".join(names.get(size, size) for names, size in zip(own, part, strict=True)) for part in sizes)


def _lost(levels: Float[np.ndarray, " size"]) -> int:
    """How many sizes explain less than half of the variance though a smaller one explains more.

    >>> _lost(np.array([-0.1, -1.0, -2.0])), _lost(np.array([-1.0, -2.0, 0.0]))
    (0, 1)
    """
    learned = np.logical_or.accumulate(levels <= LEARNED)
    return int((learned & (levels > LEARNED)).sum())


def _noise(cells: Cells) -> Float[np.ndarray, " size"]:
    """The standard deviation of each median by its seeds; 0 where some cell has one seed."""
    counts = cells.counts[0]
    if counts.min() < 2:
        return np.zeros(len(counts))
    return smooth_spread(cells) * [normal_seeds(int(n)).median for n in counts]


def _checked(study: Study, column: str) -> Cells:
    _refuse_column(study, column)
    cells = Cells.of(study, column, "heads" if column == "length" else "length")
    if len(cells.groups) > 1:
        raise ValueError(f"a law in {column} needs one design, got several: {_listed(cells.groups)}; see power_laws")
    few = 3 if cells.counts.min() >= 2 else 5
    if len(cells.points) < few:
        seeds = "" if few == 3 else " where a cell has one seed"
        raise ValueError(
            f"a law in {column} needs {few} different values of it{seeds}, got only {_listed(cells.points)}"
        )
    return cells


def _refuse_column(study: Study, column: str) -> None:
    if column not in SIZES:
        raise ValueError(f"no law in {column!r}: it is not a size; {nearest(column, SIZES)}")
    if not study.rows:
        raise ValueError("the study has no rows yet, so there is nothing to fit")
    if column not in study.rows[0]:
        raise ValueError(f"no column {column!r} in the study; columns: {', '.join(study.rows[0])}")


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
