"""A network that was built for some sequences, read from its file and asked for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headcount.certificates import Built, Drawn, load
from headcount.papers.hardmax.narrow import NarrowNet
from headcount.papers.hardmax.sequence_pairs import SequencePairs, as_pairs


class ReadNetwork(NamedTuple):
    """The network with the pairs it is asked for; the file's own certificate speaks of `promised` of them."""

    built: Built
    promised: int


def read_network(path: str | Path, sequences: Any, outputs: Any) -> ReadNetwork:
    """The network of a file, asked for these pairs."""
    built, pairs = load(path), as_pairs(sequences, outputs)
    if not isinstance(built.net, NarrowNet):
        kind = type(built.net).__name__
        raise ValueError(f"{path} holds a {kind}; what `headcount theory interpolate` writes is a NarrowNet")
    if pairs.token_dim != built.net.shape.token_dim:
        raise ValueError(f"{path} takes tokens of {built.net.shape.token_dim} numbers, the data have {pairs.token_dim}")
    own = built.task
    assert isinstance(own, SequencePairs)
    places = zip(own.find(pairs.batch), pairs.outputs, strict=True)
    promised = sum(p is not None and own.outputs[p] == y for p, y in places)
    return ReadNetwork(replace(built, task=pairs, domain=Drawn(pairs)), promised)
