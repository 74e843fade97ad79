"""One network to train, and how: everything that determines a row, as frozen values."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

from headcount.frozen import plain
from headcount.kernels.bank import Network
from headcount.kernels.rate_schedule import COSINE, Schedule
from headcount.nets import Architecture, Parameters, parameters
from headcount.nets.architecture import ClassTokenShape
from headcount.results.store import canonical, digest
from headcount.results.study import PlannedRow, UnusualColumns
from headcount.tasks import Task, describe
from headcount.tasks.languages import Recognition
from headcount.tasks.letters import OnLengths
from headcount.training.task_source import source_of

# Part of every content address: raise it when training itself changes, so that old rows are not taken for new ones.
MEANING = 1
CHOICES = {
    "stop": ("patience", "all right", "never"),
    "keep": ("best", "last"),
    "precision": ("full", "bfloat16"),
}


@dataclass(frozen=True)
class Recipe:
    """How every member of a sweep is trained: AdamW, linear warm-up, then the `schedule`, a cosine unless named.

    `samples` sequences make an epoch; with `fresh` they are drawn anew for each one, so none is seen twice.
    With `noise` the training targets are disturbed by normal numbers of so many of their own spreads, those of
    validation never. `read_out` multiplies the start of the last matrix: at 0 every network, however wide, begins with
    a constant answer, at 1 with a random function. A member may `stop` early: when `patience` evaluations in a row (0:
    never) bring no smaller validation level, or when an evaluation finds all of its answers right. What is kept is the
    network at its smallest validation level, or the last one. A gradient longer than `clip` is cut to it (0: none is);
    `precision` is that of batched products of decoders, `beta2` how much of the squared gradients AdamW keeps.

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
    stop: Literal["patience", "all right", "never"] = "patience"
    keep: Literal["best", "last"] = "best"
    clip: float = 0.0
    precision: Literal["full", "bfloat16"] = "full"
    beta2: float = 0.999

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
        if not 0 <= self.clip < 1e3:
            raise ValueError(f"clip is the longest gradient, from 0 (none is cut) to below 1000; got {self.clip}")
        if not 0 < self.beta2 < 1:
            raise ValueError(f"beta2 is a share, between 0 and 1; got {self.beta2}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")

    def as_dict(self) -> dict[str, object]:
        """The fields, ready for JSON; what is usual from `schedule` on goes without saying.

        >>> {"schedule", "noise", "read_out", "clip"} & set(Recipe().as_dict())
        set()
        """
        fields = dataclasses.fields(self)
        first = next(i for i, field in enumerate(fields) if field.name == "schedule")
        unsaid = {field.name for field in fields[first:] if getattr(self, field.name) == field.default}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in unsaid}

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
    """One network of a bank: a task or given data, a network, two seeds and a learning rate.

    The network is an `Architecture`, which reads the task's tokens, or another kind that states all its sizes. With a
    `base`, the rate and the start of every parameter follow `widths(base)`, so that the best rate stays. `start` names
    where training begins, where that is no random network.
    """

    task: Task | OnLengths | Given
    net: Architecture | Network
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
    def arch(self) -> Architecture:
        """The architecture of a class-token network; other kinds have none."""
        if not isinstance(self.net, Architecture):
            raise ValueError(f"{type(self.net).__name__} is no architecture of a class-token network")
        return self.net

    @property
    def shape(self) -> Network:
        """The network with all its sizes: what a bank holds."""
        return self.net.reading(self.task.token_dim) if isinstance(self.net, Architecture) else self.net

    @property
    def drawn(self) -> Task:
        """The task that draws the samples; data that are given cannot be drawn."""
        if isinstance(self.task, Given):
            raise ValueError("given data cannot be drawn anew: pass them, as train(..., data=parts.resident)")
        if isinstance(self.task, OnLengths):
            raise ValueError(f"{self.task.name} draws strings, which a DecoderShape reads; got {self.net.name}")
        return self.task

    @property
    def _source(self) -> str:
        """The source of a task of one's own, also where lengths and a recognition stand around it."""
        task: Any = self.task
        while isinstance(task, OnLengths | Recognition):
            task = task.task if isinstance(task, OnLengths) else task.language
        return source_of(type(task))

    def content(self, recipe: Recipe) -> dict[str, object]:
        """Everything that determines this member's row, ready for JSON: also the source of a task of one's own."""
        source = self._source
        return {
            "task": _described(self.task),
            "arch": _sizes(self.net),
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
        texts = {"task": _task_text(self.task), "arch": _net_text(self.net), "recipe": _recipe_text(recipe)}
        numbers = {"seed": self.seed, "data_seed": self.data_seed, "lr": self.lr, "weight_decay": self.weight_decay}
        texts |= {key: json.dumps(value) for key, value in {**numbers, "meaning": MEANING}.items()}
        if source := self._source:
            texts["source"] = json.dumps(source)
        if self.base is not None:
            texts["base"] = _net_text(self.base)
        if self.start:
            texts["start"] = json.dumps(self.start)
        return digest("{" + ",".join(f'"{key}":{texts[key]}' for key in sorted(texts)) + "}")

    def row(self, recipe: Recipe) -> PlannedRow:
        """The columns that are known before training."""
        heads, head_dim = min(self.shape.layers)
        total, feedforward = _counted(self.shape)
        known: PlannedRow = {
            "run": self.run(recipe),
            "task": self.task.name if isinstance(self.task, OnLengths) else type(self.task).__name__,
            "length": self.task.length,
            "heads": heads,
            "head_dim": head_dim,
            "layers": self.net.name,
            "embed_dim": self.net.embed_dim,
            "width": self.net.width,
            "positions": self.net.positions if isinstance(self.net, Architecture) else 0,
            "parameters": total,
            "feedforward_parameters": feedforward,
            "seed": self.seed,
            "data_seed": self.data_seed,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "steps": recipe.steps,
            **self._unusual(recipe),
        }
        if source := self._source:
            known["source"] = source
        return known

    def _unusual(self, recipe: Recipe) -> UnusualColumns:
        """The columns that a row has only where its training is not the usual one: what a law of rates holds fixed."""
        columns: UnusualColumns = {}
        if recipe.schedule != COSINE:
            columns = {"schedule": recipe.schedule.name, "batch": recipe.batch}
        if recipe.noise:
            columns = {**columns, "noise": recipe.noise}
        if recipe.read_out != 1:
            columns = {**columns, "read_out": recipe.read_out}
        if self.start:
            columns = {**columns, "start": self.start}
        return columns if self.base is None else {**columns, "factors": f"{self.base.name}, width {self.base.width}"}


# A sweep has many members of few tasks, architectures and recipes: each is described once.
_described = lru_cache(4096)(describe)


@lru_cache(4096)
def _sizes(net: Architecture | Network) -> dict[str, object]:
    """A network as an address states it; kinds other than the class-token network by name."""
    return net.as_dict() if isinstance(net, Architecture) else plain(net, attrgetter("__name__"))


@lru_cache(4096)
def _counted(shape: Network) -> Parameters:
    if isinstance(shape, ClassTokenShape):
        return parameters(shape.arch, shape.token_dim)
    sizes = {name: math.prod(size) for name, size in shape.tensors().items()}
    return Parameters(sum(sizes.values()), sum(n for name, n in sizes.items() if ".inner" in name or ".outer" in name))


@lru_cache(4096)
def _task_text(task: Task | OnLengths | Given) -> str:
    return canonical(_described(task))


@lru_cache(4096)
def _net_text(net: Architecture | Network) -> str:
    return canonical(_sizes(net))


@lru_cache(64)
def _recipe_text(recipe: Recipe) -> str:
    return canonical(recipe.as_dict())
