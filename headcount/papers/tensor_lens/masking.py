"""Are the tokens a map points at the ones that matter? Mask them in its order and see how fast the output moves.

A map is a function of the model and its tokens; the baselines are maps as the operator is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets.recorded import Recording, Tape, parameters_still
from headcount.papers.tensor_lens.operators import operator
from headcount.papers.tensor_lens.subjects import EmbeddedModel, subject_of

ScalarMap = Callable[[nn.Module, Tensor], Tensor]
FRACTIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True)
class MaskingRow:
    """How far the output is from the whole input's when this fraction of the tokens is masked."""

    fraction: float
    masked: int
    change: float


@torch.no_grad()
def masking_curve(
    model: nn.Module,
    x: Float[Tensor, "length embed"],
    order: ScalarMap | Float[Tensor, " length"],
    fractions: Sequence[float] = FRACTIONS,
    *,
    blank: Float[Tensor, " embed"] | None = None,
) -> tuple[MaskingRow, ...]:
    """The change of the output as the tokens that a map ranks highest are replaced by a blank, fraction by fraction.

    `order`: a map (any of `MAPS`, or your own), or its numbers; larger means sooner. `blank`: what a masked token
    becomes (None: 0). The faster the change grows, the better the map found what matters. An exact sum does not make
    a map faithful; this measures whether it is.
    """
    subject = subject_of(model, x)
    ranked = (order if isinstance(order, Tensor) else order(model, x)).argsort(descending=True, stable=True)
    unmasked = subject(subject.x[None])
    rows = []
    for fraction in fractions:
        count = round(fraction * len(x))
        masked = subject.x.clone()
        masked[ranked[:count]] = 0.0 if blank is None else blank
        change = (subject(masked[None]) - unmasked).norm() / unmasked.norm()
        rows.append(MaskingRow(fraction, count, float(change)))
    return tuple(rows)


def by_operator(model: nn.Module, x: Tensor) -> Tensor:
    """|sum of a token's contributions over the places read|: the operator as a map."""
    return operator(model, x).contributions().sum(0).norm(dim=-1)


def gradient(model: nn.Module, x: Tensor) -> Tensor:
    """The length of the gradient of the output's length with respect to each token."""
    return _gradient(subject_of(model, x)).norm(dim=-1)


def gradient_times_input(model: nn.Module, x: Tensor) -> Tensor:
    """|<gradient, token>|."""
    return (_gradient(subject_of(model, x)) * x).sum(-1).abs()


def _gradient(subject: EmbeddedModel) -> Tensor:
    with torch.enable_grad():
        x = subject.x.clone().requires_grad_()
        return torch.autograd.grad(subject(x[None]).norm(), x)[0]


def last_attention(model: nn.Module, x: Tensor) -> Tensor:
    """What the last layer's weights give each token, averaged over heads and places."""
    return _attentions(model, x)[-1].mean(0)


def rollout(model: nn.Module, x: Tensor) -> Tensor:
    """Attention rollout: the product of (weights + I) / 2 over the layers, averaged over places."""
    product = torch.eye(len(x), dtype=x.dtype)
    for weights in _attentions(model, x):
        square = weights[: len(x)] if len(weights) >= len(x) else None
        if square is None:  # the read-out is the only query
            return (weights @ product).mean(0)
        product = (square + torch.eye(len(x), dtype=x.dtype)) @ product / 2
    return product.mean(0)


def at_random(model: nn.Module, x: Tensor) -> Tensor:
    """No map: an order drawn from the tokens' own digits, the same for the same input."""
    seed = int(x.double().abs().sum() * 1e6) % 2**31
    return torch.rand(len(x), generator=torch.Generator().manual_seed(seed))


def _attentions(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The weights of every attention over the tokens, averaged over heads: (queries, length)."""
    subject, tape = subject_of(model, x), Tape()
    with parameters_still(subject.model), torch.enable_grad(), Recording(tape):
        subject(subject.x.clone()[None].requires_grad_())
    recorded = [v for values in tape.values.values() for v in values if isinstance(v, Tensor)]
    weights = [v for v in recorded if getattr(v, "_lens", "") == "softmax" and v.shape[-1] == len(x)]
    if not weights:
        raise ValueError("no attention over the tokens was seen, so there is nothing to roll out")
    return [w.reshape(-1, *w.shape[-2:]).mean(0) for w in weights]


MAPS: dict[str, ScalarMap] = {
    "operator": by_operator,
    "rollout": rollout,
    "last attention": last_attention,
    "gradient": gradient,
    "gradient x input": gradient_times_input,
    "random": at_random,
}
