"""Random numbers by counter: the same on every device, whatever else the bank holds.

A member's batches depend on its own seed and the epoch alone, so it trains the same in any bank.
"""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Int
from torch import Tensor

AHEAD = 2**23  # numbers sorted in one call: a sort of a few costs a GPU nearly as much


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed from a few labels, so that streams with different labels never coincide.

    >>> seed_of("train", 0) != seed_of("validation", 0)
    True
    """
    text = ":".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def epoch_order(seeds: Int[Tensor, " models"], epoch: Tensor | int, samples: int) -> Int[Tensor, "models samples"]:
    """A permutation of the samples for every member: the order in which this epoch visits them.

    Sorts hashed counters, which needs no generator state and so can be recorded in a CUDA graph.

    >>> order = epoch_order(torch.tensor([1, 2]), 0, 5)
    >>> order.sort(dim=1).values.tolist()
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    """
    counter = torch.arange(samples, device=seeds.device, dtype=torch.int64)
    stream = _mix(seeds + _GOLDEN * torch.as_tensor(epoch, device=seeds.device, dtype=torch.int64))
    keys = _mix(stream[:, None] + _GOLDEN * (counter + 1))
    return keys.argsort(dim=1)


class Orders:
    """`epoch_order` of one epoch after another, several drawn in one sort.

    >>> seeds = torch.tensor([1, 2])
    >>> orders = Orders(seeds, 5, epochs=100)
    >>> all(torch.equal(orders[e], epoch_order(seeds, e, 5)) for e in (0, 1, 7, 99))
    True
    """

    def __init__(self, seeds: Int[Tensor, " models"], samples: int, epochs: int) -> None:
        self.seeds, self.samples = seeds, samples
        self.ahead = max(1, min(epochs, 32, AHEAD // (samples * len(seeds))))
        self.first, self.drawn = -1, torch.empty(0)

    def __getitem__(self, epoch: int) -> Int[Tensor, "models samples"]:
        first = epoch - epoch % self.ahead
        if first != self.first:
            epochs = torch.arange(first, first + self.ahead, device=self.seeds.device)
            many = epoch_order(self.seeds.repeat(self.ahead), epochs.repeat_interleave(len(self.seeds)), self.samples)
            self.first, self.drawn = first, many.view(self.ahead, len(self.seeds), self.samples)
        return self.drawn[epoch - first]


_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer: the increment of splitmix64
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685


def _mix(z: Tensor) -> Tensor:
    """The finaliser of splitmix64, in wrapping signed arithmetic."""
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << (64 - bits)) - 1)  # logical, not arithmetic
