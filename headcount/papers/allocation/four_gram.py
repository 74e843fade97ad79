"""The 4-gram of the allocation paper: one layer of causal attention learns y_t = sum of four lagged tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from headcount.training.adam import descend
from headcount.training.shuffling import seed_of

LAGS, TOKEN_DIM, BUDGET = 4, 8, 256


@dataclass(frozen=True)
class FourGramStudy:
    """How a network is trained: fresh white noise at every step, Adam with a cosine."""

    length: int = 16
    batch: int = 32
    steps: int = 1200
    lr: float = 1e-3


class FourGram(nn.Module):
    """Token and place in, one causal attention layer of `heads` heads whose dimensions fill the budget, a sum out."""

    def __init__(self, heads: int, head_dim: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(TOKEN_DIM, BUDGET)
        self.register_buffer("place", _sinusoids(length))
        self.read = nn.Linear(BUDGET, 3 * heads * head_dim, bias=False)
        self.write = nn.Linear(heads * head_dim, TOKEN_DIM)

    def forward(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        state = self.embed(x) + self.place
        q, k, v = self.read(state).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.write(mixed.transpose(1, 2).flatten(2))


def target(seed: int) -> Float[Tensor, "lags token_dim token_dim"]:
    """Four random matrices, scaled so that the target has variance 1."""
    g = torch.Generator().manual_seed(seed_of("4-gram", seed))
    return torch.randn(LAGS, TOKEN_DIM, TOKEN_DIM, generator=g) / math.sqrt(LAGS * TOKEN_DIM)


def validation_gap(heads: int, head_dim: int, seed: int, study: FourGramStudy) -> tuple[float, float]:
    """Mean squared error on unseen noise, and over the last tenth of training, at positions that have all lags."""
    torch.manual_seed(seed)
    net, weights = FourGram(heads, head_dim, study.length), target(0)
    g = torch.Generator().manual_seed(seed_of("4-gram noise", seed))
    gaps = []

    def loss(step: int) -> Tensor:
        x, y = _sample(study, weights, g)
        gap = _gap(net(x), y)
        gaps.append(float(gap.detach()))
        return gap

    descend(loss, net.parameters(), study.steps, study.lr)
    last = gaps[-max(1, study.steps // 10) :]
    with torch.no_grad():
        unseen = [float(_gap(net(x), y)) for x, y in (_sample(study, weights, g) for _ in range(20))]
    return sum(unseen) / len(unseen), sum(last) / len(last)


def _sample(study: FourGramStudy, weights: Tensor, g: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(study.batch, study.length, TOKEN_DIM, generator=g)
    y = sum(torch.roll(x, lag + 1, dims=1) @ weights[lag].T for lag in range(LAGS))
    assert isinstance(y, Tensor)
    return x, y


def _gap(out: Tensor, y: Tensor) -> Tensor:
    return (out - y)[:, LAGS:].square().mean()  # before that a lag reaches past the beginning


def _sinusoids(length: int) -> Float[Tensor, "length embed"]:
    rate = torch.exp(-math.log(10_000.0) * torch.arange(0, BUDGET, 2) / BUDGET)
    angle = torch.arange(length)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)
