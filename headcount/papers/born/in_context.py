"""Letter tasks asked of a language model in context: a few solved strings, then one that it is to go on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.papers.born.experiments import TASKS
from headcount.refusals import at_least, at_least_one, nearest
from headcount.tasks.copies import Copy
from headcount.tasks.neighbours import Neighbour

Reads = Callable[[Int[Tensor, "batch length"]], Float[Tensor, "batch length vocab"]]
"""A model as a function: tokens in, logits after every place out."""
NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Alphabet:
    """The tokens that stand for letters, for the separator, and for the end of a string."""

    letters: tuple[int, ...]
    separator: int
    end: int

    @classmethod
    def of(cls, tokens_of: Callable[[str], list[int]]) -> Alphabet:
        """Letters with a space before them that are one token each, a bar, and the end of a line.

        >>> Alphabet.of(lambda text: [ord(text[-1])] if text != " b" else [1, 2]).letters[:3]  # b is two tokens
        (97, 99, 100)
        """
        single = [tokens[0] for name in NAMES if len(tokens := tokens_of(f" {name}")) == 1]
        separators = [tokens_of(mark) for mark in ("|", "\n")]
        if any(len(mark) != 1 for mark in separators):
            raise ValueError(f"the bar and the end of a line must be one token each, and are {separators}")
        return cls(tuple(single), separators[0][0], separators[1][0])

    def written(self, task: Neighbour | Copy, ids: Int[Tensor, ...]) -> Int[Tensor, ...]:
        """Strings of the task as tokens; both the begin and the end mark are the end of a line."""
        if task.letters > len(self.letters):
            raise ValueError(f"the task has {task.letters} letters, and {len(self.letters)} are one token each")
        return torch.tensor([*self.letters[: task.letters], self.end, self.separator, self.end])[ids]


def reader_of(model: Any, tokenizer: Any) -> tuple[Reads, Alphabet]:
    """A causal model with its tokenizer as a function of tokens, and the letters it has tokens for."""
    alphabet = Alphabet.of(lambda text: tokenizer.encode(text, add_special_tokens=False))
    return lambda ids: model(input_ids=ids).logits, alphabet


@dataclass(frozen=True)
class ContextSetting:
    """How many strings are asked for, how many solved ones stand before each, and how many are read at once."""

    samples: int = 64
    shots: int = 4
    batch: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(samples=self.samples, batch=self.batch)
        at_least(0, shots=self.shots)


def context_task(code: str) -> Neighbour | Copy:
    """The task as it is asked in context: 26 letters to retrieve among, 52 to copy, repeats at 0.3 of places.

    >>> context_task("NB")
    Copy(backward=True, distinct=False, letters=52, ambiguous=0.3)
    """
    if code not in TASKS:
        raise ValueError(f"unknown task {code!r}; {nearest(code, tuple(TASKS))}")
    task = TASKS[code]
    if isinstance(task, Neighbour):
        return replace(task, letters=26)
    return replace(task, letters=52, ambiguous=None if task.distinct else 0.3)


class ContextRow(TypedDict):
    """What a model answered to one task at one length: shares of strings and of letters right."""

    code: str
    length: int
    strings: float
    letters: float
    samples: int
    shots: int


@torch.no_grad()
def asked_in_context(
    reads: Reads, alphabet: Alphabet, code: str, length: int, setting: ContextSetting | None = None
) -> ContextRow:
    """The share of answers, letter by letter and whole, that are the model's likeliest tokens.

    All answers stand in what is read; a string whose every answer is the likeliest token there is the one that greedy
    continuation would give.
    """
    chosen, task = setting or ContextSetting(), context_task(code)
    generator = torch.Generator().manual_seed(chosen.seed)
    letters: list[Tensor] = []
    for begin in range(0, chosen.samples, chosen.batch):
        size = min(chosen.batch, chosen.samples - begin)
        drawn = task.strings(size * (chosen.shots + 1), (length, length), generator=generator)
        rows = alphabet.written(task, drawn.ids).view(size, chosen.shots + 1, -1)
        read = torch.cat([rows[:, 0, :1], rows[:, :, 1:].flatten(1)], dim=1)
        last = slice(chosen.shots, None, chosen.shots + 1)  # the string that is asked for, after its solved ones
        predicted = reads(read)[:, 1 - rows.shape[2] :].argmax(dim=-1)
        wanted, mask = alphabet.written(task, drawn.targets[last])[:, 1:], drawn.judged[last][:, 1:]
        letters.append((predicted == wanted)[mask].view(size, -1))
    right = torch.cat(letters).double()
    exact = float((right.mean(dim=1) == 1).double().mean())
    return ContextRow(code=code, length=length, strings=exact, letters=float(right.mean()), samples=chosen.samples,
                      shots=chosen.shots)  # fmt: skip
