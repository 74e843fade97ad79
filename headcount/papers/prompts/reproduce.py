"""The paper on limits of prompts: floors beside trained prompts, tokens needed, low-rank updates, and a memory.

The paper's larger experiments were not at hand: small layers stand for its statements.
"""

from __future__ import annotations

import numpy as np

from headcount.papers.prompts.experiments import (
    excess_spread,
    excluded_rows,
    length_rows,
    token_rows,
    tuning_rows,
)
from headcount.papers.prompts.lookup import prompt_memory
from headcount.results.record import Measured, Reproduction, Setting, Stated


def floors(setting: Setting) -> Measured:
    """The hard pair in random layers: every trained prompt beside the floor at its length."""
    layers, lengths, starts = (3, (1, 4), 4) if setting.quick else (20, (1, 2, 4, 16, 64), 8)
    rows = length_rows(layers, lengths, starts)
    spread = excess_spread(rows)
    below = sum(row["trained"] < row["floor"] for row in rows)
    losses = {(row["layer"], f"{row['tokens']} trained"): (row["trained"],) for row in rows}
    losses |= {(row["layer"], f"{row['tokens']} floor"): (row["floor"],) for row in rows}
    middle = ", ".join(f"{s['tokens']}: {s['median excess']:.1e} (largest {s['largest']:.1e})" for s in spread)
    return Measured(
        {"loss of the hard pair by layer": losses},
        (Stated("there are two sequences that no prompt of any length memorises",
               f"{below} of {len(rows)} trained prompts below the floor of their length; the least floor is "
               f"{min(row['floor'] for row in rows):.4f}", below == 0),),
        {"token_dim": 6, "starts": starts},
        (f"the best trained prompt misses what is reachable by, at each length, median {middle}",),
    )  # fmt: skip


def numbers(setting: Setting) -> Measured:
    """Tokens needed for sequences of their own, and low-rank updates at equal numbers."""
    starts = 4 if setting.quick else 10
    counts = (2,) if setting.quick else (2, 3, 4)
    rows = [
        row for n in counts for constructed in (False, True) for row in token_rows(n, starts=starts, made=constructed)
    ]
    tuned = tuning_rows(starts=starts)
    excluded = excluded_rows((1, 2) if setting.quick else (1, 2, 3, 4))
    low, equal = tuned[-1], next(row for row in tuned if row["numbers"] >= tuned[-1]["numbers"])
    tokens = {
        (f"{row['layer']} layer, n = {row['sequences']}", f"{row['tokens']} {name}"): (row[name],)
        for row in rows
        for name in ("floor", "trained")
    }
    by = {(row["tuned"], row["numbers"]): (row["loss"],) for row in tuned}
    exclusions = {(f"n = {row['sequences']}", name): (float(row[name]),) for row in excluded
              for name in ("n tokens excluded", "a million excluded", "made layer")}  # fmt: skip
    lost = ", ".join(f"n = {r['sequences']}: {r['n tokens excluded']} of {r['layers']}" for r in excluded)
    exact = max(row["made layer"] for row in excluded)
    return Measured(
        {"loss by prompt tokens": tokens, "n tokens for n sequences": exclusions, "loss by what is tuned": by},
        (
            Stated("n sequences need n prompt tokens", "no trained prompt below its floor, s^2 (n - m) or more",
                  all(row["trained"] >= row["floor"] for row in rows)),
            Stated("n tokens suffice in some layer, and are excluded in a random one",
                  f"the layer made for it leaves {exact:.0e}; n tokens excluded in random layers, {lost}",
                  exact < 1e-20 and excluded[-1]["n tokens excluded"] > 0),
            Stated("a low-rank update does what no prompt can, with as many numbers",
                  f"{low['numbers']} numbers leave {low['loss']:.1e}; a prompt of {equal['numbers']} leaves "
                  f"{equal['loss']:.3f}", low["loss"] < 1e-6 < equal["loss"]),
        ),
        {"token_dim": 8, "starts": starts},
    )  # fmt: skip


def memory(setting: Setting) -> Measured:
    """A function looked up in a prompt: the largest error beside its bound, as the prompt grows."""

    def function(x: np.ndarray) -> np.ndarray:
        return np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1])

    points = np.random.default_rng(0).random((20_000, 2))
    memories = {n: prompt_memory(function, n, 2, 5.0) for n in (4, 8, 16, 32)}
    errors = {n: float(np.abs(m(points) - function(points)).max()) for n, m in memories.items()}
    cells = {(n**2, "measured"): (errors[n],) for n in memories} | {
        (n**2, "bound"): (m.error,) for n, m in memories.items()
    }
    return Measured(
        {"largest error by prompt tokens": cells},
        (Stated("a fixed layer and a prompt approximate any Lipschitz function",
               "errors " + ", ".join(f"{e:.3f}" for e in errors.values()),
               all(errors[n] <= m.error for n, m in memories.items())),),
        {"function": "sin 5x cos 4y"},
    )  # fmt: skip


PROMPTS = (
    Reproduction("prompts:floors", "a pair of sequences that no prompt memorises, in random layers", floors, (),
                 "Hard pairs T_i = A_i + s u_i in random layers of one head; L-BFGS from several starts.", "",
                 ("20 s", "8 min", "8 min")),
    Reproduction("prompts:numbers", "how many numbers prompts and low-rank updates need", numbers, (),
                 "Sequences with orthogonal parts to add, W_v = I; rank-one updates of W_v and W_2.", "",
                 ("20 s", "2 min", "2 min")),
    Reproduction("prompts:memory", "a prompt as a memory of a function", memory, (),
                 "Nearest-point look-up on a grid, not the paper's quantised functions.", "", computed=True),
)  # fmt: skip
