"""Progress of a sweep: a bar with rate and time left on a terminal or in a notebook, now and then a line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from headcount.training.member import Member
from headcount.training.spec import Sweep
from headcount.visible import visible

MINUTE = 60.0  # seconds between two lines where there is no terminal


@runtime_checkable
class Progress(Protocol):
    """Called with steps as they are made, with banks as they are finished, and with what should be said at once."""

    def __call__(self, steps: int) -> None: ...
    def bank_done(self, members: int) -> None: ...
    def note(self, sentence: str) -> None: ...


OnProgress = Callable[..., AbstractContextManager[Progress]]  # opened with the sweep, its banks and how many are done


class _Silent:
    def __call__(self, steps: int) -> None:
        pass

    def bank_done(self, members: int) -> None:
        pass

    def note(self, sentence: str) -> None:
        pass


@contextlib.contextmanager
def silent(asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> Iterator[Progress]:
    """Say nothing."""
    yield _Silent()


class _Bar:
    def __init__(self, sweep: Sweep, banks: Sequence[Sequence[Member]], done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        self.sizes, self.at, self.finished = [len(bank) for bank in banks], 0, done
        self.all = len(sweep.members)
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
        total = sum(self.sizes) * sweep.recipe.steps
        self.steps = sweep.recipe.steps
        self.task = self.rich.add_task(self._words(), total=total, rate="")

    def __call__(self, steps: int) -> None:
        self.rich.update(self.task, advance=steps * self.sizes[min(self.at, len(self.sizes) - 1)], rate=self._rate())

    def bank_done(self, members: int) -> None:
        self.at, self.finished = self.at + 1, self.finished + members
        completed = sum(self.sizes[: self.at]) * self.steps  # also when members stopped early
        self.rich.update(self.task, completed=completed, description=self._words())

    def note(self, sentence: str) -> None:
        self.rich.console.print(f"headcount: {visible(sentence)}", highlight=False, markup=False)

    def _words(self) -> str:
        return f"{self.finished}/{self.all} networks"

    def _rate(self) -> str:
        speed = self.rich.tasks[0].speed
        return f"{speed:,.0f} model-steps/s" if speed else ""


class _Lines:
    """At most one line per minute: how many networks are finished, the rate, and the time left at that rate."""

    def __init__(self, sweep: Sweep, banks: Sequence[Sequence[Member]], done: int, every: float) -> None:
        self.sizes, self.at, self.finished, self.all = [len(bank) for bank in banks], 0, done, len(sweep.members)
        self.steps, self.every = sweep.recipe.steps, every
        self.total, self.made = sum(self.sizes) * sweep.recipe.steps, 0
        self.began = self.said = time.monotonic()

    def __call__(self, steps: int) -> None:
        self.made += steps * self.sizes[min(self.at, len(self.sizes) - 1)]
        self._say()

    def bank_done(self, members: int) -> None:
        self.at, self.finished = self.at + 1, self.finished + members
        self.made = max(self.made, sum(self.sizes[: self.at]) * self.steps)  # also when members stopped early
        self._say()

    def note(self, sentence: str) -> None:
        sys.stderr.write(f"headcount: {visible(sentence)}\n")

    def _say(self) -> None:
        now = time.monotonic()
        if now - self.said < self.every or not self.made:
            return
        self.said, spent = now, now - self.began
        left = spent * max(0, self.total - self.made) / self.made
        rate = f"{self.made / max(spent, 1e-9):,.0f} model-steps/s"
        sys.stderr.write(f"headcount: {self.finished}/{self.all} networks, {rate}, about {left / 60:.0f} min left\n")
        sys.stderr.flush()


@contextlib.contextmanager
def lines(asked: Sweep, banks: Sequence[Sequence[Member]], done: int, every: float = MINUTE) -> Iterator[Progress]:
    """A line on stderr when a bank is finished or an epoch made, and `every` seconds have passed since the last."""
    yield _Lines(asked, banks, done, every)


@contextlib.contextmanager
def bar(asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> Iterator[Progress]:
    """A bar on stderr where that is a terminal, a line per minute where it is not."""
    if not sys.stderr.isatty() or not banks:
        with lines(asked, banks, done) as spoken:
            yield spoken
        return
    shown = _Bar(asked, banks, done)
    with shown.rich:
        yield shown


class _Notebook(_Lines):
    """One line that is written over itself twice a second: what a notebook's cell shows while it runs."""

    def _say(self) -> None:
        now = time.monotonic()
        if now - self.said < self.every or not self.made:
            return
        self.said, fraction = now, min(1.0, self.made / self.total)
        left = (now - self.began) * (1 / fraction - 1)
        drawn = "#" * round(24 * fraction)
        sys.stderr.write(f"\r{self.finished}/{self.all} networks [{drawn:<24}] {fraction:4.0%}, {left:.0f} s left ")
        sys.stderr.flush()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def automatic(asked: Sweep, banks: Sequence[Sequence[Member]], done: int) -> Iterator[Progress]:
    """A bar where somebody looks: on a terminal and in a notebook; elsewhere nothing."""
    if in_notebook() and banks:
        yield _Notebook(asked, banks, done, every=0.5)
        sys.stderr.write("\r" + " " * 72 + "\r")
    elif sys.stderr.isatty() and banks:
        with bar(asked, banks, done) as shown:
            yield shown
    else:
        yield _Silent()
