"""What test_training_warps asks, answered in a process of its own: `python -m tests.warp_cases DEVICE [all]`.

Each answer is a relative gap, in the Euclidean norm, against autograd in float64.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from headcount.kernels.backend import as_it_is, eager, everything, reference
from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cuda import decoder_network
from headcount.kernels.cuda.class_network import backend, held
from headcount.kernels.cuda.decoder_network import decoder_gradient, decoder_held
from headcount.kernels.cuda.sublayers import Rows, added, mapped
from headcount.kernels.cuda.token_sublayers import TokenAttention, TokenFeeding
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.kernels.optimiser import AdamW
from headcount.kernels.plain import Batch
from headcount.nets import Architecture
from headcount.nets.causal import DecoderShape
from headcount.tasks.letters import OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training import Member
from headcount.training.loop import _Run
from headcount.training.strings import LetterStrings, string_recipe
from tests.fused_cases import bank_reading, in_doubles, smallest, with_a_lost_member

# Layers and width of each member, the members' lengths, samples in a batch, where the class token attends.
DEEP: dict[str, tuple[list[Any], list[int], int, str]] = {
    "two equal members": ([(((4, 8), (4, 8)), 32)] * 2, [32, 32], 2, "every"),
    "mixed heads, head_dim, width and length": ([(((2, 3), (1, 4)), 10), (((1, 5), (3, 2)), 20)], [7, 4], 9, "every"),
    "the class token in the last layer": ([(((2, 4), (1, 8)), 9)], [10], 4, "last"),
    "three layers": ([(((1, 4), (2, 4), (1, 4)), 8)], [5], 7, "every"),
    "more heads and hidden units": ([(((7, 4), (2, 5)), 40)], [20], 4, "every"),
}
# embed, heads, dim, longest, batch, members of lengths that differ, the class token asks
ATTENTION = {
    "many heads of eight": (24, 5, 7, 33, 3, True, True),
    "a head of sixteen": (15, 1, 15, 20, 5, True, False),
    "one token": (16, 2, 16, 1, 3, False, False),
    "a group at a time": (64, 6, 16, 17, 2, False, True),
}
FEEDING = {"narrow": (7, 3, 9, False), "odd": (33, 50, 33, True), "a group at a time": (64, 256, 64, True)}
LETTERS = {  # shape, length, strings; a program has all tiles of a member
    "two layers": (DecoderShape(((2, 4), (2, 4)), 8, 16, 5, context=12), 7, 10),
    "odd sizes and many places": (DecoderShape(((3, 5), (2, 7)), 20, 50, 9, context=130), 33, 3),
    "no places": (DecoderShape(((3, 5),), 20, 50, 9, context=30, positions="none"), 10, 3),
    "several groups and tiles": (DecoderShape(((4, 16),), 64, 256, 8, context=24), 20, 8),
    "sums that share out over lanes": (DecoderShape(((2, 16),), 32, 64, 8, context=24), 20, 5),
    "sums that do not": (DecoderShape(((3, 16),), 48, 96, 8, context=24), 9, 9),
}
ONCE = ("mixed heads, head_dim, width and length", "the class token in the last layer")


def gap(got: Tensor, true: Tensor) -> float:
    """The largest of the members'."""
    return ((got.double() - true.double()).norm(dim=1) / true.double().norm(dim=1)).max().item()


def problem(case: str, device: str) -> tuple[list[Architecture], Batch]:
    members, lengths, samples, where = DEEP[case]
    archs = [Architecture(layers=layers, width=width, positions=1, class_token=where) for layers, width in members]
    generator, longest = torch.Generator().manual_seed(0), max(lengths)
    data = torch.randn(1, samples, longest, 4, generator=generator).to(device)
    target = torch.randn(len(archs), samples, generator=generator).to(device)
    rows = torch.stack([torch.randperm(samples, generator=generator) for _ in archs]).to(device)
    present = None
    if min(lengths) < longest:
        present = (torch.arange(longest) < torch.tensor(lengths)[:, None]).to(device)
    return archs, Batch(data, torch.zeros(len(archs), dtype=torch.int64, device=device), rows, target, present)


