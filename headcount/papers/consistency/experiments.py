"""What is trained: one attention block as smoother, its residual sums in flat space or in the ball, by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.fits.verdict import Estimate
from headcount.papers.consistency.ball import Ball, BallResidual
from headcount.papers.consistency.decays import decay_of
from headcount.training.shuffling import seed_of

__all__ = ["BallRecipe", "SmootherBlock", "curvature_rows", "curvature_verdict", "trained_error"]

WIDTH = 12


@dataclass(frozen=True)
class BallRecipe:
    """How blocks are trained: fresh functions sin(<a, x> + b) with noisy labels at every step."""

    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    curvatures: tuple[float, ...] = (0.0, 1e-4, 1.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    steps: int = 150
    batch: int = 8
    queries: int = 16
    noise: float = 0.5
    lr: float = 3e-3
    tests: int = 64


class _Attention(nn.Module):
    """One softmax head from the queries to the examples, started as the smoother of this length."""

    def __init__(self, length: int, generator: torch.Generator) -> None:
        super().__init__()
        # Channels 0, 1 hold x, 2 holds |x|^2, 3 the label, 4 a one; the value goes into channel 5.
        query, key, value = (0.02 * torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(3))
        beta = float(length) ** 0.5
        for i, scale in ((0, 2 * beta), (1, 2 * beta)):
            query[i, i] += scale
            key[i, i] += 1.0
        query[4, 2] -= beta
        key[2, 2] += 1.0
        value[3, 5] += 1.0
        self.query, self.key, self.value = (nn.Parameter(m) for m in (query, key, value))

    def forward(self, z: Float[Tensor, "batch q width"], seen: Float[Tensor, "batch k width"]) -> Tensor:
        weights = torch.softmax(z @ self.query @ (seen @ self.key).mT, dim=-1)
        return weights @ (seen @ self.value)


class SmootherBlock(nn.Module):
    """Attention and a feed-forward, each in a residual of the ball; ReLU and matrices in the tangent space."""

    def __init__(self, length: int, ball: Ball, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed_of("block", seed))
        self.attend = BallResidual(_Attention(length, generator), ball)
        inner, outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        answer = torch.zeros(WIDTH, 1)
        answer[5] = 1.0
        with torch.no_grad():
            for p in (*inner.parameters(), *outer.parameters()):
                p.copy_(0.05 * torch.randn(p.shape, generator=generator))
        self.feed = BallResidual(nn.Sequential(inner, nn.ReLU(), outer), ball)
        self.answer = nn.Parameter(answer)

    def forward(self, tokens: Float[Tensor, "batch all 5"], examples: int) -> Float[Tensor, "batch queries"]:
        z = nn.functional.pad(tokens, (0, WIDTH - tokens.shape[-1]))
        asked = self.feed(self.attend(z[:, examples:], z[:, :examples]))
        return (asked @ self.answer)[..., 0]


def trained_error(length: int, curvature: float, seed: int, recipe: BallRecipe) -> tuple[float, float]:
    """The root mean square error of a trained block on fresh functions, and what it was before training."""
    block = SmootherBlock(length, Ball(curvature), seed)
    optimiser = torch.optim.Adam(block.parameters(), lr=recipe.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.steps)
    draws = torch.Generator().manual_seed(seed_of("functions", seed, length))
    before = _tested(block, length, recipe)
    for _ in range(recipe.steps):
        tokens, truth = _functions(recipe.batch, length, recipe, draws)
        optimiser.zero_grad()
        (block(tokens, length) - truth).square().mean().backward()
        optimiser.step()
        schedule.step()
    return _tested(block, length, recipe), before


def curvature_rows(recipe: BallRecipe) -> list[dict[str, Any]]:
    """For each curvature the errors by length and seed, and the decay with its interval over seeds."""
    made = []
    for c in recipe.curvatures:
        errors = np.array([[trained_error(t, c, s, recipe)[0] for t in recipe.lengths] for s in recipe.seeds])
        found = decay_of(errors, recipe.lengths)
        ends = {"exponent": found.value, "low": found.low, "high": found.high}
        shown = [[float(f"{v:.5g}") for v in line] for line in errors]
        made.append({"curvature": c, "lengths": list(recipe.lengths), "errors": shown, **ends})
    return made


def curvature_verdict(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
def _tested(block: SmootherBlock, length: int, recipe: BallRecipe) -> float:
    tokens, truth = _functions(recipe.tests, length, recipe, torch.Generator().manual_seed(seed_of("test", length)))
    return float((block(tokens, length) - truth).square().mean().sqrt())


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
