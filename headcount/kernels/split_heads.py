"""The collapsed bank of wide networks in kernels: a head stays two thin maps instead of one large matrix.

With n the head_dim and N the width, one matrix of N by N a head costs a sample N N products and every program of the
tail a share of its gradient as large; the two maps A (N by n) and B (n by N) cost 2 n N:

    y = <w, gelu(sum_h A_h (B_h pooled_h + b_h) + c)> + b

A step is maps, pool, tail, pool backwards, heads' parameters, shared parameters: six kernels and AdamW's two.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.bank import Bank
from headcount.kernels.plain import Batch
from headcount.kernels.pool_launch import PoolLaunch, ScaledSlopes, places
from headcount.kernels.tiles import Tile, power
from headcount.kernels.triton import maps_backward, maps_forward, states_backward, tail_by_heads

# Rows of a program's products (more than 32 would be products of warp groups), and of a member's widths.
MOST_ROWS, WIDEST_MAP = 32, 128


class HeadMaps(NamedTuple):
    """What the kernels read of everything between the encoder's hidden layer and the GELU."""

    directions: Tensor  # models, heads, width
    before: Tensor  # B: models, heads, head_dim, width
    after: Tensor  # A^T, the same shape
    still: Tensor  # b: models, heads, head_dim
    asking: Tensor  # q, the same shape
    largest: Tensor  # |B|: models, programs
    shift: Tensor  # c: models, width


class TailShares(NamedTuple):
    """The tail's programs' partial gradients of the maps: (models, programs, *its shape)."""

    before: Tensor
    after: Tensor
    still: Tensor
    shift: Tensor
    out_weight: Tensor
    out_bias: Tensor


def splits(bank: Bank, tile: Tile) -> bool:
    """Whether this bank's heads are kept as two maps: wide enough to win by it, and no part beyond a program."""
    _, head_dim, _ = bank.shapes["attention.0.query"]
    wide = max(16, power(bank.shapes["read_out.inner.bias"][0]))
    return tile.split <= wide <= WIDEST_MAP and power(head_dim) <= MOST_ROWS


def gradient_by_heads(bank: Bank, batch: Batch, tile: Tile) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean squared gap on its batch, for a bank of one layer."""
    p = bank.named()
    weight, bias = p["encoder.inner.weight"], p["encoder.inner.bias"]
    cut = _Cut(bank, tile)
    maps = _maps(bank, cut)
    launch = PoolLaunch(batch, maps.directions, tile)
    pooled, level = launch.forward(weight, bias, maps.directions, launch.kind)
    slope = torch.empty_like(pooled, dtype=launch.slope_kind)
    slopes, partials = _tail(bank, cut, maps, pooled, level, batch.target.contiguous(), slope)
    first = launch.backward(weight, bias, maps.directions, level, slopes)
    return _unfolded(bank, cut, maps, partials, *first)


class _Cut:
    """Sizes of a bank, places of its parameters, and how the kernels cut them."""

    def __init__(self, bank: Bank, tile: Tile) -> None:
        self.heads, self.head_dim, self.embed = bank.shapes["attention.0.query"]
        self.width, self.features = bank.shapes["encoder.inner.weight"]
        self.places, self.tile = places(bank), tile
        self.wide = max(16, power(self.width))
        rows = max(tile.lines, power(self.head_dim))
        self.group = rows // self.head_dim
        self.groups = -(-self.heads // self.group)
        self.exact = "ieee" if tile.precision == "ieee" else "tf32x3"  # what is folded once is read by every sample
        self.sizes = {"heads": self.heads, "head_dim": self.head_dim, "embed": self.embed, "width": self.width}
        self.rows: dict[str, object] = {
            "GROUP": self.group, "ROWS": rows, "CHUNK": min(tile.chunk, max(16, power(self.embed))),
            "WIDTH": self.wide, "num_warps": 4, "num_stages": 1,
        }  # fmt: skip

    def at(self, *names: str) -> dict[str, int]:
        """The row's length and where these parameters begin in it."""
        return {"row": self.places["row"], **{f"at_{name}": self.places[f"at_{name}"] for name in names}}


