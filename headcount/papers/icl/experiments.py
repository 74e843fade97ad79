"""What is trained: networks that read examples, by depth, width and context, each at the best of a few rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.papers.icl.contexts import InContext, Spectrum
from headcount.papers.icl.reader_bank import ReaderBank, ReaderShape
from headcount.results import Study
from headcount.results.study import as_row
from headcount.training.backends.choice import as_it_is, graph
from headcount.training.optimiser import AdamW
from headcount.training.shuffling import seed_of

__all__ = [
    "EXPONENTS",
    "SHAPES",
    "ReaderCell",
    "ReaderRecipe",
    "cells_of",
    "exponent_study",
    "shape_study",
    "tiny",
    "train_readers",
]

Numbers = list[list[float]]
SETTINGS = {
    "isotropic": Spectrum(),
    "fixed": Spectrum(decay=2.0),
    "rotated": Spectrum(decay=2.0, rotated=True),
}


@dataclass(frozen=True)
class ReaderRecipe:
    """How readers are trained: fresh contexts at every step, a rate chosen on validation contexts, a test apart."""

    steps: int = 1500
    batch: int = 32
    queries: int = 8
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    contexts: int = 512  # of the test, and half as many for the choice of the rate
    warmup: float = 0.1


@dataclass(frozen=True)
class ReaderCell:
    """One bank: a shape, a context length, and the tasks that train side by side in it."""

    study: str
    depth: int
    width: int
    examples: int
    attention: str = "linear"
    tasks: tuple[InContext, ...] = ()

    @property
    def key(self) -> str:
        """The name under which its results are kept."""
        return f"{self.study} {self.attention} L{self.depth} d{self.width} k{self.examples}"

    @property
    def shape(self) -> ReaderShape:
        """The network of its members."""
        return ReaderShape(self.depth, self.width, self.tasks[0].token_dim, self.attention)


def _levels(examples: int) -> tuple[InContext, ...]:
    """Teachers of 0, 1 and 2 levels; labels of the linear one bear noise, or no law in the context would be left."""
    return tuple(InContext(examples, 4, levels=h, noise=0.5 if h == 0 else 0.0) for h in (0, 1, 2))


def _covariances(examples: int) -> tuple[InContext, ...]:
    return tuple(InContext(examples, 4, spectrum) for spectrum in SETTINGS.values())


def _exponent_cells(attention: str) -> list[ReaderCell]:
    sizes = [(depth, 32, 32) for depth in (1, 2, 4, 8)] + [(4, width, 32) for width in (8, 16, 64)]
    sizes += [(4, 32, examples) for examples in (8, 16, 64, 128)]
    return [ReaderCell("exponents", *size, attention, _levels(size[2])) for size in sizes]


EXPONENTS: tuple[ReaderCell, ...] = (*_exponent_cells("linear"), *_exponent_cells("softmax"))
# Shapes of about 49 thousand parameters, 12 L d^2, from flat to deep.
SHAPES: tuple[ReaderCell, ...] = tuple(
    ReaderCell("shapes", depth, width, examples, "linear", _covariances(examples))
    for examples in (16, 64, 256)
    for depth, width in ((1, 64), (2, 45), (4, 32), (8, 23))
)


def cells_of(names: Sequence[str]) -> list[ReaderCell]:
    """The cells of the studies named: `linear`, `softmax` (exponents) and `shapes`.

    >>> [cell.key for cell in cells_of(["shapes"])][:2]
    ['shapes linear L1 d64 k16', 'shapes linear L2 d45 k16']
    """
    parts = {
        "linear": [c for c in EXPONENTS if c.attention == "linear"],
        "softmax": [c for c in EXPONENTS if c.attention == "softmax"],
        "shapes": list(SHAPES),
    }
    for name in names:
        if name not in parts:
            raise ValueError(f"no study {name!r}; known: {', '.join(parts)}")
    return [cell for name in names for cell in parts[name]]


def train_readers(cell: ReaderCell, recipe: ReaderRecipe, device: str = "cpu") -> list[dict[str, Any]]:
    """Train tasks x seeds x rates as one bank; for each task the relative errors by rate and seed.

    The error is the squared error against the noiseless answer over the variance of that answer. A member that
    diverged scores 1, what saying 0 would.
    """
    run = _Training(cell, recipe, device)
    for start in range(0, recipe.steps, run.stretch):
        run.advance(start)
    return run.results()


class _Training:
    """A bank in training. Contexts are drawn a stretch ahead, copied in, and the same recorded step reads them."""

    stretch = 25

    def __init__(self, cell: ReaderCell, recipe: ReaderRecipe, device: str) -> None:
        self.cell, self.recipe, self.device = cell, recipe, torch.device(device)
        self.streams = len(cell.tasks) * len(recipe.seeds)
        members = [(seed, rate) for _ in cell.tasks for seed in recipe.seeds for rate in recipe.rates]
        self.bank = ReaderBank(cell.shape, [seed for seed, _ in members], device=device)
        rates = torch.tensor([rate for _, rate in members], device=device)
        self.theta = self.bank.theta.requires_grad_()
        self.adam = AdamW(self.theta.detach(), rates, torch.zeros_like(rates), recipe.steps, recipe.warmup)
        self.active = torch.ones_like(rates, dtype=torch.bool)
        self.draws = [torch.Generator(self.device).manual_seed(seed_of("train", cell.key, t)) for t in range(9)]
        self.tokens, self.truth = self._drawn(1, self.draws)[0]
        record = graph if self.device.type == "cuda" else as_it_is
        self.step = record(self._step, (self.theta, self.adam.first, self.adam.second, self.adam.step))

    def advance(self, start: int) -> None:
        """A stretch of steps, each on fresh contexts."""
        for tokens, truth in self._drawn(min(self.stretch, self.recipe.steps - start), self.draws):
            self.tokens.copy_(tokens)
            self.truth.copy_(truth)
            self.step()

    def results(self) -> list[dict[str, Any]]:
        """One row for each task: the validation and the test error of every rate and seed."""
        self.step = self._step  # lets go of the recording, which would keep this bank's memory
        half = self._measured("validation", self.recipe.contexts // 2)
        whole = self._measured("test", self.recipe.contexts)
        about = {"study": self.cell.study, "attention": self.cell.attention, "depth": self.cell.depth}
        about |= {"width": self.cell.width, "examples": self.cell.examples, "parameters": self.cell.shape.parameters}
        return [
            {
                "key": self.cell.key,
                **about,
                "levels": task.levels,
                "covariance": task.spectrum.name,
                "noise": task.noise,
                "rates": list(self.recipe.rates),
                "seeds": list(self.recipe.seeds),
                "validation": half[t],
                "nmse": whole[t],
            }
            for t, task in enumerate(self.cell.tasks)
        ]

    def _step(self) -> None:
        p = self.bank.named(self.theta)
        gaps = (self._answers(p, self.tokens) - self._spread(self.truth)).square()
        (gradient,) = torch.autograd.grad(gaps.mean(dim=(1, 2)).sum(), self.theta)
        gradient = gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1.0)
        self.adam.update(self.theta, gradient, self.active)

    def _answers(self, p: dict[str, Tensor], tokens: Float[Tensor, "streams batch all token_dim"]) -> Tensor:
        return self.bank.answers(p, self._spread(tokens), self.cell.examples)

    def _spread(self, values: Float[Tensor, "streams ..."]) -> Float[Tensor, "models ..."]:
        """Members that differ in their rate alone see the same contexts."""
        return values[:, None].expand(-1, len(self.recipe.rates), *values.shape[1:]).flatten(0, 1)

    def _drawn(self, steps: int, generators: Sequence[torch.Generator]) -> list[tuple[Tensor, Tensor]]:
        batch, seeds = self.recipe.batch, len(self.recipe.seeds)
        tokens, truth = [], []
        for task, generator in zip(self.cell.tasks, generators, strict=False):
            x, y = task.draw(steps * seeds * batch, self.recipe.queries, generator=generator)
            tokens.append(x.view(steps, seeds, batch, *x.shape[1:]))
            truth.append(y.view(steps, seeds, batch, -1))
        return list(zip(torch.cat(tokens, dim=1), torch.cat(truth, dim=1), strict=True))

    @torch.no_grad()
    def _measured(self, name: str, contexts: int) -> list[Numbers]:
        """The relative error of every task, rate and seed on contexts that no member trained on."""
        draws = [torch.Generator(self.device).manual_seed(seed_of(name, self.cell.key, t)) for t in range(9)]
        p = self.bank.named()
        gaps, size = torch.zeros(2, len(self.bank), dtype=torch.float64, device=self.device)
        for tokens, truth in self._drawn(max(1, contexts // self.recipe.batch), draws):
            gaps = gaps + (self._answers(p, tokens) - self._spread(truth)).double().square().mean(dim=(1, 2))
            size = size + self._spread(truth).double().square().mean(dim=(1, 2))
        relative = (gaps / size).nan_to_num(1.0, 1.0, 1.0).clamp(max=1.0)
        sizes = (len(self.cell.tasks), len(self.recipe.seeds), len(self.recipe.rates))
        return [[[_short(v) for v in line] for line in task] for task in relative.view(sizes).mT.tolist()]


def exponent_study(rows: Sequence[dict[str, Any]], attention: str, levels: int, column: str) -> Study:
    """The rows along one axis, depth, width or length, each cell at the rate best on its validation contexts."""
    mine = [r for r in rows if (r["study"], r["attention"], r["levels"]) == ("exponents", attention, levels)]
    base = {"depth": 4, "width": 32, "length": 32}
    along = [r for r in map(_sized, mine) if all(r[c] == v for c, v in base.items() if c != column)]
    seeds = tuple(as_row(seed, "a row") for row in along for seed in _by_seed(row))
    return Study(seeds, name=f"{attention}, level {levels}")


def shape_study(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By covariance and context: the median error of every shape at its best rate, and its extremes over seeds."""
    made = []
    for row in (_sized(r) for r in rows if r["study"] == "shapes"):
        errors = sorted(seed["nmse"] for seed in _by_seed(row))
        kept = {name: row[name] for name in ("covariance", "length", "depth", "width", "parameters")}
        made.append({**kept, "median": median(errors), "least": errors[0], "most": errors[-1]})
    return made


def tiny(cell: ReaderCell) -> ReaderCell:
    """The same with a short context, to see that it runs."""
    examples = min(cell.examples, 8)
    return replace(
        cell, examples=examples, width=8, depth=1, tasks=tuple(replace(t, examples=examples) for t in cell.tasks)
    )


def _sized(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "length": row["examples"], "heads": 1}


def _by_seed(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for every seed at the rate whose median validation error is smallest."""
    best = min(range(len(row["rates"])), key=lambda i: median(row["validation"][i]))
    kept = {name: row[name] for name in ("depth", "width", "length", "heads", "parameters")}
    for seed, value in zip(row["seeds"], row["nmse"][best], strict=True):
        yield {**kept, "seed": seed, "lr": row["rates"][best], "nmse": value, "status": "done"}


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def recipe_row(recipe: ReaderRecipe) -> dict[str, Any]:
    """The recipe as it is kept beside the rows."""
    return asdict(recipe)
