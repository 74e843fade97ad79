"""How the fused kernels cut their work: tiles of (sample, token) rows by (sample, head) columns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tile", "lanes", "power"]


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
