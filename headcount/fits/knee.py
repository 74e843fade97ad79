"""The knee: how many heads are enough, as a change point of log NMSE over head counts, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from headcount.files import write_json
from headcount.fits.cells import Cells
from headcount.fits.failing_seeds import TwoKinds, success_draws, two_kinds
from headcount.fits.seed_noise import LENGTHS, has_noise, level_noise, seen_effect
from headcount.fits.seed_spread import smooth_spread
from headcount.fits.settings import refuse_settings
from headcount.fits.verdict import Verdict
from headcount.notebook import AnswerInNotebook, within_columns
from headcount.numerals import counted
from headcount.results import Basis, Claim, Comparison, Evidence, Hypothesis, Predicate, Study
from headcount.results.verdicts import strongest

# The curve has turned when what a further head brings is under this share of what each head has brought so far.
SLOWER = 1 / 3
RESAMPLES = 2000
# Where seeds spread this many times as far at few heads as at many, the interval does not cover.
UNEVEN = 2.0
VERY_UNEVEN = 4.0  # and from here on it reaches to the next larger count tested
# Fewer seeds than this at one or two lengths never single out a count.
FEW_SEEDS, FEW_LENGTHS = 4, 3
# Seeds this many times apart at the knee: training did not settle, and more of it may move the knee.
UNSETTLED = 10.0
# Nothing is enough while the network explains less than half of the variance.
LEARNED = math.log10(0.5)


@dataclass(frozen=True, repr=False)
class Knee(AnswerInNotebook):
    """How many heads are enough: `value` of those tested, and the interval from `low` to `high`.

    `high` is None where the error still falls at the largest count tested. `low` reaches down to one more than the
    next smaller count tested, for between two tested counts the data say nothing. `shares` is the part of the
    drawn curves that put the knee at each count tested, the last one standing for "there or beyond". `best` is the
    lowest level of NMSE at any count. `uneven` is how many times as far the seeds spread at the fewest heads as at the
    most; from 2 on the interval has been measured to lie too low (docs/coverage.md), and
    nothing is called refuted. `apart` is how many times the error of the best seed at the knee the worst one has, in
    the middle of the lengths; from 10 on training did not settle, and nothing is called refuted either. `failed` is the
    share of seeds that fail where they succeed or fail, `shared` what the seeds of a cell have in common, in decades,
    as far as rises of the curve show it; both are in the interval. `runs` were entered and planned.
    """

    value: int
    low: int
    high: int | None
    tested: tuple[int, ...]
    lengths: tuple[int, ...]
    seeds: tuple[int, int]
    confidence: float
    best: float
    shares: dict[int, float] = field(hash=False)
    uneven: float = 1.0
    apart: float = 1.0
    diverged: int = 0
    predicted: int | None = None
    failed: float = 0.0
    shared: float = 0.0
    runs: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{self.text} {self.interval}"

    def __repr__(self) -> str:
        return within_columns(f"<Knee {self.sentence.rstrip('.')}>")

    @property
    def rows(self) -> list[dict[str, float]]:
        """For every count tested, the share of drawn curves that have the knee there."""
        return [
            {"heads": count, "share of drawn curves with the knee there": share} for count, share in self.shares.items()
        ]

    def files(self, out: Path) -> list[Path]:
        """All of it in `knee.json`."""
        return [write_json(out / "knee.json", self.as_row())]

    @property
    def reached(self) -> bool:
        """Whether the error levels off within the counts tested."""
        return self.value < self.tested[-1]

    @property
    def learned(self) -> bool:
        """Whether any count tested explains half of the variance."""
        return self.best <= 10**LEARNED

    @property
    def settled(self) -> bool:
        """Whether the seeds at the knee agree well enough for more training to leave it where it is."""
        return self.apart < UNSETTLED

    @property
    def text(self) -> str:
        """The value as read: `4`, `>= 5` where the error still falls at 5, `<= 4` where 4 was the smallest tested."""
        if not self.reached:
            return f">= {self.value}"
        return f"<= {self.value}" if self.from_above else str(self.value)

    @property
    def from_above(self) -> bool:
        """Whether the value is the smallest tested, so that fewer heads may be enough."""
        return self.reached and self.value == self.tested[0] and self.value > 1

    @property
    def interval(self) -> str:
        """The interval as read: `[4, 5]`, or `[4, ...)` where nothing bounds it from above."""
        return f"[{self.low}, ...)" if self.high is None else f"[{self.low}, {self.high}]"

    @property
    def verdict(self) -> Verdict | None:
        """What the interval says about the predicted count; None without a prediction."""
        claim = self.judged()
        return None if claim is None or self.predicted is None else Verdict.of(claim, self.predicted)

    @property
    def finding(self) -> str:
        """What was found, in words, without the prediction."""
        return str(self.claim())

    @property
    def inside(self) -> tuple[int, ...]:
        """The counts tested that lie in the interval."""
        return tuple(c for c in self.tested if c >= self.low and (self.high is None or c <= self.high))

    @property
    def conditions(self) -> tuple[Hypothesis, ...]:
        """What the interval rests on: one or two lengths do not show all that the seeds of a cell share."""
        hypotheses = (
            [Hypothesis(f"seeds succeed or fail, {self.failed:.0%} of them fail", "holds")] if self.failed else []
        )
        if self.shared:
            effect = f"an effect of {self.shared:.2g} decades that the seeds of a cell share, in the interval"
            return (*hypotheses, Hypothesis(effect, "holds"))
        if len(self.lengths) >= LENGTHS or self.seeds[0] < 2:
            return tuple(hypotheses)
        unseen = "no effect that all seeds of a cell share, beyond what a rise with more heads would show"
        return (*hypotheses, Hypothesis(unseen, short="no effect shared by a cell's seeds"))

    @property
    def evidence(self) -> Evidence:
        """The runs and the interval as a claim takes them; too uneven seeds settle nothing."""
        entered, planned = self.runs
        return Evidence(
            planned=planned,
            entered=entered,
            diverged=self.diverged,
            interval=(self.low, self.high),
            level=self.confidence,
            settled=self.settled and self.uneven < UNEVEN,
            rows=entered,
        )

    def claim(self) -> Claim:
        """How many heads are enough, as a claim with its interval.

        >>> rows = tuple({"heads": h, "length": 8, "seed": s, "nmse": 10.0 ** -min(h, 3) * (1 + s / 9)}
        ...              for h in (1, 2, 3, 4, 5) for s in range(4))
        >>> print(knee(Study(rows)).claim())
        3 heads are enough (95% interval [3, 3]), given no effect shared by a cell's seeds
        """
        if not self.learned:
            subject, word, why = str(self.tested[-1]), Predicate.UNLEARNED, ""
        else:
            subject, why = counted(self.value, "head"), "fewer were not tested" if self.from_above else ""
            word = Predicate.ENOUGH if self.reached else Predicate.FALLS
        basis = Basis("measured", f"lengths {self.lengths[0]} to {self.lengths[-1]}", self.runs[0])
        return Claim(subject, word, self.inside, basis, None, self.conditions, evidence=self.evidence, reason=why)

    def judged(self) -> Claim | None:
        """What the interval says of the predicted count, by the one rule for verdict words."""
        return None if self.predicted is None else _judged(self, self.predicted)

    @property
    def sentence(self) -> str:
        """The finding and the verdict in one sentence."""
        verdict = self.verdict
        return f"{self.finding}." if verdict is None else f"{self.finding}; {verdict}."

    def as_row(self) -> dict[str, object]:
        """The knee as one flat machine-readable row."""
        verdict = self.verdict
        return {
            "lengths": list(self.lengths),
            "heads": self.value,
            "low": self.low,
            "high": self.high,
            "reached": self.reached,
            "text": self.text,
            "confidence": self.confidence,
            "best": self.best,
            "tested": list(self.tested),
            "seeds": list(self.seeds),
            "uneven": self.uneven,
            "apart": self.apart,
            "diverged": self.diverged,
            "shares": self.shares,
            "predicted": self.predicted,
            "verdict": verdict.outcome if verdict else None,
            "reason": verdict.reason if verdict else None,
        }


def knee(
    study: Study,
    *,
    length: int | None = None,
    predicted: int | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Knee:
    """How many heads are enough, at one length or over all of them, with an interval and a verdict.

    The level of a cell is the mean log10 NMSE of the best half of its seeds. No heads at all predict a constant,
    so the curve starts at NMSE 1 exactly. h heads are enough when no larger count tested lowers the level, per
    further head, by more than a third of what each of the h heads has lowered it on average; the knee is the
    smallest such h. The rule is free of scale: it asks for a change of slope, not for a small error.

    The interval is that of the turning points of curves drawn around the levels (`level_noise`): by the differences of
    the lengths where there are three or more, else by the noise of the seeds of all cells together. With one seed per
    cell and fewer than three lengths there is no spread to draw from and the interval is everything tested. An effect
    that all seeds of a cell share cannot be seen at one length unless the curve rises by it, and the claim says so.
    Where seeds succeed or fail (`two_kinds`), every second curve is that of those that succeed. Fewer than four
    seeds at one or two lengths single no count out: the interval then reaches to the next larger count tested, and so it
    does where few seeds spread four times as far at few heads as at many.

    Departs: the head-count paper reads the transition off a figure of best seeds.

    >>> rows = tuple({"heads": h, "length": 8, "seed": s, "nmse": 10.0 ** -min(h, 3) * (1 + s / 9)}
    ...              for h in (1, 2, 3, 4, 5) for s in range(4))
    >>> print(knee(Study(rows), predicted=3).sentence)
    3 heads are enough (95% interval [3, 3]), given no effect shared by a cell's seeds; predicted 3: consistent, the data single it out.
    """  # noqa: E501
    refuse_settings(confidence, resamples)
    if predicted is not None and predicted < 1:
        raise ValueError(f"predicted heads must be at least 1, got {predicted}")
    chosen = study if length is None else study.where(length=length)
    if length is not None and not chosen.rows:
        raise ValueError(f"no rows of length {length}; lengths: {', '.join(map(str, study.values('length')))}")
    cells = _common(Cells.of(chosen, "heads"))
    heads = np.array(cells.points, dtype=float)
    index = int(change_point(cells.levels().mean(0), heads))
    kinds = two_kinds(cells)
    fractions = _fractions(cells, kinds, heads, resamples, np.random.default_rng(seed))
    first, last = _ends(cells, fractions, confidence, index)
    return Knee(
        value=cells.points[index],
        low=_after(cells.points, first),
        high=None if last == len(heads) - 1 else cells.points[last],
        tested=cells.points,
        lengths=cells.groups,
        seeds=(int(cells.counts.min()), int(cells.counts.max())),
        confidence=confidence,
        best=float(10 ** cells.levels().mean(0).min()),
        shares=dict(zip(cells.points, fractions.tolist(), strict=True)),
        uneven=_uneven(cells),
        apart=_apart(cells, index),
        diverged=cells.diverged,
        predicted=predicted_heads(study) if predicted is None else predicted,
        failed=kinds.share,
        shared=seen_effect(cells),
        runs=_runs(chosen, study),
    )


def knees(study: Study, *, predicted: int | None = None, confidence: float = 0.95) -> dict[int, Knee]:
    """The knee at every length by itself, as far as two head counts are measured there."""
    parts = {length: study.where(length=length) for length in study.values("length")}
    return {
        length: knee(study, length=length, predicted=predicted, confidence=confidence)
        for length, part in parts.items()
        if len(part.values("heads")) > 1
    }


def predicted_heads(study: Study) -> int | None:
    """What the study's task says of itself, where the networks are those it speaks of: of one attention layer."""
    deeper = any(str(row.get("layers", "")).count("x") > 1 for row in study)
    return None if deeper else study.predicted_heads


