"""What a bank computes: the plain network by batched products, and the collapsed form of its last layer.

In the last layer only the class token is a query. Its query does not depend on the tokens, so what is linear moves past
the pooling, exactly. With a_t the encoder's hidden activations (or a token's state, in deeper networks),
W2, b2 the encoder's outer layer and q_h the query of head h:

    score_h(t) = <a_t, W2^T W_K,h^T q_h> + const         softmax does not see the constant
    head h     = W_V,h (W2 sum_t p_h(t) a_t + b2)         the weights sum to one

so a token costs d N + 2 N h products instead of d N + N E + 2 h n (E + 1).

In every layer nothing attends to the class token, so there too it is a query by itself, by directions; left for the
layers before the last are tokens attending to tokens, and feed-forwards. A `Touch` says how all three are done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import gelu, pad, relu

from headcount.kernels.attention import Ask, Mix, attended, softmax, written_out
from headcount.kernels.bank import Bank, Stacked
from headcount.nets.transformer import position_features

Pool = Callable[["Batch", Tensor, Tensor, Tensor], Tensor]
Feed = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, bool], Tensor]


class Batch:
    """A batch for every member: which samples of which resident data set it sees.

    `data` holds the sets with their position features appended; member k reads `data[which[k], rows[k]]`.
    `target` is what is wanted of each. `present` marks the tokens that exist where lengths differ, for a member or for
    each of its samples; None: all do. `packed` is the same data as a faster backend wants to read it, prepared once.
    """

    def __init__(
        self,
        data: Float[Tensor, "sets samples length features"],
        which: Int[Tensor, " models"],
        rows: Int[Tensor, "models batch"],
        target: Float[Tensor, "models batch ..."],
        present: Bool[Tensor, "models ... length"] | None = None,
        packed: Tensor | None = None,
    ) -> None:
        self.data, self.which, self.rows, self.target = data, which, rows, target
        self.present, self.packed = present, packed

    def tokens(self) -> Float[Tensor, "models batch length features"]:
        """The samples themselves, gathered."""
        return self.data[self.which[:, None], self.rows]

    def few(self, bank: Bank, numbers: int = 1 << 28) -> tuple[Batch, ...]:
        """The first 32 samples or so, in pieces so small that the plain bank's scores and states fit a gigabyte."""
        (models, samples), length = self.rows.shape, self.data.shape[2]
        heads, _, embed = max(bank.shapes[f"attention.{layer}.query"] for layer in range(bank.depth))
        each = models * bank.depth * length * (heads * length + 4 * embed + bank.shapes["read_out.inner.bias"][0])
        all_of_them = min(samples, 32)
        size = max(1, min(all_of_them, numbers // each))
        return tuple(self._piece(slice(first, first + size)) for first in range(0, all_of_them - size + 1, size))

    def _piece(self, samples: slice) -> Batch:
        present = self.present
        if present is not None and present.ndim > 2:  # of every sample
            present = present[:, samples]
        rows, target = (part[:, samples].contiguous() for part in (self.rows, self.target))
        return Batch(self.data, self.which, rows, target, present, self.packed)


def with_positions(
    x: Float[Tensor, "samples length token_dim"], length: int, count: int
) -> Float[Tensor, "samples longest features"]:
    """Tokens with their position features beside them, padded with zeros to `length`."""
    features = position_features(x.shape[1], count, dtype=x.dtype, device=x.device)
    both = torch.cat([x, features.expand(x.shape[0], -1, -1)], dim=-1)
    return pad(both, (0, 0, 0, length - x.shape[1]))


def plain(bank: Bank, p: Stacked, batch: Batch) -> Float[Tensor, "models batch ..."]:
    """Every member's output, layer by layer as `Transformer` does it: the reference for everything faster."""
    tokens, cls = _states(bank, p, batch)
    last = bank.depth - 1
    cls = cls + _attend(p, last, bank.scale[:, last], cls, tokens, batch.present)
    return _read_out(p, cls[:, :, 0])


def pool(
    batch: Batch,
    weight: Float[Tensor, "models width features"],
    bias: Float[Tensor, "models width"],
    directions: Float[Tensor, "models heads width"],
) -> Float[Tensor, "models batch heads width"]:
    """Pooled hidden activations, sum_t softmax_t(<u_h, a_t>) a_t with a_t = relu(W1 x_t + b1), head by head."""
    models, samples, length, features = (x := batch.tokens()).shape
    flat = x.reshape(models, samples * length, features)
    hidden = relu(torch.baddbmm(bias[:, None], flat, weight.mT))
    scores = (hidden @ directions.mT).view(models, samples, length, -1)
    weights = softmax(scores.transpose(2, 3), batch.present)
    return weights @ hidden.view(models, samples, length, -1)


def fed(
    x: Float[Tensor, "models rows inputs"],
    inner: Float[Tensor, "models hidden inputs"],
    bias: Float[Tensor, "models hidden"],
    outer: Float[Tensor, "models outputs hidden"],
    shift: Float[Tensor, "models outputs"],
    residual: bool,
    activation: Callable[[Tensor], Tensor] = relu,
) -> Float[Tensor, "models rows outputs"]:
    """W2 act(W1 x + b1) + b2 for every member's rows, x added to it where it is a residual step."""
    out = torch.baddbmm(shift[:, None], activation(torch.baddbmm(bias[:, None], x, inner.mT)), outer.mT)
    return x + out if residual else out


@dataclass(frozen=True)
class Touch:
    """The parts of deeper banks that touch every token: attention of tokens and the class token, feed-forwards."""

    mix: Mix = written_out
    ask: Ask = attended
    feed: Feed = fed


def collapsed(
    bank: Bank, p: Stacked, batch: Batch, pool: Pool = pool, touch: Touch | None = None
) -> Float[Tensor, "models batch ..."]:
    """Every member's output with the last layer collapsed; `pool`, or `touch` in deeper banks, touches every token."""
    if bank.depth > 1 or not bank.net.arch.relu_encoder:
        return _collapsed_last(bank, p, batch, touch or Touch())
    attention = _weights(p, 0)
    outer, shift = p["encoder.outer.weight"], p["encoder.outer.bias"]
    query = torch.einsum("khne,ke->khn", attention["query"], p["cls"]) * bank.scale[:, :1, None]
    directions = torch.einsum("khn,khne->khe", query, attention["key"]) @ outer
    pooled = pool(batch, p["encoder.inner.weight"], p["encoder.inner.bias"], directions)
    heads = (
        _apply(attention["value"] @ outer[:, None], pooled)
        + (attention["value"] @ shift[:, None, :, None])[:, None, ..., 0]
    )
    return _read_out(p, p["cls"][:, None] + _merge(attention["output"], heads))


def _collapsed_last(bank: Bank, p: Stacked, batch: Batch, ops: Touch) -> Float[Tensor, "models batch ..."]:
    tokens = _encoded(bank, p, batch, ops.feed)
    cls = p["cls"][:, None].expand(-1, tokens.shape[1], -1)
    for layer in range(bank.depth - 1):
        tokens, cls = _layer(bank, p, layer, tokens, cls, batch.present, ops)
    last = bank.depth - 1
    return _read_out(p, _class_attended(p, last, bank.scale[:, last], cls, tokens, batch.present, ops.ask))


def _layer(
    bank: Bank, p: Stacked, layer: int, tokens: Tensor, cls: Tensor, present: Tensor | None, ops: Touch
) -> tuple[Tensor, Tensor]:
    """A layer before the last: the tokens (models, batch, length, embed) and the class token after it."""
    scale, name, feed = bank.scale[:, layer], f"between.{layer}", _feed_of(bank, ops.feed)
    residual = bank.net.arch.residual
    if bank.net.arch.class_token == "every":
        answer = _class_attended(p, layer, scale, cls, tokens, present, ops.ask)
        cls = _fed(p, name, answer if residual else answer - cls, _feed_of(bank, fed), residual)
    mixed = _mixed(p, layer, scale, tokens, present, ops.mix, residual)
    return _fed(p, name, mixed, feed, residual), cls


def _encoded(bank: Bank, p: Stacked, batch: Batch, feed: Feed) -> Float[Tensor, "models batch length embed"]:
    """Every token's state before attention."""
    x = batch.tokens()
    if bank.net.arch.embedding == "feed-forward":
        return _fed(p, "encoder", x, _feed_of(bank, feed), residual=False)
    entered = torch.baddbmm(p["encoder.bias"][:, None], x.flatten(1, 2), p["encoder.weight"].mT)
    return entered.view(*x.shape[:-1], -1)


def _feed_of(bank: Bank, feed: Feed) -> Feed:
    """The feed-forward of a bank's tokens: as given for ReLU, with GELU the plain one."""
    return feed if bank.net.arch.activation == "relu" else partial(fed, activation=gelu)


def _fed(p: Stacked, name: str, x: Tensor, feed: Feed, residual: bool) -> Tensor:
    inner, outer = p[f"{name}.inner.weight"], p[f"{name}.outer.weight"]
    out = feed(x.flatten(1, -2), inner, p[f"{name}.inner.bias"], outer, p[f"{name}.outer.bias"], residual)
    return out.view(*x.shape[:-1], -1)


def _class_attended(
    p: Stacked, layer: int, scale: Tensor, cls: Tensor, tokens: Tensor, present: Tensor | None, attend: Ask
) -> Float[Tensor, "models batch embed"]:
    """The class token after attention: its query is carried to the tokens, not their keys and values to it.

    Its heads look along the directions W_K,h^T W_Q,h cls; values and outputs are applied to the mean state.
    """
    attention = _weights(p, layer)
    query = torch.einsum("kbe,khne->kbhn", cls, attention["query"]) * scale[:, None, None, None]
    directions = torch.einsum("kbhn,khne->kbhe", query, attention["key"])
    pooled = attend(tokens, directions, present)
    return cls + _merge(attention["output"], _apply(attention["value"], pooled))


def _mixed(
    p: Stacked, layer: int, scale: Tensor, tokens: Tensor, present: Tensor | None, mix: Mix, residual: bool = True
) -> Float[Tensor, "models batch length embed"]:
    """The tokens after attention to each other; queries, keys and values are one product."""
    attention = _weights(p, layer)
    query = attention["query"] * scale[:, None, None, None]
    weights = torch.stack([query, attention["key"], attention["value"]], dim=1)  # models, 3, heads, head_dim, embed
    flat = tokens.flatten(1, 2)
    three = (flat @ weights.flatten(1, 3).mT).view(*tokens.shape[:3], *weights.shape[1:4])
    heads = mix(three, present).flatten(1, 2).flatten(2)
    output = _side_by_side(attention["output"])
    return (torch.baddbmm(flat, heads, output) if residual else heads @ output).view(tokens.shape)


def _weights(p: Stacked, layer: int) -> Stacked:
    return {name: p[f"attention.{layer}.{name}"] for name in ("query", "key", "value", "output")}


def _states(bank: Bank, p: Stacked, batch: Batch) -> tuple[Tensor, Tensor]:
    """Tokens and class token as the last layer finds them: (models, batch, length or 1, embed)."""
    tokens = _encoded(bank, p, batch, fed)
    cls = p["cls"][:, None, None].expand(-1, tokens.shape[1], 1, -1)
    for layer in range(bank.depth - 1):
        every = bank.net.arch.class_token == "every"
        both = torch.cat([tokens, cls], dim=2) if every else tokens
        update = _attend(p, layer, bank.scale[:, layer], both, tokens, batch.present)
        both = both + update if bank.net.arch.residual else update
        both = _fed(p, f"between.{layer}", both, _feed_of(bank, fed), bank.net.arch.residual)
        tokens, cls = (both[:, :, :-1], both[:, :, -1:]) if every else (both, cls)
    return tokens, cls


def _attend(
    p: Stacked, layer: int, scale: Tensor, queries: Tensor, tokens: Tensor, present: Tensor | None
) -> Float[Tensor, "models batch to embed"]:
    query, key, value, output = _weights(p, layer).values()
    q = _heads(queries, query * scale[:, None, None, None])
    k, v = _heads(tokens, key), _heads(tokens, value)
    mixed = softmax(q @ k.mT, present) @ v  # models, batch, heads, to, head_dim
    return _merge(output, mixed.transpose(2, 3).flatten(1, 2)).view(queries.shape)


def _heads(x: Tensor, weight: Tensor) -> Float[Tensor, "models batch heads tokens head_dim"]:
    models, samples, tokens, _ = x.shape
    heads, head_dim = weight.shape[1:3]
    out = x.reshape(models, samples * tokens, -1) @ weight.flatten(1, 2).mT
    return out.view(models, samples, tokens, heads, head_dim).transpose(2, 3)


def _apply(weight: Tensor, x: Tensor) -> Float[Tensor, "models batch heads head_dim"]:
    """Head by head, weight (models, heads, head_dim, inputs) on x (models, batch, heads, inputs)."""
    return (x.transpose(1, 2) @ weight.mT).transpose(1, 2)


def _merge(output: Tensor, heads: Tensor) -> Float[Tensor, "models batch embed"]:
    """sum_h W_O,h head_h as one product over the concatenated heads."""
    return heads.flatten(2) @ _side_by_side(output)


def _side_by_side(output: Tensor) -> Float[Tensor, "models heads_dims embed"]:
    return output.transpose(2, 3).flatten(1, 2)


def _read_out(p: Stacked, cls: Float[Tensor, "models batch embed"]) -> Float[Tensor, "models batch ..."]:
    out = _fed(p, "read_out", cls, partial(fed, activation=gelu), residual=False)
    return out[:, :, 0] if out.shape[-1] == 1 else out
