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

from headcount.training.backends.attention import Three, asked, written_out
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
HELD = 2048  # numbers of a feed-forward's matrix that stay on the chip from tile to tile, with their gradient
PROGRAMS = 528  # four for each multiprocessor of a large GPU


def in_kernels(precision: str = "half", tile: LayerTile | None = None) -> Touch:
    """A layer at once, or its three parts, with their products in one precision."""
    tile = replace(tile or LayerTile(), precision=precision)
    feeding, mixing = (partial(part, precision=precision) for part in (feed, mix))
    return Touch(mixing, ask, feeding, partial(layer, tile=tile))


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
    feeds = [p[f"{name}.{part}"] for part in ("inner.weight", "inner.bias", "outer.weight", "outer.bias")]
    (_, _, length, embed), hidden = tokens.shape, feeds[0].shape[1]
    cuts = [tile.cut(length, embed, query.shape[2], hidden, backward=back) for back in (False, True)]
    ragged = present is not None and present.ndim > 2
    if None in cuts or ragged or tokens.dtype != torch.float32 or power(length) * power(embed) > LARGEST:
        return by_parts(bank, p, number, tokens, cls, present, touch)
    scale, counts = bank.scale[:, number], bank.heads[:, number].contiguous()
    directions = asking(p, number, scale, cls)
    query = query * scale[:, None, None, None]
    matrices = [query.mT, key.mT, value.mT, output]
    if max(16, power(embed)) <= tile.composed:
        matrices = [query.mT @ key, value.mT @ output.mT]
    launch = _LayerLaunch(cuts[0] or {}, cuts[1] or {}, tile, counts, lengths_of(present, counts), present is not None)
    tokens, heard = _Layer.apply(tokens, directions, torch.stack(matrices, dim=2), launch, *feeds)  # pyright: ignore[reportGeneralTypeIssues]
    return tokens, fed(answered(p, number, cls, heard), *feeds, residual=True)


def lengths_of(present: Tensor | None, otherwise: Tensor) -> Int32[Tensor, " models"]:
    """How many tokens each member's samples have; what is not asked for is stood in for."""
    return otherwise if present is None else present.sum(dim=1, dtype=torch.int32)


@dataclass(frozen=True)
class _LayerLaunch:
    forward: dict[str, int]
    backward: dict[str, int]
    tile: LayerTile
    counts: Tensor
    lengths: Tensor
    ragged: bool
    causal: bool = False  # no token hears a later one

    def options(self, cut: dict[str, int]) -> dict[str, Any]:
        asked = {"RAGGED": self.ragged, "CAUSAL": self.causal, "FINE": self.tile.fine, "PRECISION": self.tile.precision}
        return {**cut, **asked, "num_stages": 1}

    def grid(self, models: int, batch: int, cut: dict[str, int]) -> tuple[int, int]:
        blocks = -(-batch // cut["SAMPLES"])
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
    """What `attention.asked` computes, every state read once, in float32."""
    large = power(states.shape[2]) * power(states.shape[3]) > LARGEST
    ragged = present is not None and present.ndim > 2
    if ragged or large or states.dtype != torch.float32:
        return asked(states, directions, present)
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
) -> Float[Tensor, "models rows outputs"]:
    """What `forward.fed` computes, without hidden activations in memory."""
    hidden, inputs = inner.shape[1:]
    if x.dtype != torch.float32 or power(hidden) * max(power(inputs), power(outer.shape[1])) > LARGEST:
        return fed(x, inner, bias, outer, shift, residual)
    out = _Feed.apply(x, inner, bias, outer, shift, residual, precision)
    assert isinstance(out, Tensor)
    return out