def change_point(
    levels: Float[np.ndarray, "*curve heads"], heads: Float[np.ndarray, " heads"]
) -> Int[np.ndarray, "*curve"]:
    """Where each curve turns, as an index into `heads`; the last index where it does not turn before it.

    >>> change_point(np.array([[-1.0, -2.0, -4.0, -4.1], [-1.0, -2.0, -3.0, -4.0]]), np.arange(1.0, 5.0)).tolist()
    [2, 3]
    """
    so_far = -levels / heads  # from NMSE 1 at no heads
    fall = levels[..., :, None] - levels[..., None, :]
    apart = heads[None, :] - heads[:, None]
    ahead = np.where(apart > 0, fall / np.where(apart > 0, apart, 1.0), -np.inf).max(-1)
    enough = (ahead <= SLOWER * so_far) & (levels <= LEARNED)
    enough[..., -1] = True  # nothing larger was tested: there or beyond
    return np.asarray(enough.argmax(-1))


def _common(cells: Cells) -> Cells:
    """The cells at the head counts measured at every length: curves are compared on those alone."""
    indices = np.flatnonzero((cells.counts > 0).all(0))
    if len(indices) < 2:
        where = "at every length" if len(cells.groups) > 1 else f"at length {max(cells.groups)}"
        tested = ", ".join(str(cells.points[i]) for i in indices) or "none"
        raise ValueError(f"a knee needs two head counts measured {where}, got {len(indices)} ({tested})")
    points = tuple(cells.points[i] for i in indices)
    return Cells(points, cells.groups, cells.logs[:, indices], cells.diverged)


