"""One head made smaller: truncated SVD of its query-key product, then fine-tuning against the original's attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets.pretrained.batches import TextBatch
from headcount.papers.allocation.lowrank import factors
from headcount.training.adam import descend


@dataclass(frozen=True, eq=False)
class Head:
    """Queries and keys of one head on some text, the logits divided by the root of its dimension."""

    queries: Float[Tensor, "batch length dim"]
    keys: Float[Tensor, "batch length dim"]

    @property
    def dim(self) -> int:
        """The head dimension."""
        return self.queries.shape[-1]

    def attention(self, product: Float[Tensor, "dim dim"] | None = None) -> Float[Tensor, "batch length length"]:
        """Rows of attention, with `product` put between queries and keys (None: nothing, the head as it is)."""
        projected = self.queries if product is None else self.queries @ product
        return torch.softmax(projected @ self.keys.mT / math.sqrt(self.dim), dim=-1)

    def part(self, first: int, last: int) -> Head:
        """The same on some of the sequences."""
        return Head(self.queries[first:last], self.keys[first:last])


@dataclass(frozen=True)
class Shrunk:
    """Mean total variation distance of attention rows from the original's: by SVD alone, and fine-tuned."""

    rank: int
    by_svd: float
    tuned: float


@torch.no_grad()
def head_of(model: Any, batch: TextBatch, layer: int, head: int) -> Head:
    """A head of a BERT on a batch of full sequences."""
    states = model(**batch.inputs, output_hidden_states=True).hidden_states[layer]
    attention = model.encoder.layer[layer].attention.self
    dim = attention.attention_head_size
    at = slice(head * dim, (head + 1) * dim)
    return Head(attention.query(states)[..., at], attention.key(states)[..., at])


def shrink(head: Head, rank: int, steps: int = 200, lr: float = 1e-2) -> Shrunk:
    """A student of smaller dimension: initialised by SVD, tuned on half of the sequences, judged on the other half.

    The SVD is that of the products as the data see them; the loss is the cross-entropy with the original's rows.
    """
    half = len(head.queries) // 2
    tuning, unseen = head.part(0, half), head.part(half, len(head.queries))
    flat_q, flat_k = tuning.queries.flatten(0, 1), tuning.keys.flatten(0, 1)
    svd = factors(flat_q.T @ flat_q / len(flat_q), torch.cov(flat_k.T))
    left = svd.left[:, :rank].clone().requires_grad_()
    right = svd.right[:, :rank].clone().requires_grad_()
    by_svd = _distance(unseen, (left @ right.mT).detach())
    wanted = tuning.attention()

    def loss(step: int) -> Tensor:
        logits = tuning.queries @ (left @ right.mT) @ tuning.keys.mT / math.sqrt(head.dim)
        return -(wanted * torch.log_softmax(logits, dim=-1)).sum(-1).mean()

    descend(loss, [left, right], steps, lr, cosine=False)
    return Shrunk(rank, by_svd, _distance(unseen, (left @ right.mT).detach()))


@torch.no_grad()
def _distance(head: Head, product: Float[Tensor, "dim dim"]) -> float:
    return float((head.attention(product) - head.attention()).abs().sum(-1).mean() / 2)
