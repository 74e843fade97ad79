"""What training makes small, sample by sample: the squared gap, or the cross-entropy of a class. A part to pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]  # a bank's outputs and the targets -> the loss of every sample


def squared(
    output: Float[Tensor, "models batch ..."], target: Float[Tensor, "models batch ..."]
) -> Float[Tensor, "models batch"]:
    """The squared gap, its mean over the outputs where there are several.

    >>> squared(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
    tensor([[0., 4.]])
    """
    gap = (output - target).square()
    return gap if gap.ndim == 2 else gap.mean(dim=-1)


def cross_entropy(
    output: Float[Tensor, "models batch classes"], target: Float[Tensor, "models batch classes"]
) -> Float[Tensor, "models batch"]:
    """-sum_c target_c log softmax(output)_c: the target is a distribution over classes, as a rule on one of them.

    >>> cross_entropy(torch.zeros(1, 1, 2), torch.tensor([[[0.0, 1.0]]]))
    tensor([[0.6931]])
    """
    return -(target * torch.log_softmax(output, dim=-1)).sum(dim=-1)
