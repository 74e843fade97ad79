"""Launches of the sublayers' kernels: attention, the class token's question, feed-forwards.

Parameters are read where they lie in a member's row of `theta`. Gradients are written at the same places into rows of a
buffer of shares, one for each program of a member, which are added up at the end in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.training.backends.kernels import (
    add_rows,
    fold_backward,
    fold_forward,
    heads_backward,
    heads_forward,
    hidden_backward,
    hidden_forward,
    question_backward,
    question_forward,
    through_map,
)
from headcount.training.backends.tiles import SublayerTile, power, spread

__all__ = ["Attending", "Feeding", "Folding", "Rows", "added", "all_share", "begins", "mapped", "or_other"]


FULL = 132 * 16  # programs that keep a device busy


def begins(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Where each parameter begins in a member's row."""
    out, total = {}, 0
    for name, shape in shapes.items():
        out[name], total = total, total + torch.Size(shape).numel()
    return out


@dataclass(frozen=True)
class Rows:
    """A bank's parameters, the buffer of shares of their gradient, and how long the sequences are."""

    theta: Tensor
    share: Tensor  # models, programs, parameters
    lengths: Tensor | None  # of each member; None where all are the longest
    precision: str = "half"

    @property
    def row(self) -> int:
        return self.theta.shape[1]


