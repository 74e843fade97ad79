"""Dropout by counter: which unit is left out is a hash of who, when and where, the same in torch and in C++.

A member's masks depend on its own seed, the step, the layer, the site, the sample and the unit alone: not on the bank,
the order of a batch, its padding, the device or the threads. With `mix` a permutation of the 32-bit numbers,

    key = mix(mix(mix(golden + low bits of seed) + high bits) + step)
    row = mix(mix(mix(key + 4 layer + site) + sample) + token),   h = mix(row + unit)

and the unit is left out where h < dropout 2^32. `cpp/dropping.h` does the same from the key on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

WEIGHTS, HEARD, HIDDEN, SAID = range(4)  # sites: attention weights, attention's output, hidden units, their output
FAR = 1 << 16  # from the units of one head to those of the next: more than tokens of a sequence
_LOW = (1 << 32) - 1
_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: 0, which `mix` leaves where it is, is the key of no small seed


def dropping_keys(seeds: Sequence[int] | Int[Tensor, " models"], step: Tensor | int) -> Int[Tensor, " models"]:
    """The key of every member's masks at a step (a tensor where the step is recorded on a GPU).

    >>> dropping_keys([0, 1], 0).tolist() != dropping_keys([0, 1], 1).tolist()
    True
    """
    seed = torch.as_tensor(seeds, dtype=torch.int64)
    count = torch.as_tensor(step, device=seed.device).to(torch.int64)
    return _mix(_mix(_mix(seed + _GOLDEN) + ((seed >> 32) & _LOW)) + count)


def factors(
    keys: Int[Tensor, " models"],
    place: tuple[int, int],
    samples: Int[Tensor, "models batch"],
    tokens: int,
    units: Int[Tensor, " units"],
    dropout: float,
    dtype: torch.dtype,
) -> Float[Tensor, "models batch tokens units"]:
    """What every unit of every token is multiplied by: 0 where it is left out, 1 / (1 - dropout) where it stays.

    A place is a layer and a site in it.

    >>> where, sample = torch.arange(10_000), torch.tensor([[5]])
    >>> drawn = factors(dropping_keys([7], 3), (0, HIDDEN), sample, 20, where, 0.25, torch.float64)
    >>> round((drawn == 0).double().mean().item(), 2), sorted(set((drawn * 3).flatten().tolist()))
    (0.25, [0.0, 4.0])
    """
    layer, site = place
    stream = _mix(_mix(keys + 4 * layer + site)[:, None] + samples)
    row = _mix(stream[..., None] + torch.arange(tokens, device=keys.device))
    return (_mix(row[..., None] + units) >= dropping_limit(dropout)).to(dtype) / (1 - dropout)


def dropping_limit(dropout: float) -> int:
    """Hashes below it are left out."""
    return min(round(dropout * 2**32), _LOW)


def weight_units(heads: int, tokens: int, device: torch.device) -> Int[Tensor, " units"]:
    """The units of a token's attention weights, head by head: numbered alike however long the batch is padded."""
    return (FAR * torch.arange(heads, device=device)[:, None] + torch.arange(tokens, device=device)).flatten()


def _mix(x: Tensor) -> Tensor:
    """A permutation of the 32-bit numbers that moves half of the bits when one is changed; in wrapping arithmetic.

    Source: C. Wellons, "Prospecting for hash functions" (2018): lowbias32.
    """
    x = x & _LOW
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)
