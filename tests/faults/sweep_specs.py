"""A small sweep that every fault is tried on, and ways to run it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from headcount.results import Store

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
    *words: object, cwd: Path | None = None, preexec_fn: Callable[[], None] | None = None, **settings: str
) -> subprocess.Popen[str]:
    """`headcount ...` as a process of its own, with one thread."""
    here = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(here), **settings}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-m", "headcount", *map(str, words)], env=environment, cwd=cwd, preexec_fn=preexec_fn, **pipes
    )


def rows_of(folder: Path, spec: str | None = None) -> list[dict]:
    """The rows of a store, without what depends on who trained them."""
    return [dict(row) for row in Store.open(folder).study(spec)]
