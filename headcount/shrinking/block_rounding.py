"""Weights rounded in blocks, as quantised files keep them: a scale and a least value for every 32 of a row (Q4_1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

BLOCK, LEVELS, HEADER = 32, 15, 4  # weights that share a scale; steps between least and largest; bytes of both numbers


def rounded_blocks(weight: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """The nearest m + d q with q = 0 .. 15, m and d kept in 16 bits, of each block of a row; the last may be shorter.

    >>> rounded_blocks(torch.tensor([[0.0, 1.0, 2.2, 15.0]]))
    tensor([[ 0.,  1.,  2., 15.]])
    """
    rows, columns = weight.shape
    more = -columns % BLOCK
    last = weight[:, -1:].expand(-1, more)  # a repeated number changes neither the least nor the largest
    blocks = torch.cat([weight, last], dim=1).view(rows, -1, BLOCK)
    least = blocks.amin(2, keepdim=True)
    scale = ((blocks.amax(2, keepdim=True) - least) / LEVELS).half().to(weight)
    least = least.half().to(weight)
    level = ((blocks - least) / scale.clamp_min(torch.finfo(torch.float16).tiny)).round().clamp(0, LEVELS)
    return (least + scale * level).flatten(1)[:, :columns]


def block_bytes(rows: int, columns: int) -> int:
    """Bytes of a matrix in such blocks.

    >>> block_bytes(576, 576)
    207360
    """
    return rows * -(-columns // BLOCK) * (HEADER + BLOCK // 2)


@contextmanager
def in_blocks(matrices: Sequence[nn.Linear]) -> Iterator[None]:
    """These matrices rounded in blocks, and as they were afterwards."""
    with restored(m.weight for m in matrices) as weights:
        for weight in weights:
            weight.copy_(rounded_blocks(weight))
        yield


@contextmanager
def restored(numbers: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Weights that may be changed inside, each memory once; afterwards they are what they were."""
    once = list({p.data_ptr(): p for p in numbers if p.numel()}.values())
    before = [p.detach().clone() for p in once]
    with torch.no_grad():
        try:
            yield once
        finally:
            for changed, old in zip(once, before, strict=True):
                changed.copy_(old)
