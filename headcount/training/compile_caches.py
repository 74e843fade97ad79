"""Compile caches of a process's own: workers that compile the same kernels at once do not meet in one folder."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def caches_below(folder: Path) -> dict[str, str]:
    """The environment in which Triton and Inductor keep what they compile below this folder, as they are loaded.

    >>> caches_below(Path("/scratch/one"))["TRITON_CACHE_DIR"]
    '/scratch/one/triton'
    """
    return {name: str(folder / name.split("_")[0].lower()) for name in CACHES}


@cache
def private_caches() -> Path:
    """Caches that this process alone uses, removed when it ends; below the folder that the environment names."""
    named = os.environ.get(CACHES[0])
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="headcount-compiled-", dir=named or None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(caches_below(folder))
    return folder
