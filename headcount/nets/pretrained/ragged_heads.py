"""The attention of one layer with its own rank in every head: the part that every family of models shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from headcount.nets.pretrained.layout import HeadLayout


@dataclass(frozen=True)
class Weights:
    """One layer's attention as matrices, row blocks in the order of `layout`.

    Head i has logits scale <W_Q x + b_Q, W_K y> and adds W_O W_V y to the output. There is no key bias: what it adds to
    a logit is the same for every key, which softmax does not see. There is no value bias: the weights of a row sum
    to one, so it is a constant W_O b_V of the output, and is counted in `output_bias`.
    Rotary layers keep both: a key bias is turned with its place, and their stock output projection has no bias.
    Rows of a rotary head: the first coordinates of its frequencies, then their second ones.
    """

    layout: HeadLayout
    query: Float[Tensor, "query_rows embed"]
    query_bias: Float[Tensor, " query_rows"] | None
    key: Float[Tensor, "key_rows embed"]
    value: Float[Tensor, "value_rows embed"]
    output: Float[Tensor, "embed output_columns"]
    output_bias: Float[Tensor, " embed"] | None
    scale: float
    key_bias: Float[Tensor, " key_rows"] | None = None
    value_bias: Float[Tensor, " value_rows"] | None = None

    @property
    def parameters(self) -> int:
        biases = (self.query_bias, self.key_bias, self.value_bias, self.output_bias)
        parts = (self.query, self.key, self.value, self.output, *biases)
        return sum(p.numel() for p in parts if p is not None)


@runtime_checkable
class Probe(Protocol):
    """Something that looks at, and may change, what passes through the hidden identities of one layer."""

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...

    def outputs(self, u: Tensor) -> Tensor: ...


class Heads(nn.Module):
    """Projections of ragged heads: one matrix product for all queries, one for all keys, one for all values.

    Attention itself runs at the largest rank of the layer, rows of zeros filling the smaller heads: a zero adds
    nothing to a logit, and what it would add to an output is not read back.
    """

    probe: Probe | None = None
    query_places: Tensor | None
    key_places: Tensor | None
    value_places: Tensor | None
    output_places: Tensor | None

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layout, self.scale = weights.layout, weights.scale
        self.query = linear_of(weights.query, weights.query_bias)
        self.key = linear_of(weights.key, weights.key_bias)
        self.value = linear_of(weights.value, weights.value_bias)
        rows = {"query": self.layout.query_rows, "key": self.layout.key_rows, "value": self.layout.value_rows}
        rows["output"] = len(self.layout.alive) * self.layout.padded
        for name, where in _places(weights.layout).items():
            plain = where == list(range(rows[name]))  # nothing to move: every head has the layer's largest rank
            self.register_buffer(
                f"{name}_places", None if plain else torch.tensor(where, dtype=torch.long), persistent=False
            )

    @property
    def count(self) -> int:
        return len(self.layout.alive)

    def queries(self, x: Float[Tensor, "batch to embed"]) -> Float[Tensor, "batch heads to n"]:
        return self.spread(self.query(x), self.query_places)

    def spread(
        self, rows: Float[Tensor, "batch length rows"], places: Int[Tensor, " slots"] | None
    ) -> Float[Tensor, "batch heads length n"]:
        """Ragged rows to equal heads; a place one past the last row is a zero."""
        if places is not None:
            rows = functional.pad(rows, (0, 1)).index_select(-1, places)
        return rows.unflatten(-1, (self.count, self.layout.padded)).transpose(1, 2)

    def gather(self, u: Float[Tensor, "batch to heads n"]) -> Float[Tensor, "batch to columns"]:
        """Equal heads back to ragged columns, after the probe has seen them."""
        if self.probe is not None:
            u = self.probe.outputs(u)
        flat = u.flatten(2)
        return flat if self.output_places is None else flat.index_select(-1, self.output_places)

    def seen(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The queries, after the probe has looked at them with their keys and values."""
        return q if self.probe is None else self.probe.queries(q, k, v)

    def weights(self, output: nn.Linear) -> Weights:
        """The matrices as they now are, with the output projection that belongs to them."""
        return Weights(
            self.layout,
            self.query.weight.detach(),
            _bias(self.query),
            self.key.weight.detach(),
            self.value.weight.detach(),
            output.weight.detach(),
            _bias(output),
            self.scale,
            _bias(self.key),
            _bias(self.value),
        )


def _bias(layer: nn.Linear) -> Tensor | None:
    return None if layer.bias is None else layer.bias.detach()


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A projection as a module, around the matrix as it is."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.contiguous())
    if bias is not None:
        layer.bias = nn.Parameter(bias.contiguous())
    return layer


def _places(layout: HeadLayout) -> dict[str, list[int]]:
    """For every slot of the equal heads, the ragged row it shows; and for every ragged column, its slot."""
    n = layout.padded
    value_starts, key_starts = layout.value_starts(), layout.key_starts()
    slots: dict[str, list[int]] = {"query": [], "key": [], "value": [], "output": []}
    for at, (head, first) in enumerate(zip(layout.alive, layout.query_starts(), strict=True)):
        group, shared = layout.groups[head], layout.sharing[head]
        rank, width = layout.ranks[group], layout.widths[shared]
        slots["query"] += _slots(first, rank, n, layout.query_rows)
        slots["key"] += _slots(key_starts[group], rank, n, layout.key_rows)
        slots["value"] += _slots(value_starts[shared], width, n, layout.value_rows)
        slots["output"] += list(range(at * n, at * n + width))
    return slots


def _slots(first: int, size: int, padded: int, zero: int) -> list[int]:
    return [*range(first, first + size), *[zero] * (padded - size)]
