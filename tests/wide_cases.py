"""Wide and many-headed one-layer banks in kernels, asked by `test_training_wide` in a process of their own: JSON out.

Each answer is a relative gap, in the Euclidean norm, against the plain bank in float64.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from headcount.kernels import fused
from headcount.kernels.tiles import Tile
from tests.fused_cases import Case, bank_of, batch_of, gap, in_float64, smallest, with_a_lost_member

CASES = {
    "mixed heads, head_dim and width": Case([(3, 8, 12), (4, 8, 55)], 8, batch=6),
    "twelve heads": Case([(12, 8, 48)], 3, batch=7),
    "the widest": Case([(2, 8, 128)], 5, batch=3),
    "heads of twenty": Case([(2, 20, 40), (2, 3, 9)], 2, batch=3),
    "one head, width 2, one token": Case([(1, 1, 2)], 1, batch=3),
    "mixed lengths": Case([(1, 4, 8), (3, 5, 20)], 7, [3, 7], batch=18),
    "longer than a tile": Case([(5, 4, 40)], 70, [66], batch=2),
}
TILES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "three programs a member": {"parts": 3},
    "small programs": {"tail_rows": 16, "states": 32, "lines": 32, "chunk": 16},
}


def gradient(case: Case, device: str, precision: str, **tile: Any) -> tuple[Tensor, Tensor]:
    """The gradient by two maps a head, however narrow the bank, and the plain one."""
    batch, bank = batch_of(case, device), bank_of(case, device)
    got = fused.gradient(bank, batch, Tile(precision=precision, split=16, **tile))
    return got, in_float64(case, batch, bank.theta)


def narrow(device: str) -> list[float]:
    """A member's gradient among wider ones, and what its padding got: nothing."""
    case = CASES["mixed heads, head_dim and width"]
    batch, bank = batch_of(case, device), bank_of(case, device)
    got = bank.named(fused.gradient(bank, batch, Tile(precision="ieee", split=16)))
    return [got[name][0, 3:].abs().max().item() for name in ("attention.0.query", "attention.0.value")]


def tiny(device: str) -> float:
    """As in `fused_cases`: gradients through slopes far below the smallest float16, against 2^40 times larger ones."""
    case = CASES["twelve heads"]
    bank = bank_of(case, device)
    names = [name for name in bank.shapes if not name.startswith("read_out.outer")]
    return smallest(fused.gradient, bank, batch_of(case, device), names)


def company(device: str) -> dict[str, bool]:
    case = CASES["mixed heads, head_dim and width"]
    return with_a_lost_member(fused.gradient, bank_of(case, device), batch_of(case, device))


def guarding(device: str) -> dict[str, int]:
    """Addresses outside of a kernel's tensors, and numbers read from memory that nobody wrote; only here to be seen."""
    from tests.guarded import guarded

    torch.use_deterministic_algorithms(True)  # memory that nobody wrote is NaN
    lost = 0
    with guarded() if device == "cpu" else nullcontext() as touched:
        for case in list(CASES.values())[2:]:
            for tile in (TILES["as it is"], TILES["three programs a member"]):
                lost += int(gradient(case, device, "half", **tile)[0].isnan().sum())
    torch.use_deterministic_algorithms(False)
    if touched is None:
        return {"launches": 0, "outside": 0, "lost": lost}
    return {"launches": touched.launches, "outside": touched.outside, "lost": lost}


def main(device: str) -> None:
    answers = {
        "gradients": {
            f"{case}, {name}, {kind}": gap(*gradient(CASES[case], device, kind, **tile))
            for case in CASES
            for name, tile in TILES.items()
            for kind in ("ieee", "half")
            if name == "as it is"
            or (kind == "half" and (name == "three programs a member" or case in ("mixed lengths", "the widest")))
        },
        "fine": gap(*gradient(CASES["mixed lengths"], device, "fine")),
        "narrow": narrow(device),
        "tiny": tiny(device),
        "company": company(device),
        "guarding": guarding(device),
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
