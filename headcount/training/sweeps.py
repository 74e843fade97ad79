"""Run a sweep: group its members into banks, train what is missing, keep every finished bank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from headcount.kernels.bank import Network
from headcount.nets import Architecture
from headcount.numerals import counted
from headcount.refusals import RefusalError
from headcount.results import Store, Study
from headcount.results.leases import Leases
from headcount.results.study import Row
from headcount.tasks import Task
from headcount.training.bank_jobs import BankJob, Start, TrainedBank
from headcount.training.checkpoints import EVERY, Termination, heeding_termination
from headcount.training.kept_networks import NetworksHeld, NetworksIn, Save, drop_beaten, write_networks
from headcount.training.leased_banks import LeasedBank, bank_address
from headcount.training.member import Member, Recipe
from headcount.training.memory import MOST, Padded, capacity, refuse_what_cannot_fit
from headcount.training.progress import OnProgress, Progress, automatic, silent
from headcount.training.rate_search import RateSearch
from headcount.training.sharing import SharedBanks, ThisProcess
from headcount.training.spec import Sweep
from headcount.training.workers import Workers

# How much of a padded bank may be padding: on a CPU it costs time, on a GPU launches cost more.
PADDING = {"cpu": 1.25, "cuda": 4.0}

ROUNDS = 3  # how often rows are trained that were kept and are gone

Share = Callable[[list[LeasedBank], Leases, Progress], None]  # trains all that is left


def sweep(
    task: Task | Sequence[Task],
    archs: Sequence[Architecture | Network],
    *,
    lengths: Sequence[int] | None = None,
    seeds: int | Sequence[int] = 3,
    recipe: Recipe | None = None,
    lr: float | Sequence[float] | Literal["best"] | RateSearch = 3e-3,
    weight_decay: float = 1e-4,
    base: Architecture | None = None,
    device: str = "cpu",
    store: str | Path | None = None,
    save: Save = "all",
    start: Start | None = None,
    shapes: Mapping[str, object] | None = None,
    on_progress: OnProgress = automatic,
) -> Study:
    """Train every architecture on the task at every length and seed, and return the study.

    `lr` is a rate, or several to train each network at, or "best": then a search (`RateSearch`) chooses it for
    every task and architecture, and `spec["rate_search"]` of the study says which and at what cost. With `base`, rates
    and starts follow the factors of `widths(base)`. With `store`, finished banks are kept there and not trained again;
    without, rows live in the study alone. `save` says which networks are kept for `study.net(row)`. With `start`, every
    network that it knows for a task and an architecture is trained too, from there: rows whose `start` is "built".
    `shapes` is what a caller knows of the architectures, kept in the spec.

    >>> from headcount.tasks import KthLargest
    >>> study = sweep(KthLargest(rank=1, length=4), [Architecture(layers=((1, 4),), width=8)], seeds=2,
    ...               recipe=Recipe(samples=64, validation=32, epochs=1, batch=32))
    >>> len(study)
    2
    """
    if lengths is not None:
        tasks: list[Any] = list(task) if isinstance(task, Sequence) else [task]
        task = [replace(one, length=n) for one in tasks for n in lengths]
    spec = Sweep.of(task, archs, seeds, recipe or Recipe(), lr=lr, weight_decay=weight_decay, base=base)
    if start is not None:
        spec = spec.started(start, shapes or {})
    train = partial(run, spec, device=device, on_progress=on_progress, save=save, start=start)
    if store is not None:
        return train(Store.open(store, create=True))
    with TemporaryDirectory() as folder:
        study = train(Store.open(folder, create=True))
        networks = NetworksHeld.of(Path(folder), (row["run"] for row in study))
        return replace(study, networks=networks if networks.files else None)


def run(
    asked: Sweep,
    store: Store,
    *,
    device: str = "cpu",
    on_progress: OnProgress = silent,
    groups: Sequence[Sequence[Member]] | None = None,
    checkpoint: float | None = None,
    save: Save = "none",
    workers: Callable[[], Workers] | None = None,
    start: Start | None = None,
    take_over: bool = False,
) -> Study:
    """Train the members that the store lacks, bank by bank, and return the whole study.

    `groups` are the sweep's `banks`, where the caller has made them already. With `checkpoint`, a bank in training
    keeps its state every so many seconds and when the process is asked to end. `save` keeps networks too, see
    `network_of`. With `workers`, which makes them, others train the banks; this process alone writes. `start` finds the
    networks of members that do not begin at random. With `take_over`, banks of processes that stand still are waited
    for less long.
    """
    if asked.search is not None:
        trained = partial(run, store=store, device=device, on_progress=on_progress)
        asked = searched(
            asked, asked.search, partial(trained, checkpoint=checkpoint, workers=workers, take_over=take_over)
        )
        groups = None
    if workers is None:
        check_device(device)
        refuse_what_cannot_fit(asked.members, asked.recipe, device)
    groups = list(banks(asked, device)) if groups is None else groups
    folder = store.path.parent
    checkpoints = None if checkpoint is None else folder / "checkpoints"
    threads = 0 if workers is None else torch.get_num_threads()
    job = BankJob((), asked.recipe, device, checkpoints, checkpoint or EVERY, save, threads, start)
    written: list[str] = []

    def keep(members: Sequence[Member], trained: TrainedBank) -> None:
        written.extend(write_networks(folder, trained.networks))  # before the rows: who has a row has its network
        add_rows(store, members, asked.recipe, trained.rows, trained.environment)
        for state in trained.states:
            state.unlink(missing_ok=True)

    def share(left: list[LeasedBank], leases: Leases, progress: Progress) -> None:
        if workers is not None:
            left.sort(key=lambda bank: bank.touched(asked.recipe), reverse=True)  # the longest first
        shared = SharedBanks(store, job, keep, leases, progress, left)
        shared.train(ThisProcess(progress, termination) if workers is None else workers(), termination)

    with contextlib.ExitStack() as stack:
        heeds = checkpoint is not None or workers is not None
        termination = stack.enter_context(heeding_termination()) if heeds else Termination()
        spec = train_banks(asked, groups, store, share, on_progress=on_progress, take_over=take_over)
    study = store.study(spec)
    if save == "best":
        drop_beaten(folder, asked.members, study.rows, written)
    return study if save == "none" else replace(study, networks=NetworksIn(folder))


def add_rows(
    store: Store, members: Sequence[Member], recipe: Recipe, rows: Sequence[Row], where: Mapping[str, object]
) -> None:
    """Add the rows of a trained bank to the store, with where they were made and in which bank."""
    bank = bank_address([row["run"] for row in rows])
    store.add(
        [
            (row["run"], {**member.content(recipe), "bank": bank}, row)
            for member, row in zip(members, rows, strict=True)
        ],
        where,
    )


def searched(asked: Sweep, search: RateSearch, trained: Callable[[Sweep], Study]) -> Sweep:
    """The sweep with the rate of every shape found by a search whose trials `trained` trains."""
    trials = search.trials(asked.members)
    rows = trained(Sweep(trials, search.recipe(asked.recipe), f"{asked.name}, rates")).rows
    chosen = search.chosen(asked.members, asked.recipe, trials, rows)
    return replace(asked, members=chosen.rated(asked.members), search=None, chosen=chosen)


def train_banks(
    asked: Sweep,
    groups: Sequence[Sequence[Member]],
    store: Store,
    share: Share,
    *,
    on_progress: OnProgress = silent,
    take_over: bool = False,
) -> str:
    """Train what the store lacks of every group and add each bank as it is finished: the loop of every study.

    The address of the spec that the store keeps beside the rows comes back. Processes that share the store share the
    work: a bank is trained by the one that holds its lease, the others wait for its rows, and take it over should that
    one die or stand still. At the end what was asked for is compared with what stands there: rows that something took
    away are trained again, and refused by number should they still be missing.
    """
    recipe, spec = asked.recipe, asked.to_json()
    runs = [member.run(recipe) for member in asked.members]
    notes = [*store.try_disk()]
    address_of_spec = store.state(asked.name, spec, runs)
    missing = set(store.missing(runs))
    if damaged := store.damaged(missing):
        notes.append(f"{counted(len(damaged), 'damaged row')} trained again: {', '.join(sorted(damaged)[:3])}")
    # Grouped before skipping: what is left of an interrupted sweep falls into the same banks, hence the same rows.
    claimed = [LeasedBank.of(group, recipe) for group in groups]
    shown = [bank.lacking(missing) for bank in claimed if missing.intersection(bank.runs)]
    with (
        store.leases(take_over=take_over) as leases,
        on_progress(asked, shown, done=len(runs) - len(missing)) as progress,
    ):
        for note in notes:
            progress.note(note)
        for _ in range(ROUNDS):
            left = [bank for bank in claimed if missing.intersection(bank.runs)]
            share(left, leases, progress)
            missing = set(store.missing(runs))
            if not missing and store.is_stated(address_of_spec):
                return address_of_spec
            if missing:
                gone = counted(len(missing), "row")
                progress.note(f"{gone} that were kept are gone from {store.path}; trained again")
            address_of_spec = store.state(asked.name, spec, runs)  # who took the rows may have taken the spec
    if not missing:
        return address_of_spec
    raise RefusalError(
        f"{len(missing)} of the {len(runs)} rows asked for are not in {store.path}, though each was trained "
        f"{ROUNDS} times: something takes them away; run the same command to go on"
    )


def banks(asked: Sweep, device: str) -> Iterator[list[Member]]:
    """The members in groups that share a shape of data, fit in memory and carry little padding."""
    kind = torch.device(device).type
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for member in asked.members:
        shape = member.shape
        key = (_lengths(member, kind), type(shape), *shape.shared.values())
        groups.setdefault(key, []).append(member)
    for members in groups.values():
        yield from _fitting(sorted(members, key=_size), asked.recipe, kind)


def _lengths(member: Member, kind: str) -> int:
    """Members with the same number here may share a bank: on a GPU, one-layer networks of lengths within a factor 4.

    A short sequence is padded to the longest of its bank, which on a GPU costs less than a bank of its own: a step of
    a small bank takes as long as launching it.
    """
    length = member.task.length
    return (length - 1).bit_length() // 2 if kind == "cuda" and len(member.shape.layers) == 1 else length


def _fitting(members: list[Member], recipe: Recipe, kind: str) -> Iterator[list[Member]]:
    there = capacity(kind) if kind == "cpu" else MOST[kind]
    bank, padded = members[:1], Padded.of(members[0])
    for member in members[1:]:
        grown = padded.plus(member)
        if grown.wastes(PADDING[kind]) or _too_large(grown, recipe, kind, there):
            yield bank
            bank, grown = [], Padded.of(member)
        bank.append(member)
        padded = grown
    yield bank


def _too_large(bank: Padded, recipe: Recipe, kind: str, there: int) -> bool:
    """On a CPU a step should stay near the cores and all of it within half the memory; on a GPU all must fit."""
    total = bank.memory(recipe, kind).total
    return total > MOST[kind] if kind == "cuda" else bank.touched(recipe) > MOST[kind] or 2 * total > there


def _size(member: Member) -> tuple[Any, ...]:
    sizes = (getattr(member.net, name) for name in ("layers", "width", "embed_dim"))
    return (*sizes, member.seed)


def check_device(device: str) -> None:
    """Refuse a device that is not there, by name."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"device must be cpu or cuda, got {device!r}") from None
    if kind not in MOST:
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, and torch sees no CUDA device here; take the device cpu")
