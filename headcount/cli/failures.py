"""Which failures are foreseen, and their sentence: the one place that knows. What is not foreseen is a bug."""

from __future__ import annotations

import _thread
import contextlib
import json
import re
import signal
import sqlite3
import sys
import threading
import time
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from headcount.limits import is_refused_memory, memory_limit
from headcount.numerals import spoken_bytes
from headcount.refusals import RefusalError
from headcount.visible import visible

PACKAGE = Path(__file__).parents[1]
LONGEST = 500  # characters of a sentence
MOMENT = 0.01  # seconds until an interruption comes again
# Errors about what was given, whoever raises them: a file, a database, a size that no memory holds.
INPUT = (
    RefusalError,
    OSError,
    sqlite3.Error,
    UnicodeError,
    json.JSONDecodeError,
    tomllib.TOMLDecodeError,
    zipfile.BadZipFile,
    MemoryError,
    RecursionError,
)
ASKED = (
    re.compile(r"tried to allocate (\d+) bytes"),
    re.compile(r"[Tt]ried to allocate ([\d.]+ [KMGTP]i?B)"),
    re.compile(r"Unable to allocate ([\d.]+ [KMGTPE]iB)"),
)
# What asks a process to end: Ctrl-C, the system, a terminal that is closed.
ENDINGS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
NAMED = {"SafetensorError", "OutOfMemoryError", "ArrowInvalid"}  # the same, of libraries that are not loaded here


def foreseen(problem: BaseException) -> bool:
    """Whether a failure is about what was asked for: a refusal of this package, or an error of the list above.

    >>> foreseen(FileNotFoundError("x")), foreseen(ZeroDivisionError()), foreseen(ValueError("from elsewhere"))
    (True, False, False)
    """
    return (
        isinstance(problem, INPUT)
        or type(problem).__name__ in NAMED
        or (isinstance(problem, ValueError) and _raised_here(problem))
        or is_refused_memory(problem)
    )


def _raised_here(problem: BaseException) -> bool:
    """Whether the error was raised by a line of this package, not by one of a library or of the user's own."""
    at = problem.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and Path(at.tb_frame.f_code.co_filename).is_relative_to(PACKAGE)


def sentence_of(problem: BaseException) -> str:
    """A foreseen failure in one line.

    >>> sentence_of(PermissionError(13, "Permission denied", "rows.csv")), sentence_of(RecursionError())
    ('rows.csv: permission denied', 'what was given is nested too deeply')
    """
    if is_refused_memory(problem):
        return _of_memory(problem)
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror.lower()}" if problem.filename else problem.strerror.lower()
    if isinstance(problem, RecursionError):
        return "what was given is nested too deeply"
    return clipped(problem)


def _of_memory(problem: BaseException) -> str:
    """What was asked for, as far as the error says it, and how much there is.

    >>> _of_memory(RuntimeError("you tried to allocate 34359738368 bytes")).partition("; ")[0]
    'there is not enough memory: 32.0 GB were asked for at once'
    """
    size = next((match[1] for pattern in ASKED if (match := pattern.search(str(problem)))), None)
    requested = spoken_bytes(int(size)) if size is not None and size.isdigit() else size
    there, who = memory_limit()
    words = (
        f"there is not enough memory: {requested} were asked for at once" if requested else "there is not enough memory"
    )
    more = "" if requested else f" ({clipped(problem)[:200]})" if str(problem) else ""
    return f"{words}; {spoken_bytes(there)} is {who}; ask for less at once{more}"


def clipped(problem: BaseException) -> str:
    """What an error says, in one line of bounded length."""
    text = " ".join(str(problem).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


leave_while_loading: Callable[[int, FrameType | None], None] | None = None  # set where the process is the command's


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded: libraries try this and that as they load, and swallow an interruption."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


@dataclass
class Interruption:
    """Whether Ctrl-C came while a command ran."""

    came: bool = False


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Python's warnings as one line each, and no more than two of them: a person reads them, not the source."""
    left = 2

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0 and sys.stderr is not None:
            text = " ".join(str(message).split())
            sys.stderr.write(f"headcount: warning: {visible(text)[:LONGEST]}\n")

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


@contextlib.contextmanager
def interruptible(noted: Interruption) -> Iterator[None]:
    """Remember an interruption, whatever a library in its way makes of the KeyboardInterrupt."""
    again = _Again()

    def note(number: int, frame: FrameType | None) -> None:
        noted.came = True
        if leave_while_loading is not None and is_importing(frame):
            leave_while_loading(number, frame)
        if again.is_noting(frame):
            again.later()
            return
        again.wanted = False
        raise KeyboardInterrupt

    with again.noting():
        try:
            before = {number: signal.signal(number, note) for number in ENDINGS if _is_heeded(number)}
        except ValueError:  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_heeded(number: int) -> bool:
    """Whether a signal means anything here: whoever started us may have said that it does not.

    So does nohup, and a script of the shell does with Ctrl-C for what it runs in the background.
    """
    return signal.getsignal(number) is not signal.SIG_IGN


class _Again:
    """An interruption where Python can only ignore what is raised: it comes again, until it is raised elsewhere.

    Such places are an object that is being deleted, and the hook that hears of it. In the hook nothing is waited for:
    the next interruption may meet it there.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._thread = threading.get_ident()

    def is_noting(self, frame: FrameType | None) -> bool:
        """Whether the hook is at work."""
        while frame is not None and frame.f_code is not _Again._noted.__code__:
            frame = frame.f_back
        return frame is not None

    def later(self) -> None:
        """Interrupt in a moment."""
        if not self.wanted:
            self.wanted = True
            _thread.start_new_thread(self._come, ())

    def _come(self) -> None:
        time.sleep(MOMENT)
        if not self.wanted:
            return
        self.wanted = False
        if sys.platform == "win32":
            _thread.interrupt_main()
        else:
            signal.pthread_kill(self._thread, signal.SIGINT)  # a true signal ends a wait, too

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Hear of what Python ignores."""
        before = sys.unraisablehook
        sys.unraisablehook = partial(self._noted, before)
        try:
            yield
        finally:
            self.wanted = False
            sys.unraisablehook = before

    def _noted(self, before: Callable[[Any], object], problem: Any) -> None:
        if issubclass(problem.exc_type, KeyboardInterrupt):
            self.later()
        else:
            before(problem)
