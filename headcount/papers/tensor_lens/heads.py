"""What the heads of our own networks do: what each moves to the answer, and what is lost without it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets import Transformer


@dataclass(frozen=True)
class HeadScore:
    """One head: the part of the answer that passes through it, and the squared change without it over the variance."""

    layer: int
    head: int
    moved: float
    ablation: float

    def as_row(self) -> dict[str, object]:
        """The fields for a table."""
        return asdict(self)


def head_scores(net: Transformer, x: Float[Tensor, "batch length token_dim"]) -> tuple[HeadScore, ...]:
    """Every head's score on a batch of inputs.

    `moved` = mean of |<gradient of the answer at the head's output, the output>| over mean |answer|, the later layers
    as they are; `ablation` = mean squared change of the answer without the head, over the variance of the answer.
    """
    scores = list[HeadScore]()
    for layer, attend in enumerate(net.attention):
        parameter: Any = attend.output
        output_weight = parameter.detach()

        def answer(gates: Tensor, layer: int = layer, weight: Tensor = output_weight) -> Tensor:
            output = {f"attention.{layer}.output": weight * gates[:, None, None]}
            return torch.func.functional_call(net, output, (x,)).reshape(len(x), -1).sum(1)

        every, off = (
            torch.ones(len(output_weight), dtype=output_weight.dtype),
            torch.eye(len(output_weight), dtype=output_weight.dtype),
        )
        with torch.no_grad():
            full, without = answer(every), torch.stack([answer(every - one) for one in off])
        through = torch.autograd.functional.jacobian(answer, every)
        moved = torch.as_tensor(through).abs().mean(0) / (full.abs().mean() or 1.0)
        lost = (without - full).square().mean(1) / (full.var(unbiased=False) or 1.0)
        rows = zip(moved.tolist(), lost.tolist(), strict=True)
        scores += [HeadScore(layer + 1, head + 1, *row) for head, row in enumerate(rows)]
    return tuple(scores)