def strings(shape: DecoderShape, length: int, count: int, device: str) -> StringBatch:
    generator = torch.Generator().manual_seed(3)
    ids, targets = (torch.randint(shape.vocab, (2, count, length), generator=generator) for _ in range(2))
    judged = torch.rand(2, count, length, generator=generator) < 0.4
    offset = torch.randint(shape.context - length + 1, (2, count), generator=generator)
    return StringBatch(*(t.to(device) for t in (ids, targets, judged, offset, judged.sum(dim=(1, 2)))))


def attention(case: str, device: str) -> dict[str, float]:
    """States, slopes and the gradients of all four matrices of attention, and of the class token's question in it."""
    embed, heads, dim, longest, batch, ragged, asks = ATTENTION[case]
    generator, models, each = torch.Generator().manual_seed(0), 2, heads * dim * embed
    given = [torch.randn(models, batch, longest, embed, generator=generator) for _ in range(2)]
    theta = torch.randn(models, 4 * each + 5, generator=generator) * embed**-0.5
    directions = torch.randn(models, batch, heads, embed, generator=generator) if asks else None
    d_heard = torch.randn(models, batch, heads, embed, generator=generator) * 1e-3 if asks else None
    at = {name: 2 + i * each for i, name in enumerate(("query", "key", "value", "output"))}
    lengths = torch.tensor([longest, max(1, longest - 3)], dtype=torch.int32) if ragged else None
    counts = torch.tensor([heads, max(1, heads - 1)], dtype=torch.int32)
    x, slope, theta, counts = (t.to(device) for t in (given[0], given[1] * 1e-4, theta, counts))
    lengths, directions, d_heard = (None if t is None else t.to(device) for t in (lengths, directions, d_heard))
    scale = torch.full((models,), dim**-0.5, device=device)
    attending = TokenAttention(
        at, heads, dim, embed, (embed * dim, dim), scale, counts, device=device, ragged=ragged, asks=asks
    )
    parts = attending.parts(models, batch, longest, back=True)
    rows = Rows(theta, theta.new_zeros(models, parts, theta.shape[1]), lengths)
    out, heard = attending.forward(rows, x, directions)
    d_x, d_directions = attending.backward(rows, x, slope, directions, d_heard)
    wide = [t.double().requires_grad_() for t in (x, theta)] + (
        [] if directions is None else [directions.double().requires_grad_()]
    )
    true, true_heard = _attention(wide, at, counts, lengths, scale, (heads, dim, embed))
    lost = (true * slope).sum() + (0 if d_heard is None else (true_heard * d_heard).sum())
    slopes = torch.autograd.grad(lost, wide)
    share = rows.share.sum(dim=1)
    found = {"out": _off(out - x, true - wide[0]), "slopes": _off(d_x - slope, slopes[0] - slope)}
    for name, begin in at.items():
        found[name] = _off(share[:, begin : begin + each], slopes[1][:, begin : begin + each])
    found["elsewhere"] = float(share[:, :2].abs().max() + share[:, 2 + 4 * each :].abs().max())
    if heard is not None and d_directions is not None:
        found |= {"heard": _off(heard, true_heard), "directions": _off(d_directions, slopes[2])}
    return found


def _attention(
    wide: list[Tensor], at: dict[str, int], counts: Tensor, lengths: Tensor | None, scale: Tensor, sizes: Any
):
    (x, theta), (heads, dim, embed) = wide[:2], sizes
    outs, heard = [], []
    for k in range(len(x)):
        length = x.shape[2] if lengths is None else int(lengths[k])
        matrix = {name: theta[k, begin : begin + heads * dim * embed] for name, begin in at.items()}
        q, key, v = (matrix[name].view(heads, dim, embed) for name in ("query", "key", "value"))
        o, y = matrix["output"].view(heads, embed, dim), x[k]
        for h in range(int(counts[k])):
            scores = (x[k] @ q[h].T) @ (x[k, :, :length] @ key[h].T).mT * scale[k].double()
            y = y + scores.softmax(dim=-1) @ (x[k, :, :length] @ v[h].T) @ o[h].T
        outs.append(y)
        if len(wide) > 2:
            heard.append((wide[2][k] @ x[k, :, :length].mT).softmax(dim=-1) @ x[k, :, :length])
    return torch.stack(outs), torch.stack(heard) if heard else torch.zeros(())


