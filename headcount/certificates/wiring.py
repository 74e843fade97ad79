"""Laying out a network by hand: named coordinates of the state, feed-forwards unit by unit, heads row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headcount.certificates.relu import Hinges, interpolant
from headcount.nets.transformer import Attention

Row = Mapping[int, float]  # a linear form: coordinate -> weight
Pair = tuple[Tensor, Tensor]  # (weight, bias) of a linear map


class Layout:
    """Names for the coordinates of a state.

    >>> at = Layout(x=2, score=1)
    >>> at.size, at["x"], at["score"]
    (3, [0, 1], [2])
    """

    def __init__(self, **sizes: int) -> None:
        self.places: dict[str, list[int]] = {}
        self.size = 0
        for name, size in sizes.items():
            self.places[name] = list(range(self.size, self.size + size))
            self.size += size

    def __getitem__(self, name: str) -> list[int]:
        return self.places[name]


class Hidden:
    """A two-layer ReLU network given in blocks of units: each reads one linear form and writes into some outputs.

    >>> double = Hidden(1, 1)
    >>> double.linear({0: 1.0}, {0: 2.0})
    >>> len(double.maps()[0][1])
    2
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.blocks: list[tuple[Row, Tensor, Tensor, Row]] = []
        self.offset = torch.zeros(outputs, dtype=torch.float64)

    @property
    def width(self) -> int:
        """How many hidden units there are."""
        return sum(len(biases) for _, biases, _, _ in self.blocks)

    def unit(self, reads: Row, bias: float, writes: Row) -> None:
        """relu(<reads, input> + bias), times `writes`, into the outputs."""
        one = torch.ones(1, dtype=torch.float64)
        self.blocks.append((reads, bias * one, one, writes))

    def linear(self, reads: Row, writes: Row) -> None:
        """The linear form itself, as relu(z) - relu(-z)."""
        self.unit(reads, 0.0, writes)
        self.unit(_times(reads, -1.0), 0.0, _times(writes, -1.0))

    def hinges(self, reads: Row, part: Hinges, writes: Row) -> None:
        """A piecewise linear function of a linear form: one unit for each knot."""
        self.blocks.append((reads, -part.knots, part.weights, writes))
        for place, weight in writes.items():
            self.offset[place] += part.offset * weight

    def constant(self, writes: Row) -> None:
        """The same number for every input."""
        for place, weight in writes.items():
            self.offset[place] += weight

    def maps(self) -> tuple[Pair, Pair]:
        """(weight, bias) of both linear maps."""
        inner = torch.zeros(self.width, self.inputs, dtype=torch.float64)
        outer = torch.zeros(self.outputs, self.width, dtype=torch.float64)
        bias = torch.cat([biases for _, biases, _, _ in self.blocks])
        start = 0
        for reads, biases, weights, writes in self.blocks:
            units = slice(start, start + len(biases))
            for place, weight in reads.items():
                inner[units, place] += weight
            for place, weight in writes.items():
                outer[place, units] += weight * weights
            start += len(biases)
        return (inner, bias), (outer, self.offset.clone())


def composed(*parts: Hidden) -> list[Pair]:
    """One ReLU network for parts in a row: the outer map of each is merged with the inner map of the next."""
    pairs: list[Pair] = []
    for part in parts:
        inner, outer = part.maps()
        if pairs:
            weight, bias = pairs.pop()
            inner = (inner[0] @ weight, inner[0] @ bias + inner[1])
        pairs += [inner, outer]
    return pairs


def integer_square(low: int, high: int) -> Hinges:
    """The square, linear between whole numbers: exact on them, and s^2 + f (1 - f) with f the fraction of s elsewhere.

    >>> integer_square(0, 4)(torch.tensor([3.0, 3.5], dtype=torch.float64))
    tensor([ 9.0000, 12.5000], dtype=torch.float64)
    """
    return interpolant(torch.square, float(low), float(high), high - low)


@torch.no_grad()
def wire(
    attention: torch.nn.Module,
    head: int,
    *,
    query: Sequence[Row],
    key: Sequence[Row],
    value: Sequence[Row],
    out: Sequence[Row],
) -> None:
    """Set one head: the score is sum_j <query_j, q> <key_j, x>, and the mean of <value_j, x> is written to out_j."""
    assert isinstance(attention, Attention)
    for matrix, rows in ((attention.query, query), (attention.key, key), (attention.value, value)):
        for j, row in enumerate(rows):
            for place, weight in row.items():
                matrix[head, j, place] = weight
    for j, row in enumerate(out):
        for place, weight in row.items():
            attention.output[head, place, j] = weight


def _times(row: Row, by: float) -> dict[int, float]:
    return {place: by * weight for place, weight in row.items()}
