"""A trained network in the units of its target: what it was trained on was scaled to mean 0 and variance 1."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets.architecture import Architecture
from headcount.nets.transformer import Transformer


class TargetUnits(nn.Module):
    """x -> spread net(x) + mean, in the dtype of the network.

    >>> import torch
    >>> net = Transformer(Architecture(layers=((1, 2),), width=4), token_dim=1, seed=0)
    >>> x = torch.zeros(2, 3, 1)
    >>> torch.equal(TargetUnits(net, mean=5.0, spread=2.0)(x), 2 * net(x) + 5)
    True
    """

    def __init__(self, net: Transformer, mean: float, spread: float) -> None:
        super().__init__()
        self.net, self.mean, self.spread = net, mean, spread

    @property
    def arch(self) -> Architecture:
        """The architecture of the network."""
        return self.net.arch

    def forward(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch ..."]:
        return self.spread * self.net(x.to(self.net.cls.dtype)) + self.mean
