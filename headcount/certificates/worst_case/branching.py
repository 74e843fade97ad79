"""Branch and bound for a whole bank: boxes of many members in one queue, split until every bound is low enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.certificates.worst_case.compiled_bounds import CompiledBounds
from headcount.certificates.worst_case.error_bounds import ErrorBounds, Provable, error_bounds
from headcount.certificates.worst_case.met_errors import Met
from headcount.certificates.worst_case.sloped_targets import SlopedTarget

PATIENCE = (16, 1)  # members get these parts of their boxes in turn, so that a hard one keeps no other waiting
FAR = (2.0, 6.0)  # times what is asked for: boxes bounded no better are cut again at once
NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 26}  # held at once by one step of a bound, some thirty times
COORDINATES = {"cpu": 1 << 17, "cuda": 1 << 22}  # the same where boxes are bounded by compiled code


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of tokens, whose they are, and what is known of |error| on each (infinite for the first)."""

    member: Int[Tensor, " boxes"]
    lo: Float[Tensor, "boxes length token_dim"]
    hi: Float[Tensor, "boxes length token_dim"]
    upper: Float[Tensor, " boxes"]

    def __len__(self) -> int:
        return len(self.member)

    def __getitem__(self, rows: Tensor | slice) -> Boxes:
        return Boxes(self.member[rows], self.lo[rows], self.hi[rows], self.upper[rows])

    @classmethod
    def joined(cls, parts: list[Boxes]) -> Boxes:
        """Several sets of boxes as one."""
        return cls(*(torch.cat([getattr(p, name) for p in parts]) for name in ("member", "lo", "hi", "upper")))

    def halves(self, guilt: Tensor) -> Boxes:
        """Every box cut in two across its guiltiest side; both halves have the same number as their common face."""
        return self.halved(guilt)[0]

    def halved(self, guilt: Tensor) -> tuple[Boxes, Tensor]:
        """The halves, and the guilt of their sides: half of it for the side that was cut."""
        first, last, side = halved(self.lo, self.hi, guilt)
        flat = guilt.flatten(1)
        rest = flat.scatter(1, side, flat.gather(1, side) / 2).view_as(guilt)
        return Boxes(self.member.repeat(2), first, last, self.upper.repeat(2)), torch.cat([rest, rest])


