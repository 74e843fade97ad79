"""The claimed exponents beside those of trained networks, with verdicts; and depth against width by covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.fits.power_law import PowerLaw, power_law
from headcount.papers.icl.bounds import icl_exponent
from headcount.papers.icl.experiments import exponent_study, shape_study
from headcount.results import Comparison

__all__ = ["AXES", "claims_table", "measured_laws", "shape_contrast"]

AXES = {"depth": "depth", "width": "width", "length": "context"}


def measured_laws(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int, str], PowerLaw]:
    """The law with a floor of every attention, level and axis that has enough cells, against 1 / (2 (h + 1))."""
    found = {}
    kinds = dict.fromkeys((r["attention"], r["levels"]) for r in rows if r["study"] == "exponents")
    for attention, levels in kinds:
        for axis in AXES:
            study = exponent_study(rows, attention, levels, axis)
            if study.rows and len(study.values(axis)) >= 3:
                claimed = icl_exponent(levels).value
                law = power_law(study, axis, predicted=claimed)
                found[attention, levels, axis] = law
    return found


def claims_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each attention, level and axis: the claimed exponent, the measured one with its interval, verdict."""
    made = []
    for (attention, levels, axis), law in measured_laws(rows).items():
        claim = law.judged(Comparison(f"{law.predicted:g}", "summary"))
        assert claim is not None
        sizes = {"attention": attention, "levels": levels, "axis": AXES[axis], "claimed": law.predicted}
        ends = {"exponent": law.exponent.value, "low": law.exponent.low, "high": law.exponent.high}
        made.append({**sizes, **ends, "floor": law.floor.value, "gap": law.gap, "verdict": claim.word, "claim": claim})
    return made


def shape_contrast(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By covariance and context: the best shape at about equal parameters, and what depth gains over one layer.

    `gain` is the median error of the flattest shape over that of the best one.
    """
    cells = shape_study(rows)
    made = []
    for covariance, length in dict.fromkeys((c["covariance"], c["length"]) for c in cells):
        mine = sorted((c for c in cells if (c["covariance"], c["length"]) == (covariance, length)), key=_depth)
        best = min(mine, key=lambda c: c["median"])
        line = {"covariance": covariance, "examples": length, "depth": best["depth"], "width": best["width"]}
        line |= {"flat": mine[0]["median"], "best": best["median"], "gain": mine[0]["median"] / best["median"]}
        made.append({**line, "shapes": [[c["depth"], c["width"], c["median"]] for c in mine]})
    return made


def _depth(cell: dict[str, Any]) -> int:
    return cell["depth"]
