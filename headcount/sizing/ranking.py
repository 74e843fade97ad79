"""How many heads for a real model: shapes of one budget ranked by cost and expected quality, beside models in use."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.notebook import html_table, html_words
from headcount.numerals import spoken_bytes
from headcount.refusals import at_least_one, positive
from headcount.results import Bound
from headcount.sizing.basis import Basis
from headcount.sizing.costing import Footprint, footprint
from headcount.sizing.evidence import EvidenceTable, evidence_table
from headcount.sizing.expectation import Expectation, expected
from headcount.sizing.forbidden import forbidding
from headcount.sizing.known_models import BESIDE, KNOWN, known_shape
from headcount.sizing.model_configs import read_config
from headcount.sizing.model_shape import PLAIN, LayerShape, ModelShape, Wiring

if TYPE_CHECKING:
    from headcount.tasks import Task

__all__ = ["RankedShape", "ShapeAnswer", "ShapeLimits", "shape"]

HEAD_DIMS = (32, 64, 80, 96, 128, 256)
TOTALS = (0.5, 1.0, 1.5, 2.0)  # attention's width as a share of embed_dim: head_dim is not welded to it
USUAL = 64  # head_dim of the reference
FEED = {True: 8 / 3, False: 4.0}  # a feed-forward's usual width as a share of embed_dim, gated or not
WIDTHS = (*range(64, 512, 64), *range(512, 1024, 128), *range(1024, 8193, 256))  # so that heads can be shared
ROUND = 16  # widths of feed-forwards are whole multiples of it
DOUBT = 0.1  # of half its interval: of two shapes alike the better known comes first; habit
WORTH = 0.5  # percent of loss that halving what is read for each token is worth; habit


@dataclass(frozen=True)
class ShapeLimits:
    """What a shape must keep to: bytes of cache a token, bytes of weights and cache, tokens a second.

    `bandwidth` is that of the memory that weights and cache are read from, in bytes a second.
    """

    cache_per_token: float = math.inf
    memory: float = math.inf
    speed: float = 0.0
    bandwidth: float = 1e12

    def broken(self, cost: Footprint) -> tuple[str, ...]:
        """The limits that a cost does not keep to, in words."""
        found = []
        if cost.cache_per_token > self.cache_per_token:
            cache, limit = spoken_bytes(cost.cache_per_token), spoken_bytes(self.cache_per_token)
            found.append(f"cache {cache} a token, limit {limit}")
        if cost.decode_bytes > self.memory:
            found.append(f"{spoken_bytes(cost.decode_bytes)} of weights and cache, limit {spoken_bytes(self.memory)}")
        if cost.cache and cost.speed(self.bandwidth) < self.speed:
            found.append(f"{cost.speed(self.bandwidth):.0f} tokens a second, limit {self.speed:g}")
        return tuple(found)


@dataclass(frozen=True)
class RankedShape:
    """One shape with what it costs, what is expected of it, which limits it breaks, and its place's price."""

    shape: ModelShape
    cost: Footprint
    expectation: Expectation
    broken: tuple[str, ...]
    price: float  # percent of loss, what it saves counted at its worth

    def as_row(self) -> dict[str, Any]:
        one = self.shape.layers[0]
        ends = self.expectation.interval
        return {
            "layers": len(self.shape.layers),
            "embed_dim": self.shape.embed_dim,
            "heads": one.heads,
            "head_dim": one.head_dim,
            "key-value heads": one.kv_heads,
            "by layer": "" if self.shape.is_uniform else " + ".join(map(str, self.shape.layers)),
            "feed-forward": one.width,
            **self.cost.as_row(),
            "expected percent": self.expectation.percent,
            "interval": list(ends) if ends else None,
            "basis": self.expectation.mark,
            "why": str(self.expectation),
            "broken": list(self.broken),
        }


