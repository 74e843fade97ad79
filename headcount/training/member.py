"""One network to train, and how: everything that determines a row, as frozen values."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headcount.nets import Architecture, parameters
from headcount.results.store import canonical, digest
from headcount.results.study import PlannedRow, UnusualColumns
from headcount.tasks import Task, describe
from headcount.training.rate_schedule import COSINE, Schedule
from headcount.training.task_source import source_of

__all__ = ["Given", "Member", "Recipe"]

# Part of every content address: raise it when training itself changes, so that old rows are not taken for new ones.
MEANING = 1


@dataclass(frozen=True)
class Recipe:
    """How every member of a sweep is trained: AdamW, linear warm-up, then the `schedule`, a cosine unless named.

    `samples` sequences make an epoch; with `fresh` they are drawn anew for each one, so none is seen twice.
    With `noise` the training targets are disturbed by normal numbers of so many of their own spreads, those of
    validation never. `read_out` multiplies the start of the last matrix: at 0 every network, however wide, begins with
    a constant answer, at 1 with a random function. A member stops early when `patience` evaluations in a row (0: never)
    bring no smaller validation NMSE.

    >>> Recipe(samples=1000, batch=100, epochs=3).steps
    30
    """

    samples: int = 8000
    validation: int = 2000
    epochs: int = 1000
    batch: int = 256
    warmup: float = 0.05
    fresh: bool = False
    evaluations: int = 100
    patience: int = 0
    dtype: str = "float32"
    schedule: Schedule = COSINE
    noise: float = 0.0
    read_out: float = 1.0

    def __post_init__(self) -> None:
        for name in ("samples", "validation", "epochs", "batch", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.validation < 2:
            raise ValueError(f"validation must be at least 2 to have a variance, got {self.validation}")
        if self.batch > self.samples:
            raise ValueError(f"batch {self.batch} is larger than the {self.samples} samples of an epoch")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is the share of steps spent warming up, in [0, 1); got {self.warmup}")
        if self.patience < 0:
            raise ValueError(f"patience must be at least 0, got {self.patience}")
        if not 0 <= self.noise < 1e3:
            raise ValueError(f"noise is counted in spreads of the targets, from 0 to below 1000; got {self.noise}")
        if not 0 <= self.read_out < 1e3:
            raise ValueError(f"read_out multiplies a start, from 0 to below 1000; got {self.read_out}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")

    def as_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON; a cosine, no noise and the usual read-out go without saying.

        >>> {"schedule", "noise", "read_out"} & set(Recipe().as_dict())
        set()
        """
        unsaid = {"schedule": COSINE, "noise": 0.0, "read_out": 1.0}
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in unsaid or getattr(self, k) != unsaid[k]}

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch; the remainder is left out, another one each time."""
        return self.samples // self.batch

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True)
class Given:
    """A data set by its fingerprint, where no task draws the samples: equal digests, equal training and validation."""

    digest: str
    length: int
    token_dim: int


@dataclass(frozen=True)
class Member:
    """One network of a bank: a task at its length or given data, an architecture, two seeds and a learning rate.

    With a `base`, the rate and the start of every parameter follow `widths(base)`, so that the best rate stays. `start`
    names where training begins, where that is no random network.
    """

    task: Task | Given
    arch: Architecture
    seed: int = 0
    data_seed: int = 0
    lr: float = 3e-3
    weight_decay: float = 1e-4
    base: Architecture | None = None
    start: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.lr < 10:
            raise ValueError(f"lr must be positive and below 10, got {self.lr}")
        if not 0 <= self.weight_decay < 10:
            raise ValueError(f"weight_decay must lie in [0, 10), got {self.weight_decay}")

    @property
    def drawn(self) -> Task:
        """The task that draws the samples; data that are given cannot be drawn."""
        if isinstance(self.task, Given):
            raise ValueError("given data cannot be drawn anew: pass them, as train(..., data=parts.resident)")
        return self.task

    def content(self, recipe: Recipe) -> dict[str, Any]:
        """Everything that determines this member's row, ready for JSON: also the source of a task of one's own."""
        source = source_of(type(self.task))
        return {
            "task": _described(self.task),
            "arch": _sizes(self.arch),
            "seed": self.seed,
            "data_seed": self.data_seed,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "recipe": recipe.as_dict(),
            "meaning": MEANING,
            **({} if self.base is None else {"base": self.base.as_dict()}),
            **({"start": self.start} if self.start else {}),
            **({"source": source} if source else {}),
        }

    def run(self, recipe: Recipe) -> str:
        """The content address of its row: that of `content`, put together from texts made once."""
        texts = {"task": _task_text(self.task), "arch": _arch_text(self.arch), "recipe": _recipe_text(recipe)}
        numbers = {"seed": self.seed, "data_seed": self.data_seed, "lr": self.lr, "weight_decay": self.weight_decay}
        texts |= {key: json.dumps(value) for key, value in {**numbers, "meaning": MEANING}.items()}
        if source := source_of(type(self.task)):
            texts["source"] = json.dumps(source)
        if self.base is not None:
            texts["base"] = _arch_text(self.base)
        if self.start:
            texts["start"] = json.dumps(self.start)
        return digest("{" + ",".join(f'"{key}":{texts[key]}' for key in sorted(texts)) + "}")

    def row(self, recipe: Recipe) -> PlannedRow:
        """The columns that are known before training."""
        heads, head_dim = min(self.arch.layers)
        total, feedforward = parameters(self.arch, self.task.token_dim)
        known: PlannedRow = {
            "run": self.run(recipe),
            "task": type(self.task).__name__,
            "length": self.task.length,
            "heads": heads,
            "head_dim": head_dim,
            "layers": self.arch.name,
            "embed_dim": self.arch.embed_dim,
            "width": self.arch.width,
            "positions": self.arch.positions,
            "parameters": total,
            "feedforward_parameters": feedforward,
            "seed": self.seed,
            "data_seed": self.data_seed,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "steps": recipe.steps,
            **self._unusual(recipe),
        }
        if source := source_of(type(self.task)):
            known["source"] = source
        return known

    def _unusual(self, recipe: Recipe) -> UnusualColumns:
        """The columns that a row has only where its training is not the usual one: what a law of rates holds fixed."""
        said: UnusualColumns = {}
        if recipe.schedule != COSINE:
            said = {"schedule": recipe.schedule.name, "batch": recipe.batch}
        if recipe.noise:
            said = {**said, "noise": recipe.noise}
        if recipe.read_out != 1:
            said = {**said, "read_out": recipe.read_out}
        if self.start:
            said = {**said, "start": self.start}
        return said if self.base is None else {**said, "factors": f"{self.base.name}, width {self.base.width}"}


# A sweep has many members of few tasks, architectures and recipes: each is described once.
_described = lru_cache(4096)(describe)
_sizes = lru_cache(4096)(Architecture.as_dict)


@lru_cache(4096)
def _task_text(task: Task | Given) -> str:
    return canonical(_described(task))


@lru_cache(4096)
def _arch_text(arch: Architecture) -> str:
    return canonical(_sizes(arch))


@lru_cache(64)
def _recipe_text(recipe: Recipe) -> str:
    return canonical(recipe.as_dict())
