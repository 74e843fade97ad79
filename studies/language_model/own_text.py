"""Text that the original writes itself, going on from openings: what it is sure and unsure of, in its own words."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

OPENING = 16  # tokens of another text that each continuation goes on from


@dataclass(frozen=True)
class OwnText:
    """How much is written: so many sequences of so many tokens at once, as often as the seconds and `rounds` allow."""

    sequences: int = 2048
    length: int = 512
    seconds: float = 45.0
    seed: int = 0
    rounds: int | None = None


def own_text(model: nn.Module, source: Int[Tensor, "windows length"], how: OwnText) -> Int[Tensor, " tokens"]:
    """One text of many continuations, each after its opening."""
    began, texts = time.monotonic(), list[Tensor]()
    writer: Any = copy.deepcopy(model)
    if writer.device.type == "cuda":
        writer = writer.bfloat16()
    draw = torch.Generator().manual_seed(how.seed)
    left = how.seconds
    while not texts or (left > how.seconds / 4 and len(texts) != how.rounds):
        first = openings(source, how.sequences, draw)
        texts.append(continued(writer, first, how.length, left, seed=how.seed + len(texts)))
        left = how.seconds - (time.monotonic() - began)
    del writer
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the pieces of a growing cache are of no use to what comes next
    return torch.cat([some.flatten() for some in texts])


def openings(source: Int[Tensor, "windows length"], count: int, draw: torch.Generator) -> Int[Tensor, "count opening"]:
    """The first tokens after random places of random windows."""
    rows = torch.randint(len(source), (count,), generator=draw)
    at = torch.randint(source.shape[1] - OPENING, (count, 1), generator=draw)
    return source[rows[:, None], at + torch.arange(OPENING)]


@torch.no_grad()
def continued(
    model: Any, first: Int[Tensor, "count opening"], length: int, seconds: float, seed: int = 0
) -> Int[Tensor, "count length"]:
    """Each opening continued by drawing from the model's own probabilities; shorter where the seconds are over."""
    began, ids, cache = time.monotonic(), [first.to(model.device)], None
    draw = torch.Generator(device=model.device).manual_seed(seed)
    while sum(some.shape[1] for some in ids) < length and time.monotonic() - began < seconds:
        step = model(input_ids=ids[-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = step.past_key_values
        ids.append(torch.multinomial(step.logits[:, -1].float().softmax(-1), 1, generator=draw))
    return torch.cat(ids, dim=1).cpu()
