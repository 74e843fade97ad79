"""What test_training_sublayers asks, answered in a process of its own: `python -m tests.sublayer_cases DEVICE`.

Each answer is a relative gap, in the Euclidean norm, against the plain bank in float64.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor

from headcount.nets import Architecture
from headcount.nets.causal import DecoderShape
from headcount.tasks.neighbours import Neighbour
from headcount.training.backends.choice import reference, sublayered
from headcount.training.backends.class_network import held
from headcount.training.backends.decoder_network import decoder_gradient, decoder_held
from headcount.training.backends.plain import Batch
from headcount.training.backends.sublayers import Rows, added, mapped
from headcount.training.backends.tiles import SublayerTile
from headcount.training.bank import Bank
from headcount.training.decoder_bank import DecoderBank
from headcount.training.decoder_paths import DecoderBatch, by_products, in_decoder_kernels
from headcount.training.decoding import DecoderMember, DecoderRecipe, _DecoderRun
from tests.fused_cases import with_a_lost_member

# Layers and width of each member, the members' lengths, samples in a batch, where the class token attends.
DEEP: dict[str, tuple[list[Any], list[int], int, str]] = {
    "two equal members": ([(((4, 8), (4, 8)), 32)] * 2, [32, 32], 2, "every"),
    "mixed heads, head_dim, width and length": ([(((2, 3), (1, 4)), 10), (((1, 5), (3, 2)), 20)], [7, 4], 9, "every"),
    "the class token in the last layer": ([(((2, 4), (1, 8)), 9)], [10], 4, "last"),
    "three layers": ([(((1, 4), (2, 4), (1, 4)), 8)], [5], 7, "every"),
    "more heads and hidden units than a chunk": ([(((7, 4), (2, 5)), 40)], [20], 4, "every"),
}
DECODERS: dict[str, tuple[DecoderShape, int, int]] = {  # shape, length, strings
    "two layers": (DecoderShape(((2, 4), (2, 4)), 8, 16, 5, context=12), 7, 10),
    "odd sizes and many places": (DecoderShape(((3, 5), (2, 7)), 20, 50, 9, context=130), 33, 3),
    "no places": (DecoderShape(((3, 5),), 20, 50, 9, context=30, positions="none"), 10, 3),
}


def gap(got: Tensor, true: Tensor) -> float:
    return ((got.double() - true.double()).norm(dim=1) / true.double().norm(dim=1)).max().item()


def problem(case: str, device: str) -> tuple[list[Architecture], Batch, Tensor]:
    members, lengths, samples, where = DEEP[case]
    archs = [Architecture(layers=layers, width=width, positions=1, class_token=where) for layers, width in members]
    generator, longest = torch.Generator().manual_seed(0), max(lengths)
    data = torch.randn(1, samples, longest, 4, generator=generator).to(device)
    target = torch.randn(len(archs), samples, generator=generator).to(device)
    rows = torch.stack([torch.randperm(samples, generator=generator) for _ in archs]).to(device)
    present = None
    if min(lengths) < longest:
        present = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(device)
    return archs, Batch(data, torch.zeros(len(archs), dtype=torch.int64, device=device), rows, present), target


def deep(case: str, precision: str, device: str) -> float:
    """The gradient of a bank of several layers, written out in kernels."""
    archs, batch, target = problem(case, device)
    banks = [Bank(archs, 3, list(range(len(archs))), dtype=d, device=device) for d in (torch.float32, torch.float64)]
    tile = SublayerTile(chunk=16, wide=16, hidden=16) if case.endswith("a chunk") else SublayerTile()
    assert held(banks[0], batch, tile)
    got = sublayered(precision, tile).gradient(banks[0], batch, target)
    wide = Batch(batch.data.double(), batch.which, batch.rows, batch.present)
    return gap(got, reference.gradient(banks[1], wide, target.double()))


def strings(shape: DecoderShape, length: int, count: int, device: str) -> DecoderBatch:
    generator = torch.Generator().manual_seed(3)
    ids, targets = (torch.randint(shape.vocab, (2, count, length), generator=generator) for _ in range(2))
    judged = torch.rand(2, count, length, generator=generator) < 0.4
    offset = torch.randint(shape.context - length + 1, (2, count), generator=generator)
    return DecoderBatch(*(t.to(device) for t in (ids, targets, judged, offset, judged.sum(dim=(1, 2)))))


def decoder(case: str, precision: str, device: str) -> float:
    """The gradient of a bank of decoders, written out in kernels."""
    shape, length, count = DECODERS[case]
    bank, wide = (DecoderBank(shape, [0, 1], dtype=d, device=device) for d in (torch.float32, torch.float64))
    noise = 0.1 * torch.randn(bank.theta.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    wide.theta = wide.theta + noise.to(device)
    bank.theta = wide.theta.float()
    batch, tile = strings(shape, length, count, device), SublayerTile(precision=precision)
    assert decoder_held(shape, length, torch.float32, tile)
    got, _ = decoder_gradient(shape, bank.theta, batch, tile)
    return gap(got, by_products().gradient(wide, batch))


def tiny(device: str) -> float:
    """Slopes smaller by exactly 2^40 leave the same digits: the read-out's outer layer and targets smaller by 2^20."""
    archs, batch, target = problem("the class token in the last layer", device)
    bank = Bank(archs, 3, [0], device=device)
    normal = bank.named(sublayered().gradient(bank, batch, target))
    for name in ("read_out.outer.weight", "read_out.outer.bias"):
        bank.named()[name].mul_(2.0**-20)
    small = bank.named(sublayered().gradient(bank, batch, target * 2.0**-20))
    names = ("encoder.inner.weight", "attention.0.query", "attention.1.value", "between.0.outer.weight")
    return max((small[name] * 2.0**40 - normal[name]).abs().max().item() for name in names)


