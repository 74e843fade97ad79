"""What the heads of our own networks do: what each moves to the answer, and what is lost without it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets import Transformer

__all__ = ["HeadScore", "head_scores"]


@dataclass(frozen=True)
class HeadScore:
    """One head: the part of the answer that passes through it, and the squared change without it over the variance."""

    layer: int
    head: int
    moved: float
    ablation: float

    def as_row(self) -> dict[str, Any]:
        """The fields for a table."""
        return asdict(self)


def head_scores(net: Transformer, x: Float[Tensor, "batch length token_dim"]) -> tuple[HeadScore, ...]:
    """Every head's score on a batch of inputs.

    `moved` = mean of |<gradient of the answer at the head's output, the output>| over mean |answer|, the later layers
    as they are; `ablation` = mean squared change of the answer without the head, over the variance of the answer.
    """
    with torch.no_grad():
        answer = net(x)
    spread = float(answer.var(unbiased=False)) or 1.0
    scores = []
    for layer, attend in enumerate(net.attention):
        parameter: Any = attend.output
        kept = parameter.detach().clone()
        gates = torch.ones(len(kept), dtype=kept.dtype, requires_grad=True)
        for head in range(len(kept)):
            off = torch.ones(len(kept), dtype=kept.dtype)
            off[head] = 0.0
            without = _with_output(net, layer, kept * off[:, None, None], x)
            scores.append([layer + 1, head + 1, 0.0, float((without - answer).square().mean()) / spread])
        with torch.enable_grad():
            through = _with_output(net, layer, kept * gates[:, None, None], x, graph=True)
            for one in range(len(x)):
                part = torch.autograd.grad(through[one].sum(), gates, retain_graph=True)[0]
                for head in range(len(kept)):
                    scores[-len(kept) + head][2] += float(part[head].abs()) / (float(answer.abs().sum()) or 1.0)
    return tuple(HeadScore(*row) for row in scores)


def _with_output(net: Transformer, layer: int, output: Tensor, x: Tensor, *, graph: bool = False) -> Tensor:
    with torch.set_grad_enabled(graph):
        return torch.func.functional_call(net, {f"attention.{layer}.output": output}, (x,))
