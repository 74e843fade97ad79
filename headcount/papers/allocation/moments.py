"""What passes through a layer's heads on some text: the moments that make truncation data-aware.

Three metrics of one product, from crude to faithful: its weights alone; the inputs it sees (mean-square logits and
head outputs); and the model's outputs, through the derivative of the whole network by the hidden identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Probe, Weights
from headcount.papers.allocation.lowrank import Factors

PARTS = ("query-key", "value-output")


@dataclass(frozen=True)
class Pair:
    """The metrics of one product: one for the left factor of every head in it, one for the right they share."""

    left: Float[Tensor, "members dim dim"]
    right: Float[Tensor, "dim dim"]


Metrics = dict[tuple[int, str], list[Pair]]  # (layer, part) -> one pair a key group or value head


@dataclass(frozen=True)
class Moments:
    """Second moments of one layer's queries, keys and attended values, and the mean of the last.

    `key` is the covariance of all keys of the layer together, centred within each sequence: softmax does not see
    what is constant over keys.
    """

    query: Float[Tensor, "heads dim dim"]
    key: Float[Tensor, "keys_dim keys_dim"]
    attended: Float[Tensor, "heads dim dim"]
    mean: Float[Tensor, "heads dim"]


def members(layout: HeadLayout, part: str) -> list[tuple[int, ...]]:
    """The heads of every key group, or of every value head."""
    of, count = (layout.groups, layout.ranks) if part == "query-key" else (layout.sharing, layout.widths)
    return [tuple(i for i, g in enumerate(of) if g == group) for group in range(len(count))]


class _Watch:
    """Adds up moments of one full-rank layer; changes nothing."""

    def __init__(self, heads: int, key_heads: int, dim: int) -> None:
        self.query = torch.zeros(heads, dim, dim, dtype=torch.float64)
        self.key = torch.zeros(key_heads * dim, key_heads * dim, dtype=torch.float64)
        self.attended = torch.zeros(heads, dim, dim, dtype=torch.float64)
        self.mean = torch.zeros(heads, dim, dtype=torch.float64)
        self.each = heads // key_heads
        self.rows = self.tokens = 0
        self.present: Bool[Tensor, "batch length"]

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        row_mask = _rows(self.present, q.shape[2])
        masked = q.detach() * row_mask[:, None, :, None]
        self.query += torch.einsum("bhti,bhtj->hij", masked, masked).double()
        keys = k.detach()[:, :: self.each].transpose(1, 2).flatten(2)  # batch, length, all keys of the layer
        token_mask = self.present[:, :, None].to(keys.dtype)
        centred = (keys - (keys * token_mask).sum(1, keepdim=True) / token_mask.sum(1, keepdim=True)) * token_mask
        self.key += (centred.flatten(0, 1).mT @ centred.flatten(0, 1)).double()
        self.tokens += int(self.present.sum())
        return q

    def outputs(self, u: Tensor) -> Tensor:
        row_mask = _rows(self.present, u.shape[1])
        masked = u.detach() * row_mask[:, :, None, None]
        self.attended += torch.einsum("bthi,bthj->hij", masked, masked).double()
        self.mean += masked.sum((0, 1)).double()
        self.rows += int(row_mask.sum())
        return u

    def moments(self) -> Moments:
        rows, tokens = max(self.rows, 1), max(self.tokens, 1)
        return Moments(self.query / rows, self.key / tokens, self.attended / rows, self.mean / rows)


class _Insert:
    """Puts a matrix, the identity, in every product of every sequence, so that the network can be derived by it."""

    def __init__(self, layout: HeadLayout, batch: int, mean: Float[Tensor, "heads dim"], parts: Sequence[str]) -> None:
        eye = torch.eye(layout.padded).repeat(batch, len(layout.groups), 1, 1)
        self.leaf = {part: eye.clone().requires_grad_() for part in parts}
        self.mean = mean

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q @ self.leaf["query-key"].to(q.dtype) if "query-key" in self.leaf else q

    def outputs(self, u: Tensor) -> Tensor:
        if "value-output" not in self.leaf:
            return u
        leaf, mean = self.leaf["value-output"].to(u.dtype), self.mean.to(u.dtype)
        return torch.einsum("bthi,bhji->bthj", u - mean, leaf) + mean


@torch.no_grad()
def input_moments(
    model: nn.Module,
    family: Family,
    batches: Iterable[TextBatch],
    read: Readout,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Moments]:
    """The moments of every layer on the given text, in one forward pass over it."""
    layers = family.layers(model)
    watches = [_Watch(*_sizes(family, layer)) for layer in layers]
    with probing(family, layers, watches):
        for number, batch in enumerate(batches, start=1):
            for watch in watches:
                watch.present = batch.present
            read(model, batch)
            progress(f"moments of the inputs, batch {number}")
    return [watch.moments() for watch in watches]


def weight_metrics(weights: Weights) -> dict[str, list[Pair]]:
    """The metrics of the weights alone: truncating under them is the plain singular value decomposition."""
    layout, out = weights.layout, {}
    dim = layout.padded
    if not layout.rotary:
        q = weights.query.double()
        if weights.query_bias is not None:
            q = torch.cat([q, weights.query_bias.double()[:, None]], dim=1)  # the bias reads a constant 1
        q, k = q.unflatten(0, (-1, dim)), weights.key.double().unflatten(0, (-1, dim))
        out["query-key"] = [
            Pair(q[list(m)] @ q[list(m)].mT, k[g] @ k[g].mT) for g, m in enumerate(members(layout, "query-key"))
        ]
    o = weights.output.double().mT.unflatten(0, (-1, dim))
    v = weights.value.double().unflatten(0, (-1, dim))
    out["value-output"] = [
        Pair(o[list(m)] @ o[list(m)].mT, v[j] @ v[j].mT) for j, m in enumerate(members(layout, "value-output"))
    ]
    return out


def input_metrics(weights: Weights, moments: Moments, *, centred: bool) -> dict[str, list[Pair]]:
    """Mean-square logits (times scale^2) and mean-square head outputs on the text the moments come from.

    `centred`: what the mean of the attended values adds is moved to the output bias.
    """
    layout, dim = weights.layout, weights.layout.padded
    out: dict[str, list[Pair]] = {}
    if not layout.rotary:
        out["query-key"] = [
            Pair(moments.query[list(m)] * weights.scale**2, diagonal_block(moments.key, g, dim))
            for g, m in enumerate(members(layout, "query-key"))
        ]
    o = weights.output.double().mT.unflatten(0, (-1, dim))
    spread = moments.attended - (moments.mean[:, :, None] * moments.mean[:, None, :] if centred else 0)
    out["value-output"] = [
        Pair(o[list(m)] @ o[list(m)].mT, spread[list(m)].mean(0)) for m in members(layout, "value-output")
    ]
    return out


@dataclass(frozen=True, eq=False)
class Slopes:
    """The derivatives df/dI of a model's read-out by every hidden identity, on some text.

    f is a random direction of the read-out, `directions` of them a batch; `means` is what of every layer's attended
    values an output bias carries.
    """

    model: nn.Module
    batches: Sequence[TextBatch]
    read: Readout
    means: Sequence[Tensor]
    seed: int = 0
    progress: Callable[[str], None] = lambda _: None
    directions: int = 2

    def by_product(
        self, parts: Sequence[str]
    ) -> Iterable[tuple[tuple[int, str], Float[Tensor, "batch heads dim dim"]]]:
        """Every product's, sequence by sequence."""
        family = family_of(self.model)
        layers = family.layers(self.model)
        generator = torch.Generator().manual_seed(self.seed)
        for number, batch in enumerate(self.batches, start=1):
            size = len(batch.present)
            inserts = [
                _Insert(family.read(layer).layout, size, self.means[i], _open(family, layer, parts))
                for i, layer in enumerate(layers)
            ]
            where = [(i, part) for i, insert in enumerate(inserts) for part in insert.leaf]
            with probing(family, layers, inserts), torch.enable_grad():
                outputs = self.read(self.model, batch)
                leaves = [inserts[i].leaf[part] for i, part in where]
                for left in reversed(range(self.directions)):
                    direction = torch.randn(outputs.shape, generator=generator, dtype=torch.float32).to(outputs.dtype)
                    slopes = torch.autograd.grad((outputs * direction).sum(), leaves, retain_graph=left > 0)
                    yield from zip(where, slopes, strict=True)
            self.progress(f"derivative of the outputs, batch {number} of {len(self.batches)}")


