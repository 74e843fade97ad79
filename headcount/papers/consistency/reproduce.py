"""The consistency paper: its rate as arithmetic, the smoother's decay beside it, and a trained block by curvature."""

from __future__ import annotations

from dataclasses import replace

from headcount.papers.consistency.bounds import consistency_rate, lipschitz_rate
from headcount.papers.consistency.decays import NOISY, QUIET, Decay, decay
from headcount.papers.consistency.experiments import BallRecipe, curvature_rows, curvature_verdict
from headcount.papers.consistency.published import RATE_CLAIM
from headcount.results.record import Measured, Reproduction, Setting, Stated


def rates(setting: Setting) -> Measured:
    """The claimed exponent of each dimension beside the fastest that noise allows."""
    claimed = {(d, "exponent"): (consistency_rate(d).value,) for d in RATE_CLAIM.rows}
    possible = {(d, "exponent"): (lipschitz_rate(d).value,) for d in RATE_CLAIM.rows}
    note = "at d = 1 with noise 1/2 > 1/3: no estimator has the claimed rate uniformly over Lipschitz functions"
    return Measured({RATE_CLAIM.title: claimed, "possible with noise": possible}, notes=(note,))


def decays(setting: Setting) -> Measured:
    """The decay of the smoother with noise and without, 95% over repetitions, and the one-sided verdicts."""
    cases = [replace(c, lengths=c.lengths[:4]) for c in (*NOISY, *QUIET)] if setting.quick else (*NOISY, *QUIET)
    measured_decays = [decay(case, repetitions=20) for case in cases]
    cells = {}
    for each in measured_decays:
        parts = {"decay": each.exponent.value, "low": each.exponent.low, "high": each.exponent.high}
        cells |= {(each.case.name, name): (value,) for name, value in parts.items()}
        cells[each.case.name, "claimed"] = (consistency_rate(each.case.dimension).value,)
    claims = tuple(_claim(each) for each in measured_decays)
    note = ("smaller: four lengths a case",) if setting.quick else ()
    return Measured({"decay exponents": cells}, claims, {"repetitions": 20, "f": "sin(2 sum x)"}, note)


def curvature(setting: Setting) -> Measured:
    """One trained block in flat space and in the ball: does curvature move the decay?"""
    recipe = BallRecipe(lengths=(64, 128), seeds=(0, 1), steps=20) if setting.quick else BallRecipe()
    rows = curvature_rows(recipe)
    verdict = curvature_verdict(rows)
    cells = {
        (f"c = {row['curvature']:g}", t): tuple(line[i] for line in row["errors"])
        for row in rows
        for i, t in enumerate(row["lengths"])
    }
    slopes = "; ".join(f"c = {r['curvature']:g}: {r['exponent']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in rows)
    apart = "; ".join(f"{c}: {v:+.3f} [{a:+.3f}, {b:+.3f}]" for c, (v, a, b) in verdict["difference"].items())
    ours = f"decay {slopes}; difference to flat space {apart}"
    claim = Stated("the rate is the same in flat and in hyperbolic space", ours, not verdict["any"])
    setup = {"steps": recipe.steps, "seeds": len(recipe.seeds), "noise": recipe.noise, "dimension": 2}
    note = f"{recipe.steps} steps at a rate of {recipe.lr:g}, started from the flat wiring in every curvature"
    return Measured({"root mean square error by length": cells}, (claim,), setup, (note,))


def _claim(measured: Decay) -> Stated:
    claimed = consistency_rate(measured.case.dimension).value
    side = (
        "not settled"
        if measured.verdict == "not settled"
        else "below it"
        if measured.exponent.high < claimed
        else "not below it"
    )
    ours = f"{measured.exponent} over {measured.repetitions} repetitions at new points of one smoother: {side}"
    says = f"{measured.case.name}: the error falls at least like t^-{claimed:.3g}"
    return Stated(says, ours, side == "not below it", statement="ours")


CONSISTENCY = (
    Reproduction("consistency:rate", "the claimed rate and the one that noise allows", rates, (RATE_CLAIM,),
                 "Error: root mean square over new points; t labelled tokens in d dimensions.", computed=True),
    Reproduction("consistency:smoother", "attention as a kernel smoother, by length", decays, (),
                 "f = sin(2 sum x) on the unit cube, beta = t^(2/(d+2)) with noise and t^(2/d) without.",
                 "noise 0, 0.5, 1; lengths to 262144 at d = 1", ("30 s", "2 min", "2 min")),
    Reproduction("consistency:curvature", "a trained block in flat space and in the ball", curvature, (),
                 "Two dimensions, fresh functions sin(<a, x> + b), noise 0.5, started as the smoother.",
                 "curvature 0, 1e-4, 1", ("20 s", "3 min", "3 min"),
                 changed="A first run, 150 steps at 3e-3, had not trained the curved block: a decay of 0.136 against "
                 "0.318. Rate and steps were raised for flat and curved blocks alike. A second one found a difference "
                 "at c = 1e-4, +0.015 [+0.007, +0.023], which was ours: the read-out began at one channel alone, so "
                 "that weights into the others had no gradient in flat space and one of size c in the ball, of which "
                 "Adam makes a whole step. It now begins with small random numbers everywhere."),
)  # fmt: skip
