"""The verb: train banks over head counts on given data, keep every finished one, and say how many heads are enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headcount.fits import Measurement
from headcount.frozen import decode
from headcount.measuring.fitted import fit
from headcount.measuring.loading import load
from headcount.measuring.pacing import Clock, with_threads
from headcount.measuring.planning import StudyPlan
from headcount.measuring.question import Question, Say, as_read, placed
from headcount.measuring.sequences import Sequences, sequences
from headcount.measuring.subject import Subject
from headcount.measuring.tables import Reading
from headcount.results import Store
from headcount.training.memory import refuse_what_cannot_fit
from headcount.training.progress import OnProgress, automatic
from headcount.training.sweeps import check_device

__all__ = ["measure"]


def quiet(line: str) -> None:
    """Say nothing."""


def measure(
    data: Any,
    target: Any = None,
    *,
    model: str | Path | None = None,
    reading: Reading | None = None,
    plan: StudyPlan | None = None,
    budget: float | None = None,
    split_seed: int = 0,
    device: str = "cpu",
    store: str | Path | None = None,
    command: str = "",
    say: Say = quiet,
    on_progress: OnProgress = automatic,
    began: float | None = None,
) -> Measurement:
    """How many heads these data need: the knee with its interval, what one fewer or more costs, and a page.

    `budget` is a time in seconds to keep to, counted from `began` (of `time.monotonic`; now, unless given): steps, then
    seeds, then head counts are given up until the estimate of a short timed trial fits, and what is left goes into more
    seeds and, where there is plenty, more steps. Computed with one thread or with all, as was faster in the trial.

    With `store`, every finished head count is kept and not trained again. The page and its figure are in `files` of
    what is returned. `data` is what `load` reads, or arrays or lists with their `target`. With `model`, a network with
    the advised heads is trained once more and saved there.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 4, 1))
    >>> measured = measure(x, x.max(axis=(1, 2)), plan=StudyPlan(heads=(1, 2), seeds=2, steps=20, width=8))
    >>> sorted(measured.levels), list(measured.files)
    ([1, 2], ['report.html', 'curves.svg', 'study.json'])
    """
    check_device(device)
    clock = Clock(budget, began)
    given = _given(data, target, reading)
    subject = Subject.of(given, split_seed, device)
    asked = plan or StudyPlan()
    for line in subject.lines():
        say(line)
    question = Question(subject, asked, clock, model is not None, say, on_progress)
    largest = placed(asked)
    refuse_what_cannot_fit(subject.members(largest, largest.heads[-1]), subject.recipe(largest), device)
    with TemporaryDirectory() as folder, with_threads():
        found = question.answer(Store.open(folder if store is None else store, create=True), command)
    if model is not None:
        plan = decode(StudyPlan, as_read(found.study.spec["plan"]), "the plan of the study")
        heads = found.better.heads if found.better else found.knee.value
        window = None if given.apart is None else given.x.shape[1]
        fit(subject, replace(plan, lr=_rate_of(found, heads)), heads, window=window).save(model)
    return found


def _given(data: Any, target: Any, reading: Reading | None) -> Sequences:
    if isinstance(data, Sequences):
        return data
    if isinstance(data, str | Path):
        return load(data, reading)
    if target is None:
        raise ValueError("arrays need their targets: measure(x, y)")
    return sequences(data, target, kind=reading.kind if reading else None)


def _rate_of(found: Measurement, heads: int) -> float:
    """The learning rate that the head count was measured with."""
    return next(row["lr"] for row in found.study if row["heads"] == heads)