def output_metrics(slopes: Slopes, parts: Sequence[str]) -> Metrics:
    """Metrics under which the error of a product is, to first order, the change of the model's outputs.

    Putting P for the identity of one product changes the read-out f by <F, I - P> with F = df/dI. The metrics are the
    Kronecker factors of E[vec F vec F']: L = E[F F'], R = E[F' F] / E |F|^2, over sequences and random read-outs.
    The softmax's Jacobian diag(p) - p p' is inside F, so a saturated row counts for nothing.
    """
    family = family_of(slopes.model)
    layers = family.layers(slopes.model)
    left: dict[tuple[int, str], Tensor] = {}
    right: dict[tuple[int, str], Tensor] = {}
    for where, slope in slopes.by_product(parts):
        f = slope.double()
        left[where] = left.get(where, 0) + torch.einsum("bhij,bhkj->hik", f, f)
        right[where] = right.get(where, 0) + torch.einsum("bhij,bhik->hjk", f, f)
    metrics: Metrics = {}
    for (number, part), l in left.items():
        r = right[number, part]
        metrics[number, part] = []
        for m in members(family.read(layers[number]).layout, part):
            size = r[list(m)].diagonal(dim1=-2, dim2=-1).sum().clamp_min(torch.finfo(r.dtype).tiny)
            metrics[number, part].append(Pair(l[list(m)], r[list(m)].sum(0) / size))
    return metrics