def _fractions(
    cells: Cells, kinds: TwoKinds, heads: Float[np.ndarray, " heads"], resamples: int, generator: np.random.Generator
) -> Float[np.ndarray, " heads"]:
    """The part of the drawn curves that turns at each count."""
    drawn = cells.levels().mean(0) + level_noise(cells, resamples, generator)
    if kinds.seen:  # every second curve is that of the seeds that succeed
        drawn[1::2] = success_draws(cells, kinds, len(drawn[1::2]), generator)
    return np.bincount(change_point(drawn, heads), minlength=len(heads)) / resamples


def _ends(cells: Cells, fractions: Float[np.ndarray, " heads"], confidence: float, index: int) -> tuple[int, int]:
    """The first and last index of the percentile interval, which always holds the estimate itself."""
    if not has_noise(cells):
        return 0, len(fractions) - 1
    below = np.cumsum(fractions)
    tail = (1 - confidence) / 2
    first = int(np.argmax(below > tail))
    last = int(np.argmax(below >= 1 - tail - 1e-12))
    first, last = min(first, index), max(last, index)
    few = cells.counts.min() < FEW_SEEDS and len(cells.groups) < FEW_LENGTHS
    # Training fails upwards only, so what few seeds hide is that more heads can do better.
    hidden = first == last or _uneven(cells) >= VERY_UNEVEN
    return first, min(last + 1, len(fractions) - 1) if few and hidden else last