def company(device: str) -> dict[str, bool]:
    archs, batch, target = problem("mixed heads, head_dim, width and length", device)
    return with_a_lost_member(sublayered().gradient, Bank(archs, 3, [0, 1], device=device), batch, target)


def guarding(device: str) -> dict[str, int]:
    """Addresses outside of a kernel's tensors; only the interpreter can say."""
    if device != "cpu":
        return {"launches": 0, "outside": 0}
    from tests.guarded import guarded

    with guarded() as touched:
        deep("mixed heads, head_dim, width and length", "half", device)
        decoder("odd sizes and many places", "half", device)
    return {"launches": touched.launches, "outside": touched.outside}


def run(device: str) -> float:
    """How far apart two ways are after sixteen steps of a small bank of decoders, against how far they went."""
    shape = DecoderShape(((1, 4),), embed_dim=8, width=8, vocab=8, context=20)
    members = [DecoderMember(Neighbour(), seed=k, data_seed=k) for k in range(2)]
    recipe, moved = DecoderRecipe(steps=16, batch=2, lengths=(4, 6), samples=2), []
    for path in (by_products(), in_decoder_kernels("ieee")):
        made = _DecoderRun(members, shape, recipe, (), device, path)
        assert made.path is path
        start = made.bank.theta.clone()
        made.stretch(0)
        moved.append(made.bank.theta - start)
    return gap(moved[1], moved[0])


def poison() -> None:
    """Memory that nobody wrote is NaN from here on, so that what a kernel leaves out is seen."""
    new, like = Tensor.new_empty, torch.empty_like

    def spoilt(out: Tensor) -> Tensor:
        return out.fill_(torch.nan) if out.is_floating_point() else out

    Tensor.new_empty = lambda self, *size, **more: spoilt(new(self, *size, **more))  # pyright: ignore[reportAttributeAccessIssue]
    torch.empty_like = lambda *given, **more: spoilt(like(*given, **more))  # pyright: ignore[reportAttributeAccessIssue]


def small(device: str) -> dict[str, float]:
    """Sums of rows and small products, odd sizes: how far they are from the ones in float64."""
    generator = torch.Generator().manual_seed(3)
    x, m, base = (torch.randn(3, *size, generator=generator).to(device) for size in ((70, 37), (37, 9), (70, 9)))
    rows, wide = Rows(x, x, None, "ieee"), x.double()
    filled = torch.tensor([[2] * 30 + [0] * 7, [70] * 30 + [65] * 7], dtype=torch.int32, device=device)
    there = (torch.arange(70)[:, None] >= filled[0].cpu()) & (torch.arange(70)[:, None] < filled[1].cpu())
    made = {
        "rows": (added(x), wide.sum(1)),
        "filled rows and a factor": (added(x, filled, 0.5), (wide * there.to(device)).sum(1) / 2),
        "product": (mapped(rows, x, m), wide @ m.double()),
        "product on a base": (mapped(rows, x, m, base), wide @ m.double() + base),
        "product on one base": (mapped(rows, x, m, base[:, :1].contiguous()), wide @ m.double() + base[:, :1]),
        "turned product": (mapped(rows, x, m.mT.contiguous(), turned=True), wide @ m.double()),
    }
    return {name: gap(got.flatten(1), true.flatten(1)) for name, (got, true) in made.items()}


def main(device: str) -> None:
    poison()
    once = {"three layers": ("ieee",), "the class token in the last layer": ("ieee",)}
    answers = {
        "deep": {f"{n}, {k}": deep(n, k, device) for n in DEEP for k in once.get(n, ("ieee", "half"))},
        "decoders": {f"{n}, {k}": decoder(n, k, device) for n in DECODERS for k in ("ieee", "half")},
        "tiny": tiny(device),
        "small": small(device),
        "company": company(device),
        "guarding": guarding(device),
        "run": run(device),
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
