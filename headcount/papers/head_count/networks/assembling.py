"""A network of the feed-forwards that a construction has worked out, its heads still to be wired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from headcount.certificates.network import ClassTokenNet, NetworkShape
from headcount.certificates.wiring import Hidden, composed

FeedForward = Hidden | Sequence[tuple[Tensor, Tensor]]
"""Units in blocks, or (weight, bias) of every linear map, first to last."""


def assembled(
    encoder: FeedForward,
    layers: tuple[tuple[int, int], ...],
    betas: tuple[float, ...],
    read_out: FeedForward,
    *between: FeedForward,
    asks: Mapping[int, float] | None = None,
) -> ClassTokenNet:
    """The network of these feed-forwards with heads at zero; `asks` are numbers that the class token begins with."""
    parts = [composed(part) if isinstance(part, Hidden) else part for part in (encoder, *between, read_out)]
    first, *middle, last = ((maps[0][0].shape[1], *(len(bias) for _, bias in maps)) for maps in parts)
    net = ClassTokenNet(NetworkShape(encoder=first, layers=layers, betas=betas, read_out=last, between=tuple(middle)))
    for part, maps in zip((net.encoder, *net.between, net.read_out), parts, strict=True):
        part.fill(*maps)  # type: ignore[operator]
    for place, number in (asks or {}).items():
        net.cls[place] = number
    return net
