"""What test_training_fused asks, answered in a process of its own: `python -m tests.fused_cases DEVICE` prints JSON.

Triton's interpreter is chosen before Triton is imported and knows nothing of type-checked functions, hence the process.
Each answer is a relative gap, in the Euclidean norm, against the plain bank in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from headcount.kernels import fused, parts
from headcount.kernels.backend import Backend, Problem, as_it_is, by_differentiation, everything, reference
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.class_token import ClassToken
from headcount.kernels.optimiser import AdamW
from headcount.kernels.plain import Batch, collapsed
from headcount.kernels.plain import pool as plain_pool
from headcount.kernels.tiles import Tile
from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe
from headcount.training.data import Resident
from headcount.training.loop import _Run

UNSPLIT = 256  # no head is two maps from this width on: they are one matrix each at every width


class Case(NamedTuple):
    """(heads, head_dim, width) of each member, the longest length, each member's length, samples in a batch."""

    members: list[tuple[int, int, int]]
    longest: int
    lengths: list[int] | None = None
    batch: int = 5
    features: int = 5


CASES = {
    "equal members": Case([(4, 8, 32)] * 2, 32, batch=9),
    "mixed heads, head_dim, width and length": Case([(1, 4, 8), (3, 5, 20), (4, 2, 32)], 12, [7, 12, 3], batch=18),
    "longer than a tile": Case([(5, 4, 24)], 150, [131], batch=2),
    "many features, many short samples": Case([(2, 3, 8)] * 2, 3, [2, 3], batch=20, features=9),
    "wider than is composed on one program": Case([(3, 8, 12), (4, 8, 55)], 8, batch=6),
    "too large for the tail on one program": Case([(2, 8, 128)], 5, batch=3),
}


def batch_of(case: Case, device: str, seed: int = 0) -> Batch:
    """Random data in two sets, random rows, random targets."""
    generator = torch.Generator().manual_seed(seed)
    models, samples = len(case.members), 24
    data = torch.randn(2, samples, case.longest, case.features, generator=generator)
    rows = torch.stack([torch.randperm(samples, generator=generator)[: case.batch] for _ in range(models)])
    target = torch.randn(models, case.batch, generator=generator)
    present = None
    if case.lengths is not None:
        present = (torch.arange(case.longest) < torch.tensor(case.lengths)[:, None]).to(device)
    which = torch.arange(models) % 2
    return Batch(data.to(device), which.to(device), rows.to(device), target.to(device), present)


def in_doubles(batch: Batch) -> Batch:
    """The same numbers in float64."""
    return Batch(batch.data.double(), batch.which, batch.rows, batch.target.double(), batch.present)


def bank_of(case: Case, device: str, dtype: torch.dtype = torch.float32) -> Bank:
    archs = [Architecture(layers=((h, n),), width=w, positions=1) for h, n, w in case.members]
    return bank_reading(archs, case.features - 1, device, dtype)


def bank_reading(archs: list[Architecture], token_dim: int, device: str, dtype: torch.dtype = torch.float32) -> Bank:
    nets = [arch.reading(token_dim) for arch in archs]
    return Bank(nets, list(range(len(nets))), dtype=dtype, device=device)


def gap(got: Tensor, true: Tensor) -> float:
    return ((got.double() - true.double()).norm() / true.double().norm()).item()


def in_float64(case: Case, batch: Batch, theta: Tensor) -> Tensor:
    """The gradient of the plain bank in float64 at the same parameters."""
    bank = bank_of(case, str(theta.device), torch.float64)
    bank.theta = theta.double()
    return reference.gradient(ClassToken(), bank, in_doubles(batch))


def pooling(case: Case, precision: str, device: str) -> dict[str, float]:
    """Pooled values and the three gradients of a random linear functional of them."""
    batch = batch_of(case, device)
    generator = torch.Generator().manual_seed(1)
    models, width, heads = len(case.members), case.members[0][2], max(h for h, _, _ in case.members)
    shapes = ((models, width, case.features), (models, width), (models, heads, width))
    given = [torch.randn(*shape, generator=generator).to(device) for shape in shapes]
    probe = torch.randn(models, case.batch, heads, width, generator=generator).to(device)
    wide = [p.double().requires_grad_() for p in given]
    true = plain_pool(in_doubles(batch), *wide)
    given = [p.requires_grad_() for p in given]
    got = fused.pool(batch, *given, tile=Tile(precision=precision))
    slopes = zip(
        torch.autograd.grad((got * probe).sum(), given),
        torch.autograd.grad((true * probe).sum(), wide),
        ("weight", "bias", "directions"),
        strict=True,
    )
    return {"value": gap(got.detach(), true.detach()), **{name: gap(g, t) for g, t, name in slopes}}


