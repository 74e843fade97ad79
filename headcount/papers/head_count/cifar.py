"""CIFAR-10 of the head-count paper (Tables 8 and 9): accuracy by head count and canvas size."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headcount.papers.head_count.accuracies import LR, OTHER_LR, Accuracies
from headcount.papers.head_count.encoders import DECAY, MarkedShape
from headcount.papers.head_count.images import OnCanvas, read_cifar
from headcount.results.journal import Deadline, Journal
from headcount.results.literature import Difference, Published
from headcount.results.record import Measured, Reproduction, Setting
from headcount.sources import Source

__all__ = ["CIFAR", "TABLE_8", "TABLE_9", "ImageGrid"]

CANVASES = (32, 48, 64, 96, 128)
HEADS = (1, 2, 4, 8, 10, 11, 12, 13, 14, 16, 20, 24)


def _percent(*lines: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(v) / 100, 4) for v in line.split()) for line in lines)


TABLE_8 = Published(
    "Table 8",
    Source("yu2025heads", "Table 8"),
    "heads",
    HEADS,
    "canvas",
    CANVASES,
    _percent(
        "47.8 43.7 42.0 40.8 40.0",
        "59.7 55.2 53.4 51.5 50.8",
        "75.5 70.3 68.5 66.2 65.8",
        "95.1 92.6 91.4 90.7 90.2",
        "98.1 97.3 96.7 96.5 96.7",
        "98.8 98.3 98.1 97.7 97.9",
        "99.2 98.9 98.6 98.6 98.6",
        "99.4 99.3 99.1 99.0 99.1",
        "99.6 99.4 99.3 99.3 99.3",
        "99.7 99.6 99.5 99.6 99.6",
        "99.8 99.7 99.7 99.8 99.9",
        "99.9 99.8 99.8 99.9 99.9",
    ),
    quantity="training accuracy",
    measure=Difference(),
)
TABLE_9 = Published(
    "Table 9",
    Source("yu2025heads", "Table 9"),
    "heads",
    HEADS,
    "canvas",
    CANVASES,
    _percent(
        "50.50 45.85 43.53 41.43 39.95",
        "60.01 55.01 53.12 49.95 48.53",
        "67.98 63.49 61.42 57.19 55.31",
        "69.65 66.06 62.43 57.58 56.18",
        "69.70 65.64 62.45 57.21 54.44",
        "69.84 65.26 61.97 56.95 53.77",
        "69.66 65.79 62.63 56.57 53.17",
        "69.72 65.30 61.66 54.81 52.90",
        "69.49 65.25 61.32 54.01 50.42",
        "69.69 64.24 59.29 49.68 48.51",
        "67.99 61.49 55.25 48.65 46.89",
        "65.12 56.80 52.14 48.74 48.39",
    ),
    quantity="validation accuracy",
    measure=Difference(),
)


@dataclass(frozen=True)
class ImageGrid:
    """How large a run is: images seen, epochs at most, canvases, head counts, seeds."""

    images: int = 50_000
    test: int = 10_000
    epochs: int = 200
    canvases: tuple[int, ...] = CANVASES
    heads: tuple[int, ...] = HEADS
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
    found, notes = both.measure(epochs, Journal(setting.folder / "cifar.jsonl"), setup, deadline)
    whole = size.images >= FULL.images
    reduced = "" if whole else f"{size.images} of 50,000 images, {epochs} epochs"
    return Measured(found, (), setup, notes, reduced)


def _shape(heads: int, data: OnCanvas) -> MarkedShape:
    return MarkedShape(
        data.patch**2 * 3, heads=heads, head_dim=16, depth=4, marks=tuple(range(data.tokens + 1)), outputs=10
    )


CIFAR = Reproduction(
    "head-count:cifar",
    "CIFAR-10: accuracy of a 4-layer ViT by head count and canvas size (Tables 8 and 9)",
    run,
    (TABLE_8, TABLE_9),
    chosen=(
        "Patch 4: the text says 8, but the sequence lengths of the tables are those of patch 4. Pre-norm blocks, "
        "feed-forward of four times the width, no dropout (the rate is not given), AdamW at 1e-3 with 5% warm-up and "
        "cosine decay, weight decay 1e-2, batch 128, a new random place for every image in every epoch; accuracies "
        "after the last epoch, training accuracy without noise on the images trained on."
    ),
    varied="learning rate 3e-4 on the smallest canvas",
    times=("2 min", "weeks", "2 days"),
    needs="CIFAR-10",
)
