"""The in-context paper: its arithmetic, descent by depth, and networks trained on teachers of 0, 1 and 2 levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headcount.numerals import short
from headcount.papers.icl.bounds import best_shape, icl_exponent
from headcount.papers.icl.contexts import Spectrum
from headcount.papers.icl.descent_curves import DEPTHS, claimed_step, descent_curve, plateau
from headcount.papers.icl.experiments import ReaderRecipe, ReaderRow, best_rate, cells_of, train_readers
from headcount.papers.icl.measured_exponents import claims_table, shape_contrast
from headcount.papers.icl.published import EXPONENT_CLAIM, SHAPE_CLAIM
from headcount.results.record import Measured, Reproduction, Setting, Stated

CURVES = "relative error that descent leaves, mean over contexts"
TRAINED = "relative error, level and attention by depth, width and context"


def arithmetic(setting: Setting) -> Measured:
    """The claimed exponents and the best shape of L^(-1/4) + d^(-1/2) on the budget L d."""
    exponents = {(h, "exponent"): (icl_exponent(h).value,) for h in EXPONENT_CLAIM.rows}
    shape = best_shape(1e6, 0.25, 0.5)
    powers = {("depth", "depth x width"): (shape.depth_power,), ("width", "depth x width"): (shape.width_power,)}
    return Measured(
        {EXPONENT_CLAIM.title: exponents, SHAPE_CLAIM.title: powers},
        (),
        {"exponents assumed": "depth 1/4, width 1/2"},
        ("the published powers need a width exponent twice that of depth, and a budget L d, not a parameter count",),
    )


def descent_by_depth(setting: Setting) -> Measured:
    """The exact error of one step of descent a layer, by depth, spectrum and step."""
    contexts = 200 if setting.quick else 2000
    curves = {
        "isotropic, 1/largest": descent_curve(Spectrum(), contexts=contexts),
        "i^-1.5, 1/largest": descent_curve(Spectrum(1.5), contexts=contexts),
        "isotropic, claimed step": descent_curve(Spectrum(), rates=claimed_step, contexts=contexts),
    }
    cells = {(depth, name): (e,) for name, c in curves.items() for depth, e in zip(DEPTHS, c.means, strict=True)}
    medians = {(d, name): (e,) for name, c in curves.items() for d, e in zip(DEPTHS, c.medians, strict=True)}
    flat, falling, claimed = curves.values()
    worse = claimed.medians[-1] / flat.medians[-1]
    still = [plateau(Spectrum(decay), 1) for decay in (0.0, 2.0)]
    rotated = [plateau(Spectrum(2.0, rotated=True), depth) for depth in (1, 2, 3)]
    claims = (
        Stated("the error is a power law in depth", f"isotropic inputs: local slopes from {flat.slopes[0]:.2f} to "
              f"{flat.slopes[-1]:.1f}; spectrum i^-1.5: {falling.slopes[0]:.2f} to {falling.slopes[-1]:.2f}", False),
        Stated("a step of 1/sqrt(L d) serves isotropic descent as a constant one does", f"at 64 layers it leaves "
               f"{short(worse)} times the median error of a constant step; which step trained networks take was not "
               "read out of any", worse < 10),
        Stated("depth helps at an infinite context only where covariances rotate (Bordelon et al.)",
              f"by arithmetic, left there after 1, 2, 3 layers: {', '.join(map(short, rotated))}; after 1 layer "
              f"isotropic {short(still[0])}, fixed {short(still[1])}",
              rotated[0] > rotated[1] > rotated[2] > 0 and max(still) < 1e-12),
    )  # fmt: skip
    setup = {"dimension": 16, "examples": 64, "contexts": contexts}
    return Measured({CURVES: cells, "the same, medians": medians}, claims, setup)


def trained(setting: Setting) -> Measured:
    """Networks of linear and softmax attention by depth, width and context: exponents with intervals and verdicts."""
    recipe = replace(ReaderRecipe(), steps=60, seeds=(0, 1), rates=(3e-3, 1e-2)) if setting.quick else ReaderRecipe()
    cells = cells_of(["linear"] if setting.quick else ["linear", "softmax", "shapes"])
    cells = [c for c in cells if c.examples <= 32 and c.depth * c.width <= 128] if setting.quick else cells
    rows = [row for cell in cells for row in train_readers(cell, recipe, setting.device)]
    setup = {"steps": recipe.steps, "rates": list(recipe.rates), "seeds": len(recipe.seeds), "layers": "untied"}
    note = ("smaller: sixty steps, two seeds, small shapes only",) if setting.quick else ()
    return Measured({TRAINED: _errors(rows)}, verdict_claims(rows), setup, note)


def verdict_claims(rows: list[ReaderRow]) -> tuple[Stated, ...]:
    """The claimed exponent of each level beside every measured one, and the contrast of covariances where trained."""
    table, claims = claims_table(rows), []
    for levels in dict.fromkeys(line["levels"] for line in table):
        of_level = [line for line in table if line["levels"] == levels]
        ours = "; ".join(f"{m['attention']} {m['axis']} {m['exponent']:.2g} [{m['low']:.2g}, {m['high']:.2g}] "
                         f"{m['verdict']}" for m in of_level)  # fmt: skip
        says = (
            f"the error of level {levels} falls with exponent {of_level[0]['claimed']:.4g} in depth, width and context"
        )
        claims.append(Stated(says, ours, all(m["verdict"] == "consistent" for m in of_level)))
    contrast = {(c["covariance"], c["examples"]): c for c in shape_contrast(rows)}
    if contrast:
        longest = max(k for _, k in contrast)
        flat, rotated = contrast["isotropic", longest], contrast["rotated", longest]
        gains = f"isotropic {flat['gain']:.3g}, rotated {rotated['gain']:.3g}"
        ours = f"gain of the best shape over one layer at k = {longest}: {gains}"
        says = "at a long context depth helps where covariances rotate, more than where they do not"
        claims.append(Stated(says, ours, rotated["gain"] > 2 * flat["gain"]))
    return tuple(claims)


def _errors(rows: list[ReaderRow]) -> dict[tuple[Any, Any], tuple[float, ...]]:
    errors = {}
    for row in rows:
        task = f"level {row['levels']}" if row["study"] == "exponents" else row["covariance"]
        column = f"L{row['depth']} d{row['width']} k{row['examples']}"
        errors[f"{task}, {row['attention']}", column] = tuple(row["nmse"][best_rate(row)])
    return errors


ICL = (
    Reproduction("icl:claims", "claimed exponents and powers of the best shape", arithmetic,
                 (EXPONENT_CLAIM, SHAPE_CLAIM), "The hierarchy depth is the number of composed two-layer maps.",
                 "the budget as a parameter count: powers 1/2 and 1/4", computed=True),
    Reproduction("icl:descent", "descent in the forward pass, by depth", descent_by_depth, (),
                 "Dimension 16, 64 examples, no noise, the step 1/lambda_max of each context.",
                 "the claimed step 1/sqrt(L d), a falling spectrum"),
    Reproduction("icl:trained", "networks trained on fresh contexts, by depth, width and context", trained, (),
                 "Dimension 4, eight queries per context, AdamW with a cosine, the best of three rates per cell by "
                 "validation; level 0 bears noise 0.5.", "linear and softmax attention; three covariances",
                 ("1 min", "hours", "3 min")),
)  # fmt: skip
