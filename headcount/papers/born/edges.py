"""What the heads of a trained decoder look at, and what is lost when some of their edges are cut."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headcount.nets.causal import CausalTransformer
from headcount.tasks.letters import Lengths, LetterTask

Edges = Callable[[Int[Tensor, "batch length"]], Bool[Tensor, "batch length length"]]
"""Which edges (from a place, to an earlier one) of each string."""
Part = Literal["keys", "values"]


def _previous(ids: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch length length"]:
    places = torch.arange(ids.shape[1], device=ids.device)
    return (places[:, None] == places + 1).expand(len(ids), -1, -1)


def _copies(ids: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch length length"]:
    """From a place to the earlier ones with the same letter."""
    return (ids[:, :, None] == ids[:, None]).tril(-1)


def _after_copies(ids: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch length length"]:
    """From a place to those whose letter before is the letter here: after an earlier copy, the place itself not."""
    same = _copies(ids).roll(1, dims=2)
    same[:, :, 0] = False
    return same.tril(-1)


EDGES: Mapping[str, Edges] = {"previous": _previous, "anti-induction": _copies, "induction": _after_copies}
"""Edges by name: one place back; to a copy (whose head can carry the letter before it); to the place after a copy."""


class CutDecoder(nn.Module):
    """A decoder in which the heads of `layers` (None: all) do not read keys, or values, along some edges.

    Without keys an edge is as if masked, and the others share its attention; without values it keeps its attention and
    brings nothing.
    """

    def __init__(
        self, net: CausalTransformer, edges: Edges, part: Part = "keys", layers: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.net, self.edges, self.part, self.layers = net, edges, part, layers

    def forward(
        self, ids: Int[Tensor, "batch length"], offset: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch length vocab"]:
        logits, _ = _run(self.net, ids, offset, self._weigh(self.edges(ids)))
        return logits

    def _weigh(self, gone: Tensor) -> Weigh:
        def weigh(layer: int, logits: Tensor) -> Tensor:
            if self.layers is not None and layer not in self.layers:
                return torch.softmax(logits, dim=-1)
            if self.part == "keys":
                return torch.softmax(logits.masked_fill(gone[:, None], -torch.inf), dim=-1)
            return torch.softmax(logits, dim=-1).masked_fill(gone[:, None], 0.0)

        return weigh


Weigh = Callable[[int, Tensor], Tensor]


def cut(net: CausalTransformer, edges: Edges, part: Part = "keys", layers: tuple[int, ...] | None = None) -> CutDecoder:
    """The network without some edges; see `EDGES` for those with a name."""
    return CutDecoder(net, edges, part, layers)


@torch.no_grad()
def attentions(net: CausalTransformer, ids: Int[Tensor, "batch length"]) -> list[Float[Tensor, "batch heads from to"]]:
    """The attention of every head on every string, layer by layer."""
    return _run(net, ids, None, lambda layer, logits: torch.softmax(logits, dim=-1))[1]


class HeadScores(TypedDict):
    """A head, counted from 1, and its mean attention: one place back, to copies, to what stands after and before."""

    layer: int
    head: int
    previous: float
    copy: float
    after: float
    before: float


@torch.no_grad()
def head_scores(
    net: CausalTransformer, task: LetterTask, lengths: Lengths, *, batch: int = 128, seed: int = 0
) -> list[HeadScores]:
    """A row for each head: its mean attention to the previous place, to earlier copies, to those after and before them.

    The first is a mean over all places; the others over the judged places, where the answer is to be said.
    """
    strings = task.strings(batch, lengths, generator=torch.Generator().manual_seed(seed))
    after = _after_copies(strings.ids)
    ahead = _copies(strings.ids).roll(-1, dims=2)
    ahead[:, :, -1] = False
    edges = (_copies(strings.ids), after, ahead)
    rows = []
    for layer, weights in enumerate(attentions(net, strings.ids)):
        for head in range(weights.shape[1]):
            back = weights[:, head].diagonal(-1, 1, 2).mean().item()
            to = [(weights[:, head] * edge).sum(dim=2)[strings.judged].mean().item() for edge in edges]
            rows.append(
                HeadScores(layer=layer + 1, head=head + 1, previous=back, copy=to[0], after=to[1], before=to[2])
            )
    return rows


@torch.no_grad()
def right_share(net: nn.Module, task: LetterTask, lengths: Lengths, *, batch: int = 256, seed: int = 1) -> float:
    """The share of strings all of whose answers are right."""
    strings = task.strings(batch, lengths, generator=torch.Generator().manual_seed(seed))
    right = net(strings.ids).argmax(dim=-1) == strings.targets
    return (right | ~strings.judged).all(dim=1).double().mean().item()


def _run(
    net: CausalTransformer, ids: Tensor, offset: Tensor | None, weigh: Weigh
) -> tuple[Float[Tensor, "batch length vocab"], list[Tensor]]:
    """The network's own forward pass with its attention weights in the open."""
    attention: list[Tensor] = []

    def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ahead = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(ahead, -torch.inf)
        attention.append(weigh(len(attention), logits))
        return attention[-1] @ v

    opened = copy.copy(net)
    opened.mixed = mixed
    return opened(ids, offset), attention
