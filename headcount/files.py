"""Files appear whole or not at all: written beside their place under another name, then moved there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["whole"]


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A scratch path to write to; it becomes `path` when the block ends well, and is removed when it does not.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "new" / "file.txt"
    >>> with whole(path) as scratch:
    ...     _ = scratch.write_text("all of it")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
