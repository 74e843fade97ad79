"""Normalised descent on attention weights, many instances as one batched run. It knows no support vector machine.

    W-training: W <- W - rate G / |G|.      (K, Q)-training: W = K Q^T, each factor by its own normalised gradient.

Once a softmax has chosen, all that is left of its gradient is its tail, and in float64 a tail below 1e-16 of the peak
is lost: the plain gradient then is noise, and more steps make the direction worse. `from_tails` computes the same
gradient from differences of logits, scaled by the largest tail, which normalised descent cannot see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.papers.attention_svm.selection import Instances
from headcount.refusals import at_least_one, positive

TINY = 2.2e-16
START = 0.1  # spread of K and Q at the first step
Slope = Callable[[Instances, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SelectionPath:
    """Where training went: W at the steps looked at, what the softmax chose there and how surely, and the loss."""

    steps: tuple[int, ...]
    weights: Float[Tensor, "looks instances token_dim token_dim"]
    chosen: Int[Tensor, "looks instances sequences"]
    peaks: Float[Tensor, "looks instances"]
    losses: Float[Tensor, "looks instances"]

    @property
    def final(self) -> Float[Tensor, "instances token_dim token_dim"]:
        """W at the end."""
        return self.weights[-1]


def logits(data: Instances, weights: Tensor) -> Float[Tensor, "instances sequences length"]:
    """X_i W z_i."""
    return torch.einsum("istd,ide,ise->ist", data.tokens, weights, data.queries)


def outputs(data: Instances, weights: Tensor) -> Float[Tensor, "instances sequences"]:
    """f(X_i) = v^T X_i^T softmax(X_i W z_i)."""
    values = torch.einsum("istd,id->ist", data.tokens, data.read_out)
    return (torch.softmax(logits(data, weights), dim=-1) * values).sum(dim=-1)


def loss(data: Instances, weights: Tensor) -> Float[Tensor, " instances"]:
    """The mean of log(1 + exp(-Y_i f(X_i)))."""
    return torch.nn.functional.softplus(-data.labels * outputs(data, weights)).mean(dim=-1)


def plain_gradient(data: Instances, weights: Tensor) -> Float[Tensor, "instances token_dim token_dim"]:
    """The gradient of the loss as written, by automatic differentiation."""
    w = weights.detach().requires_grad_()
    with torch.enable_grad():
        (g,) = torch.autograd.grad(loss(data, w).sum(), w)
    return g


def from_tails(data: Instances, weights: Tensor) -> Float[Tensor, "instances token_dim token_dim"]:
    """The direction of the same gradient, exact however far the softmax has saturated.

    With c the peak and p_t the weight of token t, dL/dlogit_t is proportional to p_t (g_t - f), g_t = v.x_t, and the
    peak's part is minus the sum of the others: G = sum_i l'_i sum_{t != c} p_t (g_t - f) (x_t - x_c) z_i^T. Weights
    enter as exp(log p_t - m) with m the largest log p_t over an instance's tokens other than peaks.
    """
    log_p = torch.log_softmax(logits(data, weights), dim=-1)
    peak = log_p.argmax(dim=-1, keepdim=True)
    values = torch.einsum("istd,id->ist", data.tokens, data.read_out)
    above = values - values.gather(2, peak)  # g_t - g_c, zero at the peak
    f = (log_p.exp() * above).sum(dim=-1)  # f - g_c
    slope = -data.labels * torch.sigmoid(-data.labels * (f + values.gather(2, peak)[..., 0]))
    tails = log_p.scatter(2, peak, -torch.inf)
    tails = (tails - tails.amax(dim=(1, 2), keepdim=True)).exp()
    pull = slope[..., None] * tails * (above - f[..., None])
    moved = data.tokens - data.tokens.gather(2, peak[..., None].expand(-1, -1, -1, data.tokens.shape[-1]))
    return torch.einsum("ist,istd,ise->ide", pull, moved, data.queries)


def select(
    data: Instances,
    *,
    factored: bool = False,
    steps: int = 2000,
    rate: float = 0.1,
    looks: int = 16,
    slope: Slope | None = None,
    generator: torch.Generator | None = None,
) -> SelectionPath:
    """Train W, or K and Q with W = K Q^T, on every instance at once by normalised descent.

    W starts at 0; K and Q start normal times 0.1, since at K = Q = 0 nothing moves. `slope` is the gradient: from
    tails for W. For K and Q it is the plain one: their product moves farther with every step, so that with exact tails
    logits come to jump by more than a softmax resolves (cosine .984 to the nuclear solution after 2,000 steps against
    .997), while the plain gradient comes to rest where float64 does.
    Source: Tarzanagh et al. 2023, W-training and (K, Q)-training.

    >>> from headcount.papers.attention_svm.selection import Selection
    >>> data = Selection(2, 3, 4).sample(2, generator=torch.Generator().manual_seed(0))
    >>> path = select(data, steps=300)
    >>> bool((path.losses[-1] < path.losses[0]).all()), path.weights.shape
    (True, torch.Size([16, 2, 4, 4]))
    """
    at_least_one(steps=steps, looks=looks)
    positive(rate=rate)
    chosen = slope or (plain_gradient if factored else from_tails)
    d = data.tokens.shape[-1]
    size = (len(data), d, d)
    if factored:
        parts = [START * torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2)]
    else:
        parts = [torch.zeros(size, dtype=torch.float64)]
    at = sorted({round(steps * (i + 1) / looks) for i in range(looks)} - {0})
    iterates: list[Tensor] = []
    for step in range(1, steps + 1):
        g = chosen(data, _product(parts))
        for p, gradient in zip(parts, _gradients(parts, g), strict=True):
            p -= rate * gradient / (gradient.norm(dim=(1, 2), keepdim=True) + TINY)
        if step in at:
            iterates.append(_product(parts).clone())
    return _path(data, tuple(at), torch.stack(iterates))


def _product(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else parts[0] @ parts[1].mT


def _gradients(parts: list[Tensor], g: Tensor) -> list[Tensor]:
    """Those of the parts, by the chain rule; a vanishing decay keeps a factor's gradient from being exactly 0."""
    if len(parts) == 1:
        return [g]
    K, Q = parts
    return [g @ Q + 2 * TINY * K, g.mT @ K + 2 * TINY * Q]


def _path(data: Instances, steps: tuple[int, ...], weights: Tensor) -> SelectionPath:
    log_p = torch.stack([torch.log_softmax(logits(data, w), dim=-1) for w in weights])
    peak = log_p.max(dim=-1)
    losses = torch.stack([loss(data, w) for w in weights])
    return SelectionPath(steps, weights, peak.indices, peak.values.exp().amin(dim=-1), losses)
