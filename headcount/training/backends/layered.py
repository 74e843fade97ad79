"""The layers of deeper banks in kernels: a layer at once where a program holds it, and part by part where not.

What `plain` does by batched products is bound by writing queries, keys, values, scores and hidden activations; these
never leave the chip where a layer is one kernel (`layer`). Where it is too large for one, tokens asking tokens, the
class token asking them and feed-forwards are kernels, and queries, keys and values batched products. Factors of
products are rounded to float16 and summed in float32 ("half"), or float32 throughout ("ieee").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor

from headcount.training.backends.attention import Three, attended, written_out
from headcount.training.backends.kernels import (
    ask_backward,
    ask_forward,
    feed_backward,
    feed_forward,
    layer_backward,
    layer_forward,
    mix_backward,
    mix_forward,
)
from headcount.training.backends.plain import Touch, answered, asking, by_parts, fed
from headcount.training.backends.tiles import LayerTile, power
from headcount.training.bank import Bank, Stacked

__all__ = ["ask", "feed", "in_kernels", "layer", "mix"]

# What one program keeps on the chip: a sample's tokens, and a member's matrices. Beyond, batched products do it.
LONGEST, LARGEST = 128, 8192
PROGRAMS = 528  # four for each multiprocessor of a large GPU


def in_kernels(precision: str = "half", tile: LayerTile | None = None, at_once: bool = True) -> Touch:
    """A layer `at_once`, or its three parts, with their products in one precision."""
    tile = replace(tile or LayerTile(), precision=precision)
    feeding, mixing = partial(feed, precision=precision, cut=tile.feeding), partial(mix, precision=precision)
    return Touch(mixing, ask, feeding, partial(layer, tile=tile) if at_once else None)


def layer(
    bank: Bank,
    p: Stacked,
    number: int,
    tokens: Float[Tensor, "models batch length embed"],
    cls: Float[Tensor, "models batch embed"],
    present: Bool[Tensor, "models ... length"] | None,
    touch: Touch,
    tile: LayerTile,
) -> tuple[Tensor, Tensor]:
    """What `plain.by_parts` computes, the tokens' residual stream alone in memory; by parts where it is too large."""
    query, key, value, output = (p[f"attention.{number}.{name}"] for name in ("query", "key", "value", "output"))
    name = f"between.{number}"
    inner, bias, outer, shift = feeds = tuple(
        p[f"{name}.{part}"] for part in ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
    )
    cut = tile.cut(tokens.shape[2], tokens.shape[3], query.shape[2], inner.shape[1])
    ragged = present is not None and present.ndim > 2
    if cut is None or ragged or tokens.dtype != torch.float32 or (bank.residual, bank.activation) != (True, "relu"):
        return by_parts(bank, p, number, tokens, cls, present, touch)
    scale, counts = bank.scale[:, number], bank.heads[:, number].contiguous()
    every = bank.class_token == "every"
    directions = asking(p, number, scale, cls) if every else None
    query = query * scale[:, None, None, None]
    matrices = [query.mT, key.mT, value.mT, output]
    if cut["COMPOSED"]:
        matrices = [query.mT @ key, value.mT @ output.mT]
    launch = _LayerLaunch(cut, tile, counts, lengths_of(present, counts), present is not None)
    within = feeds if cut["FEED"] else ()
    tokens, heard = _Layer.apply(tokens, directions, torch.stack(matrices, dim=2), launch, *within)  # pyright: ignore[reportGeneralTypeIssues]
    if not within:
        tokens = touch.feed(tokens.flatten(1, 2), inner, bias, outer, shift, True).view(tokens.shape)
    if every:
        cls = fed(answered(p, number, cls, heard), inner, bias, outer, shift, residual=True)
    return tokens, cls


def lengths_of(present: Tensor | None, otherwise: Tensor) -> Int32[Tensor, " models"]:
    """How many tokens each member's samples have; what is not asked for is stood in for."""
    return otherwise if present is None else present.sum(dim=1, dtype=torch.int32)


