"""`headcount sweep`: train what a spec asks for, and go on where it was left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import Device
from headcount.cli.printing import Listing, Printout, say
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.results import Store
    from headcount.training import Member, Recipe
    from headcount.training.kept_networks import Save
    from headcount.training.spec import Sweep
    from headcount.training.workers import Workers


@dataclass(frozen=True)
class SweepOptions:
    """What `headcount sweep` takes."""

    spec: Annotated[Path, typer.Argument(help="TOML file: task, grid, seeds, training.", show_default=False)]
    store: Annotated[Path | None, typer.Option(help="Where rows are kept. Default: runs/NAME.")] = None
    device: Device = "cpu"
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="How often a bank keeps its state; 10m, 0 for never.", show_default=False),
    ] = None
    save: Annotated[str, typer.Option("--save", help="Networks to keep beside the rows: none, best or all.")] = "none"
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes that train; on cuda one per GPU.", show_default=False),
    ] = None
    backend: Annotated[str, typer.Option("--backend", help="Who trains: local, or ray for a cluster.")] = "local"
    address: Annotated[
        str | None, typer.Option("--address", help="Of the Ray cluster: host:port or auto.", show_default=False)
    ] = None
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take banks from a process that stands still for 45 s, not for 10 min.")
    ] = False


def sweep(options: SweepOptions) -> Printout:
    """Train every network of a spec; run it again to go on.

    A spec is a TOML file; what [training] leaves out is taken as usual. One that takes seconds:

    \b
      name = "small"
      seeds = 2
      [task]
      name = "LinearMax"
      retrievals = 2
      token_dim = 2
      [grid]
      lengths = [8]
      heads = [1, 2, 3]
      head_dim = 4
      width = 16
      [training]
      samples = 2000
      validation = 500
      epochs = 100
    """
    from headcount.cli.door import Interrupted
    from headcount.results import Store
    from headcount.results.overview import cell_rows
    from headcount.sizing.settling import is_trial
    from headcount.training.horizons import horizons_of
    from headcount.training.progress import bar
    from headcount.training.spec import Sweep
    from headcount.training.sweeps import banks, run

    if is_trial(options.spec):
        return _settled(options.spec, options.store, options.device)
    home = options.store or Path("runs") / options.spec.stem
    if (parts := horizons_of(options.spec, home / "horizons")) != [options.spec]:
        return _joined([sweep(replace(options, spec=part, store=home)) for part in parts])
    spec = Sweep.read(options.spec)
    folder = options.store or Path("runs") / spec.name
    store = Store.open(folder, create=True)
    networks, workers = save_of(options.save), workers_of(options)
    every = checkpoint_of(options.checkpoint, options.backend)
    workers = _ready(spec, store, options, workers)
    how = {"checkpoint": every, "save": networks, "workers": workers, "take_over": options.take_over}
    try:
        groups = list(banks(spec, options.device))
        size = f"{counted(len(spec.members), 'network')} in {counted(len(groups), 'bank')}"
        say(f"{size}; {_largest(groups, spec.recipe, options.device)}.")
        study = run(spec, store, device=options.device, on_progress=bar, groups=groups, **how)
    except KeyboardInterrupt:
        raise Interrupted(_left(spec, store, folder)) from None
    columns = ("length", "layers", "width", "networks", "best", "median", "diverged")
    rows = f"{counted(len(study), 'row')} in {folder}, trained by {study.environment.get('path', '-')}."
    so = f"{study.sentence}; `headcount report {folder}` draws the page"
    return Printout(list(study.rows), [Listing(cell_rows(study), columns), rows], so)


def _joined(parts: list[Printout]) -> Printout:
    """The horizons of one spec, one after the other."""
    lines = [piece for part in parts for piece in part.told]
    return Printout([row for part in parts for row in part.facts], lines, parts[-1].so)


def _ready(
    spec: Sweep, store: Store, options: SweepOptions, workers: Callable[[], Workers] | None
) -> Callable[[], Workers] | None:
    """What cannot be trained is refused before anything is begun; a cluster is joined before that."""
    from headcount.training.sweeps import check_device, refuse_what_cannot_fit

    if options.backend == "local":  # a cluster's devices are not ours to see
        check_device(options.device)
        refuse_what_cannot_fit(spec.members, spec.recipe, options.device)
    elif workers is not None and store.missing([member.run(spec.recipe) for member in spec.members]):
        joined = workers()  # before anything is made on the disk
        return lambda: joined
    return workers


def _left(spec: Sweep, store: Store, folder: Path) -> str:
    left = len(store.missing([member.run(spec.recipe) for member in spec.members]))
    done = f"{len(spec.members) - left} of {len(spec.members)} networks are kept in {folder}"
    return f"{done}; run the same command to go on."


def _settled(spec: Path, store: Path | None, device: str) -> Printout:
    """Run an experiment that `headcount shape --experiment` has written: two shapes in pairs."""
    from headcount.sizing.settling import facts_of, settle, settled_row

    folder = store or Path("runs") / spec.stem
    planned, difference = settle(spec, folder, device=device, say=say)
    row = settled_row(planned, difference)
    return Printout(row, [], facts_of(row), [folder / "trial.json", folder / "settled.json"])


def workers_of(options: SweepOptions) -> Callable[[], Workers] | None:
    """What makes the workers that the options ask for; None where this process trains."""
    import torch

    count, backend, address, device = options.workers, options.backend, options.address, options.device
    if backend not in ("local", "ray"):
        raise ValueError(f"--backend is local or ray, got {backend!r}")
    if backend == "ray":
        if count is not None:
            raise ValueError("--workers counts processes of this machine; a Ray cluster has as many as it has room for")
        from headcount.training.ray_workers import RayWorkers, loaded_ray, refuse_no_cluster

        loaded_ray()  # what is missing is said before anything is begun
        refuse_no_cluster(address)
        return lambda: RayWorkers(address, device, torch.get_num_threads())
    if address is not None:
        raise ValueError("--address is that of a Ray cluster: it goes with --backend ray")
    if count is None:
        return None
    from headcount.training.sweeps import check_device
    from headcount.training.workers import LocalWorkers

    check_device(device)
    workers = LocalWorkers(count, device)  # a wrong count is refused before anything is begun
    return lambda: workers


def checkpoint_of(text: str | None, backend: str = "local") -> float | None:
    """Seconds between checkpoints, None for never. Other machines keep none unless asked: their disks are not ours.

    >>> checkpoint_of(None), checkpoint_of("90s"), checkpoint_of("0"), checkpoint_of(None, "ray")
    (600.0, 90.0, None, None)
    """
    from headcount.measuring.planning import seconds
    from headcount.training.checkpoints import EVERY

    if text is None:
        return EVERY if backend == "local" else None
    return None if text.strip() == "0" else seconds(text)


def save_of(word: str) -> Save:
    """The word after --save, if it is one."""
    if word not in ("none", "best", "all"):
        raise ValueError(f"--save is none, best or all, got {word!r}")
    return word


def _largest(groups: list[list[Member]], recipe: Recipe, device: str) -> str:
    """What the largest bank takes, sought among those with most numbers."""
    from headcount.training.memory import bank_memory

    by_size = sorted(groups, key=lambda g: len(g) * max(m.task.length * m.net.width for m in g))[-8:]
    memories = [bank_memory(group, recipe, device.partition(":")[0]) for group in by_size]
    return f"the largest takes {max(memories, key=lambda memory: memory.total)}"
