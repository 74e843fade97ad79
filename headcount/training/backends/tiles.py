"""How the fused kernels cut their work: tiles of (sample, token) rows by (sample, head) columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LayerTile", "Tile", "lanes", "power"]


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile, programs a member, and how the factors of products are rounded.

    `precision` is "half" (float16 factors, float32 sums), "fine" (the same, outputs to twice the bits), "tf32" or
    "ieee" (float32 throughout).
    """

    rows: int = 128
    columns: int = 16
    parts: int = 8
    stages: int = 1
    registers: int | None = None
    precision: str = "half"
    tail: int = 16384

    def cut(self, longest: int, heads: int, width: int) -> dict[str, int]:
        """Samples, tokens and padded sizes of a tile; every side of a product is at least 16.

        >>> Tile().cut(longest=32, heads=4, width=32)
        {'WIDTH': 32, 'HEADS': 4, 'SAMPLES': 4, 'TOKENS': 32, 'num_warps': 4}
        """
        padded, wide = power(heads), max(16, power(width))
        rows = max(32, min(self.rows, 32 * self.rows // wide))
        tokens = min(power(longest), rows)
        samples = max(1, min(rows // tokens, self.columns // padded))
        samples = max(samples, 16 // tokens)
        warps = min(8, max(1, samples * tokens * wide // 1024))
        padded = max(padded, 16 // samples)
        return {"WIDTH": wide, "HEADS": padded, "SAMPLES": samples, "TOKENS": tokens, "num_warps": warps}


@dataclass(frozen=True)
class LayerTile:
    """How a layer is cut: rows of a tile (samples of short sequences share one), rows of a warp, programs in all.

    `precision` is "half" (float16 factors, float32 sums) or "ieee". `feed` takes a small feed-forward into the same
    program, and `fine` gives its inner product twice the bits, which decide the units that are awake. There are never
    more warps than strips of `strip` rows: the others would compute the same again.
    """

    rows: int = 32
    strip: int = 16
    programs: int = 2112  # sixteen for each multiprocessor of a large GPU
    precision: str = "half"
    feed: bool = False
    feeding: tuple[int, int] | None = None  # rows and warps of a feed-forward by itself, backwards
    fine: bool = False
    registers: int | None = None  # of a thread, backwards
    composed: int = 16  # the widest states for which a head is two square matrices
    largest: int = 4096  # numbers of one matrix on the chip

    def cut(self, longest: int, embed: int, head_dim: int, hidden: int) -> dict[str, Any] | None:
        """Samples, tokens and padded sizes of a tile; None where a program cannot hold it.

        >>> LayerTile(feed=True).cut(16, 32, 8, 32)["SAMPLES"]
        2
        >>> LayerTile().cut(64, 48, 8, 128)["num_warps"]
        4
        >>> LayerTile().cut(100, 180, 16, 128) is None
        True
        """
        tokens, wide, inner = power(longest), max(16, power(embed)), max(16, power(hidden))
        samples = max(1, max(16, self.rows) // tokens)
        rows, composed = samples * tokens, wide <= self.composed
        if max(rows * wide, rows * rows) > self.largest or wide > 64:
            return None
        feeds = self.feed and max(rows, 2 * wide) * inner <= self.largest
        sizes = {"SAMPLES": samples, "TOKENS": tokens, "EMBED": wide, "HIDDEN": inner if feeds else 16}
        dim = wide if composed else max(16, power(head_dim))
        warps = min(4, max(1, rows // self.strip))
        return {**sizes, "DIM": dim, "COMPOSED": composed, "FEED": feeds, "num_warps": warps}


def lanes(features: int) -> int:
    """Room for a token and a one, twice, in a power of two of at least 16.

    >>> lanes(5), lanes(8)
    (16, 32)
    """
    return max(16, 2 * power(features + 1))


def power(count: int) -> int:
    """The smallest power of two that is at least `count`.

    >>> [power(n) for n in (1, 2, 3, 4, 5)]
    [1, 2, 4, 4, 8]
    """
    return 1 << max(0, count - 1).bit_length()