def curves(slopes: Slopes, found: Mapping[tuple[int, str], Sequence[Factors]]) -> dict[tuple[int, str], list[Tensor]]:
    """E <F, I - P_r>^2 for every product and rank r: the first-order change of the read-out that a plan adds up."""
    parts = [part for part in PARTS if any(p == part for _, p in found)]
    family = family_of(slopes.model)
    layers = family.layers(slopes.model)
    units = {where: members(family.read(layers[where[0]]).layout, where[1]) for where in found}
    total: dict[tuple[int, str], list[Tensor]] = {
        where: [fs.values.new_zeros(len(fs.values) + 1) for fs in several] for where, several in found.items()
    }
    count = 0
    for where, slope in slopes.by_product(parts):
        if where not in found:
            continue
        if where == next(iter(found)):
            count += len(slope)
        for unit, (heads, factors) in enumerate(zip(units[where], found[where], strict=True)):
            total[where][unit] += _remaining(slope[:, list(heads)].double(), factors).square().sum(0)
    return {where: [t / max(count, 1) for t in several] for where, several in total.items()}


def _remaining(
    slopes: Float[Tensor, "batch members dim dim"], factors: Factors
) -> Float[Tensor, "batch ranks_and_one"]:
    """<F, I - P_r> for r = 0, 1, ..., summed over the heads that share the right factor."""
    left = factors.left.unflatten(0, (slopes.shape[1], -1))
    captured = torch.einsum("bmij,mir,jr->br", slopes, left, factors.right).cumsum(1)
    total = slopes.diagonal(dim1=-2, dim2=-1).sum((-2, -1))[:, None]
    return total - torch.cat([captured.new_zeros(len(captured), 1), captured], dim=1)


@contextmanager
def probing(family: Family, layers: Sequence[nn.Module], probes: Sequence[Probe]) -> Iterator[None]:
    """Probes in, and out again whatever happens."""
    with ExitStack() as out:
        for layer, probe in zip(layers, probes, strict=True):
            heads = family.heads(layer)
            assert heads is not None, "write the layer as ragged heads first"
            out.callback(setattr, heads, "probe", None)
            heads.probe = probe
        yield


def _open(family: Family, layer: nn.Module, parts: Sequence[str]) -> list[str]:
    refused = family.refuses(layer)
    return [part for part in parts if part not in refused]


def _sizes(family: Family, layer: nn.Module) -> tuple[int, int, int]:
    layout = family.read(layer).layout
    return len(layout.groups), len(layout.ranks), layout.padded


def _rows(present: Bool[Tensor, "batch length"], count: int) -> Tensor:
    """Which queries count: the tokens that are there, or all rows when queries are not the tokens."""
    return present.float() if present.shape[1] == count else torch.ones(present.shape[0], count)


def diagonal_block(matrix: Tensor, index: int, size: int) -> Tensor:
    """The block of a matrix that stands on its diagonal at this index."""
    return matrix[index * size : (index + 1) * size, index * size : (index + 1) * size]
