"""Files appear whole or not at all: written beside their place under another name, then moved there.

Arrays come from files without anything in them being run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.refusals import RefusalError
from headcount.visible import visible

if TYPE_CHECKING:
    import numpy as np


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """A scratch path to write to; it becomes `path` when the block ends well, and is removed when it does not.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "new" / "file.txt"
    >>> with atomic_write(path) as scratch:
    ...     _ = scratch.write_text("all of it")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)
    """
    path = Path(path)
    make_folder(path.parent)
    # A name that nobody can foresee: nothing can be laid in its place beforehand.
    scratch = path.with_name(f"{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        yield scratch
        settle(scratch)
        scratch.replace(path)
        settle(path.parent)
    except OSError as problem:
        if problem.filename is not None and Path(problem.filename) == scratch:
            problem.filename = str(path)  # the name that the reader knows
        raise
    finally:
        with contextlib.suppress(OSError):  # a disk that cannot be written to
            scratch.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text, whole or not at all, its control characters spelt out; its path.

    >>> import tempfile
    >>> write_text(Path(tempfile.mkdtemp()) / "new" / "page.html", "<p>").read_text()
    '<p>'
    """
    with atomic_write(path) as scratch:
        scratch.write_text(visible(text), encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, value: Any) -> Path:
    """Write a value as JSON, whole or not at all; its path."""
    return write_text(path, strict_json(value, indent=1) + "\n")


def strict_json(value: Any, **how: Any) -> str:
    """JSON that every reader takes: what is no finite number is null.

    >>> strict_json({"nmse": float("inf"), "heads": 4})
    '{"nmse": null, "heads": 4}'
    """
    try:
        return json.dumps(value, allow_nan=False, **how)
    except ValueError:
        return json.dumps(finite(value), **how)


def finite(value: Any) -> Any:
    """A value of tables and lists with None for every number that is not finite.

    >>> finite({4: (1.0, float("nan"))})
    {'4': [1.0, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(v) for key, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """A scratch folder to fill; it becomes `path` when the block ends well, and is removed when it does not.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model"
    >>> with atomic_folder(path) as scratch:
    ...     _ = (scratch / "config.json").write_text("{}")
    >>> [file.name for file in path.iterdir()], len(list(path.parent.iterdir()))
    (['config.json'], 1)
    """
    path = Path(path)
    if path.exists() and any(path.iterdir()):
        raise RefusalError(f"{path} is not empty; give a new folder")
    make_folder(path.parent)
    scratch = path.with_name(f"{path.name[:100]}.{secrets.token_hex(8)}.part")
    scratch.mkdir()
    try:
        yield scratch
        for file in (*scratch.rglob("*"), scratch):
            settle(file)
        if path.exists():
            path.rmdir()
        scratch.rename(path)
        settle(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def kept_folder(path: Path, make: Callable[[Path], None]) -> Path:
    """A folder that is made when it is first asked for; where another process was faster, theirs is taken.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "made"
    >>> for _ in range(2):
    ...     _ = kept_folder(folder, lambda part: print("making") or (part / "x").touch())
    making
    """
    if not path.is_dir():
        try:
            with atomic_folder(path) as part:
                make(part)
        except (OSError, RefusalError):
            if not path.is_dir():
                raise
    return path


def make_folder(path: Path) -> None:
    """Make a folder and those above it, each on the disk before anything is put there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "runs" / "first"
    >>> make_folder(folder)
    >>> folder.is_dir()
    True
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for created in missing:
        settle(created.parent)


def user_cache() -> Path:
    """Where things made once are kept: $HEADCOUNT_CACHE, or headcount in the user's cache folder ($XDG_CACHE_HOME).

    A variable that is empty or no absolute path counts as not set, as the XDG standard has it: a path that begins where
    one stands would lead into whatever folder that is.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"HEADCOUNT_CACHE": "cache", "XDG_CACHE_HOME": "/var/mine"}):
    ...     str(user_cache())
    '/var/mine/headcount'
    """
    own, shared = (_absolute(os.environ.get(name)) for name in ("HEADCOUNT_CACHE", "XDG_CACHE_HOME"))
    return own or (shared or _home() / ".cache") / "headcount"


def _absolute(name: str | None) -> Path | None:
    return Path(name) if name and Path(name).is_absolute() else None


def _home() -> Path:
    """The user's own folder, from the system's list where the environment names none."""
    if home := _absolute(os.environ.get("HOME")):
        return home
    try:
        import pwd

        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):  # Windows, or a user without a name
        return Path.home().absolute()


def arrays_in(path: str | Path) -> dict[str, np.ndarray]:
    """The plain arrays of an .npz file, by name; a stranger's file may hold anything, and is refused in one line.

    >>> import tempfile
    >>> import numpy as np
    >>> file = Path(tempfile.mkdtemp()) / "x.npz"
    >>> np.savez(file, x=np.arange(3))
    >>> arrays_in(file)["x"].tolist()
    [0, 1, 2]
    """
    import numpy as np

    path = Path(path)
    refuse_no_file(path)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (MemoryError, PermissionError):
        raise
    except Exception as problem:  # whatever a library makes of a stranger's file
        why = " ".join(str(problem).split())[:200]
        reason = "" if "pickle" in why else f": {why}"  # numpy takes any other file for a pickle
        raise RefusalError(f"{path} is not a readable .npz file of plain arrays{reason}") from None


def text_in(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file; what is no plain file (a folder, a pipe, a device without end) is refused unread."""
    refuse_no_file(path)
    return path.read_text(encoding=encoding, errors=errors)


def refuse_no_file(path: Path) -> None:
    """Refuse what is not there or is no plain file.

    >>> refuse_no_file(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    headcount.refusals.RefusalError: /dev/null is no plain file
    """
    path.stat()  # whoever is missing or closed is named by the system
    if not path.is_file():
        raise RefusalError(f"{path} {'is a directory' if path.is_dir() else 'is no plain file'}")


def settle(path: Path) -> None:
    """Wait until what was written is on the disk, so that a power cut leaves the old file or the new one."""
    if not path.is_file() and not path.is_dir():
        return
    refused = contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext()
    with refused:  # not every system lets a folder be opened
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