@dataclass(frozen=True)
class Attending:
    """The attention of one layer: where its matrices begin, its sizes, and what else happens in it."""

    at: dict[str, int]  # query, key, value, output, and with a norm scaling and moving
    heads: int
    dim: int
    embed: int
    steps: tuple[int, int]  # from one head's output matrix to the next, from one of its rows to the next
    scale: Tensor
    counts: Tensor
    tile: SublayerTile
    causal: bool = False
    norm: float = 0.0  # epsilon of the layer norm before it, 0: none
    programs: int | None = None  # of each member, backwards; by default as many as fill a device

    def cut(self, longest: int, back: bool) -> dict[str, Any]:
        made = self.tile.heads_cut(longest, self.embed, self.heads, self.dim, back)
        assert made is not None, "asked for more than a program holds"
        return made

    def parts(self, models: int, batch: int, longest: int, back: bool) -> int:
        if back and self.programs:
            return self.programs
        cut = self.cut(longest, back)
        return spread(models, -(-batch // (cut["ROWS"] // longest)), cut["num_warps"])

    def forward(self, rows: Rows, x: Tensor, directions: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x + attention(x), and what the class token's heads hear of x."""
        out = torch.empty_like(x)
        heard = None if directions is None else x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        asked, given = or_other(directions, x), or_other(heard, x)
        options, sizes = self._options(rows, x, directions, back=False)
        grid = (x.shape[0], self.parts(*x.shape[:3], back=False))
        heads_forward[grid](
            x, rows.theta, self.scale, self.counts, or_other(rows.lengths, self.counts), asked, given, out,
            rows.row, *self._places(), *sizes, **options,
        )  # fmt: skip
        return out, heard

    def backward(
        self, rows: Rows, x: Tensor, slope: Tensor, directions: Tensor | None, d_heard: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of x and of the directions, for every sample; the parameters' into the shares."""
        d_x = torch.empty_like(x)
        d_directions = None if directions is None else x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        options, sizes = self._options(rows, x, directions, back=True)
        grid = (x.shape[0], self.parts(*x.shape[:3], back=True))
        heads_backward[grid](
            x, rows.theta, self.scale, self.counts, or_other(rows.lengths, self.counts), or_other(directions, x),
            or_other(d_heard, x), slope, d_x, rows.share, or_other(d_directions, x), rows.row, rows.share.stride(0),
            *self._places(), *sizes, **options,
        )  # fmt: skip
        return d_x, d_directions

    def _places(self) -> tuple[int, ...]:
        names = ("query", "key", "value", "output", "scaling", "moving")
        return (*(self.at.get(name, 0) for name in names), *self.steps, self.scale.stride(0))

    def _options(
        self, rows: Rows, x: Tensor, directions: Tensor | None, back: bool
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        _, batch, longest, embed = x.shape
        cut = self.cut(longest, back)
        shared = all_share(directions)
        options = {
            **cut, "ASK": directions is not None, "NORM": self.norm > 0, "EPS": self.norm,
            "RAGGED": rows.lengths is not None, "CAUSAL": self.causal, "PRECISION": rows.precision, "num_stages": 1,
        }  # fmt: skip
        return options, (batch, longest, self.heads, -(-self.heads // cut["TOGETHER"]), shared, embed)

    def question(self, rows: Rows, x: Tensor, directions: Tensor) -> Tensor:
        """What the class token's heads hear of the last states."""
        heard = x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        grid, sizes, options = self._asking(rows, x, directions)
        question_forward[grid](x, or_other(rows.lengths, self.counts), directions, heard, *sizes, **options)
        return heard

    def question_back(self, rows: Rows, x: Tensor, directions: Tensor, d_heard: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the states and of the directions, for every sample."""
        d_x, d_directions = torch.empty_like(x), torch.empty_like(d_heard)
        grid, sizes, options = self._asking(rows, x, directions)
        lengths = or_other(rows.lengths, self.counts)
        question_backward[grid](x, lengths, directions, d_heard, d_x, d_directions, *sizes, **options)
        return d_x, d_directions

    def _asking(self, rows: Rows, x: Tensor, directions: Tensor) -> tuple[tuple[int, int], tuple[int, ...], dict]:
        models, batch, longest, embed = x.shape
        wide = max(16, power(embed))
        tall = max(64, min(128, 4096 // wide))
        samples = max(1, min(tall // longest, 32 // power(self.heads)))
        tall = max(32, power(samples * longest))
        samples = tall // longest
        asking = max(16, power(samples * power(self.heads)))
        options = {
            "ROWS": tall, "EMBED": wide, "ASKING": asking, "HEADS": power(self.heads),
            "RAGGED": rows.lengths is not None, "PRECISION": rows.precision, "num_warps": 4, "num_stages": 1,
        }  # fmt: skip
        shared = all_share(directions)
        return (models, -(-batch // samples)), (batch, longest, self.heads, shared, embed), options


@dataclass(frozen=True)
class Feeding:
    """A feed-forward: where its matrices begin, its sizes, and what else happens in it."""

    at: dict[str, int]  # inner, bias, outer, shift, and with a norm scaling and moving
    inputs: int
    hidden: int
    outputs: int
    tile: SublayerTile
    residual: bool = True
    gelu: bool = False
    norm: float = 0.0
    programs: int | None = None

    def cut(self, back: bool) -> dict[str, Any]:
        made = self.tile.hidden_cut(self.inputs, self.hidden, self.outputs, back, self.norm > 0)
        assert made is not None, "asked for more than a program holds"
        return made

    def parts(self, models: int, rows: int, back: bool) -> int:
        if back and self.programs:
            return self.programs
        cut = self.cut(back)
        return spread(models, -(-rows // cut["ROWS"]), cut["num_warps"])

    def forward(self, rows: Rows, x: Tensor, parts: int | None = None, precision: str | None = None) -> Tensor:
        """W2 act(W1 x + b1) + b2 for rows (models, ..., inputs), and x where it is a residual step."""
        count = x[0].numel() // self.inputs
        out = x.new_empty(*x.shape[:-1], self.outputs)
        grid = (x.shape[0], parts or self.parts(x.shape[0], count, back=False))
        hidden_forward[grid](
            x,
            rows.theta,
            out,
            rows.row,
            *self._places(),
            *self._sizes(count, False),
            **self._options(rows, False, precision),
        )
        return out

    def backward(
        self, rows: Rows, x: Tensor, slope: Tensor, share: Tensor | None = None, deeper: bool = True,
        precision: str | None = None,
    ) -> Tensor:  # fmt: skip
        """The gradient of x; the parameters' into the shares, or into others (models, programs, parameters)."""
        count, into = x[0].numel() // self.inputs, rows.share if share is None else share
        d_x = torch.empty_like(x) if deeper else x
        parts = self.parts(x.shape[0], count, back=True) if share is None else share.shape[1]
        hidden_backward[x.shape[0], parts](
            x, rows.theta, slope, d_x, into, rows.row, into.stride(0), *self._places(), *self._sizes(count, True),
            **self._options(rows, True, precision), DEEPER=deeper,
        )  # fmt: skip
        return d_x

    def _places(self) -> tuple[int, ...]:
        return tuple(self.at.get(name, 0) for name in ("inner", "bias", "outer", "shift", "scaling", "moving"))

    def _sizes(self, count: int, back: bool) -> tuple[int, ...]:
        return count, -(-self.hidden // self.cut(back)["CHUNK"]), self.inputs, self.hidden, self.outputs

    def _options(self, rows: Rows, back: bool, precision: str | None) -> dict[str, Any]:
        made = precision or rows.precision
        return {
            **self.cut(back), "RESIDUAL": self.residual, "GELU": self.gelu, "NORM": self.norm > 0, "EPS": self.norm,
            "FINE": made == "half" and not self.gelu, "PRECISION": made, "num_stages": 1,
        }  # fmt: skip


@dataclass(frozen=True)
class Folding:
    """The class token's heads of one layer as two square matrices each."""

    attending: Attending

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """asks and says, (models, heads * embed, embed) each."""
        a = self.attending
        asks, says = (rows.theta.new_empty(len(rows.theta), a.heads * a.embed, a.embed) for _ in range(2))
        fold_forward[len(asks), a.heads](
            rows.theta, a.scale, asks, says, rows.row, *self._places(), a.scale.stride(0), a.heads, a.dim, a.embed,
            **self._options(),
        )  # fmt: skip
        return asks, says

    def backward(self, rows: Rows, d_asks: Tensor, d_says: Tensor, share: Tensor) -> None:
        """The gradients of queries, keys, values and outputs into one share."""
        a = self.attending
        fold_backward[len(d_asks), a.heads](
            rows.theta, a.scale, d_asks, d_says, share, rows.row, share.stride(0), *self._places(), a.scale.stride(0),
            a.heads, a.dim, a.embed, **self._options(),
        )  # fmt: skip

    def _places(self) -> tuple[int, ...]:
        return tuple(self.attending.at[name] for name in ("query", "key", "value", "output"))

    def _options(self) -> dict[str, Any]:
        a = self.attending
        return {
            "EMBED": max(16, power(a.embed)), "DIM": max(16, power(a.dim)), "PRECISION": "fine", "num_warps": 4,
            "num_stages": 1,
        }  # fmt: skip


def added(
    x: Float[Tensor, "models rows columns"], filled: Int[Tensor, "2 columns"] | None = None, factor: float = 1.0
) -> Float[Tensor, "models columns"]:
    """The sum of the rows times a factor; `filled` says where they begin and end, column by column, if known."""
    models, rows, columns = x.shape
    out, wide = x.new_empty(models, columns), _wide(models, rows, columns)
    add_rows[models, -(-columns // wide)](
        x.contiguous(), out, or_other(filled, x), rows, columns, factor,
        ROWS=min(64, power(rows)), COLUMNS=wide, FILLED=filled is not None, num_warps=4,
    )  # fmt: skip
    return out


def _wide(models: int, rows: int, columns: int) -> int:
    """Columns of a program that adds rows: many where they fill a device all the same, so that each has enough to read.

    >>> _wide(24, 5, 200_000), _wide(64, 5, 9_000), _wide(24, 40, 200_000)
    (512, 128, 32)
    """
    if rows > 32:
        return 32
    return 512 if models * columns >= FULL * 512 else 128


def mapped(
    rows: Rows, x: Tensor, matrix: Tensor, base: Tensor | None = None, turned: bool = False
) -> Float[Tensor, "models rows outputs"]:
    """base + x M for every member, M given turned or not: small products, in which cuBLAS takes longer to begin."""
    models, count, inputs = x.shape
    outputs = matrix.shape[1 if turned else 2]
    out, wide = x.new_empty(models, count, outputs), max(16, min(64, power(outputs)))
    options = {
        "ROWS": 64, "INPUTS": max(16, min(64, power(inputs))), "OUTPUTS": wide, "TURNED": turned,
        "BASED": base is not None, "PRECISION": "tf32" if rows.precision == "half" else "ieee", "num_warps": 4,
    }  # fmt: skip
    based = 1 if base is None else base.shape[1]
    through_map[models, -(-count // 64), -(-outputs // wide)](
        x.contiguous(), matrix, or_other(base, x), out, count, inputs, outputs, based, **options
    )
    return out


def or_other(tensor: Tensor | None, otherwise: Tensor) -> Tensor:
    """What is not asked for is stood in for."""
    return otherwise if tensor is None else tensor


def all_share(directions: Tensor | None) -> int:
    """1 where all samples of a member ask along the same directions."""
    return int(directions is not None and directions.shape[1] == 1)
