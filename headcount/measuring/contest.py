"""The contest on given data: everybody on the same splits, one after the other, kept as they finish."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file

from headcount.files import make_folder, whole
from headcount.measuring.baselines import fit_baseline, lost
from headcount.measuring.clock import Clock, OutOfTime
from headcount.measuring.contestants import ZERO_HEADS, Contestant, KeptNetwork, without_attention
from headcount.measuring.planning import (
    ALIVE,
    FIRST_SPLITS,
    FLOOR,
    SHORT,
    Fitting,
    StudyPlan,
    first_turn,
    reckoned,
    second_turn,
    steps_within,
    third_turn,
)  # fmt: skip
from headcount.measuring.preparing import Fold, prepare
from headcount.measuring.searching import Searched, fit_network, shape_of
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import MOST_SPLITS, Split, outer_splits
from headcount.measuring.zero_heads import fit_zero_heads
from headcount.nets.standard import Encoder
from headcount.results import Study
from headcount.results.journal import Journal
from headcount.results.store import address
from headcount.results.study import Row
from headcount.training.bank_jobs import environment

__all__ = ["Contest", "Say", "facts", "notes", "quiet"]

MEANING = 2  # part of every address: raise it when the contest itself changes
USUAL_SPLITS = 5  # where neither a number nor a time is asked for

Say = Callable[[str], None]


def quiet(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False)
class Contest:
    """Data, plan, time and a folder in which every finished contestant is kept with its network."""

    data: Sequences
    plan: StudyPlan
    folder: Path
    clock: Clock
    say: Say
    device: str = "cpu"
    splits: tuple[Split, ...] = ()
    steps: int = 0

    @classmethod
    def of(cls, data: Sequences, plan: StudyPlan, folder: Path, clock: Clock, say: Say, device: str) -> Contest:
        """The contest with its splits made and its steps chosen."""
        most = plan.splits or (USUAL_SPLITS if clock.budget is None else MOST_SPLITS)
        splits = outer_splits(data, most)
        first = splits[0]
        steps = steps_within(plan, clock.budget, len(first.training), data.x.shape[1], len(first.inner))
        return cls(data, plan, folder, clock, say, device, splits, steps)

    def run(self) -> Study:
        """Go as far as the time lasts; an interruption ends it with what is known."""
        journal = Journal(self.folder / "contest.jsonl")
        rows: list[Row] = []
        complete: list[int] = []
        stopped = ""
        try:
            for contestant, split in self.units(rows, complete):
                row = self.row(contestant, split, journal)
                if row is None:
                    stopped = "time"
                    break
                if row.get("status") != "left out":
                    rows.append(row)
        except KeyboardInterrupt:
            stopped = "interrupted"
        spec = self.spec(stopped) | {"complete": complete}
        return Study(tuple(rows), spec, {**environment(self.device, "cpp")}, self.data.name)

    def units(self, rows: list[Row], complete: list[int]) -> Iterator[tuple[Contestant, int]]:
        """Who is trained next, on which split; who is refined depends on the rows that have come in so far.

        A split is `complete` once it judges: all of the first turn have been on it, or all that are still in.
        """
        first = range(min(FIRST_SPLITS, len(self.splits)))
        begin = first_turn(self.plan, without_attention(self.data))
        for number in first:
            yield from ((one, number) for one in begin)
            complete.append(number)
        everybody = begin
        for next_turn in (*(second_turn,) * len(self.plan.heads), third_turn):
            more = tuple(one for one in next_turn(self.plan, _turn(rows, self.plan)) if one not in everybody)
            everybody += more
            yield from ((one, number) for number in first for one in more)
        for number in range(len(first), len(self.splits)):
            alive = [one for one in everybody if _alive(one, rows)]
            yield from ((one, number) for one in alive)
            complete.append(number)

    def row(self, contestant: Contestant, number: int, journal: Journal) -> Row | None:
        """The row of a contestant on a split: kept, or trained now where there is time; None where there is none."""
        of = self.address(contestant, number)
        kept = journal.find(of)
        if kept is not None:
            return kept
        cost = reckoned(self.plan, contestant, self.steps, self.data.x.shape[1], len(self.splits[number].inner))
        if not self.clock.fits(cost):
            return None
        start = self.clock.now()
        try:
            row = self.trained(contestant, number, of)
        except OutOfTime:
            return None
        if contestant.heads:  # what else is fitted is not reckoned by products
            self.clock.took(cost, self.clock.now() - start)
        journal.add(of, row)
        if row["status"] != "left out":
            self.say(f"split {number + 1}, {contestant.name}: {row['nmse']:.3g}")
        return row

    def address(self, contestant: Contestant, number: int) -> dict[str, object]:
        """Everything that determines a row."""
        plan = {k: v for k, v in self.plan.to_json().items() if k not in ("heads", "layers", "splits", "tolerance")}
        heads = list(contestant.heads)
        who = {"contestant": contestant.name, "heads": heads, "split": number, "steps": self.steps if heads else 0}
        return {**who, "data": self.data.digest, "plan": plan if heads else {}, "meaning": MEANING}

    def trained(self, contestant: Contestant, number: int, of: dict[str, object]) -> Row:
        """One contestant on one split, judged on the outer part."""
        fold = prepare(self.data, self.splits[number])
        letters, device = len(self.data.letters), self.device
        way = Fitting(self.plan, self.steps, number, letters, address(of), device, self.clock.look)
        began = time.process_time()
        searched: Searched | None = None
        setting, parameters = None, 0
        if contestant == ZERO_HEADS:
            predicted, setting, parameters = fit_zero_heads(fold, way)
        elif contestant.heads:
            searched = fit_network(contestant, fold, way)
            predicted, setting, parameters = searched.predicted, searched.setting, searched.net.shape.parameters
            self.keep(searched.net, of)
        else:
            predicted = fit_baseline(contestant, fold, letters, self.clock.look)
        if predicted is None:
            return {"contestant": contestant.name, "status": "left out"}  # pyright: ignore
        level = lost(predicted.outer, fold.outer, fold.classes) / fold.constants[2]
        row: dict[str, object] = {
            "run": address(of),
            "contestant": contestant.name,
            "heads": max(contestant.heads, default=0),
            "layers": " + ".join(map(str, contestant.heads)) or "-",
            "depth": len(contestant.heads),
            "standard": contestant.standard,
            "attends": contestant.attends,
            "length": self.data.x.shape[1],
            "seed": number,
            "nmse": level,
            "final_nmse": level,
            "train_nmse": searched.training if searched else level,
            "inner": predicted.inner / fold.constants[1],
            "short": predicted.short / fold.constants[1],
            "steps": self.steps if contestant.heads else 0,
            "parameters": parameters,
            "status": "done",
            "cpu_seconds": round(time.process_time() - began, 3),
            **_errors(predicted.outer, fold),
        }
        if setting is not None:
            row |= {"lr": setting.lr, "weight_decay": setting.weight_decay, "dropout": setting.dropout}
        return row  # pyright: ignore

    def keep(self, net: Encoder, of: dict[str, object]) -> None:
        """Write a network beside its row."""
        path = self.folder / "networks" / f"{address(of)}.safetensors"
        make_folder(path.parent)
        with whole(path) as scratch:
            save_file({name: p.contiguous() for name, p in net.state_dict().items()}, scratch)

    def network(self, kept: KeptNetwork) -> tuple[Encoder, Fold]:
        """A network that was kept, and the split it was trained on."""
        fold = prepare(self.data, self.splits[kept.split])
        net = shape_of(kept.contestant, fold, self.plan, len(self.data.letters)).module()
        net.load_state_dict(load_file(self.folder / "networks" / f"{kept.run}.safetensors"))
        return net.eval(), fold

    def spec(self, stopped: str) -> dict[str, object]:
        """What is stored beside the rows: enough to say everything a year later."""
        return {
            "measured": True,
            "level": "relative cross-entropy" if self.data.classes else "NMSE",
            "data": {"name": self.data.name, **facts(self.data), "notes": notes(self.data, self.splits[0])},
            "plan": self.plan.to_json(),
            "steps": self.steps,
            "short": max(10, self.steps // SHORT),
            "splits": len(self.splits),
            "most_splits": len(outer_splits(self.data, MOST_SPLITS)),
            "overlap": self.splits[0].overlap,
            "entering": "a table of letters" if self.data.letters else "a linear embedding",
            "rarest": None if self.data.rarest is None else [str(self.data.rarest[0]), self.data.rarest[1]],
            "uneven": self.data.uneven,
            "budget": self.clock.budget,
            "stopped": stopped,
        }


def _errors(outer: np.ndarray, fold: Fold) -> dict[str, float]:
    """For classes: the share named wrongly, and its mean over classes."""
    if not fold.classes:
        return {}
    wrong, truth = outer.argmax(axis=1) != fold.outer.y.argmax(axis=1), fold.outer.y.argmax(axis=1)
    balanced = np.mean([wrong[truth == c].mean() for c in np.unique(truth)])
    return {"error_rate": float(wrong.mean()), "balanced_error": float(balanced)}


def _mean_log(rows: list[Row], name: str) -> float:
    found = [math.log(max(row["nmse"], 1e-12)) for row in rows if row.get("contestant") == name]
    return float(np.mean(found)) if found else math.inf


def _turn(rows: list[Row], plan: StudyPlan) -> int:
    """The smallest head count of one layer whose error so far is within the tolerance of the best."""
    ones = {row["heads"]: str(row.get("contestant")) for row in rows if row.get("standard") and row.get("depth") == 1}
    errors = {heads: math.exp(_mean_log(rows, name)) for heads, name in ones.items()}
    best = min(errors.values(), default=0.0)
    bound = max((1 + plan.tolerance) * best, best + FLOOR)
    return min((heads for heads, error in errors.items() if error <= bound), default=plan.heads[0])


def _alive(one: Contestant, rows: list[Row]) -> bool:
    """Whether a contestant is near the best of its depth; what needs no attention always is."""
    mine = _mean_log(rows, one.name)
    if math.isinf(mine):
        return False
    rivals = {str(row.get("contestant")) for row in rows if row.get("depth") == len(one.heads) and row.get("standard")}
    best = min((_mean_log(rows, name) for name in rivals), default=mine)
    return not one.standard or mine <= best + math.log(ALIVE)


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