def gradients(case: Case, device: str, tile: Tile) -> float:
    batch, bank = batch_of(case, device), bank_of(case, device)
    return gap(fused.gradient(bank, batch, tile), in_float64(case, batch, bank.theta))


def whole_heads(bank: Bank, batch: Batch) -> Tensor:
    """The gradient with one matrix a head."""
    return fused.gradient(bank, batch, Tile(split=UNSPLIT))


def tiny(device: str) -> float:
    """Largest gap between two ways to the same number: gradients of a read-out and targets smaller by 2^20.

    The slope of everything before the read-out is then smaller by exactly 2^40, far below the smallest float16.
    """
    case = CASES["mixed heads, head_dim, width and length"]
    names = ("encoder.inner.weight", "encoder.inner.bias", "attention.0.value", "read_out.inner.weight")
    return smallest(whole_heads, bank_of(case, device), batch_of(case, device), names)


def smallest(gradient: Callable[[Bank, Batch], Tensor], bank: Bank, batch: Batch, names: Iterable[str]) -> float:
    """How far the gradients of these parameters change with the read-out and the targets, but for the factor."""
    normal = bank.named(gradient(bank, batch))
    for name in ("read_out.outer.weight", "read_out.outer.bias"):
        bank.named()[name].mul_(2.0**-20)
    less = Batch(batch.data, batch.which, batch.rows, batch.target * 2.0**-20, batch.present)
    small = bank.named(gradient(bank, less))
    return max((small[name] * 2.0**40 - normal[name]).abs().max().item() for name in names)


def with_a_lost_member(gradient: Callable[[Bank, Batch], Tensor], bank: Bank, batch: Batch) -> dict[str, bool]:
    """Does a member full of NaN change its neighbour, is it as before once restored, does a call repeat its numbers?"""
    first, again = (gradient(bank, batch) for _ in range(2))
    before = bank.theta[0].clone()
    bank.theta[0] = torch.nan
    lost = gradient(bank, batch)
    bank.theta[0] = before
    return {
        "restored": torch.equal(first, gradient(bank, batch)),
        "repeats": torch.equal(first, again),
        "neighbour": torch.equal(first[1], lost[1]),
        "lost": bool(lost[0].isnan().any()),
    }


def company(device: str) -> dict[str, bool]:
    case = CASES["equal members"]
    return with_a_lost_member(whole_heads, bank_of(case, device), batch_of(case, device))


def update(device: str) -> dict[str, float]:
    """Four AdamW updates by the kernel against the same in torch; the second member is frozen."""
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(3, 1500, generator=generator).to(device)
    rate, decay = torch.tensor([1e-3, 1e-2, 3e-3]).to(device), torch.tensor([0.0, 0.1, 1e-2]).to(device)
    active = torch.tensor([True, False, True]).to(device)
    thetas = []
    for way in (AdamW.update, fused.update):
        draws = torch.Generator().manual_seed(3)
        theta = start.clone()
        optimiser = AdamW(theta, rate, decay, steps=6, warmup=0.4)
        for _ in range(4):
            way(optimiser, theta, torch.randn(3, 1500, generator=draws).to(device), active)
        thetas.append(theta - start)
    return {"moved": gap(thetas[1], thetas[0]), "frozen": thetas[1][1].abs().max().item()}


def steps(precision: str, device: str, **split: int) -> float:
    """How far apart two one-layer banks of mixed shape and length are after six steps, against how far they went."""
    arch = [Architecture(layers=((h, n),), width=w, positions=1) for h, n, w in ((1, 4, 8), (3, 5, 20))]
    members = [Member(KthLargest(rank=1, length=t), a, seed=t) for t, a in zip((5, 8), arch, strict=True)]

    def gradient(problem: Problem, bank: Bank, batch: Batch) -> Tensor:
        return fused.gradient(bank, batch, Tile(precision=precision, **split))

    return apart(members, replace(fused.backend, gradient=gradient), device)


def deep_steps(precision: str, device: str) -> float:
    """The same for banks of two layers."""
    shapes = ((((1, 4), (2, 3)), 8), (((2, 5), (1, 4)), 20))
    archs = [Architecture(layers=layers, width=width, positions=1) for layers, width in shapes]
    members = [Member(KthLargest(rank=2, length=6), arch, seed=k) for k, arch in enumerate(archs)]
    return apart(members, by_parts(precision), device)


def by_parts(precision: str) -> Backend:
    """The layers part by part, with float32 products throughout where they are "ieee"."""
    if precision == "half":
        return parts.backend

    def forward(problem: Problem, bank: Bank, p: Stacked, batch: Batch) -> Tensor:
        return collapsed(bank, p, batch, touch=parts.in_kernels(precision))

    return replace(parts.backend, gradient=by_differentiation(forward))


