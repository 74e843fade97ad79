"""One head of a trained model at one text: the states that enter its layer, where it looks, and its matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.nets.pretrained.families import family_of

PARTS = {"bert": "attention.self", "gpt2": "attn", "llama": "self_attn"}  # where a layer of each family attends


@dataclass(frozen=True, eq=False)
class HeadView:
    """What a head is given and does at one text: `states` that enter its layer, `weights` of each place over all.

    `query`, `key` and `value` are its own matrices, scores already divided by sqrt(head_dim); None where positions
    turn queries and keys, so that no one matrix gives the scores.
    """

    pieces: tuple[str, ...]
    states: Float[np.ndarray, "length embed_dim"]
    weights: Float[np.ndarray, "length length"]
    query: Float[np.ndarray, "head_dim embed_dim"] | None
    query_bias: Float[np.ndarray, " head_dim"] | None
    key: Float[np.ndarray, "head_dim embed_dim"] | None
    value: Float[np.ndarray, "head_dim embed_dim"]

    @property
    def chosen(self) -> int:
        """The place that the last place gives the largest weight."""
        return int(self.weights[-1].argmax())


def head_view(model: Any, tokenizer: Any, text: str, layer: int, head: int) -> HeadView:
    """The head at the text, layers and heads counted from 1, by one pass that keeps what enters and leaves it."""
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    if ids.shape[1] < 2:
        raise ValueError(f"{text!r} is {ids.shape[1]} token of the model: a head needs two to choose between")
    family = family_of(model)
    layers = family.layers(model)
    if not 1 <= layer <= len(layers):
        raise ValueError(f"layer must lie in 1..{len(layers)}, got {layer}")
    part = layers[layer - 1].get_submodule(PARTS[family.name])
    states, weights = _watched(model, part, ids)
    read = family.read(layers[layer - 1])
    heads = len(read.layout.groups)
    if not 1 <= head <= heads:
        raise ValueError(f"head must lie in 1..{heads}, got {head}")
    own, size = head - 1, read.layout.widths[0]
    rows = slice(own * size, (own + 1) * size)
    shared = slice(read.layout.sharing[own] * size, (read.layout.sharing[own] + 1) * size)
    return HeadView(
        tuple(tokenizer.decode([i]) for i in ids[0].tolist()),
        states[0].double().numpy(),
        weights[0, own].double().numpy(),
        None if read.query is None else _numbers(read.query[rows]) * read.scale,
        None if read.query_bias is None else _numbers(read.query_bias[rows]) * read.scale,
        None if read.key is None else _numbers(read.key[rows]),
        _numbers(read.value[shared]),
    )


def _numbers(t: torch.Tensor) -> np.ndarray:
    return t.detach().double().numpy()


def _watched(model: Any, part: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What enters the attention of one layer, and the weights it hands out when it is computed step by step."""
    before = model.config._attn_implementation
    recorded: list[torch.Tensor] = []

    def entered(_: Any, args: Any, kwargs: Any) -> None:
        recorded.append(args[0] if args else kwargs["hidden_states"])

    def left(_: Any, args: Any, out: Any) -> None:
        recorded.append(out[1])

    model.set_attn_implementation("eager")
    hooks = part.register_forward_pre_hook(entered, with_kwargs=True), part.register_forward_hook(left)
    try:
        with torch.no_grad():
            model(input_ids=ids)
    finally:
        model.set_attn_implementation(before)
        for hook in hooks:
            hook.remove()
    return recorded[0], recorded[1]
