"""Published tables beside ours: which there are, how they are run and kept, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.reproduction.index import REPRODUCTIONS, chosen, named
    from headcount.reproduction.runner import read_records, reproduce

__all__ = ["REPRODUCTIONS", "chosen", "named", "read_records", "reproduce"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "index": (
            "REPRODUCTIONS",
            "chosen",
            "named",
        ),
        "runner": (
            "read_records",
            "reproduce",
        ),
    },
)
