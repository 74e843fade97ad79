"""How CUDA programs are cut: their warps, what they keep at a time, and the bytes of shared memory that they take.

Bytes are counted here alone: who asks whether a program fits and who launches it read the same number. In the sources
matrices follow one another in the order of the sums below; padded sides are multiples of 16, rows lie 8 numbers apart
of one another, float16 is 2 bytes and float32 is 4.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

HOPPER = 227 * 1024  # bytes of shared memory that a program may have on a chip of compute capability 9.0
OPT_IN = 97  # the driver's number of that attribute of a device
KEPT = 80  # numbers of a thread: gradients of heads that stay in registers from tile to tile
FED = 96  # and of hidden units
FORWARD = 4  # warps of a program forwards, at most
APART = 8  # numbers between the end of a row and the next
QUESTIONS = 16  # rows of a tile of the class token's questions


class Cut(NamedTuple):
    """Warps of a program, heads or hidden units that it holds at a time, and its bytes of shared memory."""

    warps: int
    group: int
    shared: int


@cache
def cuda_driver() -> ctypes.CDLL:
    """The driver's own library."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@cache
def most_shared(gpu: int) -> int:
    """Bytes of shared memory that one program may have on a GPU; below 0 it is an emulation, which stands for Hopper.

    >>> most_shared(-1)
    232448
    """
    if gpu < 0:
        return HOPPER
    device, most = ctypes.c_int(), ctypes.c_int()
    driver = cuda_driver()
    codes = [driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), gpu)]
    codes.append(driver.cuDeviceGetAttribute(ctypes.byref(most), OPT_IN, device))
    if any(codes):
        raise OSError(f"the driver does not say how much shared memory GPU {gpu} has: {codes}")
    return most.value


