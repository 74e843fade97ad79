"""A measurement: the rows of a contest, what they say, and how that shows itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import write_text
from headcount.measuring.answer import Answer, Conditions, answer
from headcount.measuring.contestants import Contestant, KeptNetwork
from headcount.measuring.paired_ratios import SplitErrors, split_errors
from headcount.notebook import html_table, html_words, within_columns
from headcount.numerals import counted
from headcount.results import Study

MEMORISED = 2.0  # an outer error this many times the training error is memory, not a pattern


@dataclass(frozen=True)
class ContestantLine:
    """A contestant's error over splits, the smallest and the largest, and what it costs; None where that is unknown."""

    name: str
    error: float
    least: float
    most: float
    splits: int
    chosen: bool
    training: float | None
    error_rate: float | None
    balanced_error: float | None
    parameters: int | None
    cpu_seconds: float | None


@dataclass(frozen=True, repr=False)
class Measurement:
    """A study of given data and what it says.

    The error of a contestant is its loss on outer parts as a share of what the best constant loses there: NMSE for
    numbers, relative cross-entropy for classes; over splits, the mean.

    >>> rows = tuple({"contestant": name, "heads": h, "depth": min(h, 1), "attends": h > 0, "standard": h > 0,
    ...               "seed": s, "nmse": level * (1 + s / 50), "inner": level, "short": level}
    ...              for name, h, level in (("zero heads", 0, 0.5), ("1 head", 1, 0.1)) for s in range(3))
    >>> Measurement(Study(rows)).answer.verdict
    'worth it'
    """

    study: Study
    pages: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    def __repr__(self) -> str:
        return within_columns(f"<Measurement of {self.study.name!r}: {self.answer.advice}>")

    def _repr_html_(self) -> str:
        lines = [(row.name, row.error, row.splits, row.parameters) for row in self.by_contestant()]
        picture = self.pages.get("curves.svg", "")
        return html_words(self.answer.advice) + picture + html_table(("", self.words, "splits", "parameters"), lines)

    @property
    def words(self) -> str:
        """What the error is called."""
        return str(self.study.spec.get("level", "NMSE"))

    @cached_property
    def scores(self) -> tuple[SplitErrors, ...]:
        """Every contestant's errors by split, in the order in which they came."""
        return split_errors(self.study)

    @cached_property
    def answer(self) -> Answer:
        """Worth it, not worth it, or cannot say yet; heads and layers."""
        return answer(self.scores, _conditions(self.study.spec))

    @property
    def sentence(self) -> str:
        """What to do: the verdict, why, and how many heads."""
        return self.answer.advice

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each contestant: its error over splits, and what it costs."""
        return [asdict(one) for one in self.by_contestant()]

    def files(self, out: Path) -> list[Path]:
        """The page, its picture and all rows, which `fit` and `report` read."""
        return [write_text(out / name, text) for name, text in self.pages.items()]

    @property
    def levels(self) -> dict[str, float]:
        """The error of every contestant."""
        return {one.name: one.mean(one.outer) for one in self.scores}

    def grid(self) -> dict[int, dict[int, float]]:
        """The error of the standard block by layers and heads."""
        errors: dict[int, dict[int, float]] = {}
        for one in self.scores:
            if one.standard:
                errors.setdefault(one.depth, {})[one.heads] = one.mean(one.outer)
        return {depth: dict(sorted(row.items())) for depth, row in sorted(errors.items())}

    def by_contestant(self) -> list[ContestantLine]:
        """A line for each contestant: its error, the smallest and the largest, and what it costs."""
        return [self._line(one) for one in self.scores]

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Why to read the numbers with care."""
        return tuple(filter(None, (self._memorised(), self._stopped(), self._sparse(), self._shallow())))

    def as_row(self) -> dict[str, object]:
        """Everything found as one machine-readable value."""
        return {
            **self.answer.to_json(),
            "advice": self.sentence,
            "headline": self.answer.headline,
            "level": self.words,
            "levels": self.levels,
            "warnings": list(self.warnings),
            "data": self.study.spec.get("data", {}),
            "plan": self.study.spec.get("plan", {}),
            "steps": self.study.spec.get("steps"),
        }

    @property
    def saved(self) -> KeptNetwork | None:
        """The network to keep: of the advised block, or of the best with attention, by the inner part."""
        rows: list[Any] = [row for row in self.study if row.get("attends")]
        if self.answer.heads is not None:
            rows = [r for r in rows if r["standard"] and (r["heads"], r["depth"]) == self._advised] or rows
        best = min(rows, key=lambda row: row["inner"], default=None)
        if best is None:
            return None
        heads = tuple(int(h) for h in best["layers"].split(" + "))
        return KeptNetwork(best["run"], Contestant(best["contestant"], heads), best["seed"], best["inner"])

    @property
    def _advised(self) -> tuple[int | None, int | None]:
        return self.answer.heads, self.answer.layers

    def _line(self, one: SplitErrors) -> ContestantLine:
        rows = [row for row in self.study if row.get("contestant") == one.name]
        outer = list(one.outer.values())

        def middle(name: str) -> float | None:
            values = [row[name] for row in rows if row.get(name) is not None]  # pyright: ignore
            return float(np.mean(values)) if values else None

        return ContestantLine(
            name=one.name,
            error=one.mean(one.outer),
            least=min(outer),
            most=max(outer),
            splits=len(outer),
            chosen=one.standard and (one.heads, one.depth) == self._advised,
            training=middle("train_nmse") if one.depth else None,
            error_rate=middle("error_rate"),
            balanced_error=middle("balanced_error"),
            parameters=rows[0].get("parameters") or None,
            cpu_seconds=middle("cpu_seconds"),
        )

    def _memorised(self) -> str:
        chosen = next((line for line in self.by_contestant() if line.chosen), None)
        if chosen is None or not chosen.training or chosen.error < MEMORISED * chosen.training:
            return ""
        errors = f"{chosen.training:.2g} on what was trained on and {chosen.error:.2g} on what was not"
        return f"the advised block has {errors}: part of it is memory"

    def _stopped(self) -> str:
        return {
            "time": "the time ended the contest; the same command goes on where it stopped",
            "interrupted": "this was interrupted; the same command goes on where it stopped",
        }.get(self.study.spec.get("stopped", ""), "")

    def _sparse(self) -> str:
        counts = [c for c in self.answer.counts if c.untested]
        gaps = [f"{' and '.join(map(str, c.untested))} in {counted(c.layers, 'layer')}" for c in counts]
        return f"head counts inside the interval were not tested: {', '.join(gaps)}" if gaps else ""

    def _shallow(self) -> str:
        """Depths of the plan that the time did not reach."""
        wanted = range(1, self.study.spec.get("plan", {}).get("layers", 1) + 1)
        depths = {count.layers for count in self.answer.counts}
        left = [counted(depth, "layer") for depth in wanted if depth not in depths]
        return f"{' and '.join(left)} could not be judged yet: fewer than two splits have them" if left else ""


