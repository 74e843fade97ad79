"""`headcount sweep`, `runs` and `export`: train what a spec asks for, list what is kept, hand it out."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, say, show_table, tell_written, warn
from headcount.numerals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headcount.results import Store, Study
    from headcount.results.store import StatedSpec
    from headcount.training import Member, Recipe
    from headcount.training.kept_networks import Save
    from headcount.training.workers import Workers

RUN = Annotated[Path, typer.Argument(help="Folder of a study, as `headcount sweep` wrote it.", show_default=False)]
SpecName = Annotated[
    str | None, typer.Option("--spec", help="Which spec of the store, where it holds several.", show_default=False)
]
Every = Annotated[
    str | None,
    typer.Option("--checkpoint", help="How often a bank keeps its state; 10m, 0 for never.", show_default=False),
]
SaveNetworks = Annotated[str, typer.Option("--save", help="Networks to keep beside the rows: none, best or all.")]
WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", help="Processes that train; on cuda one per GPU.", show_default=False),
]
Backend = Annotated[str, typer.Option("--backend", help="Who trains: local, or ray for a cluster.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster: host:port or auto.", show_default=False)
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take banks from a process that stands still for 45 s, not for 10 min.")
]


def register(app: typer.Typer) -> None:
    @app.command("sweep")
    def sweep(
        spec: Annotated[Path, typer.Argument(help="TOML file: task, grid, seeds, training.", show_default=False)],
        store: Annotated[Path | None, typer.Option(help="Where rows are kept. Default: runs/NAME.")] = None,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        checkpoint: Every = None,
        save: SaveNetworks = "none",
        workers: WorkerCount = None,
        backend: Backend = "local",
        address: Address = None,
        take_over: TakeOver = False,
        as_json: AsJson = False,
    ) -> None:
        """Train every network of a spec; run it again to go on."""
        from headcount.cli.door import Interrupted
        from headcount.sizing.settling import is_trial

        if is_trial(spec):
            _settled(spec, store, device, as_json=as_json)
            return
        from headcount.results import Store
        from headcount.training.progress import bar
        from headcount.training.spec import Sweep
        from headcount.training.sweeps import banks, check_device, refuse_what_cannot_fit, run

        asked = Sweep.read(spec)
        folder = store or Path("runs") / asked.name
        kept = Store.open(folder, create=True)
        networks, made = save_of(save), workers_of(workers, backend, address, device)
        every = checkpoint_of(checkpoint, backend)
        if backend == "local":  # a cluster's devices are not ours to see
            check_device(device)
            refuse_what_cannot_fit(asked.members, asked.recipe, device)
        elif made is not None and kept.missing([member.run(asked.recipe) for member in asked.members]):
            joined = made()  # before anything is made on the disk
            made = lambda: joined  # noqa: E731
        try:
            groups = list(banks(asked, device))
            if not as_json:
                size = f"{counted(len(asked.members), 'network')} in {counted(len(groups), 'bank')}"
                say(f"{size}; {_largest(groups, asked.recipe, device)}.")
            study = run(
                asked,
                kept,
                device=device,
                on_progress=bar,
                groups=groups,
                checkpoint=every,
                save=networks,
                workers=made,
                take_over=take_over,
            )
        except KeyboardInterrupt:
            left = len(kept.missing([member.run(asked.recipe) for member in asked.members]))
            raise Interrupted(
                f"{len(asked.members) - left} of {len(asked.members)} networks are kept in {folder}; "
                "run the same command to go on."
            ) from None
        if as_json:
            emit_json(list(study.rows))
            return
        show_table(summary(study), ("length", "layers", "width", "networks", "best", "median", "diverged"))
        say(f"{counted(len(study), 'row')} in {folder}, path: {study.environment.get('path', '-')}.")
        conclude(f"{_best_of(study)}; `headcount report {folder}` draws the page")

    @app.command("runs")
    def runs(
        folder: Annotated[Path, typer.Argument(help="Folder that holds studies.")] = Path("runs"),
        as_json: AsJson = False,
    ) -> None:
        """List the studies in a folder.

        Every spec of each: how many networks it wants, and how many are trained.
        """
        rows, odd = list_studies(folder)
        for problem in odd:
            warn(problem)
        if as_json:
            emit_json(rows)
        else:
            show_table(rows, ("study", "spec", "task", "trained", "wanted", "diverged", "device"))
            conclude(_unfinished(rows))

    @app.command("export")
    def export(
        run: RUN,
        out: Annotated[Path | None, typer.Option("--out", help="Folder to write into. Default: RUN.")] = None,
        spec: SpecName = None,
        as_json: AsJson = False,
    ) -> None:
        """Write a study as rows.csv, rows.jsonl and study.json."""
        from headcount.results.export import Exported

        study = Exported.of(run, one_spec(run, spec))
        if as_json:
            for piece in study.json_list():
                sys.stdout.write(piece)
            tell_damaged(run, study.head)
            return
        written = study.write(out or (run if run.is_dir() else run.parent))
        tell_damaged(run, study.head)
        tell_written(written)
        others = " and ".join(path.name for path in written[1:])
        conclude(f"{counted(study.count, 'row')} are in {written[0]}, and again in {others}")


def _settled(spec: Path, store: Path | None, device: str, *, as_json: bool) -> None:
    """Run an experiment that `headcount shape --experiment` has written: two shapes in pairs."""
    from headcount.sizing.settling import facts_of, settle, settled_row

    folder = store or Path("runs") / spec.stem
    planned, found = settle(spec, folder, device=device, say=(lambda _: None) if as_json else say)
    row = settled_row(planned, found)
    if as_json:
        emit_json(row)
        return
    tell_written([folder / "trial.json", folder / "settled.json"])
    conclude(facts_of(row))


def workers_of(count: int | None, backend: str, address: str | None, device: str) -> Callable[[], Workers] | None:
    """What makes the workers that the options ask for; None where this process trains."""
    import torch

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
    made = LocalWorkers(count, device)  # a wrong count is refused before anything is begun
    return lambda: made


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
    found = [bank_memory(group, recipe, device.partition(":")[0]) for group in by_size]
    return f"the largest takes {max(found, key=lambda memory: memory.total)}"


def summary(study) -> list[dict[str, object]]:
    """A row for each length and shape: how many networks, the best and the median NMSE."""
    from statistics import median

    cells: dict[tuple, list[dict]] = {}
    for row in study:
        cells.setdefault((row["length"], row["layers"], row["width"]), []).append(row)
    return [
        {
            "length": length,
            "layers": layers,
            "width": width,
            "networks": len(rows),
            "best": min(map(_error_of, rows)),
            "median": median(map(_error_of, rows)),
            "diverged": sum(r["status"] == "diverged" for r in rows),
        }
        for (length, layers, width), rows in cells.items()
    ]


def _error_of(row: Mapping[str, Any]) -> float:
    """The NMSE of a row, infinite where it is no number."""
    return math.inf if row["nmse"] is None or math.isnan(row["nmse"]) else row["nmse"]


def _best_of(study: Study) -> str:
    """The best network of a study, in words."""
    finite = [row for row in study if math.isfinite(_error_of(row))]
    if not finite:
        return f"all {counted(len(study), 'network')} diverged"
    best = min(finite, key=lambda row: row["nmse"])
    level = study.spec.get("level", "NMSE")
    return f"{best['layers']} at length {best['length']} came out best, {level} {best['nmse']:.2g}"


def _unfinished(rows: list[dict[str, object]]) -> str:
    """How many studies are there, and how many networks are still to be trained."""
    left = [row for row in rows if int(str(row["trained"])) < int(str(row["wanted"]))]
    studies = counted(len({row["study"] for row in rows}), "study", "studies")
    if not left:
        return f"{studies}, every network trained" if rows else "there is no study here yet"
    return f"{studies}, {len(left)} of them unfinished: run the same `headcount sweep` to go on"


def list_studies(folder: Path) -> tuple[list[dict[str, object]], list[str]]:
    """A row for each spec of each study found in `folder`, and a sentence for each store that cannot be read."""
    from headcount.results import Store
    from headcount.results.store import FILE

    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; `headcount sweep` keeps its studies in runs/ unless told otherwise")
    rows, odd = [], []
    for path in sorted([folder / FILE, *folder.glob(f"*/{FILE}")]):
        if path.exists():
            try:
                store = Store.open(path)
                rows += [_listed(store, spec, study) for spec, study in store.heads()]
            except (ValueError, OSError) as problem:
                odd.append(" ".join(str(problem).split()))
    if odd and not rows:
        raise ValueError(odd[0])
    return rows, odd[:2]


def _listed(store: Store, spec: StatedSpec, study: Study) -> dict[str, object]:
    return {
        "study": str(store.path.parent),
        "spec": spec.label,
        "task": ", ".join(dict.fromkeys(str(row.get("task", "-")) for row in study)) or "-",
        "trained": spec.trained,
        "wanted": spec.wanted,
        "diverged": spec.diverged,
        "device": study.environment.get("device", "-"),
    }


def tell_damaged(run: Path, study: Study) -> None:
    """Where rows are left out because they are not as they were written, say on stderr how many and what mends it."""
    if run.suffix != ".json" and (damaged := study.spec.get("damaged", 0)):
        said = f"{counted(damaged, 'damaged row')} of {run} left out; `headcount store verify` names what is damaged"
        warn(f"{said}, and the same sweep trains it again")


def one_spec(run: Path, spec: str | None) -> str | None:
    """The address of the spec that is meant, the same from now on; where a store holds several, which is asked.

    Specs of one name are versions of one, of which the latest is meant, with a line; one named "NAME, part" is a part
    of NAME, as a search for rates makes them.
    """
    from headcount.refusals import RefusalError
    from headcount.results import Store
    from headcount.results.snapshot import chosen

    if run.suffix == ".json":
        return spec
    store = Store.open(run)
    specs = store.specs()
    if spec is not None or not specs:
        return chosen(specs, spec, store.path).content
    names = list(dict.fromkeys(s.name for s in specs))
    names = [name for name in names if name.rpartition(", ")[0] not in names]
    if len(names) > 1:
        which = ", ".join(names) if len(names) < 7 else f"{', '.join(names[:6])} and {len(names) - 6} more"
        raise RefusalError(f"{run} holds several specs; say which is meant: --spec with one of {which}")
    same = [s for s in specs if s.name == names[0]]
    if len(same) > 1:
        others = ", ".join(s.label for s in same[:-1][-3:])
        warn(f"shown is {same[-1].label}, stated last; {run} also holds {others} (--spec)")
    return same[-1].content
