"""What is expected of one shape's loss against another's: the table's numbers added up, with marks. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import and_

from headcount.results.verdicts import Basis
from headcount.sizing.evidence import EvidenceTable
from headcount.sizing.meta_analysis import pooled_change
from headcount.sizing.model_shape import LayerShape

# From firm to loose: a count, seeds trained here, at least three sources elsewhere, or what people do.
COUNTED, HERE, ELSEWHERE, HABIT = (
    Basis("proved"),
    Basis("measured", "here"),
    Basis("measured", "elsewhere"),
    Basis("habit"),
)

GROUPING = "halve key-value heads"
DOUBLINGS = {(16, 32): "head_dim 16 to 32", (32, 64): "head_dim 32 to 64", (64, 128): "head_dim 64 to 128"}
OURS = "headcount"
FARTHEST = 2  # times the heads that were left where a change was measured: beyond it says nothing


@dataclass(frozen=True)
class ExpectedPart:
    """One kind of change between two shapes: how many steps of it, and what is known of a step.

    `percent` is None where nobody knows: then the basis is habit, and the reason says what there is.
    """

    change: str
    steps: float
    percent: float | None
    low: float | None
    high: float | None
    basis: Basis
    sources: int
    reason: str = ""
    ours: bool = False  # one of the sources is our own grid

    def as_row(self) -> dict[str, object]:
        mark = _marked(self.sources, self.ours) if self.basis == ELSEWHERE else self.basis.mark
        ends = None if self.low is None else [self.low, self.high]
        return {"change": self.change, "steps": self.steps, "percent": self.percent, "interval": ends, "basis": mark}


@dataclass(frozen=True)
class Expectation:
    """The difference in percent of the loss, its interval, and what it rests on; None where a part is not known."""

    parts: tuple[ExpectedPart, ...]

    @property
    def known(self) -> bool:
        return all(part.percent is not None for part in self.parts)

    @property
    def percent(self) -> float | None:
        return sum(part.percent or 0.0 for part in self.parts) if self.known else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The sum's interval, the parts taken as independent."""
        middle = self.percent
        if middle is None:
            return None
        below = math.hypot(*(part.percent - part.low for part in self.parts if None not in (part.percent, part.low)))  # type: ignore[operator]
        above = math.hypot(*(part.high - part.percent for part in self.parts if None not in (part.percent, part.high)))  # type: ignore[operator]
        return middle - below, middle + above

    @property
    def basis(self) -> Basis:
        """The loosest basis of its parts; a shape that changes nothing rests on the count of its parameters alone."""
        return reduce(and_, (part.basis for part in self.parts), COUNTED)

    @property
    def mark(self) -> str:
        """The basis in words, with the fewest sources that a part has."""
        if self.basis == ELSEWHERE:
            fewest = min((p for p in self.parts if p.basis == ELSEWHERE), key=lambda p: p.sources)
            return _marked(fewest.sources, fewest.ours)
        return "the reference" if not self.parts else self.basis.mark

    def __str__(self) -> str:
        if not self.parts:
            return "the reference"
        if self.percent is None or self.interval is None:
            return f"not known ({'; '.join(p.reason for p in self.parts if p.percent is None)})"
        low, high = self.interval
        beyond = "".join(f"; {part.reason}" for part in self.parts if part.reason)
        return f"{self.percent:+.2f}% [{low:+.2f}, {high:+.2f}] ({self.mark}{beyond})"


