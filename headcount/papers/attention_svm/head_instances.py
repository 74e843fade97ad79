"""Token selection as a head of a trained model does it: its own states, and the tokens that it looks at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from headcount.nets.pretrained.head_views import HeadView, head_view
from headcount.papers.attention_svm.instance_files import SelectionFile


def selection_of_head(
    model: Any, tokenizer: Any, texts: Sequence[str], layer: int, head: int
) -> tuple[SelectionFile, list[HeadView]]:
    """A sequence per text: the states that enter the layer, asked by the last one; chosen is the head's own arg-max.

    Shorter texts are filled up with a token of theirs that is not chosen, which asks for nothing new.
    """
    if not texts:
        raise ValueError("a head needs something to look at: give at least one text")
    views = [head_view(model, tokenizer, text, layer, head) for text in texts]
    longest = max(len(view.states) for view in views)
    rows = []
    for view in views:
        spare = view.states[0 if view.chosen else 1]
        rows.append(np.vstack([view.states, np.repeat(spare[None], longest - len(view.states), axis=0)]))
    chosen = np.array([view.chosen for view in views])
    return SelectionFile(np.array(rows), np.array([view.states[-1] for view in views]), chosen), views


class ChoiceRow(TypedDict):
    """A text, its last token, the token that it looks at most, and the weights of that one and of the next."""

    text: str
    asks: str
    chosen: str
    weight: float
    next: float


def choice_rows(texts: Sequence[str], views: Sequence[HeadView]) -> list[ChoiceRow]:
    """For each text the query token, the chosen one, and the weights of it and of the next."""
    rows = []
    for text, view in zip(texts, views, strict=True):
        first, second = np.sort(view.weights[-1])[::-1][:2]
        query, chosen = view.pieces[-1].strip(), view.pieces[view.chosen].strip()
        rows.append(ChoiceRow(text=text[:60], asks=query, chosen=chosen, weight=float(first), next=float(second)))
    return rows
