"""Progress of a sweep: a bar with rate and time left on a terminal, silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from headcount.training.member import Member
from headcount.training.spec import Sweep

__all__ = ["OnProgress", "Progress", "bar", "silent"]


class Progress(Protocol):
    """Called with steps as they are made, and with banks as they are finished."""

    def __call__(self, steps: int) -> None: ...
    def bank_done(self, members: int) -> None: ...


OnProgress = Callable[..., AbstractContextManager[Progress]]  # opened with the sweep, its banks and how many are done


class _Silent:
    def __call__(self, steps: int) -> None:
        pass

    def bank_done(self, members: int) -> None:
        pass


@contextlib.contextmanager
def silent(asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> Iterator[Progress]:
    """Say nothing."""
    yield _Silent()


class _Bar:
    def __init__(self, asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        self.sizes, self.at, self.finished = [len(bank) for bank in banks], 0, done
        self.all = len(asked.members)
        self.rich = Rich(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        total = sum(self.sizes) * asked.recipe.steps
        self.steps = asked.recipe.steps
        self.task = self.rich.add_task(self._words(), total=total, rate="")

    def __call__(self, steps: int) -> None:
        self.rich.update(self.task, advance=steps * self.sizes[min(self.at, len(self.sizes) - 1)], rate=self._rate())

    def bank_done(self, members: int) -> None:
        self.at, self.finished = self.at + 1, self.finished + members
        made = sum(self.sizes[: self.at]) * self.steps  # also when members stopped early
        self.rich.update(self.task, completed=made, description=self._words())

    def _words(self) -> str:
        return f"{self.finished}/{self.all} networks"

    def _rate(self) -> str:
        speed = self.rich.tasks[0].speed
        return f"{speed:,.0f} model-steps/s" if speed else ""


@contextlib.contextmanager
def bar(asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> Iterator[Progress]:
    """A bar on stderr where that is a terminal."""
    if not sys.stderr.isatty() or not banks:
        yield _Silent()
        return
    shown = _Bar(asked, banks, done)
    with shown.rich:
        yield shown
