"""CIFAR-10 from its official python batches or a packed file of JPEGs, on canvases of any size, on a device."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from headcount.training.shuffling import seed_of

SIDE = 32
GET = (
    "get the python version from https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and give the folder that "
    "holds cifar-10-batches-py as the data folder"
)
PACKED = "cifar10_jpeg_full.npz"


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels and labels."""

    pixels: UInt8[np.ndarray, "count 32 32 3"]
    labels: Int[np.ndarray, " count"]

    def first(self, count: int) -> Images:
        """The first `count` of them, in the official order."""
        return Images(self.pixels[:count], self.labels[:count])


def read_cifar(folder: Path | None, train: int = 50_000, test: int = 10_000) -> tuple[Images, Images, str]:
    """The first images of both splits, and what the pixels are: official batches first, else the packed JPEGs."""
    if folder is None:
        raise FileNotFoundError(f"CIFAR-10 is not here: {GET}")
    for place in (folder / "cifar-10-batches-py", folder):
        if (place / "test_batch").exists():
            batches = [_batch(place / f"data_batch_{n}") for n in range(1, 6) if (place / f"data_batch_{n}").exists()]
            if not batches:
                raise FileNotFoundError(f"{place} holds test_batch but no data_batch_1: {GET}")
            return _joined(batches).first(train), _batch(place / "test_batch").first(test), "official pixels"
    for place in (folder / "cifar10" / PACKED, folder / PACKED, folder):
        if place.is_file() and place.suffix == ".npz":
            return (*_packed(place, train, test), "JPEG re-encoded pixels (lossy)")
    raise FileNotFoundError(f"no CIFAR-10 in {folder}: {GET}")


class _ArraysOnly(pickle.Unpickler):
    """A reader of pickles that builds arrays, lists and texts, and calls nothing else that a file may name."""

    ALLOWED = frozenset(
        {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no batch of images needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _batch(path: Path) -> Images:
    try:
        raw = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels = np.asarray(raw[b"data"], dtype=np.uint8).reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        return Images(np.ascontiguousarray(pixels), np.asarray(raw[b"labels"], dtype=np.int64))
    except pickle.UnpicklingError as problem:
        raise ValueError(f"{path} is not a CIFAR-10 python batch: {problem}; {GET}") from None
    except (EOFError, LookupError, TypeError, ValueError, AttributeError, ImportError):
        raise ValueError(f"{path} is not a CIFAR-10 python batch: it holds no data and labels; {GET}") from None


def _joined(batches: Sequence[Images]) -> Images:
    return Images(np.concatenate([b.pixels for b in batches]), np.concatenate([b.labels for b in batches]))


def _packed(path: Path, train: int, test: int) -> tuple[Images, Images]:
    with np.load(path) as packed:
        missing = [key for key in ("jpeg_train", "offsets_train", "y_train", "jpeg_test") if key not in packed]
        if missing:
            raise ValueError(f"{path} lacks {missing[0]}: it is no packed CIFAR-10; {GET}")
        return _decoded(packed, "train", train), _decoded(packed, "test", test)


def _decoded(packed: np.lib.npyio.NpzFile, part: str, count: int) -> Images:
    from PIL import Image

    data, ends, labels = packed[f"jpeg_{part}"], packed[f"offsets_{part}"], packed[f"y_{part}"]
    count = min(count, len(labels))
    pixels = np.empty((count, SIDE, SIDE, 3), dtype=np.uint8)
    for i in range(count):
        pixels[i] = np.asarray(Image.open(io.BytesIO(data[ends[i] : ends[i + 1]].tobytes())).convert("RGB"))
    return Images(pixels, labels[:count].astype(np.int64))


class OnCanvas:
    """Images at a random place on a larger canvas, the rest filled with the colours of the nearest border pixel.

    A place is drawn anew for every image in every epoch, from the member's seed alone. Inputs are patches of
    `patch` by `patch` pixels, scaled to mean 0 and variance 1 over the colours of the training images.
    """

    def __init__(self, images: Images, canvas: int, patch: int = 4, device: str = "cpu", part: str = "train") -> None:
        if canvas < SIDE or canvas % patch:
            raise ValueError(f"a canvas is at least {SIDE} and a multiple of the patch {patch}, got {canvas}")
        self.count, self.canvas, self.patch, self.part = len(images.labels), canvas, patch, part
        self.pixels = torch.from_numpy(images.pixels).to(device)
        self.labels = torch.from_numpy(images.labels).to(device)
        self.line = torch.arange(canvas, device=device)
        self.corner = torch.zeros(1, self.count, 2, dtype=torch.int64, device=device)

    @property
    def tokens(self) -> int:
        """Patches of a canvas."""
        return (self.canvas // self.patch) ** 2

    def begin(self, epoch: int, seeds: Sequence[int]) -> None:
        """Draw the places of this epoch."""
        drawn = [self._corners(seed_of("canvas", self.part, seed, epoch)) for seed in seeds]
        places = torch.stack(drawn).to(self.corner.device)
        if self.corner.shape == places.shape:
            self.corner.copy_(places)  # in place: a recorded step reads this very tensor
        else:
            self.corner = places

    def _corners(self, seed: int) -> Int[Tensor, "count 2"]:
        return torch.randint(self.canvas - SIDE + 1, (self.count, 2), generator=torch.Generator().manual_seed(seed))

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Tensor, Tensor]:
        """Patches (models, batch, tokens, features) and labels."""
        corner = self.corner.gather(1, rows[..., None].expand(-1, -1, 2))
        down, across = ((self.line - corner[..., axis, None]).clamp(0, SIDE - 1) for axis in (0, 1))
        canvas = self.pixels[rows[..., None, None], down[..., :, None], across[..., None, :]]
        cut = self.canvas // self.patch
        grid = canvas.view(*rows.shape, cut, self.patch, cut, self.patch, 3).transpose(3, 4)
        patches = grid.reshape(*rows.shape, cut * cut, self.patch**2 * 3)
        return (patches.float() - MEAN) / SPREAD, self.labels[rows]


MEAN, SPREAD = 121.0, 63.0  # over all colours of the training images, to a digit that no result depends on
