"""Time and memory stated before they are spent: what recording takes, what a slice takes, and in how many pieces."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headcount.nets.pretrained.packaged import free_memory
from headcount.nets.recorded import Tape, TapeSize
from headcount.numerals import bytes_from, counted, spoken_bytes, spoken_time

Progress = Callable[[int, int], None]
TENSORS_AT_ONCE = 12  # of the largest size that may live together while a layer is replayed
TOKENS_AT_ONCE = 2048  # larger pieces are no faster, only larger
PASSES = 6  # plain passes that recording, the certificate and one read-out take together
SHOWN_FROM = 2.0  # seconds that a bar is worth


@dataclass(frozen=True)
class Forecast:
    """What a piece of work will take, said before it begins: seconds, bytes at its peak, and the bytes allowed."""

    work: str
    seconds: float
    bytes: int
    limit: int

    def __str__(self) -> str:
        """
        >>> str(Forecast("the slice of 256 tokens", 131.0, 2**28, 2**32))
        'the slice of 256 tokens: about 2 min 11 s and 256 MB (limit 4.0 GB)'
        """
        spent, limit = f"about {spoken_time(self.seconds)} and {spoken_bytes(self.bytes)}", spoken_bytes(self.limit)
        return f"{self.work}: {spent} (limit {limit})"

    def check(self) -> Forecast:
        """The cost itself, or a refusal where it is over the limit."""
        if self.bytes > self.limit:
            need, limit = spoken_bytes(self.bytes), spoken_bytes(self.limit)
            raise ValueError(f"{self.work} needs {need}, the limit is {limit}; cut the text or read fewer places (at=)")
        return self


def measured_pass(plain: Callable[[], Tensor], tokens: int, memory: int | str | None) -> tuple[Tensor, Forecast]:
    """The model's own output, and from it what recording, certifying and one read-out will take.

    The limit is half of what the machine has free where none is given.
    """
    limit = free_memory() // 2 if memory is None else bytes_from(memory)
    began = time.perf_counter()
    with torch.no_grad(), TapeSize() as size:
        out = plain()
    seconds = PASSES * (time.perf_counter() - began)
    most = 2 * size.bytes + TENSORS_AT_ONCE * size.largest  # what is frozen, and as much again on the way back
    return out, Forecast(f"recording {counted(tokens, 'token')}", seconds, most, limit)


@dataclass(frozen=True)
class Budget:
    """How much memory there is, what the tape holds, and what one replayed row needs in bytes and seconds."""

    limit: int
    tape: int
    row: int
    length: int
    seconds: float = 0.0

    @classmethod
    def of(cls, limit: int, tape: Tape, x: Tensor, out: Tensor) -> Budget:
        """The budget of a recorded pass."""
        largest = max(tape.largest, *(t.numel() * t.element_size() for t in (x, out)))
        return cls(limit, tape.bytes, TENSORS_AT_ONCE * largest, len(x))

    def timed(self, seconds: float) -> Budget:
        """The budget with the time of one row known."""
        return replace(self, seconds=seconds)

    def rows(self, result: int = 0) -> int:
        """How many rows go at once beside a result of so many bytes: at least one."""
        fit = (self.limit - self.tape - result) // self.row
        return max(1, min(fit, TOKENS_AT_ONCE // self.length, self.length))

    def slice(self, result: int) -> Forecast:
        """What the slice will take: a row for each token, and one for the constant."""
        rows = self.rows(result)
        work = f"the slice of {counted(self.length, 'token')} in {counted(-(-self.length // rows), 'piece')}"
        return Forecast(work, (self.length + 1) * self.seconds, self.tape + rows * self.row + result, self.limit)


@contextmanager
def progress_bar(cost: Forecast, total: int) -> Iterator[Progress]:
    """A bar on stderr with the time left, where that is a terminal and the work is worth one."""
    if not sys.stderr.isatty() or cost.seconds < SHOWN_FROM:
        yield lambda done, every: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Rich

    columns = TextColumn("{task.completed:.0f}/{task.total:.0f} tokens"), BarColumn(bar_width=24), TimeElapsedColumn()
    with Rich(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as rich:
        task = rich.add_task("", total=total)
        yield lambda done, every: rich.update(task, completed=done)
