"""How the fused kernels cut their work: tiles of (sample, token) rows by (sample, head) columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["LayerTile", "SublayerTile", "Tile", "lanes", "power", "spread"]


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile, programs a member, and how the factors of products are rounded.

    `precision` is "half" (float16 factors, float32 sums), "fine" (the same, outputs to twice the bits), "tf32" or
    "ieee" (float32 throughout).
    """

    rows: int = 128
    columns: int = 16
    parts: int = 8
    back: int | None = None  # programs a member backwards; as many without
    stages: int = 1
    registers: int | None = None
    precision: str = "half"
    tail: int = 16384
    turned: str = ""  # "forward", "backward" or "both": passes with tiles of one warp, scores lying (head, token)
    split: int = 64  # padded widths from which a head is kept as two thin maps
    lines: int = 16  # queries of heads that one program composes
    states: int = 16  # coordinates of the state whose gradients one program makes
    chunk: int = 32  # coordinates of the state that one product adds up
    tail_rows: int = 64  # samples of a program of the tail, where heads are two maps
    tail_warps: int = 4
    tail_registers: int | None = 128

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

    def turned_cut(self, longest: int, heads: int, width: int) -> dict[str, int]:
        """The same for a tile of one warp: half as many rows.

        >>> Tile().turned_cut(longest=32, heads=4, width=64)
        {'WIDTH': 64, 'HEADS': 16, 'SAMPLES': 1, 'TOKENS': 32, 'num_warps': 1}
        """
        out = replace(self, rows=64).cut(longest, heads, width)
        return {**out, "num_warps": max(1, out["num_warps"] // 2)}


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


@dataclass(frozen=True)
class SublayerTile:
    """How attention and feed-forwards are cut where a program keeps a chunk's gradients in registers.

    Sequences up to 32 tokens of narrow states go by 32 rows and two warps, others by 64 rows and four, so that a warp
    has a strip of 16 rows. `chunk` are the columns of queries, keys or values (or, forwards, `wide` of them) that are
    worked on together, `hidden` the hidden units. `registers` of a thread, forwards and backwards; by default all.
    """

    chunk: int = 32  # for states up to 32, else 64
    wide: int = 64
    hidden: int = 64
    feed_rows: int = 64
    precision: str = "half"
    registers: tuple[int | None, int | None] = (None, None)
    widest: int = 64  # states; wider ones take eight warps, which no device has tried
    aside: bool = True  # what of the class token's work nothing waits for in a stream beside the tokens'

    def heads_cut(self, longest: int, embed: int, heads: int, dim: int, back: bool) -> dict[str, Any] | None:
        """Sizes of attention's tile; None where a program cannot hold it.

        >>> cut = SublayerTile().heads_cut(32, 32, 4, 8, back=True)
        >>> cut["ROWS"], cut["CHUNK"], cut["TOGETHER"], cut["num_warps"]
        (32, 32, 4, 2)
        >>> SublayerTile().heads_cut(20, 64, 4, 16, back=True)["ROWS"]
        64
        >>> SublayerTile().heads_cut(100, 64, 4, 16, back=True) is None
        True
        """
        wide = max(16, power(embed))
        if longest > 64 or wide > self.widest or dim > 64:
            return None
        rows = 32 if longest <= 32 and wide <= 32 else 64
        most = self.chunk if back and wide <= 32 else self.wide if wide <= 64 else 32
        chunk = max(16, power(dim), min(most, power(heads * dim)))
        asking = max(16, power(rows // longest * power(heads)))
        cut = {"ROWS": rows, "EMBED": wide, "CHUNK": chunk, "DIM": dim, "TOGETHER": chunk // dim}
        warps = rows // 16 if wide <= 64 else 8
        return cut | {"ASKING": asking, "HEADS": power(heads), "num_warps": warps, "maxnreg": self.registers[back]}

    def hidden_cut(
        self, inputs: int, hidden: int, outputs: int, back: bool, norm: bool = False
    ) -> dict[str, Any] | None:
        """Sizes of a feed-forward's tile; None where a program cannot hold it.

        >>> SublayerTile().hidden_cut(48, 128, 48, back=True)["CHUNK"]
        64
        """
        sizes = [max(16, power(n)) for n in (inputs, outputs)]
        if max(sizes) > self.widest:
            return None
        chunk = max(16, min(self.hidden if max(sizes) <= 64 else 32, power(hidden)))
        rows = self.feed_rows // 2 if norm and back else self.feed_rows
        cut = {"ROWS": rows, "INPUTS": sizes[0], "CHUNK": chunk, "OUTPUTS": sizes[1]}
        return cut | {"num_warps": 4 if max(sizes) <= 64 else 8, "maxnreg": self.registers[back]}


def spread(models: int, tiles: int, warps: int, resident: int = 8, processors: int = 132) -> int:
    """Programs of each member so that the device is full and nobody waits long for the last.

    The number with the fewest rounds of tiles, `resident` warps of each multiprocessor at a time; to begin and to end,
    a program takes as long as for four tiles.

    >>> spread(128, 256, warps=2), spread(48, 256, warps=4), spread(24, 22, warps=4)
    (4, 5, 11)
    """
    slots = max(1, processors * resident // warps)
    return min(range(1, tiles + 1), key=lambda parts: (-(-models * parts // slots) * (-(-tiles // parts) + 4), parts))


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
