"""The claimed exponents beside those of trained networks, with verdicts; and depth against width by covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TypedDict

from headcount.fits.power_law import PowerLaw, power_law
from headcount.papers.icl.bounds import icl_exponent
from headcount.papers.icl.descent_curves import ridge_curve
from headcount.papers.icl.experiments import EXPONENTS, ReaderRow, exponent_study, shape_study
from headcount.results import Claim, Comparison, Predicate

AXES = {"depth": "depth", "width": "width", "length": "context"}


def measured_laws(rows: Sequence[ReaderRow]) -> dict[tuple[str, int, str], PowerLaw]:
    """The law with a floor of every attention, level and axis that has enough cells, against 1 / (2 (h + 1))."""
    laws = {}
    kinds = dict.fromkeys((r["attention"], r["levels"]) for r in rows if r["study"] == "exponents")
    for attention, levels in kinds:
        for axis in AXES:
            study = exponent_study(rows, attention, levels, axis)
            if study.rows and len(study.values(axis)) >= 3:
                laws[attention, levels, axis] = power_law(study, axis, predicted=icl_exponent(levels).value)
    return laws


ClaimRow = TypedDict(
    "ClaimRow",
    {
        "attention": str,
        "levels": int,
        "axis": str,
        "claimed": float | None,
        "exponent": float,
        "low": float,
        "high": float,
        "floor": float,
        "gap": float,
        "diverged": int,
        "at edge": bool,
        "verdict": str,
        "claim": Claim,
    },
)
"""The claimed exponent of an attention, level and axis beside the measured one, its interval and its verdict."""


class ContrastRow(TypedDict):
    """The best shape on a covariance and context, its `gain` over one layer; `shapes` are depth, width and error."""

    covariance: str
    examples: int
    depth: int
    width: int
    flat: float
    best: float
    gain: float
    shapes: list[tuple[int, int, float]]
    edges: list[bool]


def claims_table(rows: Sequence[ReaderRow]) -> list[ClaimRow]:
    """One row for each attention, level and axis: the claimed exponent, the measured one with its interval, verdict."""
    table = []
    for (attention, levels, axis), law in measured_laws(rows).items():
        claim = law.judged(Comparison(f"{law.predicted:g}", "summary"))
        assert claim is not None
        ratios = bayes_ratios(rows, attention, levels) if AXES[axis] == "context" else {}
        if ratios and max(ratios.values()) < OPTIMAL:
            claim = replace(claim, predicate=Predicate.NOT_COMPARABLE, reason=BEST)
        row: ClaimRow = {
            "attention": attention,
            "levels": levels,
            "axis": AXES[axis],
            "claimed": law.predicted,
            "exponent": law.exponent.value,
            "low": law.exponent.low,
            "high": law.exponent.high,
            "floor": law.floor.value,
            "gap": law.gap,
            "diverged": law.diverged,
            "at edge": law.at_edge,
            "verdict": claim.word,
            "claim": claim,
        }
        table.append(row)
    return table


BEST = "the networks are near the best answer there is, and any learner that is has this curve"
OPTIMAL = 1.25  # times the error of the best answer


def bayes_ratios(rows: Sequence[ReaderRow], attention: str, levels: int) -> dict[int, float]:
    """By context: the median error of trained networks over that of the posterior mean, below which nothing goes.

    It is known for the linear teacher alone; empty for others.
    """
    study = exponent_study(rows, attention, levels, "length") if levels == 0 else None
    if study is None or not study.rows:
        return {}
    contexts = tuple(study.values("length"))
    best = ridge_curve(contexts, dimension=DIMENSION, noise=NOISE, contexts=4000)
    errors = {k: median(row["nmse"] or 1.0 for row in study if row["length"] == k) for k in contexts}
    return {k: errors[k] / least for k, least in zip(contexts, best, strict=True)}


DIMENSION, NOISE = EXPONENTS[0].tasks[0].dimension, EXPONENTS[0].tasks[0].noise


def shape_contrast(rows: Sequence[ReaderRow]) -> list[ContrastRow]:
    """By covariance and context: the best shape at about equal parameters, and what depth gains over one layer.

    `gain` is the median error of the flattest shape over that of the best one.
    """
    cells = shape_study(rows)
    contrasts = []
    for covariance, length in dict.fromkeys((c["covariance"], c["length"]) for c in cells):
        shapes = sorted(
            (c for c in cells if (c["covariance"], c["length"]) == (covariance, length)), key=lambda c: c["depth"]
        )
        best = min(shapes, key=lambda c: c["median"])
        row: ContrastRow = {
            "covariance": covariance,
            "examples": length,
            "depth": best["depth"],
            "width": best["width"],
            "flat": shapes[0]["median"],
            "best": best["median"],
            "gain": shapes[0]["median"] / best["median"],
            "shapes": [(c["depth"], c["width"], c["median"]) for c in shapes],
            "edges": [c["rate at edge"] for c in shapes],
        }
        contrasts.append(row)
    return contrasts


def contrast_words(rows: Sequence[ContrastRow]) -> str:
    """What the table of `shape_contrast` shows of the statement that depth helps only where covariances rotate."""
    by = {(row["covariance"], row["examples"]): row for row in rows}
    long, short = max(k for _, k in by), min(k for _, k in by)
    kinds = [kind for kind in ("isotropic", "fixed", "rotated") if (kind, long) in by and (kind, short) in by]
    if not {"isotropic", "rotated"} <= set(kinds) or long == short:
        return "Two contexts and isotropic beside rotated covariances are needed to tell."
    falls = ", ".join(f"{by[k, short]['flat'] / by[k, long]['flat']:.1f} times ({k})" for k in kinds)
    second = ", ".join(f"{_second_layer(by[k, long]):.3g} ({k})" for k in kinds)
    gains = ", ".join(f"{by[k, long]['gain']:.3g} ({k})" for k in kinds)
    shown = by["rotated", long]["gain"] > 2 * by["isotropic", long]["gain"]
    verdict = "so the contrast is shown" if shown else "so the contrast is not shown: depth helps without rotation too"
    cells = [cell for row in rows for cell in row["edges"]]
    ends = f"; the best rate is the smallest or largest tried in {sum(cells)} of {len(cells)} cells" if cells else ""
    return (
        f"From {short} to {long} examples the error of one layer falls {falls}. At {long} examples a second layer "
        f"divides it by {second}, and the best depth by {gains}, {verdict}{ends}."
    )


def _second_layer(row: ContrastRow) -> float:
    """The error of one layer over that of the next depth."""
    return row["shapes"][0][2] / row["shapes"][1][2] if len(row["shapes"]) > 1 else 1.0
