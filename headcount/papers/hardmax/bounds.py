"""How many layers and blocks interpolate sequences exactly: the published count and ours. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.refusals import at_least, at_least_one
from headcount.results import Bound, Hypothesis
from headcount.sources import Checked, Source, implements

PAPER = Source("alcalde2025exact", "count of blocks")
OURS = Source("headcount", "count of layers of exact interpolation")
MEASURES = "sequences with other targets have other normalised multisets of tokens"
ENOUGH = "every sequence has at least as many distinct tokens as outputs"


@implements(
    PAPER,
    test="tests/test_hardmax_bounds.py::test_the_published_counts_are_those_of_the_paper",
    status="proved in the paper",
    hypotheses=("token_dim at least 2", MEASURES, ENOUGH),
)
def interpolation_blocks(outputs: int | Sequence[int], sequences: int | None = None, weigh: str = "hardmax") -> Bound:
    """Blocks that interpolate N sequences by sets of m^1..m^N outputs: 2 sum m + 2N + 1 (hardmax), 2 sum m + 3N.

    `outputs` is the number of outputs of each sequence, or their sum together with the number of `sequences`.
    Source: Alcalde et al. 2025 (hardmax); the constants as reported second-hand.

    >>> interpolation_blocks([1] * 12).value, interpolation_blocks([1] * 12, weigh="softmax").value
    (49.0, 60.0)
    """
    total, count = _sizes(outputs, sequences)
    if weigh not in ("hardmax", "softmax"):
        raise ValueError(f"weigh must be 'hardmax' or 'softmax', got {weigh!r}")
    value = 2 * total + (2 * count + 1 if weigh == "hardmax" else 3 * count)
    return _bound("blocks", value, PAPER, total, count)


@implements(
    OURS,
    test="tests/test_hardmax_networks.py::test_worst_cases_take_as_many_layers_as_the_bound",
    status="proved here",
    hypotheses=(Checked("token_dim at least 2"), Checked(MEASURES), Checked(ENOUGH)),
)
def interpolation_layers(outputs: int | Sequence[int], sequences: int | None = None) -> Bound:
    """Layers that our construction takes: 3N + 1 for one output each, N + 3 sum m + 3 for sets.

    One output: N - 1 layers split equal means, 1 averages, N + 1 + K move N points to K <= N targets.
    Sets: N - 1 split, 2 tag and shift, sum m lift leaders, 1 collapses, 2 sum m + 1 move them.

    >>> interpolation_layers([1, 1]).value, interpolation_layers([2, 2]).value
    (7.0, 17.0)
    """
    total, count = _sizes(outputs, sequences)
    value = 3 * count + 1 if total == count else count + 3 * total + 3
    return _bound("layers", value, OURS, total, count)


def our_interpolation_blocks(outputs: int | Sequence[int], sequences: int | None = None) -> Bound:
    """The same in blocks, where an attention and the feed-forward after it are one: 3N, or N + 3 sum m + 1.

    >>> our_interpolation_blocks([1, 1]).value, our_interpolation_blocks(4, 2).value
    (6.0, 15.0)
    """
    layers = interpolation_layers(outputs, sequences)
    total, count = _sizes(outputs, sequences)
    return _bound("blocks", layers.value - (1 if total == count else 2), OURS, total, count)


def _sizes(outputs: int | Sequence[int], sequences: int | None) -> tuple[int, int]:
    if not isinstance(outputs, int):
        at_least_one(**{f"outputs of sequence {i}": m for i, m in enumerate(outputs)})
        if sequences not in (None, len(outputs)):
            raise ValueError(f"outputs are given for {len(outputs)} sequences, but sequences = {sequences}")
        return _sizes(sum(outputs), len(outputs))
    if sequences is None:
        raise ValueError("a total of outputs needs the number of sequences too")
    at_least_one(sequences=sequences)
    at_least(sequences, outputs=outputs)
    return outputs, sequences


def _bound(quantity: str, value: float, source: Source, total: int, count: int) -> Bound:
    hypotheses = (Hypothesis("token_dim at least 2"), Hypothesis(MEASURES), Hypothesis(ENOUGH))
    return Bound(quantity, float(value), "upper", source, hypotheses, sizes={"outputs": total, "sequences": count})