def feeding(case: str, device: str) -> dict[str, float]:
    """Outputs, slopes and the gradients of a feed-forward's four parameters."""
    inputs, hidden, outputs, residual = FEEDING[case]
    generator, models, count = torch.Generator().manual_seed(0), 2, 70
    sizes = {"inner": hidden * inputs, "bias": hidden, "outer": outputs * hidden, "shift": outputs}
    at, end = {}, 1
    for name, size in sizes.items():
        at[name], end = end, end + size
    x, slope = (
        torch.randn(models, count, inputs, generator=generator),
        torch.randn(models, count, outputs, generator=generator),
    )
    theta = torch.randn(models, end + 3, generator=generator) * 0.3
    x, slope, theta = (t.to(device) for t in (x, slope * 1e-5, theta))
    layer = TokenFeeding(at, inputs, hidden, outputs, residual, device=device)
    rows = Rows(theta, theta.new_zeros(models, layer.parts(models, count, back=True), theta.shape[1]), None)
    out, d_x = layer.forward(rows, x), layer.backward(rows, x, slope)
    wide = [t.double().requires_grad_() for t in (x, theta)]
    part = {name: wide[1][:, at[name] : at[name] + sizes[name]] for name in at}
    inner, outer = part["inner"].view(models, hidden, inputs), part["outer"].view(models, outputs, hidden)
    true = torch.relu(wide[0] @ inner.mT + part["bias"][:, None]) @ outer.mT + part["shift"][:, None]
    true = true + wide[0] if residual else true
    slopes = torch.autograd.grad((true * slope).sum(), wide)
    share = rows.share.sum(dim=1)
    found = {"out": _off(out, true), "slopes": _off(d_x, slopes[0])}
    found |= {
        name: _off(share[:, at[name] : at[name] + n], slopes[1][:, at[name] : at[name] + n])
        for name, n in sizes.items()
    }
    return found | {"elsewhere": float(share[:, :1].abs().max() + share[:, end:].abs().max())}


def _off(got: Tensor, true: Tensor) -> float:
    """Relative to the truth; where that is nothing (one token asks nothing), how much is there."""
    size = true.norm().item()
    return (got.double() - true).norm().item() / size if size > 1e-12 else got.norm().item()


def deep(case: str, device: str, **kind: Any) -> float:
    """The gradient of a whole bank."""
    archs, batch = problem(case, device)
    archs = [replace(arch, **kind) for arch in archs]
    bank, wide = (bank_reading(archs, 3, device, dtype) for dtype in (torch.float32, torch.float64))
    assert held(bank, batch)
    return gap(network(bank, batch), reference.gradient(ClassToken(), wide, in_doubles(batch)))


def network(bank: Bank, batch: Batch) -> Tensor:
    """The gradient by the programs."""
    return backend.gradient(ClassToken(), bank, batch)


