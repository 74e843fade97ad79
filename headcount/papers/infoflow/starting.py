"""Sweeps that also begin from the certified network: what training did not find is told from what cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from headcount.certificates.as_transformer import as_transformer
from headcount.nets import Architecture, Transformer
from headcount.papers.infoflow.constructible import fitting
from headcount.papers.infoflow.networks.build import build
from headcount.papers.infoflow.predict import predict
from headcount.results import Study
from headcount.tasks import Task
from headcount.training import Recipe
from headcount.training import sweep as trained_sweep
from headcount.training.kept_networks import Save
from headcount.training.progress import OnProgress, automatic
from headcount.training.rate_search import RateSearch

SAMPLES = 400  # sequences on which the spread of the target is taken
FINEST = 8  # eps is the spread over 2^1, ..., 2^8: the finest that the architecture's width holds


def sweep(
    task: Task | Sequence[Task],
    archs: Sequence[Architecture],
    *,
    start: Literal["random", "built"] = "random",
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    recipe: Recipe | None = None,
    lr: float | Sequence[float] | Literal["best"] | RateSearch = 3e-3,
    weight_decay: float = 1e-4,
    base: Architecture | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
    save: Save = "all",
    on_progress: OnProgress = automatic,
) -> Study:
    """Train every architecture on the task at every length and seed, and return the study; see `training.sweep`.

    With `start="built"`, every architecture that holds a certified one-layer network of the task is trained from that
    too, and `headcount.fits.starts(study)` says for each whether training found what is there, did not find it, or
    whether theory counts against it: by a bound under conditions ("barred"), or by the calculus alone ("doubtful").

    >>> from headcount.fits import starts
    >>> from headcount.tasks import LinearMax
    >>> task = LinearMax([[1.0, 0.0], [0.0, 1.0]], length=6)
    >>> shapes = [Architecture(((heads, 4),), width=16, embed_dim=8) for heads in (1, 2)]
    >>> study = sweep(task, shapes, seeds=1, start="built", recipe=Recipe(200, 100, epochs=1, batch=50))
    >>> [verdict.outcome for verdict in starts(study)]
    ['doubtful', 'not found']
    """
    if start not in ("random", "built"):
        raise ValueError(f'start must be "random" or "built", got {start!r}')
    if start == "built" and isinstance(lr, str | RateSearch):
        raise ValueError("a search for the rate begins at random networks; give lr a number with start='built'")
    return trained_sweep(
        task, archs, lengths=lengths, seeds=seeds, recipe=recipe, lr=lr, weight_decay=weight_decay, base=base,
        device=device, store=store, save=save, on_progress=on_progress,
        start=built_start if start == "built" else None,
        shapes=_shapes(task, archs, lengths) if start == "built" else None,
    )  # fmt: skip


@lru_cache(256)
def built_start(task: Task, arch: Architecture) -> Transformer | None:
    """The certified one-layer network of a task in the shape of an architecture, as fine as its width holds."""
    if fitting(task, arch) is None or arch.depth != 1:
        return None
    x, y = task.sample(SAMPLES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    finest = None
    for halvings in range(1, FINEST + 1):
        try:
            built = build(task, float(y.std()) / 2**halvings)
        except ValueError:
            break
        transformer = as_transformer(built.net, arch, x)
        if transformer is None:
            break
        finest = transformer
    return finest


def _shapes(
    task: Task | Sequence[Task], archs: Sequence[Architecture], lengths: Sequence[int] | None
) -> dict[str, dict[str, object]]:
    """What theory says of every architecture at every length, with its conditions, and which network is known."""
    predictions: dict[str, dict[str, object]] = {arch.name: {} for arch in archs}
    tasks: list[Any] = list(task) if isinstance(task, Sequence) else [task]
    for each in tasks if lengths is None else [replace(t, length=n) for t in tasks for n in lengths]:
        for arch in archs:
            prediction, known = predict(each, arch), fitting(each, arch)
            predictions[arch.name][str(each.length)] = {
                "cheap": prediction.cheap,
                "warrant": prediction.warrant,
                "said": str(prediction.claim(arch.name)),
                "known": known.construction if known else None,
            }
    return predictions
