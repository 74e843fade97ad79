"""A study as files for other programs: CSV, JSON lines and one JSON, written in one go through its rows."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from headcount.files import atomic_write, strict_json
from headcount.results.snapshot import Snapshot
from headcount.results.store import Store, read_study
from headcount.results.study import Row, Study
from headcount.visible import plain_cell

NAMES = ("rows.csv", "rows.jsonl", "study.json")


class Exported:
    """The rows of a study, text by text; `head` and `count` are known once all were gone through.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "s.json").write_text(Study(({"run": "a", "heads": 4},), name="one").to_json())
    >>> [path.name for path in Exported.of(folder / "s.json").write(folder)], (folder / "rows.csv").read_text()
    (['rows.csv', 'rows.jsonl', 'study.json'], 'run,heads\\na,4\\n')
    """

    def __init__(self, kept: Snapshot | Study) -> None:
        self.kept, self.count = kept, 0
        self.head = kept if isinstance(kept, Study) else Study((), kept.told(kept.spec.trained), {}, kept.spec.name)

    @classmethod
    def of(cls, path: Path, spec: str | None = None) -> Exported:
        """The study of a store's folder, or of the JSON that an export wrote."""
        return cls(read_study(path) if path.suffix == ".json" else Store.open(path).snapshot(spec))

    def write(self, folder: Path) -> list[Path]:
        """Write rows.csv, rows.jsonl and study.json, each whole or not at all, and say where they are."""
        paths = [folder / name for name in NAMES]
        with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
            table, lines, study = (stack.enter_context(_opened(path)) for path in paths)
            rows = stack.enter_context(TemporaryFile("w+", dir=folder, encoding="utf-8", newline=""))
            columns = self._write_rows(table, lines, rows)
            if list(columns) != list(self.columns):  # a later row had a column of its own
                table.seek(0)
                table.truncate()
                self._write_table(table, columns)
            self._write_study(study, rows)
            last.enter_context(_one_at_a_time(folder))  # until all three stand in their places
        return paths

    def json_list(self) -> Iterator[str]:
        """The rows as one JSON list."""
        before = "["
        for text, _ in self._rows():
            yield f"{before}\n{text}"
            before = ","
        yield "[]\n" if before == "[" else "\n]\n"

    def _write_rows(self, table: TextIO, lines: TextIO, rows: TextIO) -> dict[str, None]:
        """All rows into three files at once; the columns that they have."""
        columns: dict[str, None] = {}
        self.columns: tuple[str, ...] = ()
        writer = csv.writer(table, lineterminator="\n")
        for text, row in self._rows():
            if row.keys() != columns.keys():
                columns.update(dict.fromkeys(row))
                if self.count == 1:
                    self.columns = tuple(columns)
                    writer.writerow(self._titles(columns))
            writer.writerow([_cell(row.get(name, "")) for name in self.columns])
            lines.write(f"{text}\n")
            rows.write(f"{',' if self.count > 1 else ''}\n  {text}")
        return columns

    def _write_table(self, table: TextIO, columns: dict[str, None]) -> None:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(self._titles(columns))
        for _, row in self._rows():
            writer.writerow([_cell(row.get(name, "")) for name in columns])

    def _write_study(self, study: TextIO, rows: TextIO) -> None:
        head = {"name": self.head.name, "spec": self.head.spec, "environment": self.head.environment}
        study.write(strict_json(head, indent=1).removesuffix("\n}") + ',\n "rows": [')
        rows.seek(0)
        shutil.copyfileobj(rows, study, 2**20)
        study.write("\n ]\n}\n" if self.count else "]\n}\n")

    def _titles(self, columns: dict[str, None]) -> list[str]:
        return [plain_cell(self.head.column_name(name)) for name in columns]

    def _rows(self) -> Iterator[tuple[str, Row]]:
        """Each row as JSON of one line and as a dictionary; counted."""
        self.count = 0
        if isinstance(self.kept, Study):
            for row in self.kept.rows:
                self.count += 1
                yield strict_json(row), row
            return
        used: dict[str, None] = {}
        for row, env, text in self.kept.rows():
            self.count += 1
            used.setdefault(env)
            yield _strict(text, row), row
        self.head = Study((), self.kept.told(self.count), self.kept.environment(used), self.kept.spec.name)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other exports from putting files into the same folder meanwhile, where the system locks folders."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            file = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A file to write; it becomes `path` when the block ends well."""
    with atomic_write(path) as scratch, scratch.open("w", encoding="utf-8", newline="") as file:
        yield file


def _strict(text: str, row: Row) -> str:
    """The text as it is kept, where every reader takes it: in one line, and what is no finite number is null."""
    return strict_json(row) if "NaN" in text or "Infinity" in text or not text.isprintable() else text


@lru_cache(maxsize=4096)
def _text_cell(text: str) -> str:
    return plain_cell(text)


def _cell(value: Any) -> Any:
    return _text_cell(value) if type(value) is str else value
