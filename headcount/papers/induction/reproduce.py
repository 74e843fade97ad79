"""The paper on induction heads made again: the run in stages beside the stored one, selection, and the full model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from headcount.papers.induction.experiments import ChainRun, full_rows, path_rows, selection_rows
from headcount.papers.induction.published import FULL_SHARES, LOSS, SCALE, SHARE
from headcount.results.gathering import grouped
from headcount.results.record import Measured, Reproduction, Setting, Stated

RUN = "all together"


def curve(setting: Setting) -> Measured:
    """The simplified model from the published start, all parameters together."""
    steps, seeds = (100, range(2)) if setting.quick else (5000, range(3))
    base = ChainRun(training=2000 if setting.quick else 9000)
    at = sorted({0, 1, 5, 10, 50, 100, 500, 1000, 5000} & set(range(steps + 1)))
    return curve_measured([row for s in seeds for row in path_rows(replace(base, seed=s), at)], base)


def curve_measured(rows: Sequence[Mapping[str, Any]], base: ChainRun) -> Measured:
    """The published tables from rows of runs like `base`, with as many seeds as came to a step.

    What is said of the stages is said of every seed at its own last step, how far it came.
    """
    by_step = grouped((row["step"], row) for row in sorted(rows, key=lambda row: (row["step"], row["seed"])))
    seeds, last = len(by_step[0]), max(by_step)
    tables = {
        LOSS.title: {(t, RUN): tuple(r["loss"] for r in at) for t, at in by_step.items() if t in LOSS.rows},
        SCALE.title: {(t, RUN): tuple(r["scale"] for r in at) for t, at in by_step.items() if t in SCALE.rows},
        SHARE.title: {(t, RUN): tuple(r["shares"]["1,2"] for r in at) for t, at in by_step.items() if t in SHARE.rows},
    }
    own = {f"lag {h + 1}": tuple(r["own"][h] for r in by_step[last]) for h in range(base.heads)}
    tables["own-lag weights at the end"] = {(last, name): values for name, values in own.items()}
    setup = {"training": base.training, "validation": base.validation, "steps": last, "seeds": seeds, "rate": 1}
    full_size = (base.training, last) == (9000, 50000)
    notes = () if full_size else (f"smaller: {base.training} sequences and {last} steps of 50000",)
    return Measured(tables, _stages(by_step), setup, notes)


def _stages(by_step: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[Stated, ...]:
    ends = {row["seed"]: row for at in by_step.values() for row in at}  # steps rise: the last one stays
    early = by_step[10]
    late = [ends[row["seed"]] for row in early]
    steps = sorted({row["step"] for row in late})
    came = f"after {steps[0]} steps" if len(steps) == 1 else f"after {steps[0]} to {steps[-1]} steps, by seed"
    weights = [row["shares"]["1,2"] for row in early]
    moved = max(abs(w - 3.0) for row in early for w in row["own"])
    idle = max(abs(row["own"][2] - 3.0) for row in late)
    return (
        Stated("the selector finds the parents first", f"after 10 steps the share of {{1,2}} is {min(weights):.3f} or "
              f"more, and no head has moved by more than {moved:.3f}", min(weights) > 0.98 and moved < 0.05),
        Stated("only heads whose lag is chosen concentrate", f"{came} the third head moved by at most {idle:.1e}, "
              f"others to {median(r['own'][0] for r in late):.2f} and {median(r['own'][1] for r in late):.2f}",
              idle < 1e-3),
        Stated("the scale of the second layer grows last", f"{median(r['scale'] for r in early):.2f} after 10 steps, "
              f"{median(r['scale'] for r in late):.2f} {came}",
              all(b["scale"] > 4 * a["scale"] for a, b in zip(early, late, strict=True))),
    )  # fmt: skip


def selection(setting: Setting) -> Measured:
    """Which lags training chose beside the information set, over parents and concentrations; and the full model."""
    rows = [r for s in ((0,) if setting.quick else (0, 1, 2)) for r in selection_rows(seed=s, kernels=400)]
    full = full_rows(seeds=(0,), steps=200, training=1000) if setting.quick else full_rows()
    agree, near = sum(r["agrees"] for r in rows), min(rows, key=lambda r: r["margin"] / r["margin_error"])
    random = [r["share_of_parents"] for r in full if r["randomness"] == 1]
    tables: dict[str, dict[tuple[Any, Any], tuple[float, ...]]] = {"share of the information set": {}, "margin": {}}
    for r in rows:
        key = (",".join(map(str, r["parents"])), r["concentration"])
        weight = r["share"] if r["agrees"] else 0.0
        tables["share of the information set"][key] = (*tables["share of the information set"].get(key, ()), weight)
        tables["margin"][key] = (r["margin"],)
    tables["full model, share of {1,2}"] = {
        (f"randomness {t:g}", f"{full[0]['steps']} steps"): tuple(
            r["share_of_parents"] for r in full if r["randomness"] == t
        )
        for t in dict.fromkeys(r["randomness"] for r in full)
    }
    ended = ", ".join(f"{s:g}" for s in FULL_SHARES)
    claims = (
        Stated("training selects the set of largest modified chi-square information",
              f"{agree} of {len(rows)} runs agree; the closest margin is {near['margin']:.3f} +- "
              f"{near['margin_error']:.3f}", agree == len(rows)),
        Stated(f"the full model does not always find it (stored runs end with shares {ended})",
              f"from random maps the share of {{1,2}} ends at {', '.join(f'{s:.2f}' for s in random)}",
              min(random) < 0.5),
    )  # fmt: skip
    setup = {"window": 3, "steps": 60, "kernels": 400, "full model": f"{len(full)} runs"}
    return Measured(tables, claims, setup, ("the full model's own start and rate are not known",))


INDUCTION = (
    Reproduction("induction:curve", "the simplified model in three stages", curve, (LOSS, SCALE, SHARE),
                 "Three heads, sets of at most two, own-lag weight 3, others 0.1, c = a = 0.01, descent at rate 1.",
                 "seeds of the data", ("5 s", "3 min", "3 min")),
    Reproduction("induction:selection", "lags chosen by training beside the information set", selection, (),
                 "Parents (1,2), (1,3), (2,3), (2) and concentrations 0.1, 0.3, 1; 60 steps on 2000 sequences.",
                 "start of the full model's maps", ("20 s", "1 min", "1 min")),
)  # fmt: skip
