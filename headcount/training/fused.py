"""The collapsed bank with everything that touches a token, a sample or a parameter in a few kernels.

Once the last layer is collapsed, the tail is linear up to the read-out's GELU, so it too folds into one matrix a
head, with W_in, b_in the read-out's inner layer:

    y = <w, gelu(sum_h C_h pooled_h + c)> + b,  C_h = W_in W_O,h W_V,h W2,  c = W_in (cls + sum_h W_O,h W_V,h b2) + b_in

Composing these small matrices costs nothing beside the batch, and their gradients reach the true parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float16
from torch import Tensor

from headcount.training.bank import Bank, Stacked
from headcount.training.forward import Batch
from headcount.training.kernels import adamw, pool_backward, pool_forward, tail
from headcount.training.optimiser import BETA1, BETA2, EPS, AdamW

__all__ = ["Tile", "gradient", "pool", "update"]


@dataclass(frozen=True)
class Tile:
    """How the kernels cut the work: rows and columns of a tile, programs a member, and how factors are rounded.

    `precision` is "half" (float16 factors, float32 sums), "tf32" or "ieee" (float32 throughout).
    """

    rows: int = 128
    columns: int = 16
    parts: int = 8
    stages: int = 1
    precision: str = "half"
    tail_rows: int = 64

    def cut(self, longest: int, heads: int, width: int) -> dict[str, int]:
        """Samples, tokens and padded sizes of a tile; every side of a product is at least 16.

        >>> Tile().cut(longest=32, heads=4, width=32)
        {'WIDTH': 32, 'HEADS': 4, 'SAMPLES': 4, 'TOKENS': 32, 'num_warps': 4}
        """
        padded, wide = _power(heads), max(16, _power(width))
        rows = max(32, min(self.rows, 32 * self.rows // wide))
        tokens = min(_power(longest), rows)
        samples = max(1, min(rows // tokens, self.columns // padded))
        samples = max(samples, 16 // tokens)
        warps = min(8, max(1, samples * tokens * wide // 1024))
        padded = max(padded, 16 // samples)
        return {"WIDTH": wide, "HEADS": padded, "SAMPLES": samples, "TOKENS": tokens, "num_warps": warps}


def pool(
    batch: Batch,
    weight: Float[Tensor, "models width features"],
    bias: Float[Tensor, "models width"],
    directions: Float[Tensor, "models heads width"],
    tile: Tile | None = None,
) -> Float[Tensor, "models batch heads width"]:
    """What `forward.pool` computes, token rows read where they lie and activations kept on the chip."""
    out = _Pool.apply(weight, bias, directions, _Launch(batch, directions, tile or Tile()))
    assert isinstance(out, Tensor)
    return out


def pack(data: Float[Tensor, "sets samples length features"]) -> Float16[Tensor, "sets samples length lanes"]:
    """[x, 1] rounded to float16 and, beside it, what the rounding left out: aligned rows for the half tiles.

    >>> pack(torch.full((1, 1, 1, 2), 0.1))[0, 0, 0, [0, 1, 2, 8, 9]].tolist()
    [0.0999755859375, 0.0999755859375, 1.0, 2.4437904357910156e-05, 2.4437904357910156e-05]
    """
    features, lanes = data.shape[-1], _lanes(data.shape[-1])
    out = torch.zeros(*data.shape[:-1], lanes, dtype=torch.float16, device=data.device)
    out[..., :features] = data
    out[..., features] = 1
    out[..., lanes // 2 : lanes // 2 + features] = data - out[..., :features]
    return out


def packed(batch: Batch) -> Float16[Tensor, "sets samples length lanes"]:
    """The batch's data packed: as it was prepared, or now."""
    return pack(batch.data) if batch.packed is None else batch.packed


