"""One batch of a one-layer bank cut into tiles for the pooling kernels, and where a member's parameters lie."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Float16
from torch import Tensor

from headcount.kernels.bank import Bank
from headcount.kernels.plain import Batch
from headcount.kernels.tiles import Tile, lanes, power
from headcount.kernels.triton import pool_backward, pool_forward

FULL, FEW = 1024, 16  # programs that keep a device busy, and the most of a member where members are few


def packed(data: Float[Tensor, "sets samples length features"]) -> Float16[Tensor, "sets samples length lanes"]:
    """[x, 1] rounded to float16 and, beside it, what the rounding left out."""
    features, lane_count = data.shape[-1], lanes(data.shape[-1])
    out = torch.zeros(*data.shape[:-1], lane_count, dtype=torch.float16, device=data.device)
    out[..., :features] = data
    out[..., features] = 1
    out[..., lane_count // 2 : lane_count // 2 + features] = data - out[..., :features]
    return out


def places(bank: Bank) -> dict[str, int]:
    """Where each parameter begins in a member's row."""
    names = {
        "weight": "encoder.inner.weight", "bias": "encoder.inner.bias", "outer": "encoder.outer.weight",
        "moved": "encoder.outer.bias", "cls": "cls", "query": "attention.0.query", "key": "attention.0.key",
        "value": "attention.0.value", "output": "attention.0.output", "inner": "read_out.inner.weight",
        "inner_bias": "read_out.inner.bias", "out_weight": "read_out.outer.weight", "out_bias": "read_out.outer.bias",
    }  # fmt: skip
    begins, total = {}, 0
    for name, shape in bank.shapes.items():
        begins[name], total = total, total + shape.numel()
    return {"row": total, **{f"at_{short}": begins[name] for short, name in names.items()}}


class ScaledSlopes(NamedTuple):
    """Slopes of the pooled values and of the levels over their `sizes`, each shared by so many `rows` of samples."""

    slope: Tensor
    delta: Tensor
    sizes: Tensor
    rows: int


class PoolLaunch:
    """One batch cut into tiles, for the forward kernel and the backward one."""

    def __init__(self, batch: Batch, directions: Tensor, tile: Tile) -> None:
        if batch.data.dtype != torch.float32:
            raise ValueError(f"the fused bank computes in float32, got {batch.data.dtype}")
        _, samples, longest, features = batch.data.shape
        self.models, self.batch = batch.rows.shape
        self.heads, self.width = directions.shape[1:]
        self.tile = tile
        half = tile.precision in ("half", "fine")
        self.kind = torch.float16 if tile.precision == "half" else torch.float32  # of pooled activations, on the way
        self.slope_kind = torch.float16 if half else torch.float32
        data = batch.data
        if half:
            data = packed(batch.data) if batch.packed is None else batch.packed
        lengths = batch.which if batch.present is None else batch.present.sum(dim=1)
        self.inputs = (data, batch.which, batch.rows.contiguous(), lengths)
        self.sizes = (samples, self.batch, longest, self.heads, self.width)
        lane_count = lanes(features) if half else max(16, power(features + 1))
        self.constants: dict[str, object] = {
            "FEATURES": features,
            "LANES": lane_count,
            "SLOTS": lane_count // 2 if half else lane_count,
            "STRIDE": lane_count if half else features,
            "RAGGED": batch.present is not None,
            "PRECISION": tile.precision,
            "num_stages": tile.stages,
        }

    def _cut(self) -> tuple[tuple[int, int], dict[str, object]]:
        """The grid of a pass and all its constants."""
        longest = self.sizes[2]
        cut = self.tile.cut(longest, self.heads, self.width)
        parts = max(self.tile.parts, min(FEW, FULL // self.models))
        grid = (self.models, min(-(-self.batch // cut["SAMPLES"]), parts))
        return grid, {**self.constants, **cut, "SINGLE": longest <= cut["TOKENS"]}

    def forward(
        self, weight: Tensor, bias: Tensor, directions: Tensor, kind: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Pooled activations and the softmaxes' tops and inverse sums; weights may be part of a longer row."""
        pooled = weight.new_empty(self.models, self.batch, self.heads, self.width, dtype=kind)
        level = weight.new_empty(2, self.models, self.batch, self.heads)
        rows = (weight.stride(0), bias.stride(0))
        grid, constants = self._cut()
        pool_forward[grid](*self.inputs, weight, bias, directions, pooled, level, *rows, *self.sizes, **constants)
        return pooled, level

    def backward(
        self,
        weight: Tensor, bias: Tensor, directions: Tensor, level: Tensor, slopes: ScaledSlopes,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """The programs' partial gradients of weight, bias and directions."""
        grid, constants = self._cut()
        shapes = (weight.shape[1:], bias.shape[1:], directions.shape[1:])
        d_weight, d_bias, d_directions = (weight.new_empty(*grid, *shape) for shape in shapes)
        rows = (weight.stride(0), bias.stride(0))
        pool_backward[grid](
            *self.inputs, weight, bias, directions, level, *slopes[:3], d_weight, d_bias, d_directions,
            slopes.sizes.shape[1], slopes.rows, *rows, *self.sizes, **constants, maxnreg=self.tile.registers,
        )  # fmt: skip
        return d_weight, d_bias, d_directions
