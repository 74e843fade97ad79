"""How much memory this process may have, and who says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headcount.numerals import spoken_bytes
from headcount.refusals import RefusalError

# In a RuntimeError of torch, or of whatever it calls.
TOO_LARGE = (
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "Storage size calculation overflowed",
    "std::bad_alloc",
    "out of memory",
    "unable to mmap",
    "can't start new thread",
)

COUNTS = (
    "retrievals",
    "token_dim",
    "vocab",
    "letters",
    "blocks",
    "arguments",
    "places",
)  # of numbers that a task holds


def memory_limit() -> tuple[int, str]:
    """The fewest bytes that anything allows, and what that is: the machine, the container, or `ulimit -v`."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize
    return min([(pages, "the machine's memory"), *_of_groups(), *_of_process()])


def is_refused_memory(problem: BaseException) -> bool:
    """Whether what was asked for fits no memory, in whichever of its words a library says so.

    >>> is_refused_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_refused_memory(OSError())
    (True, False)
    """
    named = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"
    stated = isinstance(problem, RuntimeError | OSError) and any(words in str(problem) for words in TOO_LARGE)
    return named or stated


def refuse_sizes(sizes: dict[str, object], where: str) -> None:
    """Refuse counts of which one number each would not fit the memory, before anything is made of that size.

    >>> refuse_sizes({"retrievals": 2**60}, "[task]")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    headcount.refusals.RefusalError: retrievals = 1,152,921,504,606,846,976 in [task] asks for 8589934592.0 GB, and ...
    """
    counts = {name: n for name in COUNTS if type(n := sizes.get(name)) is int and n > 1}
    numbers, (there, who) = 1, memory_limit()
    for name, count in counts.items():
        numbers *= count
        if 8 * numbers > there:
            requested = " and ".join(f"{n} = {c:,}" for n, c in counts.items() if n == name or 8 * c <= there)
            words = f"{requested} in {where} asks for {spoken_bytes(8 * numbers)}"
            raise RefusalError(f"{words}, and {spoken_bytes(there)} is {who}")


def _of_groups() -> list[tuple[int, str]]:
    """The limits of the control groups that this process is in, each and those above it."""
    root, limits = Path("/sys/fs/cgroup"), []
    try:
        lines = Path("/proc/self/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        _, kinds, inner = (*line.split(":", 2), "", "")[:3]
        base, name = (root, "memory.max") if not kinds else (root / "memory", "memory.limit_in_bytes")
        if kinds and "memory" not in kinds.split(","):
            continue
        place = Path(inner.lstrip("/"))
        for at in (place, *place.parents):
            try:
                text = (base / at / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                limits.append((int(text), "the limit of its control group"))
    return limits


def _of_process() -> list[tuple[int, str]]:
    try:
        import resource
    except ImportError:  # Windows
        return []
    named = ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d"))
    return [(limit, who) for kind, who in named if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY]
