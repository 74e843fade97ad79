"""What rounding the factors of every product to float16 does to a bank's own gradient, member by member.

The plain bank is computed in float64, each factor of each product (forwards and backwards) rounded to the 11 digits of
float16, up or down at random so that the mean is right. The largest gap of some such draws is what half precision does
to a member: a kernel whose gap is larger by more than a small factor has a fault. Where a ReLU's argument lies within a
rounding of zero, or the gradient nearly cancels, it is far above one rounding, whoever computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headcount.kernels.backend import Problem, reference
from headcount.kernels.bank import Bank

DIGITS = 11  # of float16, the leading one among them
_aten = torch.ops.aten
FACTORS = {_aten.mm.default: 0, _aten.bmm.default: 0, _aten.addmm.default: 1, _aten.baddbmm.default: 1}


class RoundedFactors(TorchDispatchMode):
    """Within it, products have factors of 11 binary digits."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator, self.products = generator, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FACTORS:
            first, self.products = FACTORS[func], self.products + 1
            two = [rounded(factor, self.generator) for factor in args[first : first + 2]]
            args = (*args[:first], *two, *args[first + 2 :])
        return func(*args, **(kwargs or {}))


def rounded(x: Tensor, generator: torch.Generator) -> Tensor:
    """x to 11 binary digits, up or down with the probabilities that keep its mean; no number is too small or large.

    >>> rounded(torch.tensor([1.0, -3.0, 2**-30, 1 + 2**-20]), torch.Generator().manual_seed(0)) - 1
    tensor([ 0., -4., -1.,  0.])
    """
    part, exponent = torch.frexp(x)
    noise = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return torch.ldexp((part * 2**DIGITS + noise).floor() / 2**DIGITS, exponent)


def rounded_gaps(problem: Problem, bank: Bank, batch: Any, true: Tensor, seed: int = 0) -> Iterator[Tensor]:
    """|g - g*| / |g*| of every member, draw after draw; the bank, the batch and g* (`true`) in float64."""
    generator = torch.Generator(bank.theta.device).manual_seed(seed)
    while True:
        with RoundedFactors(generator):
            gradient = reference.gradient(problem, bank, batch)
        yield (gradient - true).norm(dim=1) / true.norm(dim=1).clamp(min=1e-20)
