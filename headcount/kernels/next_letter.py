"""Decoders as a problem: what a bank of them says after every letter of its strings, and what it loses."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, scaled_dot_product_attention

from headcount.kernels.bank import Bank, Stacked
from headcount.nets.causal import EPS, DecoderShape, rotated


@dataclass(frozen=True, eq=False)
class StringBatch:
    """A batch of strings for every member: what is read, what is to be said where, and where places begin."""

    ids: Int[Tensor, "models batch length"]
    targets: Int[Tensor, "models batch length"]
    judged: Bool[Tensor, "models batch length"]
    offset: Int[Tensor, "models batch"]
    counts: Int[Tensor, " models"]  # judged places

    @property
    def size(self) -> tuple[int, int, int]:
        """Members, strings of each, places of a string."""
        models, batch, length = self.ids.shape
        return models, batch, length

    def few(self, bank: Bank) -> tuple[StringBatch, ...]:
        """All of it: a step's strings are few."""
        return (self,)


@dataclass(frozen=True)
class NextLetter:
    """The cross-entropy of the letters that are to be said, over the judged places; products may be in bfloat16."""

    precision: Literal["full", "bfloat16"] = "full"

    def output(self, bank: Bank[DecoderShape], p: Stacked, batch: StringBatch) -> Tensor:
        """Every member's logits of the next letter, at every place of its own strings."""
        with self._products(batch.ids.device.type):
            return logits(bank.net, p, batch.ids, batch.offset)

    def reference(self, bank: Bank[DecoderShape], p: Stacked, batch: StringBatch) -> Tensor:
        """The same with full products."""
        return logits(bank.net, p, batch.ids, batch.offset)

    def losses(self, output: Tensor, batch: StringBatch) -> Float[Tensor, "models 1"]:
        """Each member's mean over its judged places."""
        return answer_loss(output, batch.targets, batch.judged)[:, None]

    def score(self, output: Tensor, batch: StringBatch) -> dict[str, Float[Tensor, "models 1"]]:
        """That loss, the share of judged places that are right, and of strings all of whose places are."""
        letters, strings = answers_right(output, batch.targets, batch.judged)
        loss = answer_loss(output, batch.targets, batch.judged).double()
        return {"loss": loss[:, None], "token_accuracy": letters[:, None], "string_accuracy": strings[:, None]}

    def _products(self, device: str) -> AbstractContextManager[object]:
        full = self.precision == "full" or not torch.is_grad_enabled()
        return nullcontext() if full else torch.autocast(device, torch.bfloat16, cache_enabled=False)


def logits(
    shape: DecoderShape,
    p: Stacked,
    ids: Int[Tensor, "models batch length"],
    offset: Int[Tensor, "models batch"] | None = None,
) -> Float[Tensor, "models batch length vocab"]:
    """Every member's logits of the next letter, at every place of its own strings.

    >>> shape = DecoderShape(((1, 4),), embed_dim=8, width=16, vocab=5, context=10)
    >>> bank = Bank([shape, shape], seeds=[0, 1])
    >>> ids = torch.randint(5, (2, 3, 7))
    >>> torch.allclose(logits(shape, bank.named(), ids)[1], bank.module(1)(ids[1]), atol=1e-6)
    True
    """
    models, batch, length = ids.shape
    x = _looked_up(p["token"], ids.flatten(1)).view(models, batch * length, -1)
    if shape.positions == "absolute":
        places = torch.arange(length, device=ids.device).expand(models, batch, length)
        places = places if offset is None else places + offset[..., None]
        x = x + _looked_up(p["place"], places.reshape(models, -1))
    for i, (heads, _) in enumerate(shape.layers):
        x = x + _attended(shape, p, i, heads, _normed(p, f"layer{i}.norm", x), batch)
        inner, outer = p[f"layer{i}.inner.weight"].mT, p[f"layer{i}.outer.weight"].mT
        hidden = gelu(torch.baddbmm(p[f"layer{i}.inner.bias"][:, None], _normed(p, f"layer{i}.before", x), inner))
        x = x + torch.baddbmm(p[f"layer{i}.outer.bias"][:, None], hidden, outer)
    return (_normed(p, "last", x) @ p["logits"].mT).view(models, batch, length, -1)


def _attended(shape: DecoderShape, p: Stacked, i: int, heads: int, x: Tensor, batch: int) -> Tensor:
    models, rows, _ = x.shape
    three = (x @ p[f"layer{i}.read"].mT).view(models * batch, rows // batch, 3, heads, -1)
    q, k, v = three.permute(2, 0, 3, 1, 4)
    if shape.positions == "rotary":
        q, k = rotated(q), rotated(k)
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True)  # (models * batch, heads, length, head_dim)
    return mixed.transpose(1, 2).reshape(models, rows, -1) @ p[f"layer{i}.write"].mT


def answer_loss(
    logits: Float[Tensor, "models batch length vocab"],
    targets: Int[Tensor, "models batch length"],
    judged: Bool[Tensor, "models batch length"],
) -> Float[Tensor, " models"]:
    """The cross-entropy of the target letters, its mean over the judged places, by member."""
    log_p = torch.log_softmax(logits.float() if logits.dtype.itemsize < 4 else logits, dim=-1)
    right = log_p.gather(-1, targets[..., None])[..., 0]
    return -(right * judged).sum(dim=(1, 2)) / judged.sum(dim=(1, 2)).clamp(min=1)


def answers_right(
    logits: Float[Tensor, "models batch length vocab"],
    targets: Int[Tensor, "models batch length"],
    judged: Bool[Tensor, "models batch length"],
) -> tuple[Float[Tensor, " models"], Float[Tensor, " models"]]:
    """The share of judged places whose letter gets the largest logit, and of strings all of whose places do."""
    right = logits.argmax(dim=-1) == targets
    letters = (right & judged).sum(dim=(1, 2)) / judged.sum(dim=(1, 2)).clamp(min=1)
    return letters.double(), (right | ~judged).all(dim=2).double().mean(dim=1)


def _normed(p: Stacked, name: str, x: Float[Tensor, "models rows embed"]) -> Tensor:
    return layer_norm(x, x.shape[-1:], eps=EPS) * p[f"{name}.weight"][:, None] + p[f"{name}.bias"][:, None]


def _looked_up(table: Float[Tensor, "models letters embed"], ids: Int[Tensor, "models rows"]) -> Tensor:
    first = torch.arange(len(table), device=ids.device)[:, None] * table.shape[1]
    return embedding(ids + first, table.flatten(0, 1))
