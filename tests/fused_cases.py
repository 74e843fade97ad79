"""What test_training_fused asks, answered in a process of its own: `python -m tests.fused_cases DEVICE` prints JSON.

Triton's interpreter is chosen before Triton is imported and knows nothing of type-checked functions, hence the process.
Each answer is a relative gap, in the Euclidean norm, against the plain bank in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe
from headcount.training.backends import fused
from headcount.training.backends.choice import Path, as_it_is, layered, reference
from headcount.training.backends.choice import fused as fused_path
from headcount.training.backends.layered import _Layer, _LayerLaunch
from headcount.training.backends.plain import Batch, fed, plain
from headcount.training.backends.plain import pool as plain_pool
from headcount.training.backends.tiles import LayerTile, Tile
from headcount.training.bank import Bank
from headcount.training.loop import _Run
from headcount.training.optimiser import AdamW


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


def batch_of(case: Case, device: str, seed: int = 0) -> tuple[Batch, Tensor]:
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
    return Batch(data.to(device), which.to(device), rows.to(device), present), target.to(device)


def bank_of(case: Case, device: str, dtype: torch.dtype = torch.float32) -> Bank:
    archs = [Architecture(layers=((h, n),), width=w, positions=1) for h, n, w in case.members]
    return Bank(archs, case.features - 1, list(range(len(archs))), dtype=dtype, device=device)


def gap(got: Tensor, true: Tensor) -> float:
    return ((got.double() - true.double()).norm() / true.double().norm()).item()


def in_float64(case: Case, batch: Batch, target: Tensor, theta: Tensor) -> Tensor:
    """The gradient of the plain bank in float64 at the same parameters."""
    bank = bank_of(case, str(theta.device), torch.float64)
    wide = theta.double().requires_grad_()
    out = plain(bank, bank.named(wide), Batch(batch.data.double(), batch.which, batch.rows, batch.present))
    (true,) = torch.autograd.grad((out - target).square().mean(dim=1).sum(), wide)
    return true


def pooling(case: Case, precision: str, device: str) -> dict[str, float]:
    """Pooled values and the three gradients of a random linear functional of them."""
    batch, _ = batch_of(case, device)
    generator = torch.Generator().manual_seed(1)
    models, width, heads = len(case.members), case.members[0][2], max(h for h, _, _ in case.members)
    shapes = ((models, width, case.features), (models, width), (models, heads, width))
    parts = [torch.randn(*shape, generator=generator).to(device) for shape in shapes]
    probe = torch.randn(models, case.batch, heads, width, generator=generator).to(device)
    wide = [p.double().requires_grad_() for p in parts]
    true = plain_pool(Batch(batch.data.double(), batch.which, batch.rows, batch.present), *wide)
    parts = [p.requires_grad_() for p in parts]
    got = fused.pool(batch, *parts, tile=Tile(precision=precision))
    slopes = zip(
        torch.autograd.grad((got * probe).sum(), parts),
        torch.autograd.grad((true * probe).sum(), wide),
        ("weight", "bias", "directions"),
        strict=True,
    )
    return {"value": gap(got.detach(), true.detach()), **{name: gap(g, t) for g, t, name in slopes}}


def gradients(case: Case, precision: str, device: str) -> float:
    batch, target = batch_of(case, device)
    bank = bank_of(case, device)
    got = fused.gradient(bank, batch, target, Tile(precision=precision))
    return gap(got, in_float64(case, batch, target, bank.theta))


def tiny(device: str) -> float:
    """Largest gap between two ways to the same number: gradients of a read-out and targets smaller by 2^20.

    The slope of everything before the read-out is then smaller by exactly 2^40, far below the smallest float16.
    """
    case = CASES["mixed heads, head_dim, width and length"]
    batch, target = batch_of(case, device)
    bank = bank_of(case, device)
    normal = bank.named(fused.gradient(bank, batch, target))
    for name in ("read_out.outer.weight", "read_out.outer.bias"):
        bank.named()[name].mul_(2.0**-20)
    small = bank.named(fused.gradient(bank, batch, target * 2.0**-20))
    names = ("encoder.inner.weight", "encoder.inner.bias", "attention.0.value", "read_out.inner.weight")
    return max((small[name] * 2.0**40 - normal[name]).abs().max().item() for name in names)


def with_a_lost_member(
    gradient: Callable[[Bank, Batch, Tensor], Tensor], bank: Bank, batch: Batch, target: Tensor
) -> dict[str, bool]:
    """Does a member full of NaN change its neighbour, is it as before once restored, does a call repeat its numbers?"""
    first, again = (gradient(bank, batch, target) for _ in range(2))
    before = bank.theta[0].clone()
    bank.theta[0] = torch.nan
    lost = gradient(bank, batch, target)
    bank.theta[0] = before
    return {
        "restored": torch.equal(first, gradient(bank, batch, target)),
        "repeats": torch.equal(first, again),
        "neighbour": torch.equal(first[1], lost[1]),
        "lost": bool(lost[0].isnan().any()),
    }


def company(device: str) -> dict[str, bool]:
    case = CASES["equal members"]
    return with_a_lost_member(fused.gradient, bank_of(case, device), *batch_of(case, device))


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


def steps(precision: str, device: str) -> float:
    """How far apart two one-layer banks of mixed shape and length are after six steps, against how far they went."""
    arch = [Architecture(layers=((h, n),), width=w, positions=1) for h, n, w in ((1, 4, 8), (3, 5, 20))]
    members = [Member(KthLargest(rank=1, length=t), a, seed=t) for t, a in zip((5, 8), arch, strict=True)]
    gradient = partial(fused.gradient, tile=Tile(precision=precision))
    return apart(members, replace(fused_path(), gradient=gradient), device)


def deep_steps(precision: str, device: str) -> float:
    """The same for banks of two layers."""
    shapes = ((((1, 4), (2, 3)), 8), (((2, 5), (1, 4)), 20))
    archs = [Architecture(layers=layers, width=width, positions=1) for layers, width in shapes]
    members = [Member(KthLargest(rank=2, length=6), arch, seed=k) for k, arch in enumerate(archs)]
    return apart(members, layered(precision), device)


def apart(members: list[Member], path: Path, device: str) -> float:
    recipe, found = Recipe(samples=48, validation=8, epochs=2, batch=16), []
    for way in (reference, replace(path, record=as_it_is)):
        run = _Run(members, recipe, device, way)
        start = run.bank.theta.detach().clone()
        run.epoch(0)
        run.epoch(1)
        found.append(run.bank.theta.detach() - start)
    return gap(found[1], found[0])


DEEP = {  # layers and width of each member, the length, samples in a batch
    "two layers": ([(((2, 8), (1, 8)), 16)] * 2, 12, 5),
    "mixed heads, head_dim and width": ([(((1, 3), (2, 5)), 9), (((3, 4), (1, 2)), 20)], 17, 3),
    "three layers": ([(((1, 4), (2, 4), (1, 4)), 8)], 5, 7),
    "longer than a tile": ([(((1, 4), (1, 4)), 8)], 140, 2),
    "too wide for one program": ([(((1, 4), (1, 40)), 300)], 3, 2),
    "four matrices a head, mixed lengths": ([(((2, 20), (1, 3)), 5), (((1, 4), (3, 9)), 12)], 9, 3),
    "a wide feed-forward": ([(((3, 8), (1, 8)), 100)], 5, 7),
    "the class token in the last layer": ([(((2, 4), (1, 8)), 9)] * 2, 10, 4),
    "sixty-four tokens, four matrices a head": ([(((6, 8), (6, 8)), 128)], 64, 2),
    "fifty-six tokens of mixed members": ([(((11, 2), (1, 10)), 90), (((4, 8), (2, 14)), 42)], 56, 2),
}


def deep(case: str, precision: str, device: str, tile: LayerTile | None = None) -> float:
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
    for path, dtype in ((layered(precision, tile), torch.float32), (reference, torch.float64)):
        bank = Bank(archs, 3, list(range(len(archs))), dtype=dtype, device=device)
        found.append(path.gradient(bank, Batch(data.to(dtype), which, rows, present), target.to(dtype)))
    return gap(*found)


ONCE = ("two layers", "four matrices a head, mixed lengths", "the class token in the last layer")


def guarding(device: str) -> dict[str, int]:
    """Addresses outside of a kernel's tensors, at shapes that once failed on a GPU; only the interpreter can say."""
    if device != "cpu":
        return {"launches": 0, "outside": 0, "caught": 0}
    from tests.guarded import guarded

    with guarded() as touched:
        for case in ("sixty-four tokens, four matrices a head", "fifty-six tokens of mixed members"):
            deep(case, "half", device)
        found = {"launches": touched.launches, "outside": touched.outside}
        theta = torch.zeros(2, 100)
        optimiser = AdamW(theta, torch.zeros(2), torch.zeros(2), steps=1, warmup=0.0)
        short = torch.zeros(4, 100)[:1]  # a gradient for one member of two, in memory that is ours
        fused.update(optimiser, theta, short, torch.ones(2, dtype=torch.bool))
    return {**found, "caught": touched.outside - found["outside"]}


