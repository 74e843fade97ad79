"""What is trained for the law: sizes, horizons, rates and seeds as banks, one horizon a run with its own decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.nets import Architecture
from headcount.results import Store, Study
from headcount.tasks import LinearMax, Task, Wells
from headcount.training import Recipe, Sweep, warmup_stable_decay
from headcount.training.progress import OnProgress, silent
from headcount.training.sweeps import run

RATES = tuple(5e-4 * 2**i for i in range(8))
STEPS_AN_EPOCH = 25
# Targets without noise are trained best right below the rate at which training breaks: a cliff, and no parabola.
NOISE = 1.0


def tasks(length: int = 8) -> dict[str, Task]:
    """The two tasks of the study: a sum of two maxima, and the deepest visits to two wells."""
    centres = [[0.2, 0.3, 0.7, 0.5], [0.8, 0.6, 0.2, 0.4]]
    return {"LinearMax": LinearMax.random(2, 4, length, seed=0), "Wells": Wells(centres=centres, length=length)}


def heads_of_four(width: int) -> Architecture:
    """A network whose heads, state and feed-forward grow together: width / 4 heads of dimension 4.

    >>> heads_of_four(16).name
    '4x4'
    """
    return Architecture(layers=((max(1, width // 4), 4),), width=width)


def recipe_of(steps: int, batch: int, read_out: float = 1.0, noise: float = NOISE) -> Recipe:
    """Fresh noisy samples in every epoch, warm-up, stable, decay over the last fifth, each horizon's own.

    Training targets carry noise as large as their spread, as the next letter of a text has an entropy that no network
    can lower; validation targets carry none, so the NMSE is the excess.
    """
    if steps % STEPS_AN_EPOCH:
        raise ValueError(f"a horizon must be a multiple of {STEPS_AN_EPOCH} steps, got {steps}")
    return Recipe(
        samples=STEPS_AN_EPOCH * batch,
        validation=2000,
        epochs=steps // STEPS_AN_EPOCH,
        batch=batch,
        warmup=0.1,
        fresh=True,
        evaluations=4,
        schedule=warmup_stable_decay(decay=0.2),
        noise=noise,
        read_out=read_out,
    )


def rate_study(
    task: Task,
    archs: Sequence[Architecture],
    horizons: Sequence[int],
    *,
    rates: Sequence[float] = RATES,
    seeds: int | Sequence[int] = 3,
    batch: int = 32,
    base: Architecture | None = None,
    read_out: float = 1.0,
    noise: float = NOISE,
    device: str = "cpu",
    store: str | Path | None = None,
    name: str = "learning rate",
    on_progress: OnProgress = silent,
) -> Study:
    """Train every architecture at every horizon, rate and seed, and return the rows as one study, ready for `rate_law`.

    With `read_out=0` every width starts from the same answer. Weight decay is 0, so that its time scale does not move
    the optimum. With `store`, finished banks are kept and the folder is a study that `headcount fit FOLDER
    --learning-rate` reads.
    """
    if store is None:
        with TemporaryDirectory() as folder:
            return rate_study(task, archs, horizons, rates=rates, seeds=seeds, batch=batch, base=base,
                              read_out=read_out, noise=noise, device=device, store=folder, name=name,
                              on_progress=on_progress)  # fmt: skip
    opened = Store.open(store, create=True)
    runs: list[str] = []
    spec = {}
    for steps in horizons:
        recipe = recipe_of(steps, batch, read_out, noise)
        sweep = Sweep.of(task, archs, seeds, recipe, lr=rates, weight_decay=0.0, base=base)
        sweep = replace(sweep, name=f"{name}, {steps} steps")
        run(sweep, opened, device=device, on_progress=on_progress)
        runs += [member.run(sweep.recipe) for member in sweep.members]
        spec = sweep.to_json()
    opened.state(name, spec, runs)
    return opened.study()


def small_study(store: str | Path | None = None, on_progress: OnProgress = silent) -> Study:
    """The smallest study worth fitting, minutes on one core: three widths, three horizons, seven rates, three seeds."""
    archs = [heads_of_four(width) for width in (12, 20, 32)]
    return rate_study(tasks()["LinearMax"], archs, (200, 400, 800), rates=RATES[1:], store=store,
                      on_progress=on_progress)  # fmt: skip
