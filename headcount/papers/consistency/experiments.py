"""What is trained: one attention block as smoother, its residual sums in flat space or in the ball, by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.fits.verdict import Estimate
from headcount.papers.consistency.ball import Ball, BallResidual
from headcount.papers.consistency.decays import decay_of
from headcount.training.adam import descend
from headcount.training.shuffling import seed_of

WIDTH = 12
READ = 0.05  # spread of the read-out's start beside the channel of the answer
Draws = Callable[..., Tensor]
"""From a scale and sizes to normal numbers, an array for each seed."""


@dataclass(frozen=True)
class BallRecipe:
    """How blocks are trained: fresh functions sin(<a, x> + b) with noisy labels at every step.

    The rate is the best of 3e-3, 1e-2, 3e-2 and 1e-1 at 300 steps of one seed, flat and curved. Doubling these steps
    lowered the errors by 2 to 7 percent, so 600 are taken, and more would lower them a little again.
    """

    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    curvatures: tuple[float, ...] = (0.0, 1e-4, 1.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    steps: int = 600
    batch: int = 8
    queries: int = 16
    noise: float = 0.5
    lr: float = 3e-2
    tests: int = 64


class _Attention(nn.Module):
    """One softmax head from the queries to the examples, started as the smoother of this length, for every seed."""

    def __init__(self, length: int, draws: Draws) -> None:
        super().__init__()
        # Channels 0, 1 hold x, 2 holds |x|^2, 3 the label, 4 a one; the value goes into channel 5.
        query, key, value = (draws(0.02, WIDTH, WIDTH) for _ in range(3))
        beta = float(length) ** 0.5
        for i, scale in ((0, 2 * beta), (1, 2 * beta)):
            query[..., i, i] += scale
            key[..., i, i] += 1.0
        query[..., 4, 2] -= beta
        key[..., 2, 2] += 1.0
        value[..., 3, 5] += 1.0
        self.query, self.key, self.value = (nn.Parameter(m) for m in (query, key, value))

    def forward(self, z: Float[Tensor, "seeds batch q width"], context: Float[Tensor, "seeds batch k width"]) -> Tensor:
        weights = torch.softmax(z @ self.query @ (context @ self.key).mT, dim=-1)
        return weights @ (context @ self.value)


class _Feed(nn.Module):
    """W_2 relu(W_1 z + b_1) + b_2, for every seed."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        sizes = ((WIDTH, 2 * WIDTH), (1, 2 * WIDTH), (2 * WIDTH, WIDTH), (1, WIDTH))
        self.inner, self.inner_bias, self.outer, self.outer_bias = (nn.Parameter(draws(0.05, *s)) for s in sizes)

    def forward(self, z: Float[Tensor, "seeds batch q width"]) -> Tensor:
        return torch.relu(z @ self.inner + self.inner_bias) @ self.outer + self.outer_bias


class SmootherBlock(nn.Module):
    """Attention and a feed-forward, each in a residual of the ball; ReLU and matrices in the tangent space.

    One block for each seed, side by side: the seeds share nothing but the loop.
    """

    def __init__(self, length: int, ball: Ball, seeds: Sequence[int]) -> None:
        super().__init__()
        generators = [torch.Generator().manual_seed(seed_of("block", seed)) for seed in seeds]

        def draws(scale: float, *size: int) -> Tensor:
            return torch.stack([scale * torch.randn(size, generator=g) for g in generators])[:, None]

        self.attend = BallResidual(_Attention(length, draws), ball)
        self.feed = BallResidual(_Feed(draws), ball)
        # What writes into a channel that nobody reads has gradient 0 in flat space and one of size c in the ball, and
        # Adam makes a whole step of either but 0: with such channels the limit c -> 0 would not be flat space.
        answer = draws(READ, WIDTH, 1)
        answer[:, :, 5] += 1.0
        self.answer = nn.Parameter(answer)

    def forward(
        self, tokens: Float[Tensor, "seeds batch all 5"], examples: int
    ) -> Float[Tensor, "seeds batch queries"]:
        z = nn.functional.pad(tokens, (0, WIDTH - tokens.shape[-1]))
        attended = self.feed(self.attend(z[:, :, examples:], z[:, :, :examples]))
        return (attended @ self.answer)[..., 0]