class Composed(NamedTuple):
    """Every member as the kernels see it; each field's gradient has the field's shape."""

    weight: Float[Tensor, "models width features"]
    bias: Float[Tensor, "models width"]
    directions: Float[Tensor, "models heads width"]
    mix: Float[Tensor, "models heads width width"]
    shift: Float[Tensor, "models width"]
    out_weight: Float[Tensor, "models 1 width"]
    out_bias: Float[Tensor, "models 1"]


def compose(bank: Bank, p: Stacked) -> Composed:
    """Fold the members' linear maps: scores into directions, everything after the pooling into `mix` and `shift`."""
    query, key, value, output = (p[f"attention.0.{name}"] for name in ("query", "key", "value", "output"))
    outer, moved, cls = p["encoder.outer.weight"], p["encoder.outer.bias"], p["cls"]
    inner = p["read_out.inner.weight"]
    asked = (query.flatten(1, 2) @ cls[..., None]).view(query.shape[:3]) * bank.scale[:, :1, None]
    directions = (asked[:, :, None] @ key)[:, :, 0] @ outer
    after, before = inner[:, None] @ output, value @ outer[:, None]
    still = value.flatten(1, 2) @ moved[..., None]
    shift = torch.baddbmm(p["read_out.inner.bias"][..., None], inner, cls[..., None])
    shift = torch.baddbmm(shift, after.transpose(1, 2).flatten(2), still)[..., 0]
    return Composed(
        p["encoder.inner.weight"], p["encoder.inner.bias"], directions, after @ before, shift,
        p["read_out.outer.weight"], p["read_out.outer.bias"],
    )  # fmt: skip


