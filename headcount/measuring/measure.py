"""The verb: the contest on given data, its answer and its page, and the network that the inner part chose."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from headcount.measuring.clock import Clock
from headcount.measuring.contest import Contest, Say, facts, notes, quiet
from headcount.measuring.contest_trials import Trials
from headcount.measuring.contestants import KeptNetwork
from headcount.measuring.fitted import FittedModel
from headcount.measuring.loading import load
from headcount.measuring.measured_page import write_measured
from headcount.measuring.measurement import Measurement
from headcount.measuring.planning import StudyPlan
from headcount.measuring.sequences import Sequences, sequences
from headcount.measuring.tables import Reading
from headcount.training.sweeps import check_device


def measure(
    data: Any,
    target: Any = None,
    *,
    heads: Sequence[int] | None = None,
    layers: int | None = None,
    steps: int | None = None,
    splits: int | None = None,
    model: str | Path | None = None,
    reading: Reading | None = None,
    plan: StudyPlan | None = None,
    budget: float | None = None,
    device: str = "cpu",
    workers: int = 1,
    store: str | Path | None = None,
    command: str = "",
    say: Say = quiet,
    began: float | None = None,
) -> Measurement:
    """Whether attention is worth anything on these data, and how many heads and layers: an equal contest, and a page.

    `budget` is a time in seconds to keep to, counted from `began` (of `time.monotonic`; now, unless given): it decides
    how long every network is trained, before anything is timed, and where the contest ends. A busy machine gets less
    far, and is less sure. With `workers`, so many processes train side by side where that is worth their start; a
    script that asks for them does so behind `if __name__ == "__main__":`. With `store`, every finished contestant is
    kept there and not trained again. `data` is what `load` reads, or arrays or lists with their `target`. With `model`,
    the network of the advised block that the inner parts prefer is saved there; the error said of it is that of the
    whole rule, on outer parts.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 4, 1))
    >>> small = StudyPlan(heads=(1, 2), layers=1, steps=20, splits=2, embed_dim=8, width=8, rates=(4e-3,))
    >>> measured = measure(x, x.max(axis=(1, 2)), plan=small)
    >>> list(measured.pages), measured.answer.verdict in ("worth it", "not worth it", "cannot say yet")
    (['report.html', 'curves.svg', 'study.json'], True)
    """
    check_device(device)
    start = time.monotonic() if began is None else began
    clock = Clock(budget, start, used=time.process_time)
    loaded = _sequences(data, target, reading)
    requested = {"heads": None if heads is None else tuple(heads), "layers": layers, "steps": steps, "splits": splits}
    settled = replace(plan or StudyPlan(), **{name: value for name, value in requested.items() if value is not None})
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory()) if store is None else store
        stack.enter_context(one_thread())
        contest = Contest.of(loaded, settled, Path(folder), clock, say, device, workers)
        summary = facts(loaded)
        say(f"{summary['sequences']} of {summary['tokens']}; the target is {summary['target']}.")
        for line in notes(loaded, contest.trials.splits[0]):
            say(line)
        measurement = Measurement(contest.run())
        chosen = None if model is None else measurement.saved
        if model is not None and chosen is not None:
            saved_model(contest.trials, chosen).save(model)
        elif model is not None:
            say(f"No network with attention was trained in time, so none is saved at {model}.")
    return replace(measurement, pages=write_measured(measurement, command=command))


def saved_model(trials: Trials, kept: KeptNetwork) -> FittedModel:
    """A network of the contest with everything that it takes to read the user's units."""
    net, fold = trials.network(kept)
    data = trials.data
    window = None if data.apart is None else data.x.shape[1]
    return FittedModel(net, fold.scale, data.classes, data.features, data.letters, window, data.text)


def _sequences(data: Any, target: Any, reading: Reading | None) -> Sequences:
    if isinstance(data, Sequences):
        return data
    if isinstance(data, str | Path):
        return load(data, reading)
    if target is None:
        raise ValueError("arrays need their targets: measure(x, y)")
    how = reading or Reading()
    return sequences(data, target, kind=how.kind, tokens=how.tokens)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: small products are no slower, and the numbers do not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
