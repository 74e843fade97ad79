"""What training found beside what is there: rows from random networks against rows from a built one. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from headcount.fits.cells import level, log_nmse
from headcount.results import Basis, Study

Found = Literal["found", "not found", "barred", "doubtful", "unknown"]
UNKNOWN = "no certified network is known"
NEAR = 10.0  # a level within this factor of the built network's is as good


@dataclass(frozen=True)
class StartVerdict:
    """One architecture at one length: the level from random networks, and from the built one where there is one.

    "not found": a network of this shape is at least ten times better than training from random ones came to.
    "barred": a lower bound speaks of this shape at this length, under the conditions that `said` names; networks that
    leave them may do it. "doubtful": the calculus counts too few heads, which is no proof. "unknown": none is known,
    and theory does not say.
    """

    layers: str
    length: int
    random: float
    built: float | None
    cheap: bool | None
    proved: bool = False
    said: str = ""  # what theory says of the shape at this length, with its conditions

    @property
    def outcome(self) -> Found:
        """Whether training found what is there."""
        if self.built is not None:
            return "found" if self.random <= NEAR * self.built else "not found"
        if self.cheap is not False:
            return "unknown"
        return "barred" if self.proved else "doubtful"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        where = f"{self.layers} at length {self.length}: training from random networks leaves {self.random:.2g}"
        if self.built is not None:
            return f"{self.outcome}, {where}, from a built one {self.built:.2g}"
        return f"{self.outcome}, {where}, and {(self.outcome != 'unknown' and self.said) or UNKNOWN}"

    def as_row(self) -> dict[str, object]:
        """The verdict as one flat machine-readable row."""
        return {**asdict(self), "outcome": self.outcome}


def starts(study: Study) -> tuple[StartVerdict, ...]:
    """For each shape and length of a sweep with `start="built"`: found, not found, barred, doubtful or unknown.

    The level is that of `cells.level`, the mean logarithm of the better half of the seeds.

    >>> rows = tuple({"layers": "2x4", "length": 8, "seed": s, "nmse": v, **kind} for s in (0, 1)
    ...              for v, kind in ((0.1, {}), (1e-4, {"start": "built"})))
    >>> print(starts(Study(rows))[0].sentence)
    not found, 2x4 at length 8: training from random networks leaves 0.1, from a built one 0.0001
    """
    shapes = study.spec.get("shapes", {})
    cells: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in study:
        cell = cells.setdefault((row["layers"], row["length"]), {})
        cell.setdefault(row.get("start", "random"), []).append(log_nmse(row))
    verdicts = []
    for (layers, length), kinds in cells.items():
        if "random" in kinds:
            prediction = shapes.get(layers, {}).get(str(length), {})
            built = _level(kinds["built"]) if "built" in kinds else None
            proved, reason = prediction.get("warrant") == Basis("proved").kind, prediction.get("said", "")
            verdicts.append(
                StartVerdict(layers, length, _level(kinds["random"]), built, prediction.get("cheap"), proved, reason)
            )
    return tuple(verdicts)


def _level(logs: list[float]) -> float:
    return float(10 ** level(np.array(logs)))