@dataclass(frozen=True)
class AttentionSize:
    """Attention of one layer as a program sees it; with `norm` after a layer norm, with `asks` the class token too."""

    longest: int
    embed: int
    heads: int
    dim: int
    norm: bool = False
    asks: bool = False

    def forwards(self, most: int = HOPPER) -> Cut | None:
        """All heads at once, of as many samples as four warps have and memory holds; None: of none.

        >>> AttentionSize(32, 32, 4, 8, asks=True).forwards()
        Cut(warps=4, group=4, shared=30720)
        >>> AttentionSize(64, 64, 16, 16).forwards() is None
        True
        """
        if not self._written_for:
            return None
        for samples in range(max(1, FORWARD // self._tiles), 0, -1):
            cut = Cut(samples * self._tiles, self.heads, self._forward_bytes(samples))
            if cut.shared <= most:
                return cut
        return None

    def backwards(self, most: int = HOPPER) -> Cut | None:
        """In the fewest passes over the heads, with four warps where that is as good; None: memory holds no head.

        >>> AttentionSize(32, 32, 4, 8, asks=True).backwards(), AttentionSize(64, 64, 6, 16).backwards()
        (Cut(warps=4, group=4, shared=63536), Cut(warps=8, group=3, shared=153888))
        """
        cuts = []
        for limit in (4, 8) if self._written_for else ():
            samples = max(1, limit // self._tiles)
            for passes in range(1, self.heads + 1):
                cut = Cut(samples * self._tiles, -(-self.heads // passes), 0)
                cut = cut._replace(shared=self._backward_bytes(samples, cut.group))
                registers = 4 * self._columns(cut.group) * self._wide
                if registers <= 32 * cut.warps * KEPT and cut.shared <= most:
                    cuts.append((passes, limit, cut))
                    break
        return min(cuts)[2] if cuts else None

    @property
    def _written_for(self) -> bool:
        """Four warps have 64 tokens, one tile sixteen heads' questions."""
        return self.longest <= 64 and self.embed <= 64 and self.heads <= QUESTIONS and self.dim <= 16

    @property
    def _tiles(self) -> int:
        return -(-self.longest // 16)

    @property
    def _wide(self) -> int:
        return padded(self.embed)

    def _columns(self, group: int) -> int:
        return padded(group * (8 if self.dim <= 8 else 16))

    def _weight_bytes(self, columns: int) -> int:
        return 2 * (3 * columns * (self._wide + APART) + self._wide * (columns + APART))

    def _forward_bytes(self, samples: int) -> int:
        columns, rows = self._columns(self.heads), 16 * samples * self._tiles
        states = 2 * rows * (3 * (columns + APART) + self.asks * (self._wide + APART))
        return self._weight_bytes(columns) + states + self.norm * 8 * self._wide

    def _backward_bytes(self, samples: int, group: int) -> int:
        columns, warps, wide = self._columns(group), samples * self._tiles, self._wide
        rows, posted = 16 * warps, self.norm and not self.asks and self.embed == wide
        states = 2 * rows * (2 * (wide + APART) + 6 * (columns + APART)) + 8 * group * rows
        sums = 4 * padded(warps, 4) + self.norm * 8 * wide * (1 + warps)
        answers = self.asks * samples * _answer_bytes(self.longest, self.embed)
        return self._weight_bytes(columns) + states + sums + answers + posted * _post_bytes(wide, warps)


@dataclass(frozen=True)
class FeedSize:
    """A feed-forward as a program sees it; `posted`: its rows are sent for beforehand where nothing is padded."""

    inputs: int
    hidden: int
    outputs: int
    gelu: bool = False
    norm: bool = False
    posted: bool = False

    def forwards(self, most: int = HOPPER) -> Cut | None:
        """All hidden units at once by four warps; None: memory does not hold them.

        >>> FeedSize(64, 256, 64).forwards(), FeedSize(64, 257, 64).forwards()
        (Cut(warps=4, group=256, shared=108800), None)
        """
        cut = Cut(FORWARD, self.hidden, self._layer_bytes(padded(self.hidden)))
        return cut if self._written_for and cut.shared <= most else None

    def backwards(self, most: int = HOPPER) -> Cut | None:
        """In the fewest passes over the hidden units, with four warps where that is as good; None: in none.

        >>> FeedSize(32, 32, 32).backwards(), FeedSize(64, 256, 64).backwards()
        (Cut(warps=4, group=32, shared=28944), Cut(warps=8, group=128, shared=163616))
        """
        cuts = []
        for warps in (4, 8) if self._written_for else ():
            for passes in range(1, self.hidden + 1):
                units = padded(-(-self.hidden // passes))
                cut = Cut(warps, min(self.hidden, units), self._backward_bytes(units, warps))
                registers = units * (padded(self.inputs) + padded(self.outputs))
                if registers <= 32 * warps * FED and cut.shared <= most:
                    cuts.append((passes, cut))
                    break
        return min(cuts)[1] if cuts else None

    @property
    def _written_for(self) -> bool:
        return max(self.inputs, self.outputs) <= 64 and self.hidden <= 256

    def _layer_bytes(self, units: int) -> int:
        inputs, outputs = padded(self.inputs), padded(self.outputs)
        weights = 2 * ((2 - self.gelu) * units * (inputs + APART) + outputs * (units + APART))
        return weights + 4 * (units + outputs + self.norm * 2 * inputs)

    def _backward_bytes(self, units: int, warps: int) -> int:
        inputs, outputs = padded(self.inputs), padded(self.outputs)
        rows = 2 * 16 * warps * (inputs + outputs + 2 * units + 4 * APART)
        sums = 4 * warps * (1 + outputs + self.norm * 2 * inputs)
        posted = self.posted and self.gelu and self.norm and self.inputs == inputs == self.outputs
        return self._layer_bytes(units) + rows + sums + posted * 2 * _post_bytes(inputs, warps)


def question_bytes(longest: int, embed: int, warps: int, back: bool) -> int:
    """Of the class token's last question, a sample for every warp.

    >>> question_bytes(64, 48, 4, back=False), question_bytes(64, 48, 4, back=True)
    (28672, 61504)
    """
    return warps * (2 * padded(longest) * (padded(embed) + APART) + back * _answer_bytes(longest, embed))


def _answer_bytes(longest: int, embed: int) -> int:
    """What the way back to the tokens needs of a sample's questions: weights, directions, slopes of both, a size."""
    return 2 * (2 * QUESTIONS * (padded(longest) + APART + padded(embed) + APART) + 8)


def _post_bytes(wide: int, warps: int) -> int:
    """Rows on their way: a four of every thread for each eight columns."""
    return 16 * wide // 8 * 32 * warps


def padded(count: int, to: int = 16) -> int:
    """The smallest multiple of `to` that is at least `count`.

    >>> padded(33)
    48
    """
    return -(-count // to) * to
