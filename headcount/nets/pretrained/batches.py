"""Text into batches, and what is read out of a model for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.files import text_in


@dataclass(frozen=True)
class TextBatch:
    """Keyword arguments for the model, and which positions are real."""

    inputs: dict[str, Tensor]
    present: Bool[Tensor, "batch length"]


def predicts_tokens(kind: str) -> bool:
    """Whether models of a class, by its name, give the next token: they have a language-model head.

    >>> predicts_tokens("LlamaForCausalLM"), predicts_tokens("BertModel")
    (True, False)
    """
    return any(word in kind for word in ("CausalLM", "LMHead"))


Readout = Callable[[nn.Module, TextBatch], Tensor]


def pooled(model: nn.Module, batch: TextBatch) -> Float[Tensor, "batch embed"]:
    """The sentence embedding: the mean of the real tokens' last states, scaled to length one."""
    states = base_of(model)(**batch.inputs).last_hidden_state
    mask = batch.present[:, :, None].to(states.dtype)
    return nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def states(model: nn.Module, batch: TextBatch) -> Float[Tensor, "batch length embed"]:
    """Every real token's last state, over the root of their number."""
    hidden = base_of(model)(**batch.inputs).last_hidden_state
    mask = batch.present[:, :, None].to(hidden.dtype)
    return hidden * mask / mask.sum(1, keepdim=True).sqrt()


def answers(model: nn.Module, batch: TextBatch) -> Float[Tensor, "batch one"]:
    """The output of a network that gives one number a sequence, such as our own."""
    return model(**batch.inputs)[:, None]


def passages(path: str | Path, count: int, *, words: int = 100, seed: int = 0) -> list[str]:
    """`count` pieces of a text file: three in four of up to `words` words, the rest short as a question is.

    Lines of fewer than five words are passed over. The same seed gives the same pieces.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}")
    lines = [line.split() for line in text_in(path, errors="replace").splitlines()]
    flat = [line for line in lines if len(line) >= 5]
    if not flat:
        raise ValueError(f"{path} holds no line of five words or more to calibrate on")
    draw = random.Random(seed)
    draw.shuffle(flat)
    pieces = []
    for at in range(count):
        line = flat[at % len(flat)]
        size = words if at % 4 else draw.randint(5, 14)
        first = draw.randint(0, max(0, len(line) - size))
        pieces.append(" ".join(line[first : first + size]))
    return pieces


def batches_of(texts: Sequence[str], tokenizer: Any, *, length: int = 128, tokens: int = 256) -> list[TextBatch]:
    """Texts as padded batches of at most `tokens` tokens (at least one text each), sorted by length."""
    ids = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    ids = sorted((row for row in ids if row), key=len)
    groups: list[list[list[int]]] = []
    for row in ids:
        if not groups or (len(groups[-1]) + 1) * max(len(row), len(groups[-1][-1])) > tokens:
            groups.append([])
        groups[-1].append(row)
    return [_padded(group, tokenizer.pad_token_id or 0) for group in groups]


def _padded(rows: list[list[int]], pad: int) -> TextBatch:
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    present = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return TextBatch({"input_ids": ids, "attention_mask": present.long()}, present)


def base_of(model: Any) -> Any:
    """The model without its head, where it has one."""
    return getattr(model, "base_model", model)