def causal(precision: str, device: str) -> dict[str, float]:
    """A layer in which no token hears a later one, and its gradient, against the same written out in float64."""
    generator = torch.Generator().manual_seed(4)
    models, batch, length, embed, heads, hidden = 2, 3, 6, 8, 2, 12
    shapes = ((batch, length, embed), (heads, 2, embed, embed), (hidden, embed), (hidden,), (embed, hidden), (embed,),
              (batch, heads, embed))  # fmt: skip
    given = [(0.5 * torch.randn(models, *shape, generator=generator)).to(device) for shape in shapes]
    probe = torch.randn(models, *shapes[0], generator=generator).to(device)
    counts = torch.full((models,), heads, dtype=torch.int32, device=device)
    tile = LayerTile(precision=precision, feed=True)
    cut = tile.cut(length, embed, 4, hidden)
    assert cut is not None
    launch = _LayerLaunch(cut, tile, counts, counts, False, causal=True)
    here = [x.clone().requires_grad_() for x in given]
    there = [x.double().requires_grad_() for x in given]
    got = _Layer.apply(here[0], here[6], here[1], launch, *here[2:6])[0]
    x, matrices, inner, bias, outer, shift, _ = there
    scores = torch.einsum("kbte,khef,kbsf->kbhts", x, matrices[:, :, 0], x)
    later = torch.ones(length, length, device=device).triu(1).bool()
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    y = x + torch.einsum("kbhts,kbse,khef->kbtf", weights, x, matrices[:, :, 1])
    true = fed(y.flatten(1, 2), inner, bias, outer, shift, residual=True).view(y.shape)
    slopes = [torch.autograd.grad((out * probe).sum(), on[:6]) for out, on in ((got, here), (true, there))]
    return {"value": gap(got.detach(), true.detach()), "gradient": max(gap(a, b) for a, b in zip(*slopes, strict=True))}


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
            f"{name}, {kind}": gradients(case, kind, device)
            for name, case in CASES.items()
            for kind in ("ieee", "half")
        },
        "fine gradients": gradients(CASES["mixed heads, head_dim, width and length"], "fine", device),
        "tiny": tiny(device),
        "company": company(device),
        "update": update(device),
        "deep": {f"{name}, {kind}": deep(name, kind, device) for name in DEEP for kind in ("ieee", "half")},
        "fine": deep("mixed heads, head_dim and width", "half", device, LayerTile(feed=True, fine=True)),
        "fed": {name: deep(name, "half", device, LayerTile(feed=True, composed=32)) for name in ONCE},
        "guarding": guarding(device),
        "causal": {kind: causal(kind, device) for kind in ("ieee", "half")},
        "steps": {kind: steps(kind, device) for kind in ("ieee", "half")},
        "deep steps": {kind: deep_steps(kind, device) for kind in ("ieee", "half")},
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
