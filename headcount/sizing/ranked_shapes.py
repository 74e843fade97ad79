"""How many heads for a real model: shapes of one budget ranked by cost and expected quality, beside models in use."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.files import write_json, write_text
from headcount.notebook import html_table, html_words
from headcount.numerals import counted, spoken_bytes
from headcount.refusals import at_least_one, positive
from headcount.results import Bound
from headcount.sizing.costing import Footprint, footprint
from headcount.sizing.equal_shapes import USUAL, base_shape, candidates, divided, reference_shape, spoken_count
from headcount.sizing.evidence import EvidenceTable, evidence_table
from headcount.sizing.expectation import COUNTED, HABIT, Expectation, expected
from headcount.sizing.forbidden import forbidding, task_claim
from headcount.sizing.known_models import BESIDE, KNOWN, known_shape
from headcount.sizing.model_shape import LayerShape, ModelShape

if TYPE_CHECKING:
    from headcount.papers.born.length_study import Judged
    from headcount.tasks import Task

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
        violations = []
        if cost.cache_per_token > self.cache_per_token:
            cache, limit = spoken_bytes(cost.cache_per_token), spoken_bytes(self.cache_per_token)
            violations.append(f"cache {cache} a token, limit {limit}")
        if cost.decode_bytes > self.memory:
            violations.append(
                f"{spoken_bytes(cost.decode_bytes)} of weights and cache, limit {spoken_bytes(self.memory)}"
            )
        if cost.cache and cost.speed(self.bandwidth) < self.speed:
            violations.append(f"{cost.speed(self.bandwidth):.0f} tokens a second, limit {self.speed:g}")
        return tuple(violations)


@dataclass(frozen=True)
class RankedShape:
    """One shape with what it costs, what is expected of it, which limits it breaks, and its place's price."""

    shape: ModelShape
    cost: Footprint
    expectation: Expectation
    broken: tuple[str, ...]
    price: float  # percent of loss, what it saves counted at its worth

    def as_row(self) -> dict[str, object]:
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

    @cached_property
    def theory(self) -> list[str]:
        """What theorems say of the first shape: what forbids, and of a task whether it is within reach."""
        if self.task is None:
            return list(map(str, self.bounds))
        claim, letters = task_claim(self.task, self.first.shape), getattr(self.task, "length_verdict", None)
        sentences = [] if claim is None else [str(claim)]
        sentences += [] if letters is None else [f"from short strings to long ones, {letters}"]
        return [*map(str, self.bounds), *sentences]

    @property
    def rows(self) -> list[dict[str, object]]:
        return [one.as_row() for one in self.ranked]

    @property
    def sentence(self) -> str:
        one, cost = self.first.shape.layers[0], self.first.cost
        limits = "" if not self.first.broken else f" No shape keeps to the limits: {'; '.join(self.first.broken)}."
        cache = "" if self.first.shape.wiring.encoder else f", {spoken_bytes(cost.cache_per_token)} of cache a token"
        grouped = (
            "each with its own keys and values"
            if one.kv_heads == one.heads
            else counted(one.kv_heads, "key-value head")
        )
        caveat = "" if self.language else "; nothing measured speaks of such data, so this is what people do"
        sizes = f"embed_dim {self.first.shape.embed_dim}, feed-forward {one.width}"
        return (
            f"{counted(len(self.first.shape.layers), 'layer')} of {counted(one.heads, 'head')} of {one.head_dim}, "
            f"{grouped}, {sizes}: "
            f"{spoken_count(cost.parameters)} parameters{cache} [{self.mark}]{caveat}.{limits}"
        )

    @property
    def compared(self) -> str:
        """What is expected of it against the reference, where anything is."""
        if not self.language or not self.first.expectation.parts:
            return ""
        return f"Against {_layer_words(self.reference.layers[0])}: {self.first.expectation}."

    @property
    def short_rows(self) -> list[dict[str, object]]:
        """The rows in six columns."""
        return [_short(one) for one in self.ranked]

    @property
    def marks(self) -> list[dict[str, str]]:
        """What each part of the first shape rests on."""
        depth = {"part": "layers and embed_dim", "basis": HABIT.mark, "why": "what models of this size have"}
        expected = self.first.expectation.parts
        parts = [{"part": p.change, "basis": str(p.as_row()["basis"]), "why": p.reason} for p in expected]
        sizes = {"part": "costs", "basis": COUNTED.mark, "why": "counted; equal to the built models'"}
        return [depth, *parts, sizes]

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return {
            "question": self.question,
            "sentence": self.sentence,
            "shapes": self.rows,
            "beside": self.beside(),
            "bounds": [bound.as_row() for bound in self.bounds],
            "theory": self.theory,
            "marks": self.marks,
        }

    @property
    def mark(self) -> str:
        """What the choice rests on: the first shape's own difference, or its rivals' where it is the reference."""
        if not self.language:
            return HABIT.mark
        shown = self.first if self.first.expectation.parts else self.second
        return shown.expectation.mark

    def beside(self) -> list[dict[str, object]]:
        """What a model of about this size of each known family chose, and how that differs from the first shape."""
        size = self.first.cost.parameters
        rows = []
        for family in BESIDE:
            names = [name for name in KNOWN if name.startswith(family)]
            name = min(names, key=lambda n: abs(math.log(known_shape(n).parameters / size)))
            rows.append(self._beside(name, known_shape(name)))
        return rows

    def _beside(self, name: str, other: ModelShape) -> dict[str, object]:
        other_layer, own_layer = other.layers[0], self.first.shape.layers[0]
        cost = footprint(other, self.context)
        return {
            "model": name,
            "parameters": cost.parameters,
            "layers": len(other.layers),
            "embed_dim": other.embed_dim,
            "heads": str(other_layer),
            "cache bytes per token": cost.cache_per_token,
            "cache bytes": cost.cache,
            "why it differs": _differs(other, other_layer, own_layer, self),
        }

    def files(self, out: Path, command: str = "") -> list[Path]:
        """The page and the rows; the page says by which command it was made."""
        from headcount.sizing.shape_page import shape_page

        shapes = {"shapes": self.rows, "beside": self.beside()}
        rows = {"question": self.question, "sentence": self.sentence, **shapes}
        page = write_text(out / "shape.html", shape_page(self, command=command))
        return [page, write_json(out / "shape.json", rows)]

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
    task: Task | Judged | None = None,
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
    evidence = table or evidence_table()
    spoken = (not encoder) if language is None else language
    limits = ShapeLimits(cache_per_token, memory, speed, bandwidth)
    base = base_shape(budget, model, width, layers, vocab, encoder)
    reference = reference_shape(base)
    rule = _Ranking(reference, context, limits, evidence, spoken, worth)
    ranked = [rule.ranked(one, plan) for one, plan in [*((one, "") for one in candidates(base)), *divided(reference)]]
    order = sorted(ranked, key=lambda r: (len(r.broken), not r.expectation.known and spoken, r.price, r.cost.cache))
    question = f"{spoken_count(base.parameters)} parameters, context {context}"
    return ShapeAnswer(question, context, reference, tuple(order), limits, evidence, spoken, task)


