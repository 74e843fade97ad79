"""Launches of the CUDA programs for all tokens: attention with the class token's question, and feed-forwards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.kernels.cuda.cuts import AttentionSize, Cut, FeedSize, question_bytes
from headcount.kernels.cuda.programs import Program, cuda_program, shared_limit
from headcount.kernels.cuda.sublayers import FeedPlace, HeadPlace, Rows, all_share, or_other
from headcount.kernels.plain import Batch
from headcount.kernels.tiles import spread
from headcount.nets.causal import EPS

ASKING = 4  # warps of a program of the last question


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
        fits = all(self._cut(longest, back) for back in (False, True))
        query_fits = question_bytes(longest, self.embed, ASKING, back=True) <= shared_limit(self.device)
        return fits and query_fits and self.norm in (0.0, EPS)

    def parts(self, models: int, batch: int, longest: int, back: bool) -> int:
        """Programs of each member."""
        if back and self.programs:
            return self.programs
        program = self._program(longest, back)
        return _spread(program, models, -(-batch // _samples(program, longest)))

    def forward(self, rows: Rows, x: Tensor, directions: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x + attention(x), and what the class token's heads attend to in x."""
        out = torch.empty_like(x)
        attended = None if directions is None else x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        into = (or_other(attended, x), out, (rows.row,))
        self._launch(False, rows, x, directions, into)
        return out, attended

    def backward(
        self, rows: Rows, x: Tensor, slope: Tensor, directions: Tensor | None, d_heard: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of x and of the directions, for every sample; the parameters' into the partial gradients."""
        d_x = torch.empty_like(x)
        d_directions = None if directions is None else torch.empty_like(or_other(d_heard, x))
        steps = ((rows.row,), (rows.share.stride(0),))
        into = (or_other(d_heard, x), slope, d_x, rows.share, or_other(d_directions, x), *steps)
        self._launch(True, rows, x, directions, into)
        return d_x, d_directions

    def _launch(self, back: bool, rows: Rows, x: Tensor, directions: Tensor | None, into: tuple) -> None:
        models, batch, longest, _ = x.shape
        inputs = (x, rows.theta, self.scale, self.counts, or_other(rows.lengths, self.counts), or_other(directions, x))
        places = tuple(self.at.get(name, 0) for name in ("query", "key", "value", "output", "scaling", "moving"))
        grid, last = (models, self.parts(models, batch, longest, back)), (batch, all_share(directions))
        self._program(longest, back).launch(grid, *inputs, *into, *places, self.scale.stride(0), *last)

    def question(self, rows: Rows, x: Tensor, directions: Tensor) -> Tensor:
        """What the class token's heads attend to in the last states."""
        attended = x.new_empty(x.shape[0], x.shape[1], self.heads, self.embed)
        self._question(False, rows, x, (directions, attended), all_share(directions))
        return attended

    def question_back(self, rows: Rows, x: Tensor, directions: Tensor, d_heard: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the states and of the directions, for every sample."""
        d_x, d_directions = torch.empty_like(x), torch.empty_like(d_heard)
        into = (directions, d_heard.contiguous(), d_x, d_directions)
        self._question(True, rows, x, into, all_share(directions))
        return d_x, d_directions

    def _question(self, back: bool, rows: Rows, x: Tensor, into: tuple[Tensor, ...], shared: int) -> None:
        models, batch, longest, embed = x.shape
        shape = {"EMBED": embed, "HEADS": self.heads, "LONGEST": longest, "RAGGED": int(self.ragged), "WARPS": ASKING}
        taken = question_bytes(longest, embed, ASKING, back)
        program = cuda_program(f"question_{_direction(back)}", self.device, ASKING, taken, **shape)
        grid = (models, _spread(program, models, -(-batch // ASKING)))
        program.launch(grid, x, or_other(rows.lengths, self.counts), *into, batch, shared)

    def _cut(self, longest: int, back: bool) -> Cut | None:
        size = AttentionSize(longest, self.embed, self.heads, self.dim, self.norm > 0, self.asks)
        most = shared_limit(self.device)
        return size.backwards(most) if back else size.forwards(most)

    def _program(self, longest: int, back: bool) -> Program:
        cut = _held(self._cut(longest, back))
        shape = {"EMBED": self.embed, "HEADS": self.heads, "DIM": self.dim, "LONGEST": longest, "GROUP": cut.group}
        shape |= {"SAMPLES": _samples(cut, longest), "RAGGED": int(self.ragged), "ASK": int(self.asks)}
        if not self.residual:
            shape |= {"RESIDUAL": 0}
        if self.causal or self.norm or self.steps != (self.embed * self.dim, self.dim):
            shape |= {"CAUSAL": int(self.causal), "NORM": int(self.norm > 0)}
            shape |= {"HEAD_STEP": self.steps[0], "ROW_STEP": self.steps[1]}
        return cuda_program(f"attend_{_direction(back)}", self.device, cut.warps, cut.shared, **shape)


@dataclass(frozen=True)
class TokenFeeding(FeedPlace):
    """A feed-forward of all tokens by warps of 16 rows."""

    programs: int | None = None  # of each member, backwards; by default as many as fill a device
    device: str = "cuda"
    deeper: bool = True
    source: Batch | None = None  # where the rows lie if they are not at hand one after the other

    def fits(self) -> bool:
        """Whether programs hold it."""
        return all(self._cut(back) for back in (False, True)) and self.norm in (0.0, EPS)

    def parts(self, models: int, rows: int, back: bool) -> int:
        """Programs of each member."""
        if back and self.programs:
            return self.programs
        program = self._program(back)
        return _spread(program, models, -(-rows // (16 * program.warps)))

    def forward(self, rows: Rows, x: Tensor) -> Tensor:
        """W2 act(W1 x + b1) + b2 for every token, and x where it is a residual step."""
        count, out = x[0].numel() // self.inputs, rows.theta.new_empty(*x.shape[:-1], self.outputs)
        grid = (len(x), self.parts(len(x), count, back=False))
        arguments = (*self._rows(x), rows.theta, out, (rows.row,), *self.places(), count, self._samples())
        self._program(False).launch(grid, *arguments)
        return out

    def backward(self, rows: Rows, x: Tensor, slope: Tensor, deeper: bool = True) -> Tensor:
        """The gradient of x, where something lies below; the parameters' into the partial gradients."""
        count, d_x = x[0].numel() // self.inputs, torch.empty_like(x) if deeper else rows.theta
        grid = (len(x), self.parts(len(x), count, back=True))
        steps = ((rows.row,), (rows.share.stride(0),))
        arguments = (*self._rows(x), rows.theta, slope, d_x, rows.share, *steps, *self.places(), count, self._samples())
        self._program(True).launch(grid, *arguments)
        return d_x

    def _rows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (x, x, x) if self.source is None else (self.source.data, self.source.rows, self.source.which)

    def _samples(self) -> int:
        return 0 if self.source is None else self.source.data.shape[1]

    def _cut(self, back: bool) -> Cut | None:
        posted = self.deeper and self.source is None
        size = FeedSize(self.inputs, self.hidden, self.outputs, self.gelu, self.norm > 0, posted)
        return size.backwards(shared_limit(self.device)) if back else size.forwards(shared_limit(self.device))

    def _program(self, back: bool) -> Program:
        cut = _held(self._cut(back))
        shape = {"INPUTS": self.inputs, "HIDDEN": self.hidden, "OUTPUTS": self.outputs, "WARPS": cut.warps}
        shape |= {"GROUP": cut.group, "RESIDUAL": int(self.residual), "DEEPER": int(self.deeper)}
        if self.norm or self.gelu:
            shape |= {"NORM": int(self.norm > 0), "GELU": int(self.gelu)}
        if self.source is not None:
            shape |= {"GATHERED": 1, "LONGEST": self.source.data.shape[2]}
        return cuda_program(f"feed_{_direction(back)}", self.device, cut.warps, cut.shared, **shape)


def _direction(back: bool) -> str:
    return "backward" if back else "forward"


def _held(cut: Cut | None) -> Cut:
    assert cut is not None, "a program has no place for it"
    return cut


def _samples(cut: Cut | Program, longest: int) -> int:
    """How many samples a program takes at a time: a warp has 16 of their tokens."""
    return cut.warps // -(-longest // 16)


def _spread(program: Program, models: int, tiles: int) -> int:
    """Programs of each member so that the device is full."""
    return spread(models, tiles, program.warps, program.warps * program.resident(), program.processors)
