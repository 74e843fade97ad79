"""Trained models of others: read from a folder or a package, their attention seen head by head, and fed with text."""

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.nets.pretrained.batches import TextBatch, answers, batches_of, passages, pooled, states
    from headcount.nets.pretrained.families import family_of
    from headcount.nets.pretrained.folders import load, tokenizer_of
    from headcount.nets.pretrained.layout import HeadLayout

__all__ = [
    "HeadLayout",
    "TextBatch",
    "answers",
    "batches_of",
    "family_of",
    "load",
    "passages",
    "pooled",
    "states",
    "tokenizer_of",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "families": ("family_of",),
        "layout": ("HeadLayout",),
        "folders": (
            "load",
            "tokenizer_of",
        ),
        "batches": (
            "TextBatch",
            "answers",
            "batches_of",
            "passages",
            "pooled",
            "states",
        ),
    },
)
