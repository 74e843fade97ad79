"""What a verb returns: rows for programs, a sentence for people, files to keep, a picture for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Result(Protocol):
    """The answer of every verb; commands print it, pages and notebooks show it.

    >>> from headcount.results import Study
    >>> isinstance(Study(()), Result), isinstance("a sentence", Result)
    (True, False)
    """

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The answer as a table."""
        ...

    @property
    def sentence(self) -> str:
        """What it comes to, with its conditions."""
        ...

    def files(self, out: Path) -> list[Path]:
        """Write the answer into a folder: data for programs and, where there is one, its page or picture."""
        ...

    def _repr_html_(self) -> str: ...
