"""Tokens that enter by one matrix, forwards and backwards: batched products, as fast as memory is read and written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from headcount.kernels.cuda.sublayers import Rows

PARTS = 32  # of a member's samples, whose gradients are made side by side and added


@dataclass(frozen=True)
class Embedding:
    """W x + b for every token: where the matrix and the bias begin in a member's row, and their sizes."""

    weight: int
    bias: int
    inputs: int
    outputs: int

    def forward(self, rows: Rows, x: Tensor) -> Tensor:
        """The states (models, batch, length, outputs); the bias is a column beside a feature that is one."""
        end = self.weight + self.outputs * self.inputs
        matrix = rows.theta[:, self.weight : end].view(-1, self.outputs, self.inputs)
        bias = rows.theta[:, self.bias : self.bias + self.outputs, None]
        entered = torch.bmm(_with_one(x).flatten(1, 2), torch.cat([matrix, bias], dim=2).mT)
        return entered.view(*x.shape[:-1], -1)

    def backward(self, rows: Rows, x: Tensor, slope: Tensor, deeper: bool = False) -> None:
        """The parameters' gradients into the first partial gradient; nothing is below."""
        models, parts = len(x), next(n for n in range(min(PARTS, x.shape[1]), 0, -1) if x.shape[1] % n == 0)
        inputs, slopes = (t.reshape(models * parts, -1, t.shape[-1]) for t in (_with_one(x), slope))
        gradient = torch.bmm(slopes.mT, inputs).view(models, parts, self.outputs, -1).sum(dim=1)
        end = self.weight + self.outputs * self.inputs
        rows.share[:, 0, self.weight : end] = gradient[..., :-1].flatten(1)
        rows.share[:, 0, self.bias : self.bias + self.outputs] = gradient[..., -1]


def _with_one(x: Tensor) -> Tensor:
    return pad(x, (0, 1), value=1.0)
