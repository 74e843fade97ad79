"""The exact range of a softmax-weighted mean whose scores and values are each known up to an interval."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_WEIGHT = 1e-280  # far above the numbers that float64 keeps with fewer digits


def softmax_mean_top(
    least: Float[Tensor, "*batch length"], most: Float[Tensor, "*batch length"], values: Float[Tensor, "*batch length"]
) -> Float[Tensor, "*batch"]:
    """The largest mean of `values` under positive weights between `least` and `most`, normalised to one.

    The mean is monotone in each weight by itself, so it is largest at a vertex; there the weights of values above the
    mean are as large as may be, the others as small. Sorted by value that leaves length + 1 candidates, of which the
    largest is the answer. Source: the vertex argument of Vertex-Softmax (arXiv 2605.10974).

    >>> softmax_mean_top(torch.tensor([1.0, 1.0]), torch.tensor([3.0, 3.0]), torch.tensor([0.0, 1.0]))
    tensor(0.7500)
    """
    values, order = values.sort(-1, descending=True)
    low, high = least.gather(-1, order), most.gather(-1, order)
    # From all weights small on: raise that of one value after the other, the largest first.
    raised = high - low
    above = (low * values).sum(-1, keepdim=True) + (raised * values).cumsum(-1)
    below = low.sum(-1, keepdim=True) + raised.cumsum(-1)
    # Weights so small that they have lost digits say nothing; no mean lies above the largest value.
    return torch.where(below > LEAST_WEIGHT, above / below, values[..., :1]).amax(-1)


def softmax_mean_range(
    least: Float[Tensor, "*batch length"],
    most: Float[Tensor, "*batch length"],
    low: Float[Tensor, "*batch length"],
    high: Float[Tensor, "*batch length"],
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """The range of the mean of numbers between `low` and `high` under such weights.

    >>> weights, values = (torch.ones(2), torch.ones(2)), (torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]))
    >>> softmax_mean_range(*weights, *values)
    (tensor(0.5000), tensor(0.7500))
    """
    return -softmax_mean_top(least, most, -low), softmax_mean_top(least, most, high)
