"""The whole file of a model in bytes: as it was found, cast, cut, and what it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from headcount.nets.pretrained.gguf_files import Origin, origin_of
from headcount.shrinking.block_rounding import restored
from headcount.shrinking.report_rows import JsonRow

CASTS: dict[str, torch.dtype | None] = {"bf16": torch.bfloat16, "fp16": torch.float16, "none": None}
BARGAIN = 0.03  # of the whole file, below which a cut is not worth its name


def megabytes(count: int) -> str:
    """Bytes in millions, so that a few per cent of a file show.

    >>> megabytes(43_640_000), megabytes(232_832)
    ('43.6 MB', '0.233 MB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e7 else f"{count / 1e6:.3g} MB"


@dataclass(frozen=True)
class FileBytes:
    """Bytes of weights: the file that was read, the same weights cast, ours under the same cast, and the source's."""

    found: int
    cast: str
    cast_alone: int
    compact: int
    source: Origin | None = None

    @property
    def saved(self) -> float:
        """The share of the whole file that is saved beside the same cast alone.

        >>> FileBytes(100, "bf16", 50, 45).saved
        0.1
        """
        return round(1 - self.compact / self.cast_alone, 12)

    @property
    def worthwhile(self) -> bool:
        """Whether the cut is more than what nobody would notice, and the result is not larger than the source."""
        return self.saved >= BARGAIN and (self.source is None or self.compact < self.source.bytes)

    @property
    def sentence(self) -> str:
        """Bytes of the whole file beside the same cast and the source.

        >>> FileBytes(90_900_000, "bf16", 45_400_000, 43_600_000).sentence
        'whole file 43.6 MB in bf16, 4.0% below the same cast alone (45.4 MB)'
        """
        kind = "" if self.cast == "none" else f" in {self.cast}"
        alone = "the original" if self.cast == "none" else "the same cast alone"
        words = f"whole file {megabytes(self.compact)}{kind}, {self.saved:.1%} below {alone}"
        words += f" ({megabytes(self.cast_alone)})"
        return (
            words
            if self.source is None
            else f"{words}; its source of {self.source.bits or '?'} bits has {megabytes(self.source.bytes)}"
        )

    def as_row(self) -> JsonRow:
        return {**asdict(self), "saved": self.saved}


def file_bytes(folder: str | Path, original: nn.Module, compact: nn.Module, cast: str) -> FileBytes:
    """The bytes of a model in a folder and of what was made from it."""
    stored = sum(p.stat().st_size for kind in ("*.safetensors", "*.bin") for p in Path(folder).glob(kind))
    dtype = CASTS[cast]
    return FileBytes(
        stored or tensor_bytes(original),
        cast,
        tensor_bytes(original, dtype),
        tensor_bytes(compact, dtype),
        origin_of(folder),
    )


def tensor_bytes(model: nn.Module, dtype: torch.dtype | None = None) -> int:
    """Bytes of all stored tensors, tied ones once: what the weights file holds beside its header."""
    tensors: dict[int, Tensor] = {t.data_ptr(): t for t in model.state_dict(keep_vars=True).values() if t.numel()}
    size = None if dtype is None else torch.empty(0, dtype=dtype).element_size()
    return sum(t.numel() * (size if size and t.is_floating_point() else t.element_size()) for t in tensors.values())


@contextmanager
def rounded_to(model: nn.Module, dtype: torch.dtype | None) -> Iterator[nn.Module]:
    """The model with its weights rounded as a cast file would keep them, computed with as before; then as it was."""
    if dtype is None:
        yield model
        return
    with restored(model.parameters()) as weights:
        for weight in weights:
            weight.copy_(weight.to(dtype))
        yield model
