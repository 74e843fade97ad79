"""What a study of given data says: how many heads, what one fewer or more costs, and whether to believe it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from headcount.fits.cells import Cells
from headcount.fits.knee import Knee, knee
from headcount.fits.verdict import Estimate
from headcount.results import Study
from headcount.results.study import Row

__all__ = ["AttentionWorth", "Finding", "Measurement", "Worth"]

Finding = Literal["nothing", "little", "any", "enough", "more", "undecided"]

LEARNED = 0.95  # a level above this is the constant predictor's but for noise
MEMORISED = 2.0  # validation this many times the training level is memory, not a pattern
WORTHWHILE = 0.8  # below this factor more heads are worth naming even where the curve has turned
NEAR = 1.1  # of several such counts the smallest is named whose level is within this factor of the lowest
LEAD = 0.05  # attention must lower the error of the best baseline by more than this share
OVERDONE = 1.25  # validation risen by this factor since its best is training for too long
RESAMPLES = 2000


@dataclass(frozen=True)
class Worth:
    """Another number of heads against the advised one: the factor by which the level changes, with its interval."""

    heads: int
    factor: Estimate

    @property
    def tells(self) -> bool:
        """Whether the seeds agree that there is a difference."""
        return not self.factor.low <= 1 <= self.factor.high


@dataclass(frozen=True)
class AttentionWorth:
    """The best head count against the best baseline.

    Attention is worth something when it lowers the baseline's level by more than the share `lead`: a twentieth, or
    1 / sqrt(validation samples) where so few tell no finer.

    >>> AttentionWorth("linear, flattened", 0.2, heads=3, level=0.1, lead=0.05).sentence
    'Attention is worth it here: its error is 50% below that of the best baseline (linear, flattened: 0.2)'
    """

    baseline: str
    without: float
    heads: int
    level: float
    lead: float

    @property
    def pays(self) -> bool:
        """Whether attention is worth anything."""
        return self.level < LEARNED and self.level < (1 - self.lead) * self.without

    @property
    def learnable(self) -> bool:
        """Whether anything beats a constant."""
        return min(self.level, self.without) <= LEARNED

    @property
    def sentence(self) -> str:
        """The answer, without a full stop."""
        if not self.learnable:
            return "There is nothing to learn here: neither a baseline nor attention predicts better than a constant"
        if self.pays:
            saved = f"its error is {1 - self.level / self.without:.0%} below that of the best baseline"
            return f"Attention is worth it here: {saved} ({self.baseline}: {self.without:.3g})"
        reached = f"{self.baseline} reaches {self.without:.3g} without it, the best network {self.level:.3g}"
        return f"Attention is worth nothing measurable here: {reached} with {_heads(self.heads)}"


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

    @property
    def advice(self) -> str:
        """What to do: first whether attention is worth anything, then how many heads."""
        if self.attention is None:
            return _advice(self)
        if not self.attention.learnable:
            return f"{self.attention.sentence}."
        if self.attention.pays:
            return f"{self.attention.sentence}. {_advice(self)}"
        heads = _advice(self)
        return f"{self.attention.sentence}. With it all the same: {heads[:1].lower()}{heads[1:]}"

    def by_heads(self) -> list[dict[str, Any]]:
        """A row for each head count: its level, the spread of its seeds, training, and against the knee."""
        return [self._line(heads) for heads in self.cells.points]

    def as_row(self) -> dict[str, Any]:
        """Everything found as one machine-readable value."""
        near = {"one_fewer": self.fewer, "one_more": self.more, "better": self.better}
        return {
            "advice": self.advice,
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
        return (
            f"training and validation part ways: at {_heads(self.knee.value)} the error is {training:.2g} on what was "
            f"trained on and {validation:.2g} on what was not: part of it is memory, or the two parts differ in kind"
        )

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


def _advice(found: Measurement) -> str:
    most = _heads(found.cells.points[-1])
    if found.finding == "nothing":
        counts = f"No head count up to {found.cells.points[-1]}"
        return f"{counts} predicts better than a constant: heads are not what is missing."
    best = min(found.levels.values())
    if found.finding == "little":
        return (
            f"No head count up to {found.cells.points[-1]} explains half of the target (the best leaves {best:.0%}), "
            "so the data do not say how many are needed."
        )
    if found.finding == "more":
        return f"Use at least {most}: the error still falls at the most that was tested, so test more."
    if found.finding == "undecided":
        use = f"Use {_heads(found.knee.value)}, but measure again with more seeds"
        return f"{use}: these do not rule out that {most} or more help."
    if found.finding == "any":
        return f"Use one head: more bring {_brings(found.more)}."
    if found.better is not None:
        saved = 1 - found.better.factor.value
        also = f"Use {_heads(found.knee.value)}, or {found.better.heads} for {saved:.0%} less error"
        return f"{also}: {_costs(found.fewer)}." if found.fewer else f"{also}."
    return f"Use {_heads(found.knee.value)}: {', and '.join(filter(None, (_costs(found.fewer), _gains(found.more))))}."


def _costs(worth: Worth | None) -> str:
    if worth is None:
        return ""
    if not worth.tells:
        return f"{worth.heads} may do as well"
    return f"with {worth.heads} the error is {_times(worth.factor.value)}"


def _gains(worth: Worth | None) -> str:
    return f"{worth.heads} bring {_brings(worth)}" if worth else "more were not tested"


def _brings(worth: Worth | None) -> str:
    if worth is None or not worth.tells:
        return "nothing that can be measured"
    better = worth.factor.value < 1
    return f"only {1 - worth.factor.value:.0%} less error" if better else f"{worth.factor.value - 1:.0%} more error"


def _times(factor: float) -> str:
    """A factor as one says it.

    >>> _times(1.31), _times(10.2), _times(113.0)
    ('31% larger', '10 times as large', '110 times as large')
    """
    return f"{factor - 1:.0%} larger" if factor < 2 else f"{float(f'{factor:.2g}'):,g} times as large"


def _heads(count: int) -> str:
    return "1 head" if count == 1 else f"{count} heads"


def _factor(worth: Worth | None) -> dict[str, Any] | None:
    if worth is None:
        return None
    return {"heads": worth.heads, "factor": worth.factor.value, "low": worth.factor.low, "high": worth.factor.high}


def _middle(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")