@dataclass(frozen=True)
class _Ranking:
    """What a shape is ranked by: the reference it is compared with, the limits, and what is known."""

    reference: ModelShape
    context: int
    limits: ShapeLimits
    table: EvidenceTable
    language: bool
    worth: float

    @cached_property
    def before(self) -> Footprint:
        """What the reference costs."""
        return footprint(self.reference, self.context)

    def ranked(self, one: ModelShape, plan: str) -> RankedShape:
        """The shape with its cost, expected quality and price."""
        cost, usual = footprint(one, self.context), self.reference.layers[0]
        expectation = expected(usual if plan else one.layers[0], usual, self.table, language=self.language, plan=plan)
        saved = self.worth * math.log2(_work(cost) / _work(self.before))
        ends = expectation.interval or (0.0, 0.0)
        doubt = DOUBT * (ends[1] - ends[0]) / 2
        price = (expectation.percent or 0.0) + saved + doubt + _odd(one, self.language)
        return RankedShape(one, cost, expectation, self.limits.broken(cost), price)


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


def _differs(other: ModelShape, other_layer: LayerShape, own_layer: LayerShape, answer: ShapeAnswer) -> str:
    words = []
    if other_layer.ratio != own_layer.ratio:
        words.append(f"shares keys and values {other_layer.ratio:g}:1 where this shape shares {own_layer.ratio:g}:1")
    if other_layer.head_dim != own_layer.head_dim:
        words.append(f"head_dim {other_layer.head_dim}, not {own_layer.head_dim}")
    if other_layer.heads * other_layer.head_dim != other.embed_dim:
        words.append(
            f"attention {other_layer.heads * other_layer.head_dim / other.embed_dim:.2g} times as wide as the model"
        )
    if any(one.window for one in other.layers):
        windowed = sum(1 for one in other.layers if one.window)
        words.append(f"{windowed} of {len(other.layers)} layers see {other.layers[0].window} tokens")
    broken = answer.limits.broken(footprint(other, answer.context))
    words += [f"breaks the limit: {what}" for what in broken]
    wider = other.embed_dim / answer.first.shape.embed_dim
    loss = expected(other_layer, own_layer, answer.table, language=answer.language, wider=wider)
    if loss.parts and loss.known:
        words.append(f"expected {loss}")
    return "; ".join(words) or "the same heads"


def _short(one: RankedShape) -> dict[str, object]:
    row = one.as_row()
    return {
        "heads": row["by layer"] or row["heads"],
        "head_dim": row["head_dim"],
        "kv": row["key-value heads"],
        "feed": row["feed-forward"],
        "cache/token": spoken_bytes(one.cost.cache_per_token),
        "expected": f"{one.expectation}" + (f"; breaks {'; '.join(one.broken)}" if one.broken else ""),
    }


def _layer_words(one: LayerShape) -> str:
    return f"{counted(one.heads, 'head')} of {one.head_dim} with {counted(one.kv_heads, 'key-value head')}"
