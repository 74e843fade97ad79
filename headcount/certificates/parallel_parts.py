"""Certified networks side by side, and an outer function of what they find: one network, heads next to each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.network import ClassTokenNet, NetworkShape, ReluNet


@dataclass(frozen=True)
class SideBySideShape:
    """The networks side by side, and the dimensions of the feed-forward that reads what each of them gives."""

    parts: tuple[NetworkShape, ...]
    outer: tuple[int, ...]

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The layers of the one network that they make: a shallow part waits for the last layers."""
        depth = max(len(part.layers) for part in self.parts)
        back = range(-depth, 0)  # counted from the last
        stacked = [[part.layers[i] for part in self.parts if len(part.layers) >= -i] for i in back]
        return tuple((sum(h for h, _ in layer), max(n for _, n in layer)) for layer in stacked)

    @property
    def embed_dim(self) -> int:
        """The width of the state: each part has its own coordinates."""
        return sum(part.embed_dim for part in self.parts)


class SideBySide(nn.Module):
    """x -> outer(net_1(x), ..., net_D(x)), in float64.

    Each part keeps its own coordinates of the state and its own heads, so all of them are one transformer whose
    matrices are block-diagonal; computed apart, every part's arithmetic is that of its own certificate.

    >>> shape = NetworkShape(encoder=(3, 4, 2), layers=((1, 2),), betas=(5.0,), read_out=(2, 1, 1))
    >>> both = SideBySide(SideBySideShape((shape, shape), (2, 3, 1)))
    >>> both(torch.zeros(5, 7, 2)).shape, both.shape.layers
    (torch.Size([5]), ((2, 2),))
    """

    def __init__(self, shape: SideBySideShape) -> None:
        super().__init__()
        self.shape = shape
        self.parts = nn.ModuleList(ClassTokenNet(part) for part in shape.parts)
        self.outer = ReluNet(shape.outer)
        self.requires_grad_(False)

    @classmethod
    def of(cls, parts: list[ClassTokenNet], outer: ReluNet) -> SideBySide:
        """These very networks."""
        net = cls(SideBySideShape(tuple(part.shape for part in parts), outer.sizes))
        net.parts, net.outer = nn.ModuleList(parts), outer
        return net.requires_grad_(False)

    @property
    def feedforward_parameters(self) -> int:
        """Weights and biases of the feed-forwards, zeros between the parts not counted."""
        return sum(part.feedforward_parameters for part in self.shape.parts) + self.outer.parameters_count

    def found(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch parts"]:
        """What each part gives."""
        return torch.stack([part(x) for part in self.parts], dim=1)

    def forward(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return self.outer(self.found(x))[:, 0]
