"""Memory stated before the run: what a replayed row takes, how many fit, and a refusal where nothing does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headcount.papers.tensor_lens.tape import Tape

__all__ = ["Budget", "available", "bytes_from", "bytes_of", "words_for"]

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
TENSORS_AT_ONCE = 6  # of the largest size that may live together while a layer is replayed
MOST_ROWS = 256


@dataclass(frozen=True)
class Budget:
    """How much memory there is, what the tape holds, what one replayed row needs, and so how many go at once."""

    limit: int
    tape: int
    row: int
    rows: int

    @classmethod
    def of(cls, memory: int | str | None, tape: Tape, x: Tensor, out: Tensor) -> Budget:
        """The plan for a recorded pass; half of what the machine has free where no limit is given."""
        limit = available() // 2 if memory is None else bytes_from(memory)
        row = TENSORS_AT_ONCE * max(tape.largest, bytes_of(x), bytes_of(out))
        left = limit - tape.bytes
        if left < row:
            need = words_for(tape.bytes + row)
            raise ValueError(f"one row needs {need} ({len(x)} tokens), the limit is {words_for(limit)}; cut the text")
        return cls(limit, tape.bytes, row, int(min(MOST_ROWS, left // row)))

    def allow(self, result: int, what: str) -> None:
        """Refuse a result that does not fit beside the tape and one row."""
        if self.tape + self.row + result > self.limit:
            asked, limit = words_for(result), words_for(self.limit)
            raise ValueError(f"{what} takes {asked}, the limit is {limit}; read fewer places (at=), or one number")


def available() -> int:
    """Free bytes of memory as the system sees them (64 GB where it does not say)."""
    try:
        words = Path("/proc/meminfo").read_text()
    except OSError:
        return 2**36
    return int(re.findall(r"MemAvailable:\s+(\d+) kB", words)[0]) * 1024


def bytes_from(text: int | str) -> int:
    """A size in words.

    >>> bytes_from("4G"), bytes_from("1.5M")
    (4294967296, 1572864)
    >>> bytes_from("much")
    Traceback (most recent call last):
    ...
    ValueError: a size of memory is a number with K, M, G or T behind it (4G), got 'much'
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)i?B?\s*", str(text), flags=re.IGNORECASE)
    if not found:
        raise ValueError(f"a size of memory is a number with K, M, G or T behind it (4G), got {text!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])


def words_for(size: float) -> str:
    """A number of bytes for people.

    >>> words_for(39e9), words_for(5_000_000)
    ('39 GB', '5 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"


def bytes_of(t: Tensor) -> int:
    """The bytes of a tensor."""
    return t.numel() * torch.empty((), dtype=t.dtype).element_size()
