"""Launches of the CUDA programs for all tokens: attention with the class token's question, and feed-forwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headcount.kernels.cuda.programs import MOST_SHARED, Program, cuda_program
from headcount.kernels.cuda.sublayers import FeedPlace, HeadPlace, Rows, all_share, or_other
from headcount.kernels.plain import Batch
from headcount.kernels.tiles import spread
from headcount.nets.causal import EPS

__all__ = ["Cut", "TokenAttention", "TokenFeeding", "feed_cut", "feed_fits", "heads_cut", "heads_fit"]

KEPT = 80  # numbers of a thread: gradients of heads that stay in registers from tile to tile
FED = 96  # and of hidden units
FORWARD = 4  # warps of a feed-forward


class Cut(NamedTuple):
    """Warps of a program, and heads or hidden units whose gradients it keeps at a time."""

    warps: int
    group: int


def heads_fit(longest: int, embed: int, heads: int, dim: int) -> bool:
    """Whether programs hold attention of this size: four warps have 64 tokens, one tile sixteen heads' questions.

    >>> heads_fit(64, 64, 16, 16), heads_fit(65, 64, 1, 1)
    (True, False)
    """
    return longest <= 64 and embed <= 64 and heads <= 16 and dim <= 16


def feed_fits(inputs: int, hidden: int, outputs: int) -> bool:
    """Whether programs hold a feed-forward of this size.

    >>> feed_fits(64, 256, 64), feed_fits(64, 257, 64)
    (True, False)
    """
    return max(inputs, outputs) <= 64 and hidden <= 256


def heads_cut(embed: int, heads: int, dim: int, longest: int, norm: bool = False) -> Cut:
    """How attention is cut: in the fewest passes, with four warps where that is as good.

    With a layer norm before it, a program also holds its sums and the states that are on their way.

    >>> heads_cut(32, 4, 8, 32), heads_cut(64, 6, 16, 64), heads_cut(48, 6, 8, 48)
    (Cut(warps=4, group=4), Cut(warps=8, group=3), Cut(warps=6, group=6))
    """
    tiles, wide, deep = -(-longest // 16), _padded(embed), 8 if dim <= 8 else 16
    cuts = []
    for most in (4, 8):
        warps = max(1, most // tiles) * tiles
        for passes in range(1, heads + 1):
            group = -(-heads // passes)
            columns, rows = _padded(group * deep), 16 * warps
            stored = 8 * columns * (wide + 16) + 4 * rows * (wide + 8) + 12 * rows * (columns + 8) + 8 * group * rows
            answers = warps // tiles * (64 * (16 * tiles + 8) + 64 * (wide + 8) + 16)  # of the class token's questions
            posted = norm * (64 * wide * warps + 8 * wide * (1 + warps))
            if 4 * columns * wide <= 32 * warps * KEPT and stored + max(20_000, answers, posted) <= MOST_SHARED:
                cuts.append((passes, most, Cut(warps, group)))
                break
    return min(cuts)[2]


def feed_cut(inputs: int, hidden: int, outputs: int) -> Cut:
    """How a feed-forward is cut backwards: in the fewest passes, with four warps where that is as good.

    >>> feed_cut(32, 32, 32), feed_cut(64, 128, 64), feed_cut(64, 256, 64)
    (Cut(warps=4, group=32), Cut(warps=8, group=128), Cut(warps=8, group=128))
    """
    taken, given = _padded(inputs), _padded(outputs)
    cuts = []
    for warps in (4, 8):
        for passes in range(1, hidden + 1):
            group = _padded(-(-hidden // passes))
            if group * (taken + given) <= 32 * warps * FED:
                cuts.append((passes, Cut(warps, min(hidden, group))))
                break
    return min(cuts)[1]


def _padded(count: int, to: int = 16) -> int:
    return -(-count // to) * to


@dataclass(frozen=True)
class TokenAttention(HeadPlace):
    """The attention of one layer, and the class token's question, by warps of 16 tokens."""

    causal: bool = False
    norm: float = 0.0  # epsilon of the layer norm before it, 0: none
    programs: int | None = None  # of each member, backwards; by default as many as fill a device
    device: str = "cuda"
    ragged: bool = False
    asks: bool = False
    residual: bool = True

    def fits(self, longest: int) -> bool:
        """Whether programs hold it."""
        return heads_fit(longest, self.embed, self.heads, self.dim) and self.norm in (0.0, EPS)

    def parts(self, models: int, batch: int, longest: int, back: bool) -> int:
        """Programs of each member."""
        if back and self.programs:
            return self.programs
        program, samples = self._program(longest, back)
        return _spread(program, "attend_backward" if back else "attend_forward", models, -(-batch // samples))

    def forward(self, rows: Rows, x: Tensor, directions: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x + attention(x), and what the class token's heads hear of x."""
        out = torch.empty_like(x)
        heard = None if directions is None else x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        into = (or_other(heard, x), out, (rows.row,))
        self._launch("attend_forward", rows, x, directions, into)
        return out, heard

    def backward(
        self, rows: Rows, x: Tensor, slope: Tensor, directions: Tensor | None, d_heard: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of x and of the directions, for every sample; the parameters' into the shares."""
        d_x = torch.empty_like(x)
        d_directions = None if directions is None else torch.empty_like(or_other(d_heard, x))
        steps = ((rows.row,), (rows.share.stride(0),))
        into = (or_other(d_heard, x), slope, d_x, rows.share, or_other(d_directions, x), *steps)
        self._launch("attend_backward", rows, x, directions, into)
        return d_x, d_directions

    def _launch(self, kernel: str, rows: Rows, x: Tensor, directions: Tensor | None, into: tuple) -> None:
        models, batch, longest, _ = x.shape
        program, _ = self._program(longest, kernel == "attend_backward")
        given = (x, rows.theta, self.scale, self.counts, or_other(rows.lengths, self.counts), or_other(directions, x))
        places = tuple(self.at.get(name, 0) for name in ("query", "key", "value", "output", "scaling", "moving"))
        grid = (models, self.parts(models, batch, longest, kernel == "attend_backward"))
        program.launch(kernel, grid, *given, *into, *places, self.scale.stride(0), batch, all_share(directions))

    def question(self, rows: Rows, x: Tensor, directions: Tensor) -> Tensor:
        """What the class token's heads hear of the last states."""
        heard = x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        self._question("question_forward", rows, x, (directions, heard), all_share(directions))
        return heard

    def question_back(self, rows: Rows, x: Tensor, directions: Tensor, d_heard: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the states and of the directions, for every sample."""
        d_x, d_directions = torch.empty_like(x), torch.empty_like(d_heard)
        into = (directions, d_heard.contiguous(), d_x, d_directions)
        self._question("question_backward", rows, x, into, all_share(directions))
        return d_x, d_directions

    def _question(self, kernel: str, rows: Rows, x: Tensor, into: tuple[Tensor, ...], shared: int) -> None:
        models, batch, longest, embed = x.shape
        shape = {"EMBED": embed, "HEADS": self.heads, "LONGEST": longest, "RAGGED": int(self.ragged), "WARPS": 4}
        program = cuda_program("question.cu", self.device, **shape)
        grid = (models, _spread(program, kernel, models, -(-batch // program.warps)))
        program.launch(kernel, grid, x, or_other(rows.lengths, self.counts), *into, batch, shared)

    def _program(self, longest: int, back: bool) -> tuple[Program, int]:
        """The program, and how many samples it takes at a time."""
        cut = heads_cut(self.embed, self.heads, self.dim, longest, self.norm > 0)
        samples = max(1, (cut.warps if back else 4) // -(-longest // 16))
        shape = {"EMBED": self.embed, "HEADS": self.heads, "DIM": self.dim, "LONGEST": longest, "SAMPLES": samples}
        shape |= {"GROUP": cut.group if back else self.heads, "RAGGED": int(self.ragged), "ASK": int(self.asks)}
        if not self.residual:
            shape |= {"RESIDUAL": 0}
        if self.causal or self.norm or self.steps != (self.embed * self.dim, self.dim):
            shape |= {"CAUSAL": int(self.causal), "NORM": int(self.norm > 0)}
            shape |= {"HEAD_STEP": self.steps[0], "ROW_STEP": self.steps[1]}
        return cuda_program("attention.cu", self.device, **shape), samples


@dataclass(frozen=True)
class TokenFeeding(FeedPlace):
    """A feed-forward of all tokens by warps of 16 rows."""

    programs: int | None = None  # of each member, backwards; by default as many as fill a device
    device: str = "cuda"
    deeper: bool = True
    source: Batch | None = None  # where the rows lie if they are not at hand one after the other

    def fits(self) -> bool:
        """Whether programs hold it."""
        return feed_fits(self.inputs, self.hidden, self.outputs) and self.norm in (0.0, EPS)

    def parts(self, models: int, rows: int, back: bool) -> int:
        """Programs of each member."""
        if back and self.programs:
            return self.programs
        program = self._program(back)
        kernel = "feed_backward" if back else "feed_forward"
        return _spread(program, kernel, models, -(-rows // (16 * program.warps)))

    def forward(self, rows: Rows, x: Tensor) -> Tensor:
        """W2 act(W1 x + b1) + b2 for every token, and x where it is a residual step."""
        count, out = x[0].numel() // self.inputs, rows.theta.new_empty(*x.shape[:-1], self.outputs)
        grid = (len(x), self.parts(len(x), count, back=False))
        given = (*self._rows(x), rows.theta, out, (rows.row,), *self.places(), count, self._samples())
        self._program(False).launch("feed_forward", grid, *given)
        return out

    def backward(self, rows: Rows, x: Tensor, slope: Tensor, deeper: bool = True) -> Tensor:
        """The gradient of x, where something lies below; the parameters' into the shares."""
        count, d_x = x[0].numel() // self.inputs, torch.empty_like(x) if deeper else rows.theta
        grid = (len(x), self.parts(len(x), count, back=True))
        steps = ((rows.row,), (rows.share.stride(0),))
        given = (*self._rows(x), rows.theta, slope, d_x, rows.share, *steps, *self.places(), count, self._samples())
        self._program(True).launch("feed_backward", grid, *given)
        return d_x

    def _rows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (x, x, x) if self.source is None else (self.source.data, self.source.rows, self.source.which)

    def _samples(self) -> int:
        return 0 if self.source is None else self.source.data.shape[1]

    def _program(self, back: bool) -> Program:
        cut = feed_cut(self.inputs, self.hidden, self.outputs) if back else Cut(FORWARD, self.hidden)
        shape = {"INPUTS": self.inputs, "HIDDEN": self.hidden, "OUTPUTS": self.outputs, "WARPS": cut.warps}
        shape |= {"GROUP": cut.group, "RESIDUAL": int(self.residual), "DEEPER": int(self.deeper)}
        if self.norm or self.gelu:
            shape |= {"NORM": int(self.norm > 0), "GELU": int(self.gelu)}
        if self.source is not None:
            shape |= {"GATHERED": 1, "LONGEST": self.source.data.shape[2]}
        return cuda_program("feed.cu", self.device, **shape)


def _spread(program: Program, kernel: str, models: int, tiles: int) -> int:
    """Programs of each member so that the device is full."""
    return spread(models, tiles, program.warps, program.warps * program.resident(kernel), program.processors)
