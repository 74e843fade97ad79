"""Run reproductions and keep each result as it finishes; what is kept is not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from headcount.files import write_text
from headcount.results.record import Record, Reproduction, Setting

Progress = Callable[[Reproduction, Record | None], None]
"""Called with None before a run, with the record after it or where it was kept already."""


def quiet(reproduction: Reproduction, record: Record | None) -> None:
    """Say nothing."""


def reproduce(
    reproductions: Iterable[Reproduction],
    setting: Setting,
    out: Path,
    *,
    again: bool = False,
    on_progress: Progress = quiet,
) -> list[Record]:
    """Run what is asked for, in order, keeping each result in `out`; a result already there is taken as it is."""
    records = []
    for reproduction in reproductions:
        path = out / reproduction.file(quick=setting.quick)
        if again or not path.exists():
            on_progress(reproduction, None)
            write_text(path, reproduction.measure(setting).to_json())
        records.append(Record.read(path))
        on_progress(reproduction, records[-1])
    return records


def read_records(folder: Path) -> dict[str, Record]:
    """The results in a folder by name: the full one where there is one, else the quick one.

    Only files named as `reproduce` names them are read; others may lie beside them.
    """
    from headcount.reproduction.index import REPRODUCTIONS

    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder} with results of `headcount reproduce`")
    files = {r.name: [folder / r.file(quick=quick) for quick in (False, True)] for r in REPRODUCTIONS}
    there = {name: next((path for path in paths if path.is_file()), None) for name, paths in files.items()}
    return {name: Record.read(path) for name, path in there.items() if path is not None}