def _feed_cut(hidden: int, backward: bool) -> dict[str, int]:
    """Rows of a block and warps, as measured fastest on an H200."""
    return {"ROWS": 128 if hidden <= 32 else 32 if backward else 64, "num_warps": 4}


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
    """The tokens after a layer, and what the class token's heads hear of the tokens before it."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        x, directions, matrices, launch, inner, bias, outer, shift = given
        x, directions = x.contiguous(), directions.contiguous()
        (models, batch, longest, embed), (heads, many, _, dim), hidden = x.shape, matrices.shape[1:], inner.shape[1]
        cut, half = launch.forward, launch.tile.precision == "half"
        room = (models, heads, many, cut["EMBED"], cut["DIM"])
        kind = torch.float16 if half else x.dtype
        fine = x.dtype if launch.tile.fine else kind
        packed = _padded(matrices, room, kind)
        first = _padded(inner.mT, (models, cut["EMBED"], cut["HIDDEN"]), fine)
        second = _padded(outer.mT, (models, cut["HIDDEN"], cut["EMBED"]), kind)
        middle = torch.empty_like(x, dtype=fine)
        out = torch.empty_like(x)
        ctx.asking = _Asking(x, directions, launch.lengths, launch.ragged)
        heard = ctx.asking.forward(x, directions)
        ctx.sizes, ctx.launch, ctx.dim = (batch, longest, heads, embed, hidden), launch, dim
        layer_forward[launch.grid(models, batch, cut)](
            x, packed, launch.counts, launch.lengths, first, bias, second, shift, middle, out,
            bias.stride(0), shift.stride(0), *ctx.sizes, COMPOSED=many == 2, **launch.options(cut),
        )  # fmt: skip
        ctx.save_for_backward(x, directions, packed, middle, first, bias, second)
        return out, heard

    @staticmethod
    def backward(ctx: Any, slope: Tensor, heard: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, directions, packed, middle, first, bias, second = ctx.saved_tensors
        launch, (batch, _, _, embed, hidden) = ctx.launch, ctx.sizes
        cut, models, slope = launch.backward, x.shape[0], slope.contiguous()
        d_x, d_directions = ctx.asking.backward(x, directions, heard)
        grid = launch.grid(models, batch, cut)
        d_packed = x.new_zeros(models, grid[1], *packed.shape[1:])
        shapes = (first.shape[1:], (hidden,), second.shape[1:], (embed,))
        hold = cut["EMBED"] * cut["HIDDEN"] <= HELD
        shares = [(x.new_empty if hold else x.new_zeros)(models, grid[1], *shape) for shape in shapes]
        layer_backward[grid](
            x, packed, launch.counts, launch.lengths, first, bias, second, middle, slope, d_x, d_packed, *shares,
            bias.stride(0), *ctx.sizes, COMPOSED=packed.shape[2] == 2, **launch.options(cut), HOLD=hold,
            maxnreg=launch.tile.registers,
        )  # fmt: skip
        d_matrices = d_packed.sum(dim=1)[..., :embed, : ctx.dim]
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
        ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, shift: Tensor, residual: bool, precision: str
    ) -> Tensor:
        x = x.contiguous()
        (models, rows, inputs), (hidden, outputs) = x.shape, (inner.shape[1], outer.shape[1])
        ctx.sizes, ctx.strides = (inputs, hidden, outputs), tuple(w.stride(0) for w in (inner, bias, outer))
        ctx.constants = {
            **dict(zip(("INPUTS", "HIDDEN", "OUTPUTS"), (max(16, power(n)) for n in ctx.sizes), strict=True)),
            "RESIDUAL": residual, "PRECISION": precision, "num_stages": 1,
        }  # fmt: skip
        cut, out = _feed_cut(hidden, backward=False), x.new_empty(models, rows, outputs)
        feed_forward[models, _parts(models, rows, cut["ROWS"])](
            x, inner, bias, outer, shift, out, rows, *ctx.strides, shift.stride(0), *ctx.sizes, **cut, **ctx.constants
        )
        ctx.save_for_backward(x, inner, bias, outer)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, inner, bias, outer = ctx.saved_tensors
        (models, rows, _), (inputs, hidden, outputs) = x.shape, ctx.sizes
        cut, slope, deeper = _feed_cut(hidden, backward=True), slope.contiguous(), ctx.needs_input_grad[0]
        parts = _parts(models, rows, cut["ROWS"])
        d_x = torch.empty_like(x) if deeper else x
        shapes = ((hidden, inputs), (hidden,), (outputs, hidden), (outputs,))
        shares = [x.new_empty(models, parts, *shape) for shape in shapes]
        feed_backward[models, parts](
            x, inner, bias, outer, slope, d_x, *shares, rows, *ctx.strides, *ctx.sizes,
            DEEPER=deeper, **cut, **ctx.constants,
        )  # fmt: skip
        return d_x if deeper else None, *(share.sum(dim=1) for share in shares), None, None


def _parts(models: int, rows: int, block: int) -> int:
    """Programs of a member: enough to fill the device, none without a block."""
    return min(-(-rows // block), -(-PROGRAMS // models))
