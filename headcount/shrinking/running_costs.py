"""What a language model costs to run: bytes of its cache, seconds to read a prompt and to write a token. Measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class RunningCosts:
    """Of one sequence: the cache's bytes after `tokens` tokens, and median seconds of a prefill and of a token."""

    tokens: int
    cache_bytes: int
    prefill: float
    decode: float

    @property
    def cache_per_token(self) -> float:
        return self.cache_bytes / self.tokens

    def as_row(self) -> dict[str, float]:
        return asdict(self)


def cache_bytes(cache: Any) -> int:
    """Bytes of all keys and values that a cache holds."""
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))


@torch.no_grad()
def running_costs(
    models: Sequence[Any], prompt: Int[Tensor, " length"], generated: int = 32, repeats: int = 3
) -> list[RunningCosts]:
    """Each model reads the prompt and writes `generated` tokens, in turns so that a busy machine hits all alike."""
    prefills: list[list[float]] = [[] for _ in models]
    decodes: list[list[float]] = [[] for _ in models]
    caches = [0] * len(models)
    for _ in range(repeats):
        for i, model in enumerate(models):
            began = _now(model)
            step = _call(model, prompt[None].to(model.device), None)
            prefills[i].append(_now(model) - began)
            for _ in range(generated):
                began = _now(model)
                step = _call(model, step.logits[:, -1:].argmax(-1), step.past_key_values)
                decodes[i].append(_now(model) - began)
            caches[i] = cache_bytes(step.past_key_values)
    tokens = len(prompt) + generated
    return [
        RunningCosts(tokens, b, statistics.median(p), statistics.median(d))
        for b, p, d in zip(caches, prefills, decodes, strict=True)
    ]


def _now(model: Any) -> float:
    """The clock, after the device has done what it was given."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _call(model: Any, ids: Tensor, cache: Any) -> Any:
    return model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
