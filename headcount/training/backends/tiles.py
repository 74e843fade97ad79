"""How the fused kernels cut their work: tiles of (sample, token) rows by (sample, head) columns."""

from __future__ import annotations

from dataclasses import dataclass

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
    """How a whole layer is cut: rows of a tile (samples of short sequences share one), warps, programs in all.

    `precision` is "half" (float16 factors, float32 sums) or "ieee"; `fine` gives the feed-forward's inner product twice
    the bits, which decide the units that are awake.
    """

    rows: int = 32
    warps: int = 4
    programs: int = 1056  # eight for each multiprocessor of a large GPU
    precision: str = "half"
    fine: bool = False
    registers: int | None = 128  # of a thread, backwards
    composed: int = 32  # the widest states for which a head is two square matrices
    largest: int = 8192  # numbers of one matrix on the chip

    def cut(self, longest: int, embed: int, head_dim: int, hidden: int, *, backward: bool) -> dict[str, int] | None:
        """Samples, tokens and padded sizes of a tile; None where a program cannot hold it.

        >>> LayerTile().cut(16, 32, 8, 32, backward=True)
        {'SAMPLES': 2, 'TOKENS': 16, 'EMBED': 32, 'DIM': 32, 'HIDDEN': 32, 'num_warps': 4}
        >>> LayerTile().cut(100, 180, 16, 128, backward=True) is None
        True
        """
        tokens, wide, inner = power(longest), max(16, power(embed)), max(16, power(hidden))
        samples = max(1, max(16, self.rows) // tokens)
        rows = samples * tokens
        if max(rows * wide, rows * inner, wide * inner, rows * rows) > self.largest:
            return None
        warps = self.warps * (2 if max(rows * wide, rows * inner, wide * inner) > 4096 else 1)
        dim = wide if wide <= self.composed else max(16, power(head_dim))
        sizes = {"SAMPLES": samples, "TOKENS": tokens, "EMBED": wide, "DIM": dim}
        return {**sizes, "HIDDEN": inner, "num_warps": min(8, warps)}


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
