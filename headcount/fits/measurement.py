"""What a study of given data says: how many heads, what one fewer or more costs, and whether to believe it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from headcount.fits.answer import LEARNED, Answer, AttentionWorth, Finding, Worth
from headcount.fits.cells import Cells
from headcount.fits.knee import Knee, knee
from headcount.fits.verdict import Estimate
from headcount.numerals import counted
from headcount.results import Study
from headcount.results.study import Row

__all__ = ["Answer", "AttentionWorth", "Finding", "Measurement", "Worth"]

MEMORISED = 2.0  # validation this many times the training level is memory, not a pattern
WORTHWHILE = 0.8  # below this factor more heads are worth naming even where the curve has turned
NEAR = 1.1  # of several such counts the smallest is named whose level is within this factor of the lowest
LEAD = 0.05  # attention must lower the error of the best baseline by more than this share
OVERDONE = 1.25  # validation risen by this factor since its best is training for too long
RESAMPLES = 2000
BYTES = 4  # of a parameter, as it is saved


@dataclass(frozen=True)
class Measurement:
    """A study of given data and what it says.

    `level` is the validation loss as a share of what the best constant loses: NMSE for numbers, relative
    cross-entropy for classes.

    >>> rows = tuple({"heads": h, "length": 8, "seed": s, "nmse": 10.0 ** -min(h, 3) * (1 + s / 9), "train_nmse": 1e-3,
    ...               "final_nmse": 1e-3} for h in (1, 2, 3, 4, 5) for s in range(4))
    >>> found = Measurement(Study(rows))
    >>> found.advice
    'Use 3 heads: with 2 the error is 10 times as large, and 4 bring nothing that can be measured.'
    """

    study: Study
    confidence: float = 0.95
    files: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @cached_property
    def knee(self) -> Knee:
        """How many heads are enough, by the rule of `headcount.fits.knee`."""
        return knee(self.study, confidence=self.confidence)

    @cached_property
    def cells(self) -> Cells:
        """Every seed's level by head count."""
        return Cells.of(self.study, "heads")

    @cached_property
    def levels(self) -> dict[int, float]:
        """The level at each head count: the geometric mean of the better half of the seeds."""
        return dict(zip(self.cells.points, (10 ** self.cells.levels()[0]).tolist(), strict=True))

    @property
    def words(self) -> str:
        """What the level is called."""
        return str(self.study.spec.get("level", "NMSE"))

    @cached_property
    def finding(self) -> Finding:
        """Nothing was learned, too little, any number of heads will do, some number is enough, or more are needed."""
        best = min(self.levels.values())
        if best > LEARNED:
            return "nothing"
        if not self.knee.learned:
            return "little"
        if self.knee.high is None:
            return "undecided" if self.knee.reached else "more"
        return "any" if self.knee.value == self.knee.high == 1 and self.better is None else "enough"

    @property
    def baselines(self) -> list[dict[str, Any]]:
        """What was reached without attention: name, level, and the share of wrong classes where there are classes."""
        return list(self.study.spec.get("baselines", ()))

    @cached_property
    def attention(self) -> AttentionWorth | None:
        """Whether attention is worth anything here; None where no baseline was measured."""
        if not self.baselines:
            return None
        best = min(self.baselines, key=lambda base: base["level"])
        heads = min(self.levels, key=lambda count: self.levels[count])
        lead = max(LEAD, self.study.spec.get("validation", math.inf) ** -0.5)
        return AttentionWorth(str(best["name"]), best["level"], heads, self.levels[heads], lead)

    @cached_property
    def fewer(self) -> Worth | None:
        """The next smaller count tested, against the knee."""
        place = self.cells.points.index(self.knee.value)
        return self.worth(self.cells.points[place - 1]) if place else None

    @cached_property
    def more(self) -> Worth | None:
        """The next larger count tested, against the knee."""
        rest = self.cells.points[self.cells.points.index(self.knee.value) + 1 :]
        return self.worth(rest[0]) if rest else None

    @cached_property
    def better(self) -> Worth | None:
        """More heads than the knee that lower the error further, by enough to be worth naming; None where none do."""
        rest = [self.worth(heads) for heads in self.cells.points if heads > self.knee.value]
        worthwhile = [worth for worth in rest if worth.tells and worth.factor.value < WORTHWHILE]
        lowest = min((worth.factor.value for worth in worthwhile), default=0.0)
        return next((worth for worth in worthwhile if worth.factor.value <= NEAR * lowest), None)

    @property
    def sentence(self) -> str:
        """Where the curve turns, with its interval, and what more heads bring beyond it."""
        if self.finding != "enough" or self.better is None:
            return self.knee.finding
        low, high = self.better.factor.low, self.better.factor.high
        factor = f"{self.better.factor.value:.2g} times as large, [{low:.2g}, {high:.2g}]"
        return f"{self.knee.finding}, though with {self.better.heads} the error is {factor}"

    def worth(self, heads: int) -> Worth:
        """The level at `heads` over that at the knee, with the bootstrap interval over seeds."""
        i, j = self.cells.points.index(heads), self.cells.points.index(self.knee.value)
        drawn = np.concatenate(list(self.cells.resampled(RESAMPLES, np.random.default_rng(0))))[:, 0]
        tail = 50 * (1 - self.confidence)
        low, high = np.percentile(drawn[:, i] - drawn[:, j], [tail, 100 - tail])
        value = self.cells.levels()[0, i] - self.cells.levels()[0, j]
        return Worth(heads, Estimate(*(float(10**v) for v in (value, min(low, value), max(high, value)))))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Why to read the numbers with care."""
        return tuple(filter(None, (self._memorised(), self._overdone(), self._diverged())))

    @cached_property
    def answer(self) -> Answer:
        """The finding as one value, of which headline, advice and the marked row are made."""
        turn = self.knee
        return Answer(
            finding=self.finding,
            heads=turn.value,
            inside=tuple(n for n in turn.tested if turn.low <= n <= (turn.high or n)),
            open=turn.high is None,
            most=turn.tested[-1],
            best=min(self.levels.values()),
            fewer=self.fewer,
            more=self.more,
            better=self.better,
            attention=self.attention,
            apart=None if turn.settled else turn.apart,
        )

    @property
    def advice(self) -> str:
        """What to do: first whether attention is worth anything, then how many heads."""
        return self.answer.advice

    def by_heads(self) -> list[dict[str, Any]]:
        """A row for each head count: its level, the spread of its seeds, training, and against the knee."""
        return [self._line(heads) for heads in self.cells.points]

    def as_row(self) -> dict[str, Any]:
        """Everything found as one machine-readable value."""
        near = {"one_fewer": self.fewer, "one_more": self.more, "better": self.better}
        return {
            "advice": self.advice,
            "headline": self.answer.headline,
            "decided": self.answer.decided,
            "finding": self.finding,
            "knee": self.knee.as_row(),
            "level": self.words,
            "levels": self.levels,
            "baselines": self.baselines,
            "attention": None if self.attention is None else asdict(self.attention) | {"pays": self.attention.pays},
            **{name: _factor(worth) for name, worth in near.items()},
            "warnings": list(self.warnings),
            "data": self.study.spec.get("data", {}),
            "plan": self.study.spec.get("plan", {}),
        }

    def _line(self, heads: int) -> dict[str, Any]:
        rows = [row for row in self.study if row["heads"] == heads]
        seen = sorted(row["nmse"] for row in rows if row["nmse"] is not None)
        errors = [rate for row in rows if (rate := row.get("error_rate")) is not None]
        return {
            "heads": heads,
            "head_dim": rows[0].get("head_dim"),
            "level": self.levels[heads],
            "best": seen[0],
            "worst": seen[-1],
            "training": _middle([row["train_nmse"] for row in rows]),
            "error_rate": _middle(errors) if errors else None,
            "against": None if heads == self.knee.value else self.worth(heads),
            "seeds": len(rows),
            "parameters": rows[0].get("parameters"),
            "bytes": BYTES * rows[0].get("parameters", 0),
            "milliseconds": self.study.spec.get("milliseconds", {}).get(str(heads)),
        }

    def _chosen(self) -> list[Row]:
        return [row for row in self.study if row["heads"] == self.knee.value and row.get("status") != "diverged"]

    def _memorised(self) -> str:
        pairs = [(row["nmse"], row["train_nmse"]) for row in self._chosen()]
        if not pairs or self.finding == "nothing":
            return ""
        validation, training = (_middle([pair[i] for pair in pairs]) for i in (0, 1))
        if validation < MEMORISED * training:
            return ""
        where = f"training and validation part ways: at {counted(self.knee.value, 'head')}"
        errors = f"the error is {training:.2g} on what was trained on and {validation:.2g} on what was not"
        return f"{where} {errors}: part of it is memory, or the two parts differ in kind"

    def _overdone(self) -> str:
        pairs = [(row["nmse"], row["final_nmse"]) for row in self._chosen()]
        rise = _middle([last / best for best, last in pairs]) if pairs else 1.0
        if rise < OVERDONE:
            return ""
        return (
            f"validation was best before the end of training and rose by a factor of {rise:.2g} after; the best is used"
        )

    def _diverged(self) -> str:
        lost = self.cells.diverged
        return f"{lost} of {len(self.study)} networks diverged; a smaller learning rate may help" if lost else ""


def _factor(worth: Worth | None) -> dict[str, Any] | None:
    if worth is None:
        return None
    return {"heads": worth.heads, "factor": worth.factor.value, "low": worth.factor.low, "high": worth.factor.high}


def _middle(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")
