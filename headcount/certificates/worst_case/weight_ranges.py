"""How tokens share attention: the range of softmax weights in a box, and of what they average.

Where scores are steep, weights pass from one token to another within a sliver of the domain. There slopes say little
of a small box, and this road more: weights and tokens are taken to move each by itself,

    sum_t p_t v(x_t) - sum_t q_t v(m_t) = sum_t p_t (v(x_t) - v(m_t)) + sum_t (p_t - q_t) v(m_t),  sum p = sum q = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.intervals import Interval

TINY = 1e-13  # absolute, on sums of numbers between 0 and 1
WIDE = 0.25  # where a weight is known no better than this, the middle of its range is looked at, not that of the box
LITTLE = 1e-300


@dataclass(frozen=True, eq=False)
class WeightRanges:
    """Softmax weights between `least` and `most`, one for every token and head, that sum to one over the tokens."""

    least: Float[Tensor, "models boxes length heads"]
    most: Float[Tensor, "models boxes length heads"]

    @classmethod
    def of(cls, weights: Interval) -> WeightRanges:
        """Weights in these ranges, and what their sum leaves to each.

        >>> known = Interval(torch.tensor([0.2, 0.5]).view(1, 1, 2, 1), torch.tensor([0.1, 0.5]).view(1, 1, 2, 1))
        >>> found = WeightRanges.of(known)
        >>> [[round(float(v), 6) for v in end.flatten()] for end in (found.least, found.most)]
        [[0.1, 0.7], [0.3, 0.9]]
        """
        low, high = (weights.mid - weights.rad).clamp_min(0), (weights.mid + weights.rad).clamp_max(1)
        left = 1 - high.sum(2, keepdim=True) + high - TINY
        most = 1 - low.sum(2, keepdim=True) + low + TINY
        return cls(torch.maximum(low, left), torch.minimum(high, most))

    @property
    def width(self) -> Tensor:
        """How far apart the ends are."""
        return (self.most - self.least).clamp_min(0)

    def middle(self, even: Tensor) -> tuple[Tensor, Tensor]:
        """Weights to compare with, and where they are those of the middle of the box: where all are known well."""
        width = self.width
        part = (1 - self.least.sum(2, keepdim=True)) / width.sum(2, keepdim=True).clamp_min(LITTLE)
        centre = self.least + part.clamp(0, 1) * width
        well = (width < WIDE).flatten(2).all(2)
        return torch.where(well[:, :, None, None], even, centre), well

    def moved(self, at: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """How far means of `values` can lie below and above their mean under the weights `at`.

        Differences of weights sum to zero, so any number may be taken off the values: their mean by the widths.
        """
        width = self.width[..., None] + TINY
        off = values - (width * values).sum(2, keepdim=True) / width.sum(2, keepdim=True)
        up, down = ((self.most - at).clamp_min(0) + TINY)[..., None], ((at - self.least).clamp_min(0) + TINY)[..., None]
        more, less = off.clamp_min(0), off.clamp_max(0)
        return (down * more - up * less).sum(2), (up * more - down * less).sum(2)