def gradient(
    bank: Bank,
    batch: Batch,
    target: Float[Tensor, "models batch"],
    tile: Tile | None = None,
) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean squared gap on its batch, for a bank of one layer."""
    theta = bank.theta.detach().requires_grad_()
    with torch.enable_grad():
        composed = compose(bank, bank.named(theta))
    _, slopes = squared_gap(Composed(*(part.detach().contiguous() for part in composed)), batch, target, tile)
    (out,) = torch.autograd.grad(composed, theta, grad_outputs=slopes)
    return out


@torch.no_grad()
def squared_gap(
    members: Composed, batch: Batch, target: Float[Tensor, "models batch"], tile: Tile | None = None
) -> tuple[Float[Tensor, " models"], Composed]:
    """Every member's mean squared gap and its gradient, in one pass: the tail knows the loss, so it turns around."""
    tile = tile or Tile()
    launch = _Launch(batch, members.directions, tile)
    pooled, level = launch.forward(members.weight, members.bias, members.directions)
    models, samples, heads, width = pooled.shape
    count = min(tile.tail_rows, max(16, _power(samples)))
    parts = -(-samples // count)
    new = pooled.new_empty
    loss, d_shift = new(models, parts), new(models, parts, width)
    d_mix = new(models, parts, heads, width, width)
    d_out_weight, d_out_bias = new(models, parts, 1, width), new(models, parts, 1)
    slope, delta = torch.empty_like(pooled), torch.empty_like(level)
    tail[(models, parts)](
        pooled, target.contiguous(), members.mix, members.shift, members.out_weight, members.out_bias,
        loss, slope, delta, d_mix, d_shift, d_out_weight, d_out_bias,
        samples, heads, width,
        WIDTH=(wide := max(16, _power(width))), SAMPLES=count, num_warps=8 if wide > 64 else 4,
        PRECISION="ieee" if tile.precision == "ieee" else "tf32",
    )  # fmt: skip
    first = launch.backward(members.weight, members.bias, members.directions, level, slope, delta)
    rest = (_add_up(part) for part in (d_mix, d_shift, d_out_weight, d_out_bias))
    return _add_up(loss), Composed(*first, *rest)


def update(
    optimiser: AdamW,
    theta: Float[Tensor, "models parameters"],
    gradient: Float[Tensor, "models parameters"],
    active: Bool[Tensor, " models"],
) -> None:
    """What `AdamW.update` does, in one pass over the parameters."""
    optimiser.step += 1
    models, parameters = theta.shape
    rise = max(1, round(optimiser.warmup * optimiser.steps))
    block = 1024
    adamw[(models, -(-parameters // block))](
        theta, gradient, optimiser.first, optimiser.second, optimiser.lr, optimiser.decay, active, optimiser.step,
        parameters, rise, max(1, optimiser.steps - rise),
        BETA1=BETA1, BETA2=BETA2, LOG_BETA1=math.log(BETA1), LOG_BETA2=math.log(BETA2), EPS=EPS, BLOCK=block,
    )  # fmt: skip


class _Launch:
    """One batch cut into tiles, for the forward kernel and the backward one."""

    def __init__(self, batch: Batch, directions: Tensor, tile: Tile) -> None:
        if batch.data.dtype != torch.float32:
            raise ValueError(f"the fused bank computes in float32, got {batch.data.dtype}")
        _, samples, longest, features = batch.data.shape
        self.models, self.batch = batch.rows.shape
        self.heads, self.width = directions.shape[1:]
        cut = tile.cut(longest, self.heads, self.width)
        self.parts = min(-(-self.batch // cut["SAMPLES"]), tile.parts)
        half = tile.precision == "half"
        data = packed(batch) if half else batch.data
        lengths = batch.which if batch.present is None else batch.present.sum(dim=1)
        self.inputs = (data, batch.which, batch.rows.contiguous(), lengths)
        self.sizes = (samples, self.batch, longest, self.heads, self.width)
        self.constants: dict[str, Any] = {
            **cut,
            "FEATURES": features,
            "LANES": (lanes := _lanes(features) if half else max(16, _power(features + 1))),
            "SLOTS": lanes // 2 if half else lanes,
            "STRIDE": lanes if half else features,
            "SINGLE": longest <= cut["TOKENS"],
            "RAGGED": batch.present is not None,
            "PRECISION": tile.precision,
            "num_stages": tile.stages,
        }

    def forward(self, weight: Tensor, bias: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        pooled = weight.new_empty(self.models, self.batch, self.heads, self.width)
        level = weight.new_empty(self.models, self.batch, self.heads)
        pool_forward[(self.models, self.parts)](
            *self.inputs, weight, bias, directions, pooled, level, *self.sizes, **self.constants
        )
        return pooled, level

    def backward(
        self, weight: Tensor, bias: Tensor, directions: Tensor, level: Tensor, slope: Tensor, delta: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        shapes = (weight.shape[1:], bias.shape[1:], directions.shape[1:])
        outs = [weight.new_empty(self.models, self.parts, *shape) for shape in shapes]
        pool_backward[(self.models, self.parts)](
            *self.inputs, weight, bias, directions, level, slope, delta, *outs, *self.sizes, **self.constants
        )
        d_weight, d_bias, d_directions = (_add_up(out) for out in outs)
        return d_weight, d_bias, d_directions


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, directions: Tensor, launch: _Launch) -> Tensor:
        weight, bias, directions = weight.contiguous(), bias.contiguous(), directions.contiguous()
        pooled, level = launch.forward(weight, bias, directions)
        ctx.launch = launch
        ctx.save_for_backward(weight, bias, directions, pooled, level)
        return pooled

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, bias, directions, pooled, level = ctx.saved_tensors
        slope = slope.contiguous()
        delta = (slope * pooled).sum(dim=-1)
        return *ctx.launch.backward(weight, bias, directions, level, slope, delta), None


def _add_up(parts: Tensor) -> Tensor:
    """The sum over the programs of each member, in a fixed order."""
    return parts[:, 0] if parts.shape[1] == 1 else parts.sum(dim=1)


def _power(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def _lanes(features: int) -> int:
    """Twice the features and the one, to a power of two of at least 16."""
    return max(16, 2 * _power(features + 1))
