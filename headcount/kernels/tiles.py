"""How kernels cut their work: tiles of pooling, tiles of a feed-forward, and programs that fill a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile, programs a member, and how the factors of products are rounded.

    `precision` is "half" (float16 factors, float32 sums), "fine" (the same, outputs to twice the bits), "tf32" or
    "ieee" (float32 throughout).
    """

    rows: int = 64
    columns: int = 16
    parts: int = 8
    stages: int = 1
    registers: int | None = None
    precision: str = "half"
    tail: int = 16384
    split: int = 32  # padded widths from which a head is kept as two thin maps
    lines: int = 16  # queries of heads that one program composes
    states: int = 16  # coordinates of the state whose gradients one program makes
    chunk: int = 32  # coordinates of the state that one product adds up
    tail_rows: int = 64  # samples of a program of the tail, where heads are two maps
    tail_warps: int = 4
    tail_registers: int | None = 128

    def cut(self, longest: int, heads: int, width: int) -> dict[str, int]:
        """Samples, tokens and padded sizes of a tile; every side of a product is at least 16.

        >>> Tile().cut(longest=32, heads=4, width=32)
        {'WIDTH': 32, 'HEADS': 8, 'SAMPLES': 2, 'TOKENS': 32, 'num_warps': 1}
        """
        padded, wide = power(heads), max(16, power(width))
        rows = max(32, min(self.rows, 32 * self.rows // wide))
        tokens = min(power(longest), rows)
        samples = max(1, min(rows // tokens, self.columns // padded))
        samples = max(samples, 16 // tokens)
        warps = min(4, max(1, samples * tokens * wide // 2048))
        padded = max(padded, 16 // samples)
        return {"WIDTH": wide, "HEADS": padded, "SAMPLES": samples, "TOKENS": tokens, "num_warps": warps}


@dataclass(frozen=True)
class FeedTile:
    """How a feed-forward of few rows is cut where a program keeps a chunk's gradients in registers.

    `hidden` are the units that are worked on together, `rows` those of a tile, half of them backwards behind a norm.
    """

    hidden: int = 64
    rows: int = 64
    widest: int = 64  # states

    def cut(self, inputs: int, hidden: int, outputs: int, back: bool, norm: bool = False) -> dict[str, int] | None:
        """Sizes of a tile; None where a program cannot hold it.

        >>> FeedTile().cut(48, 128, 48, back=True)["CHUNK"]
        64
        >>> FeedTile().cut(100, 128, 48, back=True) is None
        True
        """
        padded_inputs, padded_outputs = (max(16, power(n)) for n in (inputs, outputs))
        if max(padded_inputs, padded_outputs) > self.widest:
            return None
        chunk, rows = max(16, min(self.hidden, power(hidden))), self.rows // 2 if norm and back else self.rows
        return {"ROWS": rows, "INPUTS": padded_inputs, "CHUNK": chunk, "OUTPUTS": padded_outputs, "num_warps": 4}


def spread(models: int, tiles: int, warps: int, resident: int = 8, processors: int = 132) -> int:
    """Programs of each member so that the device is full and none waits long for the last.

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
