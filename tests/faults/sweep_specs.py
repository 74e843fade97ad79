"""A small sweep that every fault is tried on, and ways to run it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headcount.results import Store

LIMIT = 900.0  # seconds that no machine needs: what takes longer will never end
SPEC = """
name = "small"
seeds = 2
[task]
name = "KthLargest"
rank = 1
[grid]
lengths = [4, 6]
heads = [1, 2]
head_dim = 4
width = 8
[training]
samples = 64
validation = 32
epochs = 2
batch = 32
"""


def with_(*pairs: tuple[str, str]) -> str:
    """The spec with words put in the place of others, which must be there."""
    text = SPEC
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def start(
    *words: object,
    cwd: Path | None = None,
    preexec_fn: Callable[[], None] | None = None,
    program: tuple[str, str] = ("-m", "headcount"),
    stdin: int | None = None,
    **settings: str,
) -> subprocess.Popen[str]:
    """`headcount ...`, or another program of Python, as a process of its own, with one thread; it hears Ctrl-C."""
    here = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(here), **settings}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, *program, *map(str, words)]

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background would have it ignored,
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup this one
        if preexec_fn is not None:
            preexec_fn()

    return subprocess.Popen(command, env=environment, cwd=cwd, preexec_fn=prepare, stdin=stdin, **pipes)


def wait_until(happened: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait, however long it takes, until something has happened that the process must do before it ends."""
    began = time.monotonic()
    while not happened():
        assert process.poll() is None, f"it ended too soon: {process.communicate()}"
        assert time.monotonic() - began < LIMIT, "it never happened"
        time.sleep(0.02)


def without_progress(said: str) -> str:
    """What was said, less the line a minute that tells how far a sweep is."""
    return "".join(line for line in said.splitlines(keepends=True) if " model-steps/s, about " not in line)


def rows_of(folder: Path, spec: str | None = None) -> list[dict]:
    """The rows of a store, without what depends on who trained them."""
    return [dict(row) for row in Store.open(folder).study(spec)]
