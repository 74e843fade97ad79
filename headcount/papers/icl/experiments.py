"""What is trained: networks that read examples, by depth, width and context, each at the best of a few rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Pack
from headcount.papers.icl.contexts import InContext, Spectrum
from headcount.papers.icl.readers import Answering, ContextBatch, ReaderShape
from headcount.results import Study
from headcount.results.study import Row, as_row
from headcount.training.data import Curve, Means, longest_chunk
from headcount.training.loop import train
from headcount.training.member import Member, Recipe
from headcount.training.shuffling import seed_of

LOST = 1.0  # the relative error of a member that diverged: what saying 0 would score
CHUNK = 25  # steps drawn, and on a GPU recorded, together
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

    @property
    def training(self) -> Recipe:
        """How the bank is trained: gradients no longer than one, the last network kept."""
        chunk = longest_chunk(self.steps, CHUNK)
        samples = chunk * self.batch
        return Recipe(
            samples, epochs=self.steps // chunk, batch=self.batch, warmup=self.warmup, fresh=True, evaluations=1,
            stop="never", keep="last", clip=1.0,
        )  # fmt: skip


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


class ReaderRow(TypedDict):
    """A task of a cell: validation and test errors, by rate and then by seed."""

    key: str
    study: str
    attention: str
    depth: int
    width: int
    examples: int
    parameters: int
    levels: int
    covariance: str
    noise: float
    rates: list[float]
    seeds: list[int]
    validation: list[list[float]]
    nmse: list[list[float]]


ShapeCell = TypedDict(
    "ShapeCell",
    {
        "covariance": str,
        "length": int,
        "depth": int,
        "width": int,
        "parameters": int,
        "median": float,
        "least": float,
        "most": float,
        "diverged": int,
        "rate at edge": bool,
    },
)
"""A shape on one covariance and context at its best rate: its errors over seeds."""


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


def train_readers(cell: ReaderCell, recipe: ReaderRecipe, device: str = "cpu") -> list[ReaderRow]:
    """Train tasks x seeds x rates as one bank; for each task the relative errors by rate and seed.

    The error is the squared error against the noiseless answer over the variance of that answer. A member that
    diverged scores 1, what saying 0 would.
    """
    members = [
        Member(task, cell.shape, seed=seed, lr=rate, weight_decay=0.0)
        for task in cell.tasks
        for seed in recipe.seeds
        for rate in recipe.rates
    ]
    outcome = train(members, recipe.training, device=device, data=partial(Contexts, cell, recipe))
    sizes = (len(cell.tasks), len(recipe.seeds), len(recipe.rates))
    validated, tested = (
        torch.tensor([row.get(name) for row in outcome.rows], dtype=torch.float64).view(sizes).mT.tolist()
        for name in ("validation_nmse", "nmse")
    )
    return [
        {
            "key": cell.key,
            "study": cell.study,
            "attention": cell.attention,
            "depth": cell.depth,
            "width": cell.width,
            "examples": cell.examples,
            "parameters": cell.shape.parameters,
            "levels": task.levels,
            "covariance": task.spectrum.name,
            "noise": task.noise,
            "rates": list(recipe.rates),
            "seeds": list(recipe.seeds),
            "validation": validated[t],
            "nmse": tested[t],
        }
        for t, task in enumerate(cell.tasks)
    ]


class Contexts:
    """Fresh contexts for a bank of readers: members that differ in their rate alone see the same ones."""

    chunks = 1

    def __init__(
        self,
        cell: ReaderCell,
        reading: ReaderRecipe,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.cell, self.reading, self.device, self.problem = cell, reading, torch.device(device), Answering()
        self.chunk, self.rounds = recipe.steps_per_epoch, recipe.epochs
        self.draws = self._generators("train")
        drawn = self._drawn(1, self.draws)[0]
        self.tokens, self.truth = (value.new_zeros((self.chunk, *value.shape)) for value in drawn)

    def first(self, pack: Pack) -> ContextBatch:
        """The place of the first contexts: there is nothing to pack, and one backend for all readers."""
        return self.step(0)

    def begin(self, number: int, chunk: int) -> None:
        """Draw the contexts of a chunk of steps."""
        for i, (tokens, truth) in enumerate(self._drawn(self.chunk, self.draws)):
            self.tokens[i].copy_(tokens)
            self.truth[i].copy_(truth)

    def step(self, number: int) -> ContextBatch:
        """The contexts of one step."""
        return self._batch(self.tokens[number], self.truth[number])

    def held_out(self, part: str) -> Iterator[ContextBatch]:
        """Contexts that no member trained on."""
        contexts = self.reading.contexts // (2 if part == "validation" else 1)
        for drawn in self._drawn(max(1, contexts // self.reading.batch), self._generators(part)):
            yield self._batch(*drawn)

    def levels(self, means: Means) -> dict[str, Tensor]:
        """The relative error on the validation contexts."""
        return {"level": _relative(means("validation"))}

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """The relative errors of the validation and of the test contexts, to five digits."""
        both = zip(*(_relative(means(part)).tolist() for part in ("validation", "test")), strict=True)
        return [{"validation_nmse": _short(validated), "nmse": _short(tested)} for validated, tested in both]

    def _batch(self, tokens: Tensor, truth: Tensor) -> ContextBatch:
        return ContextBatch(self._spread(tokens), self._spread(truth), self.cell.examples)

    def _spread(self, values: Float[Tensor, "streams ..."]) -> Float[Tensor, "models ..."]:
        return values[:, None].expand(-1, len(self.reading.rates), *values.shape[1:]).flatten(0, 1)

    def _generators(self, part: str) -> list[torch.Generator]:
        return [torch.Generator(self.device).manual_seed(seed_of(part, self.cell.key, t)) for t in range(9)]

    def _drawn(self, steps: int, generators: Sequence[torch.Generator]) -> list[tuple[Tensor, Tensor]]:
        batch, seeds = self.reading.batch, len(self.reading.seeds)
        tokens, truth = [], []
        for task, generator in zip(self.cell.tasks, generators, strict=False):
            x, y = task.draw(steps * seeds * batch, self.reading.queries, generator=generator)
            tokens.append(x.view(steps, seeds, batch, *x.shape[1:]))
            truth.append(y.view(steps, seeds, batch, -1))
        return list(zip(torch.cat(tokens, dim=1), torch.cat(truth, dim=1), strict=True))


def _relative(means: Mapping[str, Tensor]) -> Float[Tensor, " models"]:
    return (means["loss"] / means["size"]).nan_to_num(1.0, 1.0, 1.0).clamp(max=1.0)


def exponent_study(rows: Sequence[ReaderRow], attention: str, levels: int, column: str) -> Study:
    """The rows along one axis, depth, width or length, each cell at the rate best on its validation contexts."""
    of_kind = [r for r in rows if (r["study"], r["attention"], r["levels"]) == ("exponents", attention, levels)]
    base = {"depth": 4, "width": 32, "length": 32}
    sizes = [{"depth": r["depth"], "width": r["width"], "length": r["examples"]} for r in of_kind]
    along = [r for r, s in zip(of_kind, sizes, strict=True) if all(s[c] == v for c, v in base.items() if c != column)]
    seeds = tuple(seed for row in along for seed in _by_seed(row))
    return Study(seeds, name=f"{attention}, level {levels}")


def shape_study(rows: Sequence[ReaderRow]) -> list[ShapeCell]:
    """By covariance and context: the median error of every shape at its best rate, and its extremes over seeds."""
    cells = []
    for row in (r for r in rows if r["study"] == "shapes"):
        errors = sorted(seed["nmse"] for seed in _by_seed(row))
        cell: ShapeCell = {
            "covariance": row["covariance"],
            "length": row["examples"],
            "depth": row["depth"],
            "width": row["width"],
            "parameters": row["parameters"],
            "median": median(errors),
            "least": errors[0],
            "most": errors[-1],
            "diverged": sum(error >= LOST for error in errors),
            "rate at edge": best_rate(row) in (0, len(row["rates"]) - 1),
        }
        cells.append(cell)
    return cells


def tiny(cell: ReaderCell) -> ReaderCell:
    """The same with a short context, to see that it runs."""
    examples = min(cell.examples, 8)
    return replace(
        cell, examples=examples, width=8, depth=1, tasks=tuple(replace(t, examples=examples) for t in cell.tasks)
    )


def _by_seed(row: ReaderRow) -> list[Row]:
    """A row for every seed at the best rate, as a study keeps it; `length` is the number of examples."""
    best = best_rate(row)
    sizes = {"depth": row["depth"], "width": row["width"], "length": row["examples"], "heads": 1}
    cell = {**sizes, "parameters": row["parameters"], "lr": row["rates"][best]}
    return [
        as_row({**cell, "seed": seed, "nmse": nmse, "status": "diverged" if nmse >= LOST else "done"}, "a row")
        for seed, nmse in zip(row["seeds"], row["nmse"][best], strict=True)
    ]


def best_rate(row: ReaderRow) -> int:
    """Which of the rates has the smallest median validation error."""
    return min(range(len(row["rates"])), key=lambda i: median(row["validation"][i]))


def _short(value: float) -> float:
    return float(f"{value:.5g}")
