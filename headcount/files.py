"""Files appear whole or not at all: written beside their place under another name, then moved there."""

from __future__ import annotations

import contextlib
import os
import secrets
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
    # A name that nobody can foresee: nothing can be laid in its place beforehand.
    scratch = path.with_name(f"{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        yield scratch
        _settle(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Wait until what was written is on the disk, so that a power cut leaves the old file or the new one."""
    if path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
