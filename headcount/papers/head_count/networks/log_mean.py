"""Maxima by one head with constant scores: a mean of exponentials, and a logarithm. Outside Assumption 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.refusals import positive
from headcount.tasks import LinearMax

MOST = 350.0  # beta times the scores' size: beyond it exp leaves what float64 holds


@dataclass(frozen=True, eq=False)
class LogMeanNet:
    """y = sum_i f_i(mean_t e_i(x_t)): D hidden numbers of one head with constant scores.

    `exponents` are the nodes of exp(beta (s - S)) over scores s in [-S, S], `logs` those of its inverse; both are
    piecewise linear between them, as ReLU networks of so many units are. `error` is promised on tokens up to `radius`.
    """

    directions: Float[Tensor, "maxima token_dim"]
    beta: float
    size: float
    radius: float
    exponents: Float[Tensor, " node"]
    logs: Float[Tensor, " step"]
    error: float
    shift: float

    @property
    def feedforward_parameters(self) -> int:
        """Three numbers for each hidden unit and one offset, of the encoder and the read-out, for every direction."""
        return len(self.directions) * (3 * len(self.exponents) + 1 + 3 * len(self.logs) + 1)

    @property
    def largest_weight(self) -> float:
        """The steepest piece of the read-out: what Assumption 1 keeps at 1."""
        return float((self.logs[1] - self.logs[0]) / (self.logs[1].exp() - self.logs[0].exp())) / self.beta

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        scores = x.double() @ self.directions.T
        exponentials = _pieces(scores, self.exponents, (self.beta * (self.exponents - self.size)).exp())
        logarithms = _pieces(exponentials.mean(dim=1), self.logs.exp(), self.logs / self.beta)
        return (logarithms + self.size + self.shift).sum(dim=1)


def log_mean_exp(task: LinearMax, eps: float, *, radius: float = 3.0) -> LogMeanNet:
    """One head with constant scores that is within eps of sum_i max_t <a_i, x_t> on tokens of entries up to `radius`.

    With c = (4/3) eps/D: log(mean exp)/beta lies between max - log(T)/beta and max, and is moved up by half of that:
    c/2. The exponential between nodes h apart is too large by a factor of at most exp((beta h)^2/8), and the logarithm
    between nodes r apart on its own scale too small by r^2/8, both by Hoeffding's lemma log(1 - p + p e^w) - p w
    <= w^2/8: c/4 each, and of opposite signs.
    Source: derived here. It is no counterexample to Theorem 2(2): its weights grow like T^(2 S D / eps).

    >>> net = log_mean_exp(LinearMax([[1.0], [-1.0]], length=128), eps=0.4)
    >>> net.error, net.feedforward_parameters < 3000, net.largest_weight > 1e40
    (0.4, True, True)
    """
    positive(eps=eps, radius=radius)
    a = torch.tensor(task.directions, dtype=torch.float64)
    tolerance = eps / len(a) / 0.75
    size = max(float(a.abs().sum(dim=1).max()) * radius, 1e-12)
    beta = max(math.log(task.length), 1e-9) / tolerance
    if beta * size > MOST:
        raise ValueError(
            f"exp({beta:.3g} * {size:.3g}) leaves float64: with {len(a)} directions, length {task.length} and scores "
            f"up to {size:.3g}, eps must be at least {0.75 * math.log(task.length) * len(a) * size / MOST:.3g}"
        )
    step = math.sqrt(2 * tolerance / beta)
    exponents = torch.linspace(-size, size, math.ceil(2 * size / step) + 1, dtype=torch.float64)
    ratio = math.sqrt(2 * tolerance * beta)
    logs = torch.linspace(-2 * beta * size, 0.0, math.ceil(2 * beta * size / ratio) + 1, dtype=torch.float64)
    return LogMeanNet(a, beta, size, radius, exponents, logs, eps, math.log(task.length) / beta / 2)


def _pieces(x: Tensor, nodes: Tensor, values: Tensor) -> Tensor:
    """The piecewise linear function through the nodes: a sum of ReLUs, taken piece by piece."""
    left = (torch.searchsorted(nodes, x.contiguous(), right=True) - 1).clamp(0, len(nodes) - 2)
    slope = (values[left + 1] - values[left]) / (nodes[left + 1] - nodes[left])
    return values[left] + slope * (x - nodes[left])
