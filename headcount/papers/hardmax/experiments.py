"""The training claim in small: with a penalty eps |theta|^2 the loss at the optimum is at most eps |theta_exact|^2."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.sources import Checked, Source, implements
from headcount.training.adam import descend

DECAYS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
COUNT, DIM, LENGTH, NEURONS = 4, 2, 3, 4
SOURCE = Source("alcalde2025exact", "loss under weight decay")


@dataclass(frozen=True)
class DecayedLoss:
    """The best of several fresh models at one decay: its loss, and what the inequality allows, wd |theta_exact|^2/2."""

    seed: int
    decay: float
    loss: float
    allowed: float
    norm: float
    median_loss: float

    @property
    def holds(self) -> bool:
        return self.loss <= self.allowed


@dataclass(frozen=True)
class DecayStudy:
    """Losses over decays and seeds, and the slope of log loss in log decay with a 95% interval."""

    rows: tuple[DecayedLoss, ...]
    slope: float
    low: float
    high: float

    @property
    def at_least_linear(self) -> bool | None:
        """Whether the slope is at least 1: None where the interval leaves it open."""
        return True if self.low >= 1 else False if self.high < 1 else None


@implements(
    SOURCE,
    test="tests/test_hardmax_decay.py::test_the_loss_at_the_optimum_is_below_the_decay_times_the_exact_norm",
    status="proved here",
    hypotheses=("the loss is that of an optimum", Checked("an exact network of this architecture exists")),
)
def decay_study(
    decays: tuple[float, ...] = DECAYS, seeds: tuple[int, ...] = (0, 1, 2), starts: int = 8, steps: int = 3000
) -> DecayStudy:
    """At an optimum of loss + wd |theta|^2/2 the loss is at most wd |theta_exact|^2/2, so it falls at least linearly.

    Compare the optimum with theta_exact, whose loss is 0. One block of softmax attention and four neurons on four
    sequences; every decay has its own fresh models, and the one of lowest objective stands for the optimum.
    Departs: the penalty is wd/2, as Adam's coupled decay has it; only an upper bound, and no proof that it is met.
    """
    rows = [row for seed in seeds for row in _trained(seed, decays, starts, steps)]
    return DecayStudy(tuple(rows), *_slope(rows))


def exact_block_norm(
    means: Float[np.ndarray, "count dim"], targets: Float[np.ndarray, "count dim"], seed: int
) -> float:
    """|theta|^2 of one exact block: average (V = I, B = 0), then as many neurons as sequences along one direction.

    sum_i w_i relu(a.z - k_i) meets the targets one after the other; each neuron is scaled so that |w| = |(u, b)|,
    and the direction and the first threshold are the best of many draws.
    """
    rng = np.random.default_rng(seed)
    best = np.inf
    for _ in range(2000):
        a = rng.standard_normal(means.shape[1])
        a /= np.linalg.norm(a)
        keys = means @ a
        order = np.argsort(keys)
        steps = np.append(keys[order][0] - rng.exponential(), keys[order][:-1])
        hinges = np.maximum(keys[order][:, None] - steps, 0.0)
        w = np.linalg.solve(hinges, targets[order])
        norm = float((2 * np.linalg.norm(w, axis=1) * np.sqrt(1 + steps**2)).sum())
        best = min(best, norm)
    return best + means.shape[1]


def _data(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(COUNT, LENGTH, DIM, generator=generator, dtype=torch.float64)
    return x, torch.randn(COUNT, DIM, generator=generator, dtype=torch.float64)


def _trained(seed: int, decays: tuple[float, ...], starts: int, steps: int) -> list[DecayedLoss]:
    """All decays and starts of one data set as one batch of models."""
    x, y = _data(seed)
    decay = torch.tensor(decays, dtype=torch.float64).repeat_interleave(starts)
    generator = torch.Generator().manual_seed(1000 + seed)
    weights = [
        (0.7 * torch.randn(len(decay), *shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for shape in ((DIM, DIM), (DIM, DIM), (1,), (NEURONS, DIM), (NEURONS,), (DIM, NEURONS), (1,))
    ]

    def loss(step: int) -> Tensor:
        return (_losses(weights, x, y) + decay / 2 * _norms(weights)).sum()  # what coupled decay descends

    descend(loss, weights, steps, lr=2e-2)
    with torch.no_grad():
        losses, norms = _losses(weights, x, y), _norms(weights)
    exact = exact_block_norm(x.mean(1).numpy(), y.numpy(), seed)
    return [
        _best(seed, wd, losses[i * starts : (i + 1) * starts], norms[i * starts : (i + 1) * starts], exact)
        for i, wd in enumerate(decays)
    ]


def _best(seed: int, decay: float, losses: Tensor, norms: Tensor, exact: float) -> DecayedLoss:
    k = int((losses + decay / 2 * norms).argmin())
    return DecayedLoss(seed, decay, float(losses[k]), decay * exact / 2, float(norms[k]), median(losses.tolist()))


def _losses(weights: list[Tensor], x: Tensor, y: Tensor) -> Float[Tensor, " models"]:
    """The mean squared distance of every token from its sequence's target."""
    B, V, rho, U, b, W, eta = weights
    scores = torch.einsum("mde,sie,sjd->msij", B, x, x)
    mixed = torch.einsum("mde,msij,sje->msid", V, scores.softmax(-1), x)
    z = rho[:, None, None] * x + mixed
    hidden = torch.relu(torch.einsum("mhd,msid->msih", U, z) + b[:, None, None])
    out = eta[:, None, None] * z + torch.einsum("mdh,msih->msid", W, hidden)
    return (out - y[:, None]).square().sum(-1).mean((1, 2))


def _norms(weights: list[Tensor]) -> Float[Tensor, " models"]:
    return torch.stack([w.square().flatten(1).sum(1) for w in weights]).sum(0)


def _slope(rows: list[DecayedLoss]) -> tuple[float, float, float]:
    """The common slope of log loss in log decay, an intercept for each seed, with a 95% t interval."""
    from scipy.stats import t

    seeds = sorted({r.seed for r in rows})
    x, y = np.log([r.decay for r in rows]), np.log([max(r.loss, 1e-300) for r in rows])
    for seed in seeds:
        own = [r.seed == seed for r in rows]
        x[own], y[own] = x[own] - x[own].mean(), y[own] - y[own].mean()
    slope = float(x @ y / (x @ x))
    freedom = len(rows) - len(seeds) - 1
    width = (
        float(t.ppf(0.975, freedom) * np.sqrt(((y - slope * x) ** 2).sum() / freedom / (x @ x))) if freedom else np.inf
    )
    return slope, slope - width, slope + width
