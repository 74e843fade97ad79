"""What became of a language model, in its user's terms: perplexity over the original's, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.fits.student import half_width
from headcount.papers.allocation.slopes import next_token_losses


@dataclass(frozen=True)
class PairedLoss:
    """Perplexity over the original's on the same windows: exp of the mean difference, 95% interval over windows."""

    ratio: float
    low: float
    high: float
    original: float  # perplexity
    windows: int
    tokens: int

    @property
    def loss(self) -> float:
        """How much of perplexity is lost, as a share."""
        return self.ratio - 1

    @property
    def sentence(self) -> str:
        """The figure with its interval, in words.

        >>> PairedLoss(1.031, 1.026, 1.036, 25.4, 40, 20_480).sentence
        'perplexity x 1.031 [1.026, 1.036] of 25.4 on 20,480 tokens'
        """
        spread = f"[{self.low:.3f}, {self.high:.3f}]" if math.isfinite(self.low) else "(one window: no interval)"
        return f"perplexity x {self.ratio:.3f} {spread} of {self.original:.3g} on {self.tokens:,} tokens"

    def as_row(self) -> dict[str, float]:
        return asdict(self)


@torch.no_grad()
def losses_of(model: nn.Module, windows: Int[Tensor, "windows length"]) -> Float[Tensor, " windows"]:
    """Every window's mean loss, in nats per token."""
    return next_token_losses(model, windows).double()


def compared(losses: Tensor | Sequence[float], originals: Tensor | Sequence[float], length: int) -> PairedLoss:
    """The two models' losses of the same windows, window by window: most of the text's own difficulty cancels.

    >>> compared([1.1, 1.3], [1.0, 1.2], length=8).ratio
    1.1051709180756477
    """
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (losses, originals))
    change, count = a - b, len(a)
    mean = float(change.mean())
    wide = half_width(float(change.std()), count) if count > 1 else math.nan
    low, high = math.exp(mean - wide), math.exp(min(mean + wide, 700.0))
    return PairedLoss(math.exp(mean), low, high, math.exp(float(b.mean())), count, count * length)