@dataclass(frozen=True)
class ShapeAnswer:
    """The ranked shapes, the reference they are compared with, what forbids, and what models in use chose."""

    question: str
    context: int
    reference: ModelShape
    ranked: tuple[RankedShape, ...]
    limits: ShapeLimits
    table: EvidenceTable = field(repr=False)
    language: bool = True
    task: Any = None

    @property
    def first(self) -> RankedShape:
        return self.ranked[0]

    @property
    def second(self) -> RankedShape:
        """The best that differs from the first by more than its feed-forward."""
        return next((r for r in self.ranked[1:] if not r.broken), self.ranked[min(1, len(self.ranked) - 1)])

    @cached_property
    def bounds(self) -> list[Bound]:
        return forbidding(self.first.shape, self.context, self.task)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [one.as_row() for one in self.ranked]

    @property
    def sentence(self) -> str:
        one, cost = self.first.shape.layers[0], self.first.cost
        kept = "" if not self.first.broken else f" No shape keeps to the limits: {'; '.join(self.first.broken)}."
        cache = "" if self.first.shape.wiring.encoder else f", {spoken_bytes(cost.cache_per_token)} of cache a token"
        grouped = (
            "each with its own keys and values" if one.kv_heads == one.heads else f"{one.kv_heads} key-value heads"
        )
        mark = self.mark
        against = _layer_words(self.reference.layers[0])
        said = "" if not self.first.expectation.parts else f", against {against}: {self.first.expectation}"
        if not self.language:
            said = "; nothing measured speaks of such data, so this is what people do"
        sizes = f"embed_dim {self.first.shape.embed_dim}, feed-forward {one.width}"
        return (
            f"{len(self.first.shape.layers)} layers of {one.heads} heads of {one.head_dim}, {grouped}, {sizes}: "
            f"{spoken_count(cost.parameters)} parameters{cache} [{mark}]{said}.{kept}"
        )

    @property
    def mark(self) -> str:
        """What the choice rests on: the first shape's own difference, or its rivals' where it is the reference."""
        if not self.language:
            return Basis.HABIT.value
        shown = self.first if self.first.expectation.parts else self.second
        return shown.expectation.mark

    def beside(self) -> list[dict[str, Any]]:
        """What a model of about this size of each known family chose, and how that differs from the first shape."""
        size = self.first.cost.parameters
        found = []
        for family in BESIDE:
            names = [name for name in KNOWN if name.startswith(family)]
            name = min(names, key=lambda n: abs(math.log(known_shape(n).parameters / size)))
            found.append(self._beside(name, known_shape(name)))
        return found

    def _beside(self, name: str, other: ModelShape) -> dict[str, Any]:
        theirs, ours = other.layers[0], self.first.shape.layers[0]
        cost = footprint(other, self.context)
        return {
            "model": name,
            "parameters": cost.parameters,
            "layers": len(other.layers),
            "embed_dim": other.embed_dim,
            "heads": str(theirs),
            "cache bytes per token": cost.cache_per_token,
            "cache bytes": cost.cache,
            "why it differs": _differs(other, theirs, ours, self),
        }

    def files(self, out: Path, command: str = "") -> list[Path]:
        """The page and the rows; the page says by which command it was made."""
        from headcount.sizing.shape_page import write_shape

        return write_shape(self, out, command)

    def _repr_html_(self) -> str:
        columns = ("heads", "head_dim", "key-value heads", "parameters", "cache bytes per token", "why")
        return html_words(self.sentence) + html_table(columns, [[r[c] for c in columns] for r in self.rows[:10]])


