"""Attention modules with ragged heads that stand where the stock ones stood, called in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.nets import Weighing
from headcount.nets.pretrained.ragged_heads import Heads, Weights

__all__ = ["BertHeads", "Gpt2Heads", "LlamaHeads", "OwnHeads"]

Attended = tuple[Tensor, Tensor | None]


class BertHeads(Heads):
    """Stands for BERT's `attention.self`; the output projection stays where it was."""

    def __init__(self, weights: Weights, stock: Any) -> None:
        super().__init__(weights)
        self.config, self.layer_idx = stock.config, getattr(stock, "layer_idx", None)
        self.is_causal = getattr(stock, "is_causal", False)
        self.is_decoder = getattr(stock, "is_decoder", False)
        self.dropout = stock.dropout
        self.num_key_value_groups = 1
        self.train(stock.training)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch length embed"],
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Attended:
        return _attend(self, self, hidden_states, attention_mask, past_key_values, **kwargs)


class Gpt2Heads(nn.Module):
    """Stands for GPT-2's `attn`."""

    def __init__(self, weights: Weights, stock: Any, output: nn.Linear) -> None:
        super().__init__()
        self.heads, self.c_proj = Heads(weights), output
        self.config, self.layer_idx, self.is_causal = stock.config, stock.layer_idx, True
        self.dropout = stock.attn_dropout if hasattr(stock, "attn_dropout") else stock.dropout
        self.resid_dropout = stock.resid_dropout
        self.num_key_value_groups = 1
        self.train(stock.training)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch length embed"],
        past_key_values: Any = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Attended:
        u, p = _attend(self, self.heads, hidden_states, attention_mask, past_key_values, **kwargs)
        return self.resid_dropout(self.c_proj(u)), p


class LlamaHeads(nn.Module):
    """Stands for Llama's `self_attn`: rotary queries and keys as they were, values and outputs ragged."""

    def __init__(self, weights: Weights, stock: Any, output: nn.Linear) -> None:
        super().__init__()
        self.heads, self.o_proj = Heads(weights), output
        self.q_proj, self.k_proj = stock.q_proj, stock.k_proj
        self.config, self.layer_idx, self.is_causal = stock.config, stock.layer_idx, True
        self.head_dim, self.attention_dropout = stock.head_dim, stock.attention_dropout
        self.num_key_value_groups = 1  # keys are repeated here, for the living heads only
        key_heads = self.k_proj.weight.shape[0] // self.head_dim
        each = len(weights.layout.groups) // key_heads
        alive = weights.layout.alive
        self.register_buffer("living", torch.tensor(alive, dtype=torch.long), persistent=False)
        self.register_buffer("read", torch.tensor([i // each for i in alive], dtype=torch.long), persistent=False)
        self.train(stock.training)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch length embed"],
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Attended:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        if position_embeddings is None:
            raise ValueError("a rotary layer needs its position embeddings")
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj))
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        v = self.heads.value(hidden_states)[:, None]
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        q, k = q.index_select(1, self.living), k.index_select(1, self.read)
        v = self.heads.spread(v[:, 0], self.heads.value_places)
        q = self.heads.seen(q, k, v)
        u, p = _weigh(self, q, k, v, attention_mask, self.heads.scale, self.attention_dropout, **kwargs)
        return self.o_proj(self.heads.gather(u)), p


class OwnHeads(nn.Module):
    """Stands for our own `Attention`: queries and tokens come apart, and the weighing is a part that was passed."""

    def __init__(self, weights: Weights, weigh: Weighing, output: nn.Linear) -> None:
        super().__init__()
        self.heads, self.output, self.weigh = Heads(weights), output, weigh

    def forward(
        self,
        queries: Float[Tensor, "batch to embed"],
        tokens: Float[Tensor, "batch length embed"],
        present: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch to embed"]:
        k = self.heads.spread(_ragged(self.heads.key, tokens), self.heads.key_places)
        v = self.heads.spread(self.heads.value(tokens), self.heads.value_places)
        scores = self.heads.seen(self.heads.queries(queries), k, v) @ k.mT
        if present is not None:
            scores = scores.masked_fill(~present[:, None, None, :], -torch.inf)
        return self.output(self.heads.gather((self.weigh(scores) @ v).transpose(1, 2)))


def _attend(module: Any, heads: Heads, x: Tensor, mask: Tensor | None, cache: Any, **kwargs: Any) -> Attended:
    """Queries, keys and values of one sequence to ragged outputs; the cache keeps the ragged rows."""
    q = heads.queries(x)
    k, v = _ragged(heads.key, x)[:, None], heads.value(x)[:, None]
    if cache is not None:
        cache = getattr(cache, "self_attention_cache", cache)
        k, v = cache.update(k, v, module.layer_idx)
    k, v = heads.spread(k[:, 0], heads.key_places), heads.spread(v[:, 0], heads.value_places)
    u, p = _weigh(module, heads.seen(q, k, v), k, v, mask, heads.scale, module.dropout.p, **kwargs)
    return heads.gather(u), p


def _weigh(
    module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float, **kwargs: Any
) -> Attended:
    """The attention that the model was loaded with, at the ragged layer's own head dimension."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    named = module.config._attn_implementation
    attend: Callable[..., Attended] = _plainly if named == "eager" else ALL_ATTENTION_FUNCTIONS[named]
    return attend(module, q, k, v, mask, dropout=dropout if module.training else 0.0, scaling=scale, **kwargs)


def _plainly(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, dropout: float, **_: Any
) -> Attended:
    scores = q @ k.mT * scaling
    if mask is not None:
        scores = scores + mask
    p = nn.functional.dropout(torch.softmax(scores, dim=-1), dropout, module.training)
    return (p @ v).transpose(1, 2), p


def _ragged(layer: nn.Module | None, x: Tensor) -> Tensor:
    assert layer is not None, "a rotary layer keeps its own keys"
    return layer(x)
