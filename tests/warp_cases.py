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

from headcount.nets.causal import DecoderShape
from headcount.training.backends import decoder_network
from headcount.training.backends.choice import reference, warped
from headcount.training.backends.class_network import held
from headcount.training.backends.decoder_network import decoder_gradient, decoders_by_warps
from headcount.training.backends.plain import Batch
from headcount.training.backends.sublayers import Rows
from headcount.training.backends.tiles import SublayerTile
from headcount.training.backends.warp_sublayers import WarpAttending, WarpFeeding
from headcount.training.bank import Bank
from headcount.training.decoder_bank import DecoderBank
from headcount.training.decoder_paths import by_products
from tests.fused_cases import with_a_lost_member
from tests.sublayer_cases import DECODERS, DEEP, gap, poison, problem, strings

# embed, heads, dim, longest, batch, members of lengths that differ, the class token asks
ATTENTION = {
    "many heads of eight": (24, 5, 7, 33, 3, True, True),
    "a head of sixteen": (15, 1, 15, 20, 5, True, False),
    "one token": (16, 2, 16, 1, 3, False, False),
    "a group at a time": (64, 6, 16, 17, 2, False, True),
}
FEEDING = {"narrow": (7, 3, 9, False), "odd": (33, 50, 33, True), "a group at a time": (64, 256, 64, True)}
LETTERS = {  # shape, length, strings; a program has all tiles of a member
    "odd sizes and many places": DECODERS["odd sizes and many places"],
    "several groups and tiles": (DecoderShape(((4, 16),), 64, 256, 8, context=24), 20, 8),
    "sums that share out over lanes": (DecoderShape(((2, 16),), 32, 64, 8, context=24), 20, 5),
    "sums that do not": (DecoderShape(((3, 16),), 48, 96, 8, context=24), 9, 9),
}
ONCE = ("mixed heads, head_dim, width and length", "the class token in the last layer")


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
    tile = SublayerTile()
    attending = WarpAttending(
        at, heads, dim, embed, (embed * dim, dim), scale, counts, tile, device=device, ragged=ragged, asks=asks
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
    layer = WarpFeeding(at, inputs, hidden, outputs, SublayerTile(), residual, device=device)
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
    archs, batch, target = problem(case, device)
    archs = [replace(arch, **kind) for arch in archs]
    banks = [Bank(archs, 3, list(range(len(archs))), dtype=d, device=device) for d in (torch.float32, torch.float64)]
    assert held(banks[0], batch, SublayerTile(), warps=True)
    got = warped().gradient(banks[0], batch, target)
    wide = Batch(batch.data.double(), batch.which, batch.rows, batch.present)
    return gap(got, reference.gradient(banks[1], wide, target.double()))


def decoder(case: str, device: str) -> float:
    """The gradient of a bank of decoders with layers by warps: a norm before each half, nobody hears a later letter."""
    shape, length, count = LETTERS[case]
    bank, wide = (DecoderBank(shape, [0, 1], dtype=d, device=device) for d in (torch.float32, torch.float64))
    noise = 0.1 * torch.randn(bank.theta.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    wide.theta = wide.theta + noise.to(device)
    bank.theta = wide.theta.float()
    assert decoders_by_warps(shape, length)
    with mock.patch.object(decoder_network, "_parts", return_value=1):
        got, _ = decoder_gradient(shape, bank.theta, strings(shape, length, count, device), SublayerTile(), warps=True)
    return gap(got, by_products().gradient(wide, strings(shape, length, count, device)))


def company(device: str) -> dict[str, bool]:
    archs, batch, target = problem("mixed heads, head_dim, width and length", device)
    return with_a_lost_member(warped().gradient, Bank(archs, 3, [0, 1], device=device), batch, target)


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
    }
    print(json.dumps(answers))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], "all" in sys.argv)