def trained_errors(
    length: int, curvature: float, seeds: Sequence[int], recipe: BallRecipe
) -> tuple[list[float], list[float]]:
    """The root mean square error of a trained block on fresh functions, for each seed, and that before training."""
    block = SmootherBlock(length, Ball(curvature), seeds)
    generators = [torch.Generator().manual_seed(seed_of("functions", seed, length)) for seed in seeds]
    before = _tested(block, length, len(generators), recipe)

    def loss(step: int) -> Tensor:
        drawn = [_functions(recipe.batch, length, recipe, g) for g in generators]
        tokens, truth = (torch.stack(part) for part in zip(*drawn, strict=True))
        return (block(tokens, length) - truth).square().mean(dim=(1, 2)).sum()

    descend(loss, block.parameters(), recipe.steps, recipe.lr)
    return _tested(block, length, len(generators), recipe), before


class CurvatureRow(TypedDict):
    """The errors at one curvature, a line for each seed, and how they decay with the length."""

    curvature: float
    lengths: list[int]
    errors: list[list[float]]
    exponent: float
    low: float
    high: float


class CurvatureVerdict(TypedDict):
    """By curvature the difference of its decay to that of flat space, with its interval, and whether it is none."""

    difference: dict[str, list[float]]
    made_a_difference: dict[str, bool]
    any: bool


def curvature_rows(recipe: BallRecipe) -> list[CurvatureRow]:
    """For each curvature the errors by length and seed, and the decay with its interval over seeds."""
    rows: list[CurvatureRow] = []
    for c in recipe.curvatures:
        errors = np.array([trained_errors(t, c, recipe.seeds, recipe)[0] for t in recipe.lengths]).T
        fitted = decay_of(errors, recipe.lengths)
        shown = [[float(f"{v:.5g}") for v in line] for line in errors]
        rows.append({
            "curvature": c, "lengths": list(recipe.lengths), "errors": shown,
            "exponent": fitted.value, "low": fitted.low, "high": fitted.high,
        })  # fmt: skip
    return rows


def curvature_verdict(rows: Sequence[CurvatureRow]) -> CurvatureVerdict:
    """Whether curvature moved the decay: the interval of each difference to flat space, seed by seed.

    The seeds share their functions, so the differences are paired.
    """
    flat = next(row for row in rows if row["curvature"] == 0)
    apart: dict[str, Estimate] = {}
    for row in rows:
        if row["curvature"]:
            ratio = np.array(row["errors"]) / np.array(flat["errors"])
            apart[f"{row['curvature']:g}"] = decay_of(ratio, row["lengths"])
    moved = {c: not e.low <= 0 <= e.high for c, e in apart.items()}
    shown = {c: [e.value, e.low, e.high] for c, e in apart.items()}
    return {"difference": shown, "made_a_difference": moved, "any": any(moved.values())}


@torch.no_grad()
def _tested(block: SmootherBlock, length: int, seeds: int, recipe: BallRecipe) -> list[float]:
    tokens, truth = _functions(recipe.tests, length, recipe, torch.Generator().manual_seed(seed_of("test", length)))
    off = block(tokens.expand(seeds, *tokens.shape), length) - truth
    return off.square().mean(dim=(1, 2)).sqrt().tolist()


def _functions(batch: int, length: int, recipe: BallRecipe, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of the square with labels of a function drawn for each context; queries at the end, without labels."""
    x = torch.rand(batch, length + recipe.queries, 2, generator=generator)
    a, b = 2 * torch.randn(batch, 1, 2, generator=generator), 6.3 * torch.rand(batch, 1, generator=generator)
    truth = torch.sin((a * x).sum(-1) + b)
    labels = truth + recipe.noise * torch.randn(truth.shape, generator=generator)
    labels[:, length:] = 0
    one = torch.ones_like(labels)[..., None]
    tokens = torch.cat([x, x.square().sum(-1, keepdim=True), labels[..., None], one], dim=-1)
    return tokens, truth[:, length:]