def _maps(bank: Bank, cut: _Cut) -> HeadMaps:
    theta, models = bank.theta.detach(), len(bank.theta)
    new, lines = theta.new_empty, (models, cut.heads, cut.head_dim)
    kind = torch.float16 if cut.tile.precision == "half" else torch.float32  # as the products round them
    before, after = (new(*lines, cut.width, dtype=kind) for _ in range(2))
    directions, shift = new(models, cut.heads, cut.width), new(models, cut.width)
    maps = HeadMaps(directions, before, after, new(lines), new(lines), new(models, cut.groups), shift)
    where = cut.at("cls", "outer", "moved", "query", "key", "value", "output", "inner", "inner_bias")
    maps_forward[(models, cut.groups)](theta, bank.scale, *maps, **where, **cut.sizes, **cut.rows, PRECISION=cut.exact)
    return maps


def _tail(
    bank: Bank, cut: _Cut, maps: HeadMaps, pooled: Tensor, level: Tensor, target: Tensor, slope: Tensor
) -> tuple[ScaledSlopes, TailShares]:
    """The slopes, written into `slope`, and the shares."""
    models, samples, heads, width = pooled.shape
    out_weight, out_bias = bank.named()["read_out.outer.weight"], bank.named()["read_out.outer.bias"]
    count = max(16, min(power(samples), cut.tile.tail_rows))
    parts, new = -(-samples // count), maps.shift.new_empty
    thin = (models, parts, heads, cut.head_dim)
    before, after, wide = new(*thin, width), new(*thin, width), new(models, parts, width)
    partials = TailShares(before, after, new(thin), wide, torch.empty_like(wide), new(models, parts))
    loss, sizes, delta = new(models, parts), new(models, parts), torch.empty_like(level[0])
    tail_by_heads[(models, parts)](
        pooled, level[1], target, maps.before, maps.after, maps.still, maps.largest, maps.shift, out_weight, out_bias,
        loss, slope, delta, sizes, *partials,
        cut.places["row"], samples, heads, cut.head_dim, width, cut.groups,
        DIM=max(16, power(cut.head_dim)), WIDTH=cut.wide, SAMPLES=count, PRECISION=cut.tile.precision,
        num_warps=cut.tile.tail_warps, num_stages=1, maxnreg=cut.tile.tail_registers if cut.wide <= 64 else None,
    )  # fmt: skip
    return ScaledSlopes(slope, delta, sizes, count), partials


def _unfolded(
    bank: Bank, cut: _Cut, maps: HeadMaps, partials: TailShares, d_weight: Tensor, d_bias: Tensor, d_directions: Tensor
) -> Tensor:
    """All partial gradients added up and taken back to the member's parameters."""
    theta, models = bank.theta.detach(), len(bank.theta)
    out, parts = torch.empty_like(theta), {"parts": d_weight.shape[1], "tail_parts": partials.still.shape[1]}
    asked, before, after = (torch.empty_like(maps.before, dtype=theta.dtype) for _ in range(3))
    still, d_asking = torch.empty_like(maps.still), torch.empty_like(maps.still)
    exact = "half" if cut.tile.precision == "half" else cut.exact
    maps_backward[(models, cut.groups)](
        theta, bank.scale, out, maps.asking, d_directions, partials.before, partials.after, partials.still,
        asked, before, after, still, d_asking,
        **cut.at("cls", "outer", "moved", "query", "key", "value", "output", "inner"),
        **cut.sizes, **parts, **cut.rows, PRECISION=exact,
    )  # fmt: skip
    states = min(cut.tile.states, max(16, power(cut.embed)))
    states_backward[(models, -(-cut.embed // states))](
        theta, out, asked, before, after, still, d_asking, partials.shift,
        d_weight, d_bias, partials.out_weight, partials.out_bias,
        **cut.places, **cut.sizes, **parts, FEATURES=cut.features, LANES=power(cut.features),
        STATES=states, CHUNK=min(32, max(16, power(cut.heads * cut.head_dim))), WIDTH=cut.wide, PRECISION=exact,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return out
