"""The contest on given data: everybody on the same splits, one after the other, kept as they finish."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headcount.measuring.clock import Clock, OutOfTime
from headcount.measuring.contest_trials import Trials, data_sizes
from headcount.measuring.contest_workers import Unit, contest_pool
from headcount.measuring.contestants import Contestant, without_attention
from headcount.measuring.head_counts import within
from headcount.measuring.paired_ratios import SplitErrors, compare, split_errors
from headcount.measuring.planning import (
    SHORT,
    StudyPlan,
    first_seconds,
    first_turn,
    second_turn,
    steps_within,
    third_turn,
)  # fmt: skip
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import MOST_SPLITS, Split, outer_splits
from headcount.numerals import today
from headcount.results import Study
from headcount.results.journal import Journal
from headcount.results.study import Row
from headcount.training.bank_jobs import environment
from headcount.training.workers import ProcessPool

USUAL_SPLITS = 5  # where neither a number nor a time is asked for
WORTH_WORKERS = 20.0  # seconds of one core for each, by the reckoning: a process takes some to begin

Say = Callable[[str], None]


def quiet(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False)
class Contest:
    """Who is tried on which split and in which order, `first` splits before anything is refined."""

    trials: Trials
    first: int
    say: Say = quiet
    workers: int = 1

    @classmethod
    def of(
        cls, data: Sequences, plan: StudyPlan, folder: Path, clock: Clock, say: Say, device: str, workers: int = 1
    ) -> Contest:
        """The contest with its splits made and its steps chosen; what is done sooner than workers begin needs none."""
        most = plan.splits or (USUAL_SPLITS if clock.budget is None else MOST_SPLITS)
        splits = outer_splits(data, most)
        sizes = data_sizes(data, splits[0])
        steps, first = steps_within(plan, None if clock.budget is None else workers * clock.budget, sizes)
        first = min(first, len(splits))
        small = first * first_seconds(plan, steps, sizes) < WORTH_WORKERS * workers
        return cls(Trials(data, splits, plan, steps, folder, clock, device), first, say, 1 if small else workers)

    def run(self) -> Study:
        """Go as far as the time lasts; an interruption ends it with what is known."""
        journal = Journal(self.trials.folder / "contest.jsonl")
        rows: list[Row] = []
        judging: dict[int, list[Unit]] = {}
        done: set[Unit] = set()
        stopped = ""
        with contextlib.closing(contest_pool(self.trials, self.workers)) as pool:
            try:
                for units in self.turns(rows, judging):
                    for unit, row in zip(units, self.kept(units, journal, pool), strict=False):
                        done.add(unit)
                        if row.get("status") != "left out":
                            rows.append(row)
            except OutOfTime:
                stopped = "time"
            except KeyboardInterrupt:
                stopped = "interrupted"
        complete = [number for number, units in judging.items() if done.issuperset(units)]
        spec = self.spec(stopped) | {"complete": complete}
        return Study(tuple(rows), spec, {**environment(self.trials.device, "cpp")}, self.trials.data.name)

    def turns(self, rows: list[Row], judging: dict[int, list[Unit]]) -> Iterator[list[Unit]]:
        """Who is tried next, on which split; who is refined depends on the rows that have come in so far.

        `judging` says who must have been on a split before it judges: all of the first turn, or all that are still in.
        """
        plan, splits = self.trials.plan, self.trials.splits
        first = range(self.first)
        everybody = first_turn(plan, without_attention(self.trials.data))
        judging |= {number: [(one, number) for one in everybody] for number in first}
        yield [unit for number in first for unit in judging[number]]
        for next_turn in (*(second_turn,) * len(plan.heads), third_turn):
            more = tuple(one for one in next_turn(plan, _turn(rows, plan)) if one not in everybody)
            everybody += more
            yield [(one, number) for number in first for one in more]
        for number in range(len(first), len(splits), self.workers):
            scores = split_errors(rows)
            alive = [one for one in everybody if _alive(one, scores, plan.tolerance)]
            some = range(number, min(number + self.workers, len(splits)))
            judging |= {split: [(one, split) for one in alive] for split in some}
            yield [unit for split in some for unit in judging[split]]

    def kept(self, units: list[Unit], journal: Journal, pool: ProcessPool[Unit, Row | None]) -> Iterator[Row]:
        """The rows of these in their order: found in the journal, or trained by workers and kept there."""
        addresses = [self.trials.address(*unit) for unit in units]
        left = [unit for unit, of in zip(units, addresses, strict=True) if journal.find(of) is None]
        new = pool.in_order(left) if pool.seats else (self.trials.row(*unit) for unit in left)
        for (contestant, number), of in zip(units, addresses, strict=True):
            row = journal.find(of)
            if row is None:
                row = next(new)
                if row is None:
                    raise OutOfTime
                journal.add(of, row)
                if row["status"] != "left out":
                    self.say(f"split {number + 1}, {contestant.name}: {row['nmse']:.3g}")
            yield row

    def spec(self, stopped: str) -> dict[str, object]:
        """What is stored beside the rows: enough to say everything a year later."""
        trials = self.trials
        data, splits, steps = trials.data, trials.splits, trials.steps
        return {
            "measured": True,
            "date": today(),
            "level": "relative cross-entropy" if data.classes else "NMSE",
            "data": {"name": data.name, **facts(data), "notes": notes(data, splits[0])},
            "plan": trials.plan.to_json(),
            "steps": steps,
            "short": max(10, steps // SHORT),
            "splits": len(splits),
            "most_splits": MOST_SPLITS,
            "entering": "a table of letters" if data.letters else "a linear embedding",
            "rarest": None if data.rarest is None else [str(data.rarest[0]), data.rarest[1]],
            "uneven": data.uneven,
            "budget": trials.clock.budget,
            "stopped": stopped,
        }


def _turn(rows: list[Row], plan: StudyPlan) -> int:
    """The smallest head count of one layer whose error so far is within the tolerance of the best."""
    errors = {one.heads: one.mean(one.outer) for one in split_errors(rows) if one.standard and one.depth == 1}
    best = min(errors.values(), default=1.0)
    return min(
        (h for h, error in errors.items() if error <= within(plan.tolerance, best) * best), default=plan.heads[0]
    )


def _alive(one: Contestant, scores: Sequence[SplitErrors], tolerance: float) -> bool:
    """Whether a contestant is not shown to be out of the tolerance of the best of its kind, or of fewer layers.

    What takes no training goes on.
    """
    if not one.heads:
        return True
    own = next((score for score in scores if score.name == one.name), None)
    if own is None:
        return False
    rivals = [score for score in scores if score.attends == one.attends and score.depth <= own.depth]
    best = min(rivals, key=lambda score: score.mean(score.outer))
    bound = within(tolerance, best.mean(best.outer))
    return compare(own.blocks, best.blocks, (own.name, best.name)).low <= bound


def facts(data: Sequences) -> dict[str, str]:
    """The data in a few words each."""
    shortest, longest = int(data.lengths.min()), int(data.lengths.max())
    lengths = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
    numbers = "a number" if data.y.shape[1] == 1 else f"{data.y.shape[1]} numbers"
    features = f"{data.token_dim} feature{'s' if data.token_dim > 1 else ''}"
    kind = f"of {len(data.letters)} letters" if data.letters else f"with {features}"
    return {
        "sequences": f"{len(data):,} sequences",
        "tokens": f"{lengths} tokens {kind}",
        "target": f"{len(data.classes)} classes" if data.classes else numbers,
    }


def notes(data: Sequences, split: Split) -> list[str]:
    """What was decided for the user."""
    sizes = f"{len(split.training)} to train on, {len(split.inner)} to choose by, {len(split.outer)} to judge"
    return [f"{sizes} in a split, {split.words}.", *(f"{n[:1].upper()}{n[1:]}." for n in data.notes)]