@dataclass(frozen=True)
class _LayerLaunch:
    cut: dict[str, Any]
    tile: LayerTile
    counts: Tensor
    lengths: Tensor
    ragged: bool
    causal: bool = False  # no token hears a later one

    def options(self) -> dict[str, Any]:
        asked = {"RAGGED": self.ragged, "CAUSAL": self.causal, "FINE": self.tile.fine, "PRECISION": self.tile.precision}
        return {**self.cut, **asked, "num_stages": 1}

    def grid(self, models: int, batch: int) -> tuple[int, int]:
        blocks = -(-batch // self.cut["SAMPLES"])
        share = -(-blocks // min(blocks, -(-self.tile.programs // models)))  # equal shares: nobody waits for the last
        return models, -(-blocks // share)


def mix(
    three: Three, present: Bool[Tensor, "models ... tokens"] | None = None, precision: str = "half"
) -> Float[Tensor, "models batch tokens heads head_dim"]:
    """What `attention.written_out` computes, without scores in memory; written out where some tokens are absent."""
    if present is not None or three.shape[2] > LONGEST or three.dtype != torch.float32:
        return written_out(three, present)
    out = _Mix.apply(three, precision)
    assert isinstance(out, Tensor)
    return out


def ask(
    states: Float[Tensor, "models batch tokens embed"],
    directions: Float[Tensor, "models batch heads embed"],
    present: Bool[Tensor, "models ... tokens"] | None = None,
) -> Float[Tensor, "models batch heads embed"]:
    """What `attention.attended` computes, every state read once, in float32."""
    large = power(states.shape[2]) * power(states.shape[3]) > LARGEST
    ragged = present is not None and present.ndim > 2
    if ragged or large or states.dtype != torch.float32:
        return attended(states, directions, present)
    out = _Ask.apply(states, directions, present)
    assert isinstance(out, Tensor)
    return out


def feed(
    x: Float[Tensor, "models rows inputs"],
    inner: Float[Tensor, "models hidden inputs"],
    bias: Float[Tensor, "models hidden"],
    outer: Float[Tensor, "models outputs hidden"],
    shift: Float[Tensor, "models outputs"],
    residual: bool,
    precision: str = "half",
    cut: tuple[int, int] | None = None,
) -> Float[Tensor, "models rows outputs"]:
    """What `forward.fed` computes, without hidden activations in memory."""
    hidden, inputs = inner.shape[1:]
    if x.dtype != torch.float32 or power(hidden) * max(power(inputs), power(outer.shape[1])) > LARGEST:
        return fed(x, inner, bias, outer, shift, residual)
    out = _Feed.apply(x, inner, bias, outer, shift, residual, precision, cut)
    assert isinstance(out, Tensor)
    return out


def _feed_cut(hidden: int, backward: bool, cut: tuple[int, int] | None) -> dict[str, int]:
    """Rows of a block and warps: as measured fastest on an H200, or as asked for backwards."""
    rows, warps = cut if cut and backward else (128 if hidden <= 32 else 32 if backward else 64, 4)
    return {"ROWS": rows, "num_warps": warps}


def _sizes(slope: Tensor) -> Float[Tensor, " models"]:
    """Each member's largest slope, which scales the others to at most one."""
    return slope.flatten(1).abs().amax(dim=1).clamp(min=1e-30)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, three: Tensor, precision: str) -> Tensor:
        three = three.contiguous()
        models, batch, tokens, _, heads, dim = three.shape
        long = max(16, power(tokens))
        ctx.grid, ctx.sizes = (models * batch, heads), (tokens, heads, dim)
        ctx.constants = {
            "LENGTH": long, "DIM": max(16, power(dim)), "PRECISION": precision,
            "num_warps": min(8, max(1, long // 16)), "num_stages": 1,
        }  # fmt: skip
        mixed = three.new_empty(models, batch, tokens, heads, dim)
        mix_forward[ctx.grid](three, mixed, *ctx.sizes, **ctx.constants)
        ctx.save_for_backward(three)
        return mixed

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (three,) = ctx.saved_tensors
        out, batch = torch.empty_like(three), three.shape[1]
        slope = slope.contiguous()
        mix_backward[ctx.grid](three, slope, _sizes(slope), out, *ctx.sizes, batch, **ctx.constants)
        return out, None


class _Asking:
    """One launch of the class token's question: its grid, sizes and options."""

    def __init__(self, states: Tensor, directions: Tensor, lengths: Tensor, ragged: bool) -> None:
        (models, batch, tokens, embed), heads = states.shape, directions.shape[2]
        long, wide = power(tokens), power(embed)
        self.grid, self.sizes, self.lengths = (models * batch,), (tokens, heads, embed, batch), lengths
        self.constants = {
            "LENGTH": long, "EMBED": wide, "RAGGED": ragged,
            "num_warps": min(8, max(1, long * wide // 1024)), "num_stages": 1,
        }  # fmt: skip

    def forward(self, states: Tensor, directions: Tensor) -> Tensor:
        heard = torch.empty_like(directions)
        ask_forward[self.grid](states, directions, heard, self.lengths, *self.sizes, **self.constants)
        return heard

    def backward(self, states: Tensor, directions: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        d_states, d_directions, slope = torch.empty_like(states), torch.empty_like(directions), slope.contiguous()
        ask_backward[self.grid](
            states, directions, slope, d_states, d_directions, self.lengths, *self.sizes, **self.constants
        )
        return d_states, d_directions


class _Ask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, directions: Tensor, present: Tensor | None) -> Tensor:
        states, directions = states.contiguous(), directions.contiguous()
        none = torch.empty(1, dtype=torch.int32, device=states.device)
        ctx.asking = _Asking(states, directions, lengths_of(present, none), present is not None)
        ctx.save_for_backward(states, directions)
        return ctx.asking.forward(states, directions)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *ctx.asking.backward(*ctx.saved_tensors, slope), None


class _Layer(torch.autograd.Function):
    """The tokens after a layer (or after its attention), and what the class token's heads hear of those before it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, directions: Tensor | None, matrices: Tensor, launch: _LayerLaunch, *feeds: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous()
        (models, batch, longest, embed), (heads, many, _, dim), cut = x.shape, matrices.shape[1:], launch.cut
        kind = torch.float16 if launch.tile.precision == "half" else x.dtype
        packed = _padded(matrices, (models, heads, many, cut["EMBED"], cut["DIM"]), kind)
        ctx.asking = heard = None
        if directions is not None:
            directions = directions.contiguous()
            ctx.asking = _Asking(x, directions, launch.lengths, launch.ragged)
            heard = ctx.asking.forward(x, directions)
        out = torch.empty_like(x)
        first, bias, second, shift, middle, hidden = packed, x, packed, x, out, 0  # what nobody reads
        if cut["FEED"]:
            inner, bias, outer, shift = feeds
            hidden, fine = inner.shape[1], x.dtype if launch.tile.fine else kind
            first = _padded(inner.mT, (models, cut["EMBED"], cut["HIDDEN"]), fine)
            second = _padded(outer.mT, (models, cut["HIDDEN"], cut["EMBED"]), kind)
            middle = torch.empty_like(x, dtype=fine)
        ctx.sizes, ctx.launch, ctx.dim = (batch, longest, heads, embed, hidden), launch, dim
        layer_forward[launch.grid(models, batch)](
            x, packed, launch.counts, launch.lengths, first, bias, second, shift, middle, out,
            bias.stride(0), shift.stride(0), *ctx.sizes, **launch.options(),
        )  # fmt: skip
        kept = (middle, first, bias, second) if cut["FEED"] else ()
        ctx.save_for_backward(x, directions, packed, *kept)
        return out, heard

    @staticmethod
    def backward(ctx: Any, slope: Tensor, heard: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, directions, packed, *kept = ctx.saved_tensors
        launch, (batch, _, _, embed, hidden) = ctx.launch, ctx.sizes
        models, slope, asked = x.shape[0], slope.contiguous(), ctx.asking is not None
        d_x, d_directions = ctx.asking.backward(x, directions, heard) if asked else (torch.empty_like(x), None)
        grid = launch.grid(models, batch)
        d_packed = x.new_zeros(models, grid[1], *packed.shape[1:])
        middle, first, bias, second = kept or (x, packed, x, packed)
        shares = [d_packed] * 4
        if kept:
            shapes = (first.shape[1:], (hidden,), second.shape[1:], (embed,))
            shares = [x.new_empty(models, grid[1], *shape) for shape in shapes]
        layer_backward[grid](
            x, packed, launch.counts, launch.lengths, first, bias, second, middle, slope, d_x, d_packed, *shares,
            bias.stride(0), *ctx.sizes, **launch.options(), MORE=asked, maxnreg=launch.tile.registers,
        )  # fmt: skip
        d_matrices = d_packed.sum(dim=1)[..., :embed, : ctx.dim]
        if not kept:
            return d_x, d_directions, d_matrices, None
        d_inner, d_bias, d_outer, d_shift = (share.sum(dim=1) for share in shares)
        d_inner, d_outer = d_inner[:, :embed, :hidden].mT, d_outer[:, :hidden, :embed].mT
        return d_x, d_directions, d_matrices, None, d_inner, d_bias, d_outer, d_shift


def _padded(x: Tensor, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    out = torch.zeros(shape, dtype=kind, device=x.device)
    out[..., : x.shape[-2], : x.shape[-1]] = x
    return out


class _Feed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, shift: Tensor, residual: bool, precision: str,
        asked: tuple[int, int] | None,
    ) -> Tensor:  # fmt: skip
        x, ctx.asked = x.contiguous(), asked
        (models, rows, inputs), (hidden, outputs) = x.shape, (inner.shape[1], outer.shape[1])
        ctx.sizes, ctx.strides = (inputs, hidden, outputs), tuple(w.stride(0) for w in (inner, bias, outer))
        ctx.constants = {
            **dict(zip(("INPUTS", "HIDDEN", "OUTPUTS"), (max(16, power(n)) for n in ctx.sizes), strict=True)),
            "RESIDUAL": residual, "PRECISION": precision, "num_stages": 1,
        }  # fmt: skip
        cut, out = _feed_cut(hidden, False, asked), x.new_empty(models, rows, outputs)
        feed_forward[models, _parts(models, rows, cut["ROWS"])](
            x, inner, bias, outer, shift, out, rows, *ctx.strides, shift.stride(0), *ctx.sizes, **cut, **ctx.constants
        )
        ctx.save_for_backward(x, inner, bias, outer)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, inner, bias, outer = ctx.saved_tensors
        (models, rows, _), (inputs, hidden, outputs) = x.shape, ctx.sizes
        cut, slope, deeper = _feed_cut(hidden, True, ctx.asked), slope.contiguous(), ctx.needs_input_grad[0]
        parts = _parts(models, rows, cut["ROWS"])
        d_x = torch.empty_like(x) if deeper else x
        shapes = ((hidden, inputs), (hidden,), (outputs, hidden), (outputs,))
        shares = [x.new_empty(models, parts, *shape) for shape in shapes]
        feed_backward[models, parts](
            x, inner, bias, outer, slope, d_x, *shares, rows, *ctx.strides, *ctx.sizes,
            DEEPER=deeper, **cut, **ctx.constants,
        )  # fmt: skip
        return d_x if deeper else None, *(share.sum(dim=1) for share in shares), None, None, None


def _parts(models: int, rows: int, block: int) -> int:
    """Programs of a member: enough to fill the device, none without a block."""
    return min(-(-rows // block), -(-PROGRAMS // models))