def shape(
    budget: float | str | None = None,
    *,
    model: str | Path | ModelShape | None = None,
    width: int | None = None,
    layers: int | None = None,
    context: int = 2048,
    vocab: int | None = None,
    encoder: bool = False,
    language: bool | None = None,
    cache_per_token: float = math.inf,
    memory: float = math.inf,
    speed: float = 0.0,
    bandwidth: float = 1e12,
    worth: float = WORTH,
    task: Task | None = None,
    table: EvidenceTable | None = None,
) -> ShapeAnswer:
    """Rank (layers, heads, head_dim, key-value heads) for a budget of parameters, a width, or a model at hand.

    Every shape has the budget's parameters: what attention gives up, the feed-forward gets. They are ordered by the
    expected loss, in percent against multi-head attention of head_dim 64, plus what is read for each token counted at
    its `worth` (percent of loss for each halving: a habit, not a measurement), a tenth of its uncertainty added; shapes
    that break a limit come last, and so do those of which nobody knows the quality. `language=False` is for data that
    nobody has measured: all is habit.

    >>> answer = shape("135M", context=8192, vocab=49152)
    >>> answer.first.cost.parameters < 1.02 * 135e6, answer.first.broken
    (True, ())
    """
    at_least_one(context=context)
    positive(bandwidth=bandwidth)
    held = table or evidence_table()
    spoken = (not encoder) if language is None else language
    limits = ShapeLimits(cache_per_token, memory, speed, bandwidth)
    base = _base(budget, model, width, layers, vocab, encoder, context)
    reference = _reference(base)
    cost = footprint(reference, context)
    found = [
        _ranked(one, plan, reference, context, limits, held, language=spoken, worth=worth, before=cost)
        for one, plan in [*((one, "") for one in candidates(base)), *divided(reference)]
    ]
    order = sorted(found, key=lambda r: (len(r.broken), not r.expectation.known and spoken, r.price, r.cost.cache))
    question = f"{spoken_count(base.parameters)} parameters, context {context}"
    return ShapeAnswer(question, context, reference, tuple(order), limits, held, spoken, task)


def candidates(base: ModelShape) -> list[ModelShape]:
    """Every shape of the base's parameters: head dimensions, attention's width, keys and values shared evenly.

    >>> base = ModelShape.uniform(2, heads=4, head_dim=64, embed_dim=256, width=1024, vocab=1000)
    >>> sizes = [one.parameters for one in candidates(base)]
    >>> max(sizes) / min(sizes) < 1.001
    True
    """
    found: dict[LayerShape, ModelShape] = {}
    for head_dim in HEAD_DIMS:
        for share in TOTALS:
            heads = round(share * base.embed_dim / head_dim)
            for shared in (n for n in range(1, heads + 1) if heads % n == 0):
                if (one := _balanced(base, heads, head_dim, shared)) is not None:
                    found.setdefault(one.layers[0], one)
    if not found:
        raise ValueError(f"embed_dim {base.embed_dim} is too small for a head of {HEAD_DIMS[0]}")
    return list(found.values())