def decoder(case: str, device: str) -> float:
    """The gradient of a bank of decoders with layers by warps: a norm before each half, nobody hears a later letter."""
    shape, length, count = LETTERS[case]
    bank, wide = (Bank([shape] * 2, [0, 1], dtype=d, device=device) for d in (torch.float32, torch.float64))
    noise = 0.1 * torch.randn(bank.theta.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    wide.theta = wide.theta + noise.to(device)
    bank.theta = wide.theta.float()
    batch = strings(shape, length, count, device)
    assert decoder_held(shape, length)
    with mock.patch.object(decoder_network, "_parts", return_value=1):
        got, _ = decoder_gradient(shape, bank.theta, batch)
    return gap(got, reference.gradient(NextLetter(), wide, batch))


def company(device: str) -> dict[str, bool]:
    archs, batch = problem("mixed heads, head_dim, width and length", device)
    return with_a_lost_member(network, bank_reading(archs, 3, device), batch)


def tiny(device: str) -> float:
    """As in `fused_cases`: gradients through slopes far below the smallest float16, against 2^40 times larger ones."""
    archs, batch = problem("the class token in the last layer", device)
    names = ("encoder.inner.weight", "attention.0.query", "attention.1.value", "between.0.outer.weight")
    return smallest(network, bank_reading(archs, 3, device), batch, names)


def guarding(device: str) -> dict[str, int]:
    """Addresses outside of the tensors of Triton's kernels among the programs; only the interpreter can say."""
    if device != "cpu":
        return {"launches": 0, "outside": 0}
    from tests.guarded import guarded

    with guarded() as touched:
        deep("mixed heads, head_dim, width and length", device)
        decoder("odd sizes and many places", device)
    return {"launches": touched.launches, "outside": touched.outside}


def descent(optimiser: AdamW, theta: Tensor, gradient: Tensor, active: Tensor) -> None:
    """Along the gradient itself: AdamW would divide one that is nearly zero, rounding and all, by its own size."""
    theta.sub_(0.1 * gradient)


def run(device: str) -> float:
    """How far apart two ways are after sixteen steps of a small bank of decoders, against how far they went."""
    shape = DecoderShape(((1, 4),), embed_dim=8, width=8, vocab=8, context=20)
    members = [Member(OnLengths(Neighbour(), (4, 6)), shape, seed=k, data_seed=k) for k in range(2)]
    recipe, moved = string_recipe(steps=16, batch=2, samples=2), []
    for way in (eager, decoder_network.backend):
        by_descent = replace(way, holds=everything, update=descent, record=as_it_is)
        made = _Run(members, recipe, device, by_descent, LetterStrings, None)
        start = made.bank.theta.clone()
        made.round(0)
        moved.append(made.bank.theta - start)
    return gap(moved[1], moved[0])


def small(device: str) -> dict[str, float]:
    """Sums of rows and small products, odd sizes: how far they are from the ones in float64."""
    generator = torch.Generator().manual_seed(3)
    x, m, base = (torch.randn(3, *size, generator=generator).to(device) for size in ((70, 37), (37, 9), (70, 9)))
    wide, filled = x.double(), torch.tensor([[2] * 30 + [0] * 7, [70] * 30 + [65] * 7], dtype=torch.int32)
    there = (torch.arange(70)[:, None] >= filled[0]) & (torch.arange(70)[:, None] < filled[1])
    made = {
        "rows": (added(x), wide.sum(1)),
        "filled rows and a factor": (added(x, filled.to(device), 0.5), (wide * there.to(device)).sum(1) / 2),
        "product": (mapped(x, m), wide @ m.double()),
        "product on a base": (mapped(x, m, base), wide @ m.double() + base),
        "product on one base": (mapped(x, m, base[:, :1].contiguous()), wide @ m.double() + base[:, :1]),
        "transposed product": (mapped(x, m.mT.contiguous(), transposed=True), wide @ m.double()),
    }
    return {name: gap(got.flatten(1), true.flatten(1)) for name, (got, true) in made.items()}


def poison() -> None:
    """Memory that nobody wrote is NaN from here on, so that what a kernel leaves out is seen."""
    new, like = Tensor.new_empty, torch.empty_like

    def spoilt(out: Tensor) -> Tensor:
        return out.fill_(torch.nan) if out.is_floating_point() else out

    Tensor.new_empty = lambda self, *size, **more: spoilt(new(self, *size, **more))  # pyright: ignore[reportAttributeAccessIssue]
    torch.empty_like = lambda *given, **more: spoilt(like(*given, **more))  # pyright: ignore[reportAttributeAccessIssue]


def main(device: str, every: bool) -> None:
    poison()
    answers = {
        "attention": {name: attention(name, device) for name in ATTENTION},
        "feeding": {name: feeding(name, device) for name in FEEDING},
        "deep": {name: deep(name, device) for name in (DEEP if every else ONCE)}
        | {"no residuals": deep("the class token in the last layer", device, residual=False)}
        | {"linear embedding": deep("mixed heads, head_dim, width and length", device, embedding="linear")}
        | {"gelu": deep("mixed heads, head_dim, width and length", device, activation="gelu")},
        "decoders": {name: decoder(name, device) for name in LETTERS},
        "company": company(device),
        "tiny": tiny(device),
        "small": small(device),
        "guarding": guarding(device),
        "run": run(device),
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], "all" in sys.argv)
