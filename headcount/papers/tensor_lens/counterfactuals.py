"""Beside a share of the output what would be without the token: other words in its place, and the first token's weight.

A share says how much of a number passed through a token. It does not say that another word there would change the
number: a first token on which attention rests (a sink) passes on much whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.nets.recorded.marks import mark_of, tensors
from headcount.papers.tensor_lens.operators import Operator

WORDS = (" and", " some", " house", " now", " green", " seven", " over")
COUNT = 5


def other_words(tokenizer: Any, vocabulary: int) -> list[int]:
    """Five everyday words that are one token each, or tokens drawn from the vocabulary where there are too few."""
    token_ids = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in WORDS]
    single = [ids[0] for ids in token_ids if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None)]
    drawn = torch.randint(0, vocabulary, (COUNT,), generator=torch.Generator().manual_seed(0)).tolist()
    return [*single, *drawn][: COUNT + 2] if len(single) < COUNT else single


def replaced(
    seen: Operator,
    model: Any,
    ids: Int[Tensor, " length"],
    direction: Float[Tensor, "*places width"],
    words: Sequence[int],
    places: Sequence[int],
) -> tuple[float | None, ...]:
    """For each token the mean change of the number read when other words stand in its place; None where not tried."""
    u = torch.zeros_like(seen.output) + direction
    before, changes = float((seen.output * u).sum()), list[float | None]([None] * len(ids))
    for place in places:
        others = [word for word in words if word != int(ids[place])][:COUNT]
        rows = ids.repeat(len(others), 1)
        rows[:, place] = torch.tensor(others)
        with torch.no_grad():
            out = seen.subject(model.get_input_embeddings()(rows.to(seen.x.device)))
        changes[place] = float((out * u).sum((1, 2)).mean()) - before
    return tuple(changes)


def first_token_weight(seen: Operator, place: int | None = -1) -> float:
    """The share of attention that rests on the first token, over all layers and heads; from one place, or from all."""
    length = len(seen.x)
    recorded = [t for values in seen.tape.values.values() for t in tensors(values) if mark_of(t) == "softmax"]
    weights = [w for w in recorded if w.dim() >= 3 and w.shape[-2:] == (length, length)]
    rows = [w[..., 0] if place is None else w[..., place, 0] for w in weights]
    return float(torch.stack([row.double().mean() for row in rows]).mean()) if rows else 0.0
