"""Compile caches of a process's own: workers that compile the same kernels at once do not meet in one folder."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["CACHES", "private_caches", "use_caches"]

CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def use_caches(folder: Path) -> None:
    """Let Triton and Inductor keep what they compile below this folder; to be said before either is loaded.

    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ):
    ...     use_caches(Path("/scratch/one"))
    ...     os.environ["TRITON_CACHE_DIR"]
    '/scratch/one/triton'
    """
    for name in CACHES:
        os.environ[name] = str(folder / name.split("_")[0].lower())


@cache
def private_caches() -> Path:
    """Caches that this process alone uses, removed when it ends; below the folder that the environment names."""
    named = os.environ.get(CACHES[0])
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="headcount-compiled-", dir=named or None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    use_caches(folder)
    return folder
