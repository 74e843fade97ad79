"""One real layer, head by head: which hypotheses of the theory hold there, and the floor where they do."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.papers.prompts.reaching import reach
from headcount.papers.prompts.strip import strip_of
from headcount.refusals import at_least_one


def split_heads(
    query: Float[np.ndarray, "d d"],
    key: Float[np.ndarray, "d d"],
    value: Float[np.ndarray, "d d"],
    heads: int,
    query_bias: Float[np.ndarray, " d"] | None = None,
) -> list[PromptedLayer]:
    """The heads of an attention layer, each a layer of its own; scores are divided by sqrt(head_dim)."""
    at_least_one(heads=heads)
    if len(query) % heads:
        raise ValueError(f"{len(query)} rows cannot be shared by {heads} heads")
    size = len(query) // heads
    rows = [slice(i * size, (i + 1) * size) for i in range(heads)]
    biases = [None if query_bias is None else query_bias[r] / size**0.5 for r in rows]
    return [PromptedLayer(query[r] / size**0.5, key[r], value[r], b) for r, b in zip(rows, biases, strict=True)]


HeadReach = TypedDict(
    "HeadReach",
    {"head": int, "condition of W_v": float, "strip": bool, "floor / s^2": float, "built / s^2": float},
)
"""A head: the condition of W_v, whether prompts are held to a strip, and the floor of a hard pair beside one built."""


def head_rows(
    heads: list[PromptedLayer], last: Float[np.ndarray, " d"], contexts: tuple[np.ndarray, ...], scale: float = 1.0
) -> list[HeadReach]:
    """For each head: the condition of W_v, whether prompts are held to a strip, and the floor of a hard pair.

    The wanted outputs are A_i + s u_i as in `prompt_trap`, s in units of |A_2 - A_1|.
    """
    rows = []
    for number, head in enumerate(heads):
        strip = strip_of(head, last)
        means = np.array([head.attend(last, np.vstack([c, last])) for c in contexts])
        apart = means[1] - means[0]
        rest = np.random.default_rng(number).standard_normal((len(apart), 2))
        frame = np.linalg.qr(np.column_stack([apart, rest]))[0]
        s = scale * float(np.linalg.norm(apart))
        limit = reach(head, last, contexts, means + s * frame[:, 1:3].T, 1)
        rows.append({"head": number, "condition of W_v": strip.condition, "strip": strip.slope is not None,
                     "floor / s^2": limit.floor / s**2, "built / s^2": (limit.prompt_loss or 0.0) / s**2})  # fmt: skip
    return rows


def last_layer(
    name: str, texts: tuple[str, str]
) -> tuple[list[PromptedLayer], np.ndarray, tuple[np.ndarray, ...], float]:
    """The heads of a BERT encoder's last layer, the last token and contexts that two texts give it, and |W_1||W_2|.

    The last token is that of the first text for both: in a deep network it is not the same in two texts, which the
    theory of one layer asks for.
    """
    import torch

    from headcount.nets.pretrained import load, tokenizer_of
    from headcount.nets.pretrained.batches import batches_of, pooled

    model = load(name)
    layer: Any = model.encoder.layer[-1]  # pyright: ignore
    recorded = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0].detach().double()))
    with torch.no_grad():
        for text in texts:
            (batch,) = batches_of([text], tokenizer_of(name), tokens=64)
            pooled(model, batch)
    hook.remove()
    parts = layer.attention.self
    query, key, value = (getattr(parts, n).weight.detach().double().numpy() for n in ("query", "key", "value"))
    heads = split_heads(query, key, value, parts.num_attention_heads, parts.query.bias.detach().double().numpy())
    norms = [float(torch.linalg.matrix_norm(w.weight.detach().double(), 2)) for w in (layer.intermediate.dense,
                                                                                      layer.output.dense)]  # fmt: skip
    states = [s[0].numpy() for s in recorded]
    return heads, states[0][-1], (states[0][:-1], states[1][:-1]), norms[0] * norms[1]
