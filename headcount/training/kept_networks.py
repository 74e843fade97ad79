"""Networks of a sweep, kept on request beside its rows: one safetensors file per network, named by its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headcount.files import whole
from headcount.nets import Transformer
from headcount.nets.saved import load_net
from headcount.results.study import Row
from headcount.training.member import Member

__all__ = ["Save", "drop_beaten", "network_of", "saved_members", "write_networks"]

Save = Literal["none", "best", "all"]
FOLDER = "networks"


def saved_members(members: Sequence[Member], rows: Sequence[Row], save: Save) -> list[int]:
    """Which members to save: none, all, or the one of smallest NMSE of every task and architecture."""
    if save != "best":
        return list(range(len(members))) if save == "all" else []
    best: dict[tuple[object, object], int] = {}
    for k, member in enumerate(members):
        cell = (member.task, member.arch)
        if cell not in best or rows[k]["nmse"] < rows[best[cell]]["nmse"]:
            best[cell] = k
    return list(best.values())


def write_networks(folder: Path, networks: Mapping[str, bytes]) -> list[str]:
    """Write networks (run: file content) into a store's folder, each whole or not at all; their runs."""
    for run, content in networks.items():
        with whole(_file(folder, run)) as scratch:
            scratch.write_bytes(content)
    return list(networks)


def drop_beaten(folder: Path, members: Sequence[Member], rows: Sequence[Row], written: Sequence[str]) -> None:
    """Of the files just written, remove those of networks that one of another bank has beaten."""
    best = {rows[k]["run"] for k in saved_members(members, rows, "best")}
    for run in set(written) - best:
        _file(folder, run).unlink(missing_ok=True)


def network_of(folder: str | Path, row: Mapping[str, Any]) -> Transformer:
    """The network of a row, as it was at its smallest validation NMSE; its output is the scaled target.

    `folder` is that of a store whose sweep was run with `--save best` or `--save all`.
    """
    path = _file(Path(folder), row["run"])
    if not path.is_file():
        raise FileNotFoundError(
            f"no network of run {row['run']} in {folder}: a sweep keeps them when its `save` is best or all"
        )
    return load_net(path)


def _file(folder: Path, run: str) -> Path:
    return folder / FOLDER / f"{run}.safetensors"