def expected(
    one: LayerShape,
    reference: LayerShape,
    table: EvidenceTable,
    *,
    language: bool = True,
    wider: float = 1.0,
    plan: str = "",
) -> Expectation:
    """What a layer's heads cost against the reference's at equal parameters; beyond language everything is habit.

    `wider` is how many times as wide the model around them is; `plan` a kind of change that divides attention over
    layers.

    >>> from headcount.sizing.evidence import evidence_table
    >>> eight = LayerShape(8, 64, 8, 2048)
    >>> str(expected(eight, eight, evidence_table()))
    'the reference'
    >>> expected(LayerShape(8, 64, 2, 2048), eight, evidence_table()).parts[0].steps
    2.0
    """
    parts = []
    halvings = math.log2(one.ratio / reference.ratio)
    if abs(halvings) > 1e-9:
        parts.append(_part(table, GROUPING, halvings, language))
    parts += _doublings(one, reference, table, language)
    total, before = one.heads * one.head_dim / wider, reference.heads * reference.head_dim
    if abs(math.log2(total / before)) > 0.1:  # a tenth of a halving is rounding to whole heads
        reason = f"attention {total / before:.2g} times as wide at equal parameters: no three sources"
        parts.append(ExpectedPart("attention's width", total / before, None, None, None, HABIT, 0, reason))
    return Expectation((*parts, *([_part(table, plan, 1, language)] if plan else [])))


def _marked(sources: int, ours: bool) -> str:
    """The mark of a pooled number.

    >>> _marked(4, True), _marked(3, False)
    ('measured elsewhere, 3 sources, and here', 'measured elsewhere, 3 sources')
    """
    return f"{ELSEWHERE.mark}, {sources - ours} sources" + (", and here" if ours else "")


def _doublings(one: LayerShape, other: LayerShape, table: EvidenceTable, language: bool) -> list[ExpectedPart]:
    """The way from one head dimension to another by doublings, or one part that nobody has measured."""
    head_dim, reference = one.head_dim, other.head_dim
    if head_dim == reference:
        return []
    low, high, sign = min(head_dim, reference), max(head_dim, reference), 1 if head_dim > reference else -1
    steps = []
    while low < high:
        steps.append((low, 2 * low))
        low *= 2
    if low != high or any(step not in DOUBLINGS for step in steps):
        reason = f"head_dim {head_dim} for {reference}: no three sources"
        return [ExpectedPart(f"head_dim {reference} to {head_dim}", 1, None, None, None, HABIT, 0, reason)]
    width = max(one.heads * head_dim, other.heads * reference)
    return [_within(_part(table, DOUBLINGS[step], sign, language), table, width // step[1]) for step in steps]


def _within(part: ExpectedPart, table: EvidenceTable, heads: int) -> ExpectedPart:
    """The part, if about so few heads were left where it was measured; else it says nothing of this shape."""
    left = [int(row.after.split()[0]) for row in table.of(part.change) if row.fits]
    if part.percent is None or not left or heads <= FARTHEST * max(left):
        return part
    reason = f"{part.change}: measured where at most {max(left)} heads were left, here {heads}"
    return ExpectedPart(part.change, part.steps, None, None, None, HABIT, part.sources, reason)


def _part(table: EvidenceTable, change: str, steps: float, language: bool) -> ExpectedPart:
    if not language:
        return ExpectedPart(change, steps, None, None, None, HABIT, 0, f"{change}: measured on language alone")
    pooled = pooled_change(table, change)
    if pooled.mean is not None and pooled.prediction is not None:
        ends = sorted(steps * end for end in pooled.prediction)
        most = max(row.steps for row in pooled.rows if row.fits)
        reason = f"measured up to {most:g} steps" if abs(steps) > most else ""
        ours = any(effect.source == OURS for effect in pooled.effects)
        middle = steps * pooled.mean
        return ExpectedPart(change, steps, middle, ends[0], ends[1], ELSEWHERE, pooled.sources, reason, ours)
    if [effect.source for effect in pooled.effects] == [OURS]:
        only = pooled.effects[0]
        shown = f"{only.value:+.2f} ± {2 * only.error:.2f}% at {only.rows[0].size.split(',')[0]}"
        return ExpectedPart(change, steps, None, None, None, HERE, 1, f"{change}: measured here alone, {shown}")
    sources = "one source" if pooled.sources == 1 else f"{pooled.sources} sources" if pooled.sources else "no source"
    return ExpectedPart(
        change, steps, None, None, None, HABIT, pooled.sources, f"{change}: {sources}, three are needed"
    )
