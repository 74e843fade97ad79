"""Networks of a sweep, kept on request beside its rows: one safetensors file per network, named by its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from headcount.files import atomic_write
from headcount.frozen import rebuilt
from headcount.nets import Transformer
from headcount.nets.causal import CausalTransformer
from headcount.nets.saved import load_decoder, load_in_units, load_net
from headcount.nets.target_units import TargetUnits
from headcount.results import Store, Study
from headcount.results.study import Row
from headcount.tasks import Task
from headcount.training.member import Member

Save = Literal["none", "best", "all"]
FOLDER = "networks"


def saved_members(members: Sequence[Member], rows: Sequence[Row], save: Save) -> list[int]:
    """Which members to save: none, all, or the one of smallest NMSE of every task and architecture."""
    if save != "best":
        return list(range(len(members))) if save == "all" else []
    best: dict[tuple[object, object], int] = {}
    for k, member in enumerate(members):
        cell = (member.task, member.net)
        if cell not in best or rows[k]["nmse"] < rows[best[cell]]["nmse"]:
            best[cell] = k
    return list(best.values())


def write_networks(folder: Path, networks: Mapping[str, bytes]) -> list[str]:
    """Write networks (run: file content) into a store's folder, each whole or not at all; their runs."""
    for run, content in networks.items():
        with atomic_write(_file(folder, run)) as scratch:
            scratch.write_bytes(content)
    return list(networks)


def drop_beaten(folder: Path, members: Sequence[Member], rows: Sequence[Row], written: Sequence[str]) -> None:
    """Of the files just written, remove those of networks that are worse than one of another bank."""
    best = {rows[k]["run"] for k in saved_members(members, rows, "best")}
    for run in set(written) - best:
        _file(folder, run).unlink(missing_ok=True)


@dataclass(frozen=True)
class NetworksIn:
    """The networks in a store's folder, by row, in the units of the target."""

    folder: Path

    def __call__(self, row: Mapping[str, Any]) -> TargetUnits:
        return load_in_units(_there(self.folder, row["run"]))

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether the network of a row was kept."""
        return _file(self.folder, row["run"]).is_file()


@dataclass(frozen=True)
class NetworksHeld:
    """The networks of a sweep without a store: the contents of their files, by run."""

    files: dict[str, bytes]

    @classmethod
    def of(cls, folder: Path, runs: Iterable[str]) -> NetworksHeld:
        """Those of a folder that is about to go."""
        paths = {run: _file(folder, run) for run in runs}
        return cls({run: path.read_bytes() for run, path in paths.items() if path.is_file()})

    def __call__(self, row: Mapping[str, Any]) -> TargetUnits:
        with TemporaryDirectory() as folder:
            write_networks(Path(folder), {row["run"]: self.files[row["run"]]} if row["run"] in self.files else {})
            return load_in_units(_there(Path(folder), row["run"]))


def network_of(folder: str | Path, row: Mapping[str, Any]) -> Transformer | CausalTransformer:
    """The network of a row as it was kept; the output of a class-token network is the scaled target.

    `folder` is that of a store whose sweep was run with `save` best or all.
    """
    file = _there(Path(folder), row["run"])
    return load_decoder(file) if "string_accuracy" in row else load_net(file)


class KeptStudy(NamedTuple):
    """The rows of a study whose networks were kept, and each network with its task."""

    study: Study
    networks: list[tuple[TargetUnits, Task]]

    @property
    def best(self) -> tuple[TargetUnits, Task]:
        """The network of smallest NMSE."""
        return self.networks[min(range(len(self.study)), key=lambda k: self.study.rows[k]["nmse"])]


def kept_study(folder: str | Path, spec: str | None = None) -> KeptStudy:
    """What a store's folder keeps of networks; `spec` names one of several, the latest is meant without it."""
    store = Store.open(folder)
    study, networks = store.study(spec), NetworksIn(store.path.parent)
    rows = tuple(row for row in study if networks.has(row))
    if not rows:
        raise ValueError(f"{folder} keeps no networks: a sweep keeps them when its `save` is best or all")
    return KeptStudy(replace(study, rows=rows), [(networks(row), task_of(store, row["run"])) for row in rows])


def task_of(store: Store, run: str) -> Task:
    """The task that a row was trained on, as the store has written it down."""
    described = store.content(run)["task"]
    try:
        return rebuilt(described, "the row", Task)
    except ValueError as problem:
        raise ValueError(f"the task of run {run} cannot be read back: {problem}") from None


def _there(folder: Path, run: str) -> Path:
    path = _file(folder, run)
    if not path.is_file():
        raise FileNotFoundError(
            f"no network of run {run} in {folder}: a sweep keeps them when its `save` is best or all"
        )
    return path


def _file(folder: Path, run: str) -> Path:
    return folder / FOLDER / f"{run}.safetensors"
