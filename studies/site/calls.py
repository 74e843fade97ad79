"""Commands called in this process, as from a shell."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from headcount.cli import main


class Called(NamedTuple):
    """What a call left."""

    exit_code: int
    stdout: str
    stderr: str


def called(words: Sequence[str]) -> Called:
    """Call a command with these words.

    >>> called(["--version"]).stdout.split()[0], called(["no such"]).exit_code
    ('headcount', 2)
    """
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    return Called(code, out.getvalue(), errors.getvalue())