def divided(reference: ModelShape) -> list[tuple[ModelShape, str]]:
    """The reference with its attention divided over layers as the allocation paper and OpenELM do, at equal sizes."""
    from headcount.papers.allocation.schedules import by_bound, ramp

    one, depth = reference.layers[0], len(reference.layers)
    if depth < 3 or one.heads < 2:
        return []
    plans = [(ramp(depth, one.heads, one.head_dim), "heads growing with depth")]
    with contextlib.suppress(ValueError):  # whole heads cannot be made of what the later layers give up
        early = by_bound(depth, one.heads, one.head_dim, early=depth // 3, lags=2)
        plans.append((early, "early layers wide, late ones narrow"))
    return [
        (reference.with_layers([LayerShape(h, n, h, one.width) for h, n in plan.layers]), change)
        for plan, change in plans
    ]


def _balanced(base: ModelShape, heads: int, head_dim: int, kv_heads: int) -> ModelShape | None:
    """The base with these heads in every layer and the feed-forward that its parameters leave; None if none is left."""
    one = base.layers[0]
    freed = base.attention_matrices(one) + base.feed_matrices(one)
    bare = LayerShape(heads, head_dim, kv_heads, 0)
    width = round((freed - base.attention_matrices(bare)) / (base.wiring.matrices * base.embed_dim))
    if width < base.embed_dim // 2:
        return None
    return base.with_layers([LayerShape(heads, head_dim, kv_heads, width, layer.window) for layer in base.layers])


def _base(
    budget: float | str | None,
    model: str | Path | ModelShape | None,
    width: int | None,
    layers: int | None,
    vocab: int | None,
    encoder: bool,
    context: int,
) -> ModelShape:
    """The sizes that stay: layers, embed_dim, vocabulary, and how many parameters a layer has."""
    if model is not None:
        if budget is not None or width is not None:
            raise ValueError("give a model, or a budget or width; not both")
        return model if isinstance(model, ModelShape) else _named(model)
    wiring = Wiring(False, True, 2, 2, 1, 0, True, True, True, encoder=True) if encoder else PLAIN
    words = (0 if encoder else 32_768) if vocab is None else vocab
    if budget is None and width is None:
        raise ValueError("give a budget of parameters, a width, or a model")
    if budget is None:
        assert width is not None
        return _welded(layers or max(2, round(width / 64)), width, words, wiring, FEED[wiring.gated] * width)
    return _of_budget(parameters_from(budget), width, layers, words, wiring)


def _of_budget(wanted: float, width: int | None, layers: int | None, vocab: int, wiring: Wiring) -> ModelShape:
    """The depth and width that models in use have at this size, and the feed-forward that then meets the budget."""
    aspect = 24 if wanted < 3e8 else 64  # embed_dim a layer: 19 to 64 below 0.3 B, 34 to 128 above, in the models here
    best, least = None, math.inf
    for embed in [width] if width else WIDTHS:
        one = _welded(1, embed, vocab, wiring, FEED[wiring.gated] * embed)
        left = wanted - one.table_parameters
        depth = layers or max(2, round(left / (one.parameters - one.table_parameters)))
        spare = left / depth - one.attention_matrices(one.layers[0])
        feed = round(spare / (wiring.matrices * embed) / ROUND) * ROUND
        away = abs(math.log(embed / depth / aspect)) + abs(math.log(max(feed, 1) / (FEED[wiring.gated] * embed)))
        if feed >= embed // 2 and away < least:
            best, least = _welded(depth, embed, vocab, wiring, feed), away
    if best is None:
        said = f"a vocabulary of {vocab:,}" + (f" and {layers} layers" if layers else "")
        raise ValueError(f"{spoken_count(wanted)} parameters leave no room for layers beside {said}")
    return best


def _welded(layers: int, embed: int, vocab: int, wiring: Wiring, feed: float) -> ModelShape:
    head_dim = USUAL if embed >= USUAL else embed
    heads = max(1, round(embed / head_dim))
    width = max(ROUND, round(feed / ROUND) * ROUND)
    return ModelShape.uniform(
        layers, heads=heads, head_dim=head_dim, embed_dim=embed, width=width, vocab=vocab, wiring=wiring
    )


def _reference(base: ModelShape) -> ModelShape:
    """Multi-head attention of the usual head dimension at the base's parameters."""
    heads = max(1, round(base.embed_dim / USUAL))
    return _balanced(base, heads, USUAL, heads) or base


def _ranked(
    one: ModelShape,
    plan: str,
    reference: ModelShape,
    context: int,
    limits: ShapeLimits,
    table: EvidenceTable,
    *,
    language: bool,
    worth: float,
    before: Footprint,
) -> RankedShape:
    cost = footprint(one, context)
    layer = reference.layers[0] if plan else one.layers[0]
    found = expected(layer, reference.layers[0], table, language=language, plan=plan)
    saved = worth * math.log2(_work(cost) / _work(before))
    ends = found.interval or (0.0, 0.0)
    doubt = DOUBT * (ends[1] - ends[0]) / 2
    price = (found.percent or 0.0) + saved + doubt + _odd(one, language)
    return RankedShape(one, cost, found, limits.broken(cost), price)


def _work(cost: Footprint) -> float:
    """What a token costs in use: bytes read where it decodes, arithmetic where it does not; padding counted."""
    return (cost.decode_bytes if cost.cache else cost.prefill_flops) / cost.tiles


def _odd(one: ModelShape, language: bool) -> float:
    """Where nothing is measured, habit speaks: heads of 64 as wide together as the model, each its own keys."""
    if language:
        return 0.0
    layer = one.layers[0]
    away = abs(math.log2(layer.head_dim / USUAL)) + abs(math.log2(layer.heads * layer.head_dim / one.embed_dim))
    return away + math.log2(layer.ratio)


def _differs(other: ModelShape, theirs: LayerShape, ours: LayerShape, answer: ShapeAnswer) -> str:
    words = []
    if theirs.ratio != ours.ratio:
        words.append(f"shares keys and values {theirs.ratio:g}:1 where this shape shares {ours.ratio:g}:1")
    if theirs.head_dim != ours.head_dim:
        words.append(f"head_dim {theirs.head_dim}, not {ours.head_dim}")
    if theirs.heads * theirs.head_dim != other.embed_dim:
        words.append(f"attention {theirs.heads * theirs.head_dim / other.embed_dim:.2g} times as wide as the model")
    if any(one.window for one in other.layers):
        seen = sum(1 for one in other.layers if one.window)
        words.append(f"{seen} of {len(other.layers)} layers see {other.layers[0].window} tokens")
    broken = answer.limits.broken(footprint(other, answer.context))
    words += [f"breaks the limit: {what}" for what in broken]
    wider = other.embed_dim / answer.first.shape.embed_dim
    loss = expected(theirs, ours, answer.table, language=answer.language, wider=wider)
    if loss.parts and loss.known:
        words.append(f"expected {loss}")
    return "; ".join(words) or "the same heads"


def _layer_words(one: LayerShape) -> str:
    return f"{one.heads} heads of {one.head_dim} with {one.kv_heads} key-value heads"


def _named(model: str | Path) -> ModelShape:
    return read_config(model) if Path(model).exists() else known_shape(str(model))


def parameters_from(text: float | str) -> float:
    """A count as people write it.

    >>> parameters_from("135M"), parameters_from("1.5B"), parameters_from(10e6)
    (135000000.0, 1500000000.0, 10000000.0)
    """
    if isinstance(text, int | float):
        positive(budget=text)
        return float(text)
    units = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    stripped = text.strip().lower().replace("_", "").replace(",", "")
    unit = units.get(stripped[-1:], 1.0)
    try:
        number = float(stripped[:-1] if stripped[-1:] in units else stripped) * unit
    except ValueError:
        raise ValueError(f"a budget is a number of parameters such as 135M or 1.5B, got {text!r}") from None
    positive(budget=number)
    return number


def spoken_count(count: float) -> str:
    """A number of parameters in words.

    >>> spoken_count(135_171_648), spoken_count(999_885_952), spoken_count(1_000_811_200), spoken_count(300)
    ('135 M', '1.00 B', '1.00 B', '300')
    """
    if count < 1e5:
        return f"{count:,.0f}"
    size, unit = (count / 1e9, "B") if count >= 9.995e8 else (count / 1e6, "M")
    return f"{size:.0f} {unit}" if size >= 100 else f"{size:.2f} {unit}"


def marks(answer: ShapeAnswer) -> list[dict[str, Any]]:
    """What each part of the first shape rests on."""
    depth = {"part": "layers and embed_dim", "basis": Basis.HABIT.value, "why": "what models of this size have"}
    parts = [{"part": p.change, "basis": p.as_row()["basis"], "why": p.reason} for p in answer.first.expectation.parts]
    sizes = {"part": "costs", "basis": Basis.PROVED.value, "why": "counted; equal to the built models'"}
    return [depth, *parts, sizes]