def apart(members: list[Member], backend: Backend, device: str) -> float:
    recipe, found = Recipe(samples=48, validation=8, epochs=2, batch=16), []
    for way in (reference, replace(backend, holds=everything, record=as_it_is)):  # also where it is interpreted
        run = _Run(members, recipe, device, way, Resident, None)
        start = run.bank.theta.detach().clone()
        run.round(0)
        run.round(1)
        found.append(run.bank.theta.detach() - start)
    return gap(found[1], found[0])


DEEP = {  # layers and width of each member, the length, samples in a batch
    "two layers": ([(((2, 8), (1, 8)), 16)] * 2, 12, 5),
    "mixed heads, head_dim and width": ([(((1, 3), (2, 5)), 9), (((3, 4), (1, 2)), 20)], 17, 3),
    "three layers": ([(((1, 4), (2, 4), (1, 4)), 8)], 5, 7),
    "longer than a tile": ([(((1, 4), (1, 4)), 8)], 140, 2),
    "too wide for one program": ([(((1, 4), (1, 40)), 300)], 3, 2),
    "heads of twenty, mixed lengths": ([(((2, 20), (1, 3)), 5), (((1, 4), (3, 9)), 12)], 9, 3),
    "a wide feed-forward": ([(((3, 8), (1, 8)), 100)], 5, 7),
    "the class token in the last layer": ([(((2, 4), (1, 8)), 9)] * 2, 10, 4),
    "sixty-four tokens": ([(((6, 8), (6, 8)), 128)], 64, 2),
    "fifty-six tokens of mixed members": ([(((11, 2), (1, 10)), 90), (((4, 8), (2, 14)), 42)], 56, 2),
}


def deep(case: str, precision: str, device: str) -> float:
    """The gradient of a bank of several layers in kernels against the plain bank in float64."""
    members, length, samples = DEEP[case]
    where = "last" if case.endswith("in the last layer") else "every"
    archs = [Architecture(layers=layers, width=width, positions=1, class_token=where) for layers, width in members]
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(1, samples, length, 4, generator=generator).to(device)
    target = torch.randn(len(archs), samples, generator=generator).to(device)
    which = torch.zeros(len(archs), dtype=torch.int64, device=device)
    rows = torch.arange(samples, device=device).expand(len(archs), -1)
    found = []
    present = None
    if case.endswith("mixed lengths"):
        present = (torch.arange(length) < torch.tensor([length, 4])[:, None]).to(device)
    for backend, dtype in ((by_parts(precision), torch.float32), (reference, torch.float64)):
        batch = Batch(data.to(dtype), which, rows, target.to(dtype), present)
        found.append(backend.gradient(ClassToken(), bank_reading(archs, 3, device, dtype), batch))
    return gap(*found)


def guarding(device: str) -> dict[str, int]:
    """Addresses outside of a kernel's tensors, at shapes that once failed on a GPU; only the interpreter can say."""
    if device != "cpu":
        return {"launches": 0, "outside": 0, "caught": 0}
    from tests.guarded import guarded

    with guarded() as touched:
        for case in ("sixty-four tokens", "fifty-six tokens of mixed members"):
            deep(case, "half", device)
        found = {"launches": touched.launches, "outside": touched.outside}
        theta = torch.zeros(2, 100)
        optimiser = AdamW(theta, torch.zeros(2), torch.zeros(2), steps=1, warmup=0.0)
        short = torch.zeros(4, 100)[:1]  # a gradient for one member of two, in memory that is ours
        fused.update(optimiser, theta, short, torch.ones(2, dtype=torch.bool))
    return {**found, "caught": touched.outside - found["outside"]}


def main(device: str) -> None:
    exact = ("ieee",)
    answers = {
        "pooling": {
            f"{name}, {kind}": pooling(CASES[name], kind, device)
            for name in list(CASES)[:4]
            for kind in (*exact, "half", "fine")
            if kind == "half" or name != "equal members"
        },
        "gradients": {
            f"{name}, {form}, {kind}": gradients(case, device, Tile(precision=kind, **split))
            for name, case in CASES.items()
            for form, split in (("as it is", {}), ("one matrix a head", {"split": UNSPLIT}))
            for kind in ("ieee", "half")
        },
        "fine gradients": gradients(
            CASES["mixed heads, head_dim, width and length"], device, Tile(precision="fine", split=UNSPLIT)
        ),
        "tiny": tiny(device),
        "company": company(device),
        "update": update(device),
        "deep": {f"{name}, {kind}": deep(name, kind, device) for name in DEEP for kind in ("ieee", "half")},
        "guarding": guarding(device),
        "steps": {kind: steps(kind, device) for kind in ("ieee", "half")},
        "steps with one matrix a head": {kind: steps(kind, device, split=UNSPLIT) for kind in ("ieee", "half")},
        "deep steps": {kind: deep_steps(kind, device) for kind in ("ieee", "half")},
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
