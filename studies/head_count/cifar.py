"""CIFAR-10 of the head-count paper (Tables 8 and 9): accuracy by head count and canvas size."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headcount.papers.head_count.published import CANVASES, ON_IMAGES, TABLE_8, TABLE_9
from headcount.results.journal import Deadline, Journal
from headcount.results.record import Measured, Setting
from studies.head_count.accuracies import LR, OTHER_LR, Accuracies
from studies.head_count.encoders import DECAY, MarkedShape
from studies.head_count.images import OnCanvas, read_cifar


@dataclass(frozen=True)
class ImageGrid:
    """How large a run is: images seen, epochs at most, canvases, head counts, seeds."""

    images: int = 50_000
    test: int = 10_000
    epochs: int = 200
    canvases: tuple[int, ...] = CANVASES
    heads: tuple[int, ...] = ON_IMAGES
    seeds: int = 3
    batch: int = 128


FULL = ImageGrid()
BUDGETED = ImageGrid(images=10_000, canvases=(32, 48, 64), heads=(1, 2, 4, 8, 12, 16), seeds=2)
QUICK = ImageGrid(images=384, test=256, epochs=8, canvases=(32, 48), heads=(1, 2, 4), seeds=2, batch=64)


def run(setting: Setting, size: ImageGrid | None = None) -> Measured:
    """Train every canvas and head count, the seeds together, and read both accuracies."""
    size = size or (QUICK if setting.quick else FULL if setting.seconds is None else BUDGETED)
    deadline, device = Deadline(setting.seconds), setting.device
    images, test, pixels = read_cifar(setting.data, size.images, size.test)
    both = Accuracies(
        TABLE_8, TABLE_9, size.canvases, size.heads, size.seeds, size.batch,
        data=lambda canvas: OnCanvas(images, canvas, device=device),
        held_out=lambda canvas: OnCanvas(test, canvas, device=device, part="test"),
        shape=_shape, device=device,
    )  # fmt: skip
    epochs = both.epochs(deadline, most=size.epochs, least=2)
    setup = asdict(size) | {"epochs": epochs, "pixels": pixels, "head_dim": 16, "layers": 4, "patch": 4, "lr": LR}
    setup |= {"varied_lr": OTHER_LR, "dropout": 0, "weight_decay": DECAY}
    tables, notes = both.measure(epochs, Journal(setting.folder / "cifar.jsonl"), setup, deadline)
    full_size = size.images >= FULL.images
    reduced = "" if full_size else f"{size.images} of 50,000 images, {epochs} epochs"
    return Measured(tables, (), setup, notes, reduced)


def _shape(heads: int, data: OnCanvas) -> MarkedShape:
    return MarkedShape(
        data.patch**2 * 3, heads=heads, head_dim=16, depth=4, marks=tuple(range(data.tokens + 1)), outputs=10
    )
