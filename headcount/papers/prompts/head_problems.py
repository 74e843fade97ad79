"""The limits of prompts asked of a head of a trained model: its matrices, its states, what it looks at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from headcount.nets.pretrained.head_views import HeadView, head_view
from headcount.papers.prompts.layer_files import PromptProblem
from headcount.papers.prompts.prompted_layer import PromptedLayer


def problem_of_head(
    model: Any, tokenizer: Any, texts: Sequence[str], layer: int, head: int
) -> tuple[PromptProblem, list[HeadView]]:
    """Contexts are the texts' states before the last; wanted is, for each, the value of the token looked at most.

    The last token is that of the first text for all: the theory of one layer asks for one, and in a deep network the
    states of two texts' last tokens differ.
    """
    if len(texts) < 2:
        raise ValueError(f"prompts are limited by two texts or more that want different things, got {len(texts)}")
    views = [head_view(model, tokenizer, text, layer, head) for text in texts]
    first = views[0]
    if first.query is None or first.key is None:
        raise ValueError(
            "positions turn this model's queries and keys, so that a prompt's scores depend on where it stands; "
            "the theory of one layer has no positions: take a model with learnt or no positions (BERT, GPT-2)"
        )
    own = PromptedLayer(first.query, first.key, first.value, first.query_bias)
    targets = np.array([view.value @ view.states[view.chosen] for view in views])
    contexts = tuple(view.states[:-1] for view in views)
    return PromptProblem(own, first.states[-1], contexts, targets), views


LookedRow = TypedDict("LookedRow", {"text": str, "looked at most": str, "weight": float})
"""A text, the token that the head looks at most in it, and that token's weight."""


def looked_rows(texts: Sequence[str], views: Sequence[HeadView]) -> list[LookedRow]:
    """For each text the token that the head looks at most, and its weight."""
    return [
        {"text": t[:60], "looked at most": v.pieces[v.chosen].strip(), "weight": float(v.weights[-1].max())}
        for t, v in zip(texts, views, strict=True)
    ]