def halved(lo: Tensor, hi: Tensor, guilt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ends of the halves of boxes across their guiltiest sides, and these sides."""
    side = guilt.flatten(1).argmax(1, keepdim=True)
    low, high = lo.flatten(1), hi.flatten(1)
    cut = (low.gather(1, side) + high.gather(1, side)) / 2
    left, right = high.scatter(1, side, cut), low.scatter(1, side, cut)
    first, last = (torch.cat(both).view(-1, *lo.shape[1:]) for both in ([low, right], [left, high]))
    return first, last, side


def sorted_hull(lo: Tensor, hi: Tensor) -> tuple[Tensor, Tensor]:
    """The least box around those sequences of a box whose tokens rise in their first coordinate; lo > hi where none do.

    >>> lo, hi = sorted_hull(torch.tensor([[[0.5], [0.0]]]), torch.tensor([[[1.0], [0.75]]]))
    >>> lo.flatten(), hi.flatten()
    (tensor([0.5000, 0.5000]), tensor([0.7500, 0.7500]))
    """
    first = lo[..., :1].cummax(-2).values
    last = hi[..., :1].flip(-2).cummin(-2).values.flip(-2)
    return torch.cat([first, lo[..., 1:]], -1), torch.cat([last, hi[..., 1:]], -1)


def tiles(member: Int[Tensor, " boxes"], models: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes into tiles of `rows` boxes of one member: the members of the tiles, every box's tile and its row there.

    >>> tiles(torch.tensor([0, 2, 0, 0]), 3, 2)
    (tensor([0, 0, 2]), tensor([0, 2, 0, 1]), tensor([0, 0, 1, 0]))
    """
    order = member.argsort(stable=True)
    counts = torch.bincount(member, minlength=models)
    needed = (counts + rows - 1) // rows
    before, boxes = needed.cumsum(0) - needed, counts.cumsum(0) - counts
    place = torch.arange(len(member), device=member.device) - boxes[member[order]]
    tile, row = torch.empty_like(member), torch.empty_like(member)
    tile[order], row[order] = before[member[order]] + place // rows, place % rows
    return torch.arange(models, device=member.device).repeat_interleave(needed), tile, row


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends before it has closed: boxes of one member, and seconds for all."""

    boxes: int = 20_000_000
    seconds: float = 60.0


@dataclass(eq=False)
class Leaves:
    """The boxes on which a bound was low enough, kept where somebody asks for them, and their bounds."""

    most: int = 0
    parts: list[Boxes] = field(default_factory=list)

    def add(self, boxes: Boxes) -> None:
        """Keep these too, while there is room; with one too many, none is kept."""
        if self.most and sum(map(len, self.parts)) + len(boxes) <= self.most:
            self.parts.append(boxes)
        elif self.most:
            self.most, self.parts = 0, []

    @property
    def whole(self) -> bool:
        """Whether every leaf was kept."""
        return self.most > 0

    def joined(self) -> Boxes:
        """All of them."""
        return Boxes.joined(self.parts)


Progress = Callable[[int, int], None]  # boxes looked at, boxes left


class Search:
    """The state of a bank's proof: for every member the largest error met, where, and a bound that holds everywhere.

    A box whose bound is at most `ratio` times the largest error met is done; another is cut in two. The newest are
    looked at first, so that the queue holds some chunks times its depth, never the whole last level.
    """

    def __init__(
        self,
        net: Provable,
        target: SlopedTarget,
        ends: tuple[float, float],
        met: Met,
        *,
        ratio: float,
        leaves: Leaves | None = None,
        sort: bool | None = None,
    ) -> None:
        self.net, self.target, self.ratio = net, target, ratio
        self.lower, self.worst = met.error[:, 0].clone(), met.x[:, 0].clone()
        (low, high), shape, device = ends, self.worst.shape, self.worst.device
        self.sort = net.same_places and target.exchangeable if sort is None else sort
        self.done = torch.zeros_like(self.lower)
        self.looked = torch.zeros(len(net), dtype=torch.int64, device=device)
        self.open = torch.zeros_like(self.looked)
        self.left = torch.zeros_like(self.lower)  # what the boxes that were given up are bounded by
        self.leaves = leaves or Leaves()
        first = torch.full(shape, low, dtype=torch.float64, device=device)
        last = torch.full(shape, high, dtype=torch.float64, device=device)
        everyone = torch.arange(len(net), device=device)
        self.queue = [Boxes(everyone, first, last, torch.full_like(self.lower, torch.inf))]
        self.parked: list[Boxes] = []
        self.compiled = CompiledBounds.of(net, target, low, high)
        self.chunk = chunk_of(net, self.compiled)

    @torch.no_grad()
    def run(self, budget: SearchLimits, on_progress: Progress | None = None) -> None:
        """Look at boxes until none is left or a limit is reached; boxes left then count as open."""
        end = time.perf_counter() + budget.seconds
        for patience in PATIENCE:
            self._until(max(1, budget.boxes // patience), end, on_progress)
            self.queue, self.parked = [*self.queue, *self.parked], []
        for boxes in self.queue:
            self._give_up(boxes)
        self.queue = []

    def _until(self, most: int, end: float, on_progress: Progress | None) -> None:
        """Look at boxes of members that had fewer than so many; those of others are parked."""
        rounds = 0
        while self.queue and time.perf_counter() < end:
            taken = self._taken()
            spent = (self.looked >= most)[taken.member]
            if bool(spent.any()):
                self.parked.append(taken[spent])
                taken = taken[~spent]
            if len(taken):
                self._step(taken)
            rounds += 1
            if on_progress is not None and rounds % 16 == 0:
                on_progress(int(self.looked.sum()), sum(map(len, self.queue)))

    @property
    def upper(self) -> Float[Tensor, " models"]:
        """The proved bound of every member."""
        return torch.maximum(self.done, self.left)

    @property
    def allowed(self) -> Float[Tensor, " models"]:
        """What a box may be bounded by: `ratio` times the largest error met, less what rounding can have added."""
        return self.ratio * (self.lower - self.net.slack).clamp_min(0)

    def _taken(self) -> Boxes:
        parts: list[Boxes] = []
        count = 0
        while self.queue and count < self.chunk:
            parts.append(self.queue.pop())
            count += len(parts[-1])
        boxes = Boxes.joined(parts) if len(parts) > 1 else parts[0]
        if len(boxes) > self.chunk:
            self.queue.append(boxes[self.chunk :])
        return boxes[: self.chunk]

    def _step(self, boxes: Boxes) -> None:
        bounds = self._bounds(boxes)
        self.looked += torch.bincount(boxes.member, minlength=len(self.net))
        self._meet(boxes, bounds.middle[0])
        upper = torch.minimum(bounds.upper[0], boxes.upper)
        boxes = Boxes(boxes.member, boxes.lo, boxes.hi, upper)
        high = upper > self.allowed[boxes.member]
        done = boxes[~high]
        self.done.scatter_reduce_(0, done.member, done.upper, "amax")
        if self.leaves.most:
            self.leaves.add(done)
        rest = self._cut(boxes[high], bounds.guilt[0][high])
        if len(rest):
            self.queue.append(rest)

    def _cut(self, boxes: Boxes, guilt: Tensor) -> Boxes:
        """Halves; quarters where the bound is far too high, eighths where it is farther."""
        done: list[Boxes] = []
        for far in (*FAR, torch.inf):
            boxes, guilt = boxes.halved(guilt)
            if self.sort:
                lo, hi = sorted_hull(boxes.lo, boxes.hi)
                some = (lo <= hi).flatten(1).all(1)
                boxes, guilt = boxes[some], guilt[some]
            again = boxes.upper > far * self.allowed[boxes.member]
            done.append(boxes[~again])
            boxes, guilt = boxes[again], guilt[again]
            if not len(boxes):
                break
        return Boxes.joined(done)

    def _give_up(self, boxes: Boxes) -> None:
        self.left.scatter_reduce_(0, boxes.member, boxes.upper, "amax")
        self.open += torch.bincount(boxes.member, minlength=len(self.net))

    def _meet(self, boxes: Boxes, middle: Tensor) -> None:
        """Raise the largest errors met by those in the middles of boxes."""
        before = self.lower.clone()
        self.lower.scatter_reduce_(0, boxes.member, middle, "amax")
        better = middle == self.lower[boxes.member]
        rows = (better & (middle > before[boxes.member])).nonzero().flatten()
        lo, hi = self._hull(boxes[rows])
        self.worst[boxes.member[rows]] = (lo + hi) / 2

    def _hull(self, boxes: Boxes) -> tuple[Tensor, Tensor]:
        return sorted_hull(boxes.lo, boxes.hi) if self.sort else (boxes.lo, boxes.hi)

    def _bounds(self, boxes: Boxes) -> ErrorBounds:
        lo, hi = self._hull(boxes)
        return bounds_of(self.net, self.target, boxes.member, lo, hi, self.compiled)


def chunk_of(net: Provable, compiled: CompiledBounds | None) -> int:
    """Boxes that are bounded at once."""
    if compiled is None:
        return max(64, NUMBERS[net.device.type] // net.numbers)
    return max(64, COORDINATES[net.device.type] // (net.length * net.token_dim))


def bounds_of(
    net: Provable,
    target: SlopedTarget,
    member: Int[Tensor, " boxes"],
    lo: Tensor,
    hi: Tensor,
    compiled: CompiledBounds | None = None,
) -> ErrorBounds:
    """Bounds of boxes of any members, in their order: compiled, or tiles of boxes that share a member's parameters."""
    if compiled is not None:
        return compiled.bounds(target, member, lo, hi)
    if len(net) == 1:
        return error_bounds(net, target, lo[None], hi[None])
    shared = len(member) // max(1, int(member.unique().numel()))
    rows = max(1, min(256, 1 << max(0, shared.bit_length() - 1)))
    who, tile, row = tiles(member, len(net), rows)
    shape = (len(who), rows, *lo.shape[1:])
    padded = [lo.new_zeros(shape).index_put_((tile, row), part) for part in (lo, hi)]
    bounds = error_bounds(net.of(who), target.of(who), *padded)
    return ErrorBounds(*(part[tile, row][None] for part in (bounds.upper, bounds.least, bounds.middle, bounds.guilt)))
