"""Machine code that was made here and is kept: in a folder closed to everybody else, under a name that it must fit.

Whoever can put a file into the folder, or another folder into its place, could have anything run; so the folder and all
above it must be the user's or the system's, and nobody else's to write. And a disk may damage a file; so its name holds
the hash of what is in it, and one that does not fit is removed and made anew. What is loaded is a copy in memory of
the bytes that fitted: nobody can change it between the look and the use, nor cut it short while it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from headcount.files import make_folder, settle, user_cache


class CodeCache:
    """A closed folder of compiled files, each under a stem, the hash of its content and a suffix.

    >>> import tempfile
    >>> kept = CodeCache(Path(tempfile.mkdtemp()))
    >>> file = kept.file("bank", ".so", lambda scratch: scratch.write_bytes(b"code"))
    >>> file.name, kept.file("bank", ".so", lambda scratch: None) == file
    ('bank.5694d08a2e53ffcae0c3103e.so', True)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, stem: str, suffix: str, make: Callable[[Path], object]) -> Path:
        """The file kept under this stem; where none is sound, `make` writes one to the path it is given."""
        cached = self.find(stem, suffix)
        return self._made(stem, suffix, make) if cached is None else cached

    def find(self, stem: str, suffix: str) -> Path | None:
        """The file kept under this stem, if its content is what its name says; others are removed, with a line."""
        for file in sorted(self.folder.glob(f"{stem}.*{suffix}")):
            if _is_own_file(file) and file.name == _name(stem, suffix, file):
                return file
            print(f"headcount: {file} is damaged; it is made anew", file=sys.stderr)  # noqa: T201
            _removed(file)
        return None

    def _made(self, stem: str, suffix: str, make: Callable[[Path], object]) -> Path:
        """Made in a folder of its own, which nobody else may enter, before it is moved to its place."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="making-", ignore_cleanup_errors=True) as own:
            scratch = Path(own) / f"{stem}{suffix}"
            make(scratch)
            if not scratch.is_file():
                raise OSError(f"{stem}{suffix} was not made")
            scratch.chmod(0o700)
            settle(scratch)
            file = self.folder / _name(stem, suffix, scratch)
            scratch.replace(file)
            settle(self.folder)
        return file


def loaded_code(file: Path) -> ctypes.CDLL:
    """The library in a kept file, from a copy of its own where the system knows files in memory alone (Linux)."""
    content = file.read_bytes()
    if file.name.split(".")[-2] != _hashed(content):
        raise OSError(f"{file} was changed between two looks at it")
    try:
        copy = os.memfd_create(file.name[:100])
        with os.fdopen(os.dup(copy), "wb") as writer:
            writer.write(content)
        return ctypes.CDLL(f"/proc/self/fd/{copy}")  # it stays open: the loader knows a library by its name
    except (AttributeError, OSError):  # a system without, or one that runs nothing from memory
        return ctypes.CDLL(str(file))


def code_cache() -> CodeCache:
    """The user's; where that folder is open to others or cannot be written, one for this process alone."""
    return _at(user_cache() / "compiled")


@cache
def _at(folder: Path) -> CodeCache:
    try:
        _make_closed(folder)
        why = why_open(folder) or ("" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written")
    except OSError as problem:
        why = f"{folder}: {(problem.strerror or str(problem)).lower()}"
    if not why:
        return CodeCache(folder.resolve())
    own = Path(tempfile.mkdtemp(prefix="headcount-compiled-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    if open_too := why_open(own):
        raise PermissionError(f"{why}, and {open_too}")
    print(f"headcount: {why}; what is compiled is not kept", file=sys.stderr)  # noqa: T201
    return CodeCache(own.resolve())


def why_open(folder: Path) -> str:
    """Who else might put a file into this folder, or a folder into its place; empty where nobody can.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> why_open(folder)
    ''
    >>> folder.chmod(0o770)
    >>> why_open(folder).removeprefix(str(folder))
    ' may be written by others (chmod go-w)'
    """
    if not hasattr(os, "getuid"):  # Windows: folders of a user are the user's
        return ""
    place = folder.resolve()
    for at in (place, *place.parents):
        about = at.stat()
        if about.st_uid not in (os.getuid(), 0) and at != at.parent:
            return f"{at} belongs to somebody else"
        shared = about.st_mode & 0o022 and not (at != place and about.st_mode & stat.S_ISVTX)
        if shared:
            return f"{at} may be written by others (chmod go-w)"
    return "" if place.stat().st_uid == os.getuid() else f"{place} belongs to somebody else"


def _make_closed(folder: Path) -> None:
    """Make a folder and those above it for the user alone, whatever the mask; one that is there is closed, too."""
    missing = [at for at in (folder, *folder.parents) if not at.exists()]
    for at in reversed(missing):
        with contextlib.suppress(FileExistsError):
            at.mkdir(mode=0o700)
    make_folder(folder)
    if hasattr(os, "getuid") and folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o022:
        folder.chmod(0o700)


def _is_own_file(file: Path) -> bool:
    """Whether it is a plain file of this user's, no link, that nobody else can write."""
    about = file.lstat()
    own = not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)
    return stat.S_ISREG(about.st_mode) and own


def _name(stem: str, suffix: str, file: Path) -> str:
    return f"{stem}.{_hashed(file.read_bytes())}{suffix}"


def _hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


def _removed(file: Path) -> None:
    with contextlib.suppress(OSError):
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()
