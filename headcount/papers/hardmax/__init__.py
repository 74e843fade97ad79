"""Exact Sequence Interpolation with Transformers (Alcalde, Fantuzzi, Zuazua, arXiv 2502.02270).

N sequences of any lengths, no positions, are taken exactly to given outputs by O(sum m) narrow blocks of hardmax
attention, O(d sum m) parameters, however long the sequences are (`interpolate`, `interpolation_blocks`). Two sequences
with the same tokens in the same proportions are the one thing no such network tells apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily
from headcount.papers.hardmax.bounds import interpolation_blocks, interpolation_layers, our_interpolation_blocks

if TYPE_CHECKING:
    from headcount.papers.hardmax.memoriser import SequenceMemoriser
    from headcount.papers.hardmax.narrow import NarrowNet, NarrowShape
    from headcount.papers.hardmax.networks import Interpolation, interpolate
    from headcount.papers.hardmax.sequence_pairs import SequencePairs

__all__ = [
    "Interpolation",
    "NarrowNet",
    "NarrowShape",
    "SequenceMemoriser",
    "SequencePairs",
    "interpolate",
    "interpolation_blocks",
    "interpolation_layers",
    "our_interpolation_blocks",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "memoriser": ("SequenceMemoriser",),
        "narrow": ("NarrowNet", "NarrowShape"),
        "networks": ("Interpolation", "interpolate"),
        "sequence_pairs": ("SequencePairs",),
    },
)
