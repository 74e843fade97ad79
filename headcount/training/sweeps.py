"""Run a sweep: group its members into banks, train what is missing, keep every finished bank."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from headcount.nets import Architecture
from headcount.results import Store, Study
from headcount.results.store import address
from headcount.tasks import Task
from headcount.training.backends.choice import choose
from headcount.training.loop import Outcome, StepsMade, train
from headcount.training.member import Member, Recipe
from headcount.training.memory import MOST, Padded, capacity, refuse_what_cannot_fit
from headcount.training.progress import OnProgress, silent
from headcount.training.rate_search import RateSearch
from headcount.training.spec import Sweep

__all__ = ["TrainBank", "banks", "environment", "run", "searched", "sweep", "train_banks"]

# How much of a padded bank may be padding: on a CPU it costs time, on a GPU launches cost more.
PADDING = {"cpu": 1.25, "cuda": 4.0}

POLL = 0.2  # seconds between two looks at banks that other processes are training

TrainBank = Callable[[Sequence[Member], StepsMade], Outcome]


def never(finished: int, left: int) -> bool:
    """Go on to the end."""
    return False


def sweep(
    task: Task | Sequence[Task],
    archs: Sequence[Architecture],
    *,
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    recipe: Recipe | None = None,
    lr: float | Sequence[float] | Literal["best"] | RateSearch = 3e-3,
    weight_decay: float = 1e-4,
    base: Architecture | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
    on_progress: OnProgress = silent,
) -> Study:
    """Train every architecture on the task at every length and seed, and return the study.

    `lr` is a rate, or several to train each network at, or "best": then a short search (`RateSearch`) chooses it for
    every task and architecture, and `spec["rate_search"]` of the study says which and at what cost. With `base`, rates
    and starts follow the factors of `widths(base)`. With `store`, finished banks are kept there and not trained again;
    without, rows live in the study alone.

    >>> from headcount.tasks import KthLargest
    >>> study = sweep(KthLargest(rank=1, length=4), [Architecture(layers=((1, 4),), width=8)], seeds=2,
    ...               recipe=Recipe(samples=64, validation=32, epochs=1, batch=32))
    >>> len(study)
    2
    """
    asked = Sweep.of(task, archs, lengths, seeds, recipe or Recipe(), lr=lr, weight_decay=weight_decay, base=base)
    if store is not None:
        return run(asked, Store.open(store, create=True), device=device, on_progress=on_progress)
    with TemporaryDirectory() as folder:
        return run(asked, Store.open(folder, create=True), device=device, on_progress=on_progress)


def run(
    asked: Sweep,
    store: Store,
    *,
    device: str = "cpu",
    on_progress: OnProgress = silent,
    groups: Sequence[Sequence[Member]] | None = None,
) -> Study:
    """Train the members that the store lacks, one bank at a time, and return the whole study.

    `groups` are the sweep's `banks`, where the caller has made them already.
    """
    if asked.search is not None:
        asked = searched(asked, asked.search, lambda trials: run(trials, store, device=device, on_progress=on_progress))
        groups = None
    check_device(device)
    refuse_what_cannot_fit(asked.members, asked.recipe, device)

    def train_bank(bank: Sequence[Member], steps_made: StepsMade) -> Outcome:
        path = choose(bank, device, asked.recipe.dtype)
        return train(bank, asked.recipe, device=device, path=path, on_progress=steps_made)

    groups = list(banks(asked, device)) if groups is None else groups
    spec = train_banks(asked, asked.to_json(), groups, store, train_bank, device=device, on_progress=on_progress)
    return store.study(spec)


def searched(asked: Sweep, search: RateSearch, trained: Callable[[Sweep], Study]) -> Sweep:
    """The sweep with the rate of every shape found by a search whose trials `trained` trains."""
    trials = search.trials(asked.members)
    rows = trained(Sweep(trials, search.recipe(asked.recipe), f"{asked.name}, rates")).rows
    chosen = search.chosen(asked.members, asked.recipe, trials, rows)
    return replace(asked, members=chosen.rated(asked.members), search=None, chosen=chosen)


def train_banks(
    asked: Sweep,
    spec: dict[str, Any],
    groups: Sequence[Sequence[Member]],
    store: Store,
    train_bank: TrainBank,
    *,
    device: str,
    on_progress: OnProgress = silent,
    stop: Callable[[int, int], bool] = never,
) -> str:
    """Train what the store lacks of every group and add each bank as it is finished: the loop of every study.

    `spec` is what the store keeps beside the rows; its address comes back. Before each bank, `stop` hears how many
    are finished and how many are left, and may end the loop. Processes that share the store share the work: a bank
    is trained by the one that claims it, the others wait for its rows, and take it over should that one die.
    """
    recipe = asked.recipe
    runs = [member.run(recipe) for member in asked.members]
    address_of_spec = store.state(asked.name, spec, runs)
    missing = set(store.missing(runs))
    # Grouped before skipping: what is left of an interrupted sweep falls into the same banks, hence the same rows.
    claimed = [ClaimedBank.of(group, recipe) for group in groups]
    left = [bank for bank in claimed if missing.intersection(bank.runs)]
    shown = [bank.lacking(missing) for bank in left]
    with store.claims() as claims, on_progress(asked, shown, done=len(runs) - len(missing)) as progress:
        while left:
            waiting = []
            for number, bank in enumerate(left):
                if stop(len(groups) - len(left) + number - len(waiting), len(left) - number + len(waiting)):
                    return address_of_spec
                if not claims.take(bank.address):
                    waiting.append(bank)
                    continue
                members = bank.lacking(set(store.missing(bank.runs)))  # another process may have brought them
                if members:
                    outcome = train_bank(members, progress)
                    rows = zip(members, outcome.rows, strict=True)
                    finished = [(row["run"], member.content(recipe), row) for member, row in rows]
                    store.add(finished, environment(device, outcome.path))
                claims.give_back(bank.address)
                progress.bank_done(len(bank.members))
            if len(waiting) == len(left):
                time.sleep(POLL)
            left = waiting
    return address_of_spec


@dataclass(frozen=True)
class ClaimedBank:
    """A group of members, the runs they stand for, and the address under which a process claims them."""

    members: tuple[Member, ...]
    runs: tuple[str, ...]
    address: str

    @classmethod
    def of(cls, members: Sequence[Member], recipe: Recipe) -> ClaimedBank:
        """The bank of these members."""
        runs = tuple(member.run(recipe) for member in members)
        return cls(tuple(members), runs, address({"runs": runs}))

    def lacking(self, missing: set[str]) -> list[Member]:
        """Those of its members whose runs are missing."""
        return [member for member, run in zip(self.members, self.runs, strict=True) if run in missing]


def banks(asked: Sweep, device: str) -> Iterator[list[Member]]:
    """The members in groups that share a shape of data, fit in memory and carry little padding."""
    kind = torch.device(device).type
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for member in asked.members:
        arch = member.arch
        key = (_lengths(member, kind), member.task.token_dim, arch.depth, arch.positions, arch.class_token)
        groups.setdefault(key, []).append(member)
    for members in groups.values():
        yield from _fitting(sorted(members, key=_size), asked.recipe, kind)


def _lengths(member: Member, kind: str) -> int:
    """Members with the same number here may share a bank: on a GPU, one-layer networks of lengths within a factor 4.

    A short sequence is padded to the longest of its bank, which on a GPU costs less than a bank of its own: a step of
    a small bank takes as long as launching it.
    """
    length = member.task.length
    return (length - 1).bit_length() // 2 if kind == "cuda" and member.arch.depth == 1 else length


def _fitting(members: list[Member], recipe: Recipe, kind: str) -> Iterator[list[Member]]:
    there = capacity(kind) if kind == "cpu" else MOST[kind]
    bank, held = members[:1], Padded.of(members[0])
    for member in members[1:]:
        grown = held.plus(member)
        if grown.wastes(PADDING[kind]) or _too_large(grown, recipe, kind, there):
            yield bank
            bank, grown = [], Padded.of(member)
        bank.append(member)
        held = grown
    yield bank


def _too_large(bank: Padded, recipe: Recipe, kind: str, there: int) -> bool:
    """On a CPU a step should stay near the cores and all of it within half the memory; on a GPU all must fit."""
    total = bank.memory(recipe, kind).total
    return total > MOST[kind] if kind == "cuda" else bank.touched(recipe) > MOST[kind] or 2 * total > there


def _size(member: Member) -> tuple[Any, ...]:
    return (member.arch.layers, member.arch.width, member.arch.embed_dim, member.seed)


def check_device(device: str) -> None:
    """Refuse a device that is not there, by name."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"device must be cpu or cuda, got {device!r}") from None
    if kind not in MOST:
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, and torch sees no CUDA device here; use --device cpu")


def environment(device: str, path: str) -> dict[str, Any]:
    """Where rows were made: enough to understand a difference between two machines."""
    from headcount import __version__

    name = torch.cuda.get_device_name() if torch.device(device).type == "cuda" else platform.processor() or "cpu"
    return {
        "headcount": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": name,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "path": path,
    }