def _uneven(cells: Cells) -> float:
    if cells.counts.min() < 2:
        return 1.0
    spread = smooth_spread(cells)
    return float(spread[0] / spread[-1])


def _apart(cells: Cells, index: int) -> float:
    """The largest over the smallest error of the seeds at one point, in the middle of the groups."""
    seeds = cells.seeds[:, index]
    return float(10 ** np.median(np.nanmax(seeds, -1) - np.nanmin(seeds, -1)))


def _after(points: tuple[int, ...], index: int) -> int:
    return points[index - 1] + 1 if index else 1


def _runs(chosen: Study, study: Study) -> tuple[int, int]:
    """How many runs entered, and how many were planned where the whole study is asked about."""
    planned = study.spec.get("asked", 0) if len(chosen) == len(study) else 0
    return len(chosen), max(int(planned), len(chosen))


def _judged(knee: Knee, predicted: int) -> Claim:
    """The verdict on a predicted count: refuted only where nothing but the count itself explains the distance."""
    words, reason = _read(knee, predicted)

    def claim_of(word: Predicate) -> Claim:
        why = reason if word is words[0] else _held_back(knee)
        return Claim(
            f"predicted {predicted}",
            word,
            knee.inside,
            Basis("measured", n=knee.runs[0]),
            None,
            knee.conditions,
            Comparison(f"predicted {predicted}", "asked"),
            knee.evidence,
            why,
        )

    return strongest(words, claim_of)


def _read(knee: Knee, predicted: int) -> tuple[tuple[Predicate, ...], str]:
    """The words that the interval offers, the strongest first, and the reason of the first."""
    open_, inside = (Predicate.UNRESOLVED,), knee.inside
    if not knee.learned:
        return open_, "nothing was learned, which says nothing about heads"
    if predicted < knee.low or (knee.high is not None and predicted > knee.high):
        return (Predicate.REFUTED, *open_), f"it lies outside the interval {knee.interval}"
    if knee.high is None:
        return open_, f"nothing bounds the knee from above: test more than {knee.tested[-1]}"
    if knee.high == knee.tested[0] and knee.high > 1:
        return open_, f"{knee.tested[0]} was the smallest count tested: test fewer"
    if len(inside) > 2:
        return open_, f"the seeds do not decide between {inside[0]} and {inside[-1]}"
    single = "the data single it out" if knee.low == knee.high else f"it lies in the interval {knee.interval}"
    return (Predicate.CONSISTENT,), single


def _held_back(knee: Knee) -> str:
    """Why a count outside the interval is not refuted."""
    if knee.uneven >= UNEVEN:
        return f"too few to tell: seeds spread {knee.uneven:.2g} times as far at the fewest heads as at the most"
    if not knee.settled:
        where = f"seeds lie a factor {knee.apart:.2g} apart at {counted(knee.value, 'head')}"
        return f"training did not settle: {where}; train longer or add seeds"
    entered, planned = knee.runs
    short = f"{entered} of {planned} runs entered" if entered < planned else f"{knee.diverged} of {entered} diverged"
    return f"it lies outside the interval {knee.interval}, but {short}"