def _conditions(spec: Mapping[str, Any]) -> Conditions:
    """Under what the contest was held, of a stored study; a field of another type is refused by its name."""
    rarest = spec.get("rarest") if spec.get("uneven", True) else None
    plan = _field(spec, "plan", {}, Mapping)
    tested, complete = _field(plan, "heads", (), Sequence), spec.get("complete")
    counts = [*tested, *(complete if isinstance(complete, list) else ())]
    pair = isinstance(rarest, list) and len(rarest) == 2 and isinstance(rarest[1], int)
    if not (rarest is None or pair) or not all(isinstance(count, int) for count in counts):
        raise ValueError("this measurement is damaged: rarest, complete or heads are not what measure writes")
    return Conditions(
        complete=_field(spec, "complete", None, list),
        steps=_field(spec, "steps", 0, int),
        most_splits=_field(spec, "most_splits", 10, int),
        rarest=None if rarest is None else (str(rarest[0]), rarest[1]),
        tolerance=_field(plan, "tolerance", 0.05, int | float),
        tested=tuple(tested),
        entering=_field(spec, "entering", "", str),
    )


def _field(table: Mapping[str, Any], name: str, otherwise: Any, kind: Any) -> Any:
    value = table.get(name, otherwise)
    if value is not otherwise and (not isinstance(value, kind) or (isinstance(value, int | float) and not value >= 0)):
        raise ValueError(f"this measurement is damaged: {name} is {value!r:.40}")
    return value
