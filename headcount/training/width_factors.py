"""Factors by which a wide network's rates and start differ from a narrow one's, so that one learning rate fits both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets import Architecture

if TYPE_CHECKING:
    from headcount.kernels.bank import Bank


@dataclass(frozen=True)
class Factor:
    """What multiplies a parameter's rate and its start; the decay is divided by the rate's, so that rate * decay stays.

    `temperature` is the share of both that belongs to the scores: their inverse temperature sqrt(base head_dim) /
    head_dim in place of head_dim^-1/2, carried by the query. Adam moves t W exactly as it moves W with rates t times
    as large, so a query t times as small with t times the rate is a softmax t times as warm.
    """

    rate: float = 1.0
    start: float = 1.0
    temperature: float = 1.0

    @property
    def decay(self) -> float:
        """What multiplies the weight decay."""
        return 1 / self.rate


@dataclass(frozen=True)
class Widths:
    """The factors of every architecture against a base, by parameter name.

    The rate of a matrix is multiplied by base inputs / inputs; a matrix whose outputs do not grow also starts smaller,
    by the root of that. What has a fixed number of inputs (class token, first encoder matrix, biases) keeps both.
    What stays is how far a step moves every state, not what is learned: where the base learns worse than wider networks
    at small rates and as well at large ones, its best rate is larger all the same (docs/log.md).
    Source: Zhou et al. 2026 (learning rate) uses these rules; derived here for this network.

    >>> factors = widths(Architecture(layers=((2, 4),), width=8)).of(Architecture(layers=((8, 4),), width=32))
    >>> factors["read_out.outer.weight"]
    Factor(rate=0.25, start=0.5, temperature=1.0)
    >>> factors["encoder.inner.weight"], factors["attention.0.key"].decay
    (Factor(rate=1.0, start=1.0, temperature=1.0), 4.0)
    """

    base: Architecture

    def of(self, arch: Architecture) -> dict[str, Factor]:
        """The factors of a network with this architecture."""
        if (arch.depth, arch.outputs) != (self.base.depth, self.base.outputs):
            raise ValueError(
                f"a base of {self.base.depth} layers and {self.base.outputs} outputs has no factors for "
                f"{arch.depth} layers and {arch.outputs} outputs: only widths may differ"
            )
        sizes, base_sizes = _sizes(arch), _sizes(self.base)
        factors = {name: _factor(sizes[name], base_sizes[name]) for name in sizes}
        for layer, ((_, head_dim), (_, least)) in enumerate(zip(arch.layers, self.base.layers, strict=True)):
            name, warmer = f"attention.{layer}.query", math.sqrt(least / head_dim)
            factor = factors[name]
            factors[name] = Factor(factor.rate * warmer, factor.start * warmer, warmer)
        return factors


def widths(base: Architecture) -> Widths:
    """The factors against `base`: the network whose best learning rate is known."""
    return Widths(base)


def stacked_factors(
    bank: Bank, bases: Sequence[Architecture | None]
) -> tuple[Float[Tensor, "models parameters"], Float[Tensor, "models parameters"]]:
    """The factors of the rates and of the start of a bank, beside its `theta`; 1 for a member without a base."""
    rate, start = torch.ones_like(bank.theta), torch.ones_like(bank.theta)
    rates, starts = bank.named(rate), bank.named(start)
    for member, (net, base) in enumerate(zip(bank.nets, bases, strict=True)):
        for name, factor in ({} if base is None else widths(base).of(net.arch)).items():
            rates[name][member] = factor.rate
            starts[name][member] = factor.start
    return rate, start


def _factor(size: tuple[int, int], base: tuple[int, int]) -> Factor:
    (inputs, outputs), (fewer, least) = size, base
    ratio = fewer / inputs
    return Factor(ratio, math.sqrt(ratio) if outputs == least else 1.0)


def _sizes(arch: Architecture) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of every parameter; 1 input where their number does not depend on the architecture."""
    return {name: _ends(name, size) for name, size in arch.reading(token_dim=1).tensors().items()}


def _ends(name: str, size: tuple[int, ...]) -> tuple[int, int]:
    if name.startswith("attention"):
        heads, rows, columns = size
        return (heads * columns, rows) if name.endswith("output") else (columns, heads * rows)
    outputs, *inputs = size
    constant = not inputs or name in ("encoder.inner.weight", "encoder.weight")
    return 1 if constant else inputs[0], outputs
