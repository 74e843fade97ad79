"""Attention modules with ragged heads that stand where the stock ones stood, called in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.nets import Weighing
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Heads, Weights

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


class RotaryHeads(nn.Module):
    """Stands for the `self_attn` of Llama and its relatives; whole frequencies of a key head may be gone.

    The cache keeps ragged rows, keys already turned: (batch, 1, length, rows).
    """

    def __init__(self, weights: Weights, stock: Any, output: nn.Linear) -> None:
        super().__init__()
        self.heads, self.o_proj = Heads(weights), output
        self.q_norm, self.k_norm = getattr(stock, "q_norm", None), getattr(stock, "k_norm", None)
        self.config, self.layer_idx, self.is_causal = stock.config, stock.layer_idx, stock.is_causal
        self.head_dim, self.attention_dropout = stock.head_dim, stock.attention_dropout
        self.num_key_value_groups = 1  # keys are repeated here, for the living heads only
        layout = weights.layout
        self.whole = layout == HeadLayout.full(len(layout.groups), self.head_dim, len(layout.ranks), rotary=True)
        self.turns_of("query", [layout.pairs[layout.groups[i]] for i in layout.alive])
        self.turns_of("key", [layout.pairs[g] for g in layout.used_groups])
        self.train(stock.training)

    def turns_of(self, name: str, heads: Sequence[Sequence[int]]) -> None:
        """Where each row's cosine lies, which row it is turned with, and in which direction."""
        frequency, partner, sign = [], [], []
        for frequencies in heads:
            first, count = len(frequency), len(frequencies)
            frequency += [*frequencies, *frequencies]
            partner += [first + count + i for i in range(count)] + [first + i for i in range(count)]
            sign += [-1.0] * count + [1.0] * count
        self.register_buffer(f"{name}_frequency", torch.tensor(frequency, dtype=torch.long), persistent=False)
        self.register_buffer(f"{name}_partner", torch.tensor(partner, dtype=torch.long), persistent=False)
        self.register_buffer(f"{name}_sign", torch.tensor(sign), persistent=False)

    def turned(self, name: str, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Every pair of coordinates turned by its frequency times the place; of whole heads without looking rows up."""
        if self.whole:
            first, second = rows.unflatten(-1, (-1, 2, self.head_dim // 2)).unbind(-2)
            half, other = torch.stack([-second, first], -2).flatten(-2), rows.unflatten(-1, (-1, self.head_dim))
            return (other * cos[:, :, None] + half * sin[:, :, None]).flatten(-2)
        frequency, partner, sign = (self.get_buffer(f"{name}_{what}") for what in ("frequency", "partner", "sign"))
        turn = sin.index_select(-1, frequency) * sign.to(sin.dtype)
        return rows * cos.index_select(-1, frequency) + rows.index_select(-1, partner) * turn

    def forward(
        self,
        hidden_states: Float[Tensor, "batch length embed"],
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Attended:
        if position_embeddings is None:
            raise ValueError("a rotary layer needs its position embeddings")
        q = _normed(self.q_norm, self.heads.query(hidden_states), self.head_dim)
        k = _normed(self.k_norm, self.heads.key(hidden_states), self.head_dim)
        k = self.turned("key", k, *position_embeddings)[:, None]
        v = self.heads.value(hidden_states)[:, None]
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        q = self.turned("query", q, *position_embeddings)
        if self.heads.probe is None and self.config._attn_implementation == "sdpa" and not self.training:
            return self.o_proj(self.by_group(q, k[:, 0], v[:, 0], attention_mask)), None
        q = self.heads.spread(q, self.heads.query_places)
        k = self.heads.spread(k[:, 0], self.heads.key_places)
        v = self.heads.spread(v[:, 0], self.heads.value_places)
        q = self.heads.seen(q, k, v)
        u, p = _weigh(self, q, k, v, attention_mask, self.heads.scale, self.attention_dropout, **kwargs)
        return self.o_proj(self.heads.gather(u)), p

    def by_group(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention a key group at a time: no head runs wider than it is, and no row of a cache is copied on a CPU."""
        layout, outs = self.heads.layout, []
        first_query, first_key, first_value = 0, layout.key_starts(), layout.value_starts()
        for g, heads in zip(layout.used_groups, layout.each_group, strict=True):
            rank, width, at = layout.ranks[g], layout.widths[g], first_key[g]
            rows = q[:, :, first_query : first_query + len(heads) * rank].unflatten(-1, (len(heads), rank))
            first_query += len(heads) * rank
            u = nn.functional.scaled_dot_product_attention(
                aligned(rows.transpose(1, 2)),
                aligned(k[:, None, :, at : at + rank]).expand(-1, len(heads), -1, -1),
                aligned(v[:, None, :, first_value[g] : first_value[g] + width]).expand(-1, len(heads), -1, -1),
                attn_mask=mask,
                is_causal=mask is None and q.shape[1] > 1 and self.is_causal,
                scale=self.heads.scale,
            )
            outs.append(u.transpose(1, 2).flatten(2))
        return torch.cat(outs, dim=-1)


def aligned(rows: Tensor) -> Tensor:
    """What a GPU's attention can read: it takes 16 bytes at once, and ragged heads may begin anywhere; then a copy.

    A clone, as `contiguous` leaves a single row the stride that it had.
    """
    return rows.clone(memory_format=torch.contiguous_format) if rows.is_cuda and begins_between(rows) else rows


def begins_between(rows: Tensor) -> bool:
    """Whether some row of a view begins where no 16 bytes do.

    >>> ragged = torch.zeros(1, 5, 12)
    >>> begins_between(ragged[..., 4:8]), begins_between(ragged[..., 2:8]), begins_between(torch.zeros(1, 5, 10))
    (False, True, True)
    """
    each = rows.element_size()
    return rows.data_ptr() % 16 != 0 or any(step * each % 16 for step in rows.stride()[:-1])


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
        k = self.heads.spread(self.heads.key(tokens), self.heads.key_places)
        v = self.heads.spread(self.heads.value(tokens), self.heads.value_places)
        scores = self.heads.seen(self.heads.queries(queries), k, v) @ k.mT
        if present is not None:
            scores = scores.masked_fill(~present[:, None, None, :], -torch.inf)
        return self.output(self.heads.gather((self.weigh(scores) @ v).transpose(1, 2)))


def _attend(module: Any, heads: Heads, x: Tensor, mask: Tensor | None, cache: Any, **kwargs: Any) -> Attended:
    """Queries, keys and values of one sequence to ragged outputs; the cache keeps the ragged rows."""
    q = heads.queries(x)
    k, v = heads.key(x)[:, None], heads.value(x)[:, None]
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


def _normed(norm: nn.Module | None, rows: Tensor, head_dim: int) -> Tensor:
    """Heads of full rank, each through the norm that some families give their queries and keys."""
    return rows if norm is None else norm(rows.unflatten(-1, (-1, head_dim))).flatten(-2)
