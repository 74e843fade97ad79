"""Launches of Triton kernels for what is small beside the tokens: the class token's maps and feed-forwards, sums.

Parameters are read where they lie in a member's row of `theta`. Gradients are written at the same places into rows of a
buffer of partial gradients, one for each program of a member, which are added up at the end in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.kernels.tiles import FeedTile, power, spread
from headcount.kernels.triton import (
    add_rows,
    fold_backward,
    fold_forward,
    hidden_backward,
    hidden_forward,
    through_map,
)

FULL = 132 * 16  # programs that keep a device busy


def begins(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Where each parameter begins in a member's row."""
    out, total = {}, 0
    for name, shape in shapes.items():
        out[name], total = total, total + torch.Size(shape).numel()
    return out


@dataclass(frozen=True)
class Rows:
    """A bank's parameters, the buffer of their partial gradients, and how long the sequences are."""

    theta: Tensor
    share: Tensor  # models, programs, parameters
    lengths: Tensor | None  # of each member; None where all are the longest

    @property
    def row(self) -> int:
        return self.theta.shape[1]


@dataclass(frozen=True)
class FeedPlace:
    """A feed-forward: where its matrices begin in a member's row, its sizes, and what else happens in it."""

    at: dict[str, int]  # inner, bias, outer, shift, and with a norm scaling and moving
    inputs: int
    hidden: int
    outputs: int
    residual: bool = True
    gelu: bool = False
    norm: float = 0.0  # epsilon of the layer norm before it, 0: none

    def places(self) -> tuple[int, ...]:
        """Where each part begins, in the kernels' order."""
        return tuple(self.at.get(name, 0) for name in ("inner", "bias", "outer", "shift", "scaling", "moving"))


@dataclass(frozen=True)
class Feeding(FeedPlace):
    """A feed-forward of few rows, the class token's, which carries the answer: factors with twice the bits."""

    def cut(self, back: bool) -> dict[str, int] | None:
        """Sizes of a tile; None where a program cannot hold it."""
        return FeedTile().cut(self.inputs, self.hidden, self.outputs, back, self.norm > 0)

    def parts(self, models: int, rows: int, back: bool) -> int:
        """Programs of each member."""
        return spread(models, -(-rows // self._cut(back)["ROWS"]), self._cut(back)["num_warps"])

    def forward(self, rows: Rows, x: Tensor) -> Tensor:
        """W2 act(W1 x + b1) + b2 for rows (models, ..., inputs), and x where it is a residual step."""
        count = x[0].numel() // self.inputs
        out = x.new_empty(*x.shape[:-1], self.outputs)
        hidden_forward[x.shape[0], self.parts(x.shape[0], count, back=False)](
            x, rows.theta, out, rows.row, *self.places(), *self._sizes(count, False), **self._options(False)
        )
        return out

    def backward(self, rows: Rows, x: Tensor, slope: Tensor, share: Tensor) -> Tensor:
        """The gradient of x; the parameters' into the partial ones (models, programs, parameters)."""
        count, d_x = x[0].numel() // self.inputs, torch.empty_like(x)
        hidden_backward[x.shape[0], share.shape[1]](
            x, rows.theta, slope, d_x, share, rows.row, share.stride(0), *self.places(), *self._sizes(count, True),
            **self._options(True), DEEPER=True,
        )  # fmt: skip
        return d_x

    def _cut(self, back: bool) -> dict[str, int]:
        tile = self.cut(back)
        assert tile is not None, "asked for more than fits into a program"
        return tile

    def _sizes(self, count: int, back: bool) -> tuple[int, ...]:
        return count, -(-self.hidden // self._cut(back)["CHUNK"]), self.inputs, self.hidden, self.outputs

    def _options(self, back: bool) -> dict[str, object]:
        return {
            **self._cut(back), "RESIDUAL": self.residual, "GELU": self.gelu, "NORM": self.norm > 0, "EPS": self.norm,
            "FINE": False, "PRECISION": "fine", "num_stages": 1,
        }  # fmt: skip


@dataclass(frozen=True)
class HeadPlace:
    """The heads of one layer: where their matrices begin in a member's row, and their sizes.

    `steps` lead from one head's output matrix to the next, and from one of its rows to the next.
    """

    at: dict[str, int]  # query, key, value, output, and with a norm scaling and moving
    heads: int
    dim: int
    embed: int
    steps: tuple[int, int]
    scale: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Folding:
    """The class token's heads of one layer as two square matrices each."""

    attending: HeadPlace

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """QK and VO, (models, heads * embed, embed) each."""
        a = self.attending
        qk, vo = (rows.theta.new_empty(len(rows.theta), a.heads * a.embed, a.embed) for _ in range(2))
        fold_forward[len(qk), a.heads](
            rows.theta, a.scale, qk, vo, rows.row, *self._places(), a.scale.stride(0), a.heads, a.dim, a.embed,
            **self._options(),
        )  # fmt: skip
        return qk, vo

    def backward(self, rows: Rows, d_asks: Tensor, d_says: Tensor, share: Tensor) -> None:
        """The gradients of queries, keys, values and outputs into one partial gradient."""
        a = self.attending
        fold_backward[len(d_asks), a.heads](
            rows.theta, a.scale, d_asks, d_says, share, rows.row, share.stride(0), *self._places(), a.scale.stride(0),
            a.heads, a.dim, a.embed, **self._options(),
        )  # fmt: skip

    def _places(self) -> tuple[int, ...]:
        return tuple(self.attending.at[name] for name in ("query", "key", "value", "output"))

    def _options(self) -> dict[str, object]:
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
    x: Tensor, matrix: Tensor, base: Tensor | None = None, transposed: bool = False
) -> Float[Tensor, "models rows outputs"]:
    """base + x M for every member, M given `transposed` or not: products so small that cuBLAS takes longer to begin."""
    models, count, inputs = x.shape
    outputs = matrix.shape[1 if transposed else 2]
    out, wide = x.new_empty(models, count, outputs), max(16, min(64, power(outputs)))
    options = {
        "ROWS": 64, "INPUTS": max(16, min(64, power(inputs))), "OUTPUTS": wide, "TRANSPOSED": transposed,
        "BASED": base is not None, "PRECISION": "tf32", "num_warps": 4,
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
    """1 where all samples of a member have the same directions."""
    return int(directions is not None and directions.shape[1] == 1)
