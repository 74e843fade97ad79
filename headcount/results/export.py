"""A study as files for other programs: CSV, JSON lines and one JSON, written row by row whatever the size."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from headcount.files import whole
from headcount.results.store import Store, read_study
from headcount.results.study import Row, Study, strict_json
from headcount.visible import plain_cell

__all__ = ["Exported"]


@dataclass(frozen=True)
class Exported:
    """What an export needs of a study: its head, and its rows one by one, as often as asked."""

    head: Study
    rows: Callable[[], Iterator[Row]]
    count: int
    columns: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, spec: str | None = None) -> Exported:
        """The study of a store's folder, or of the JSON that an export wrote."""
        if path.suffix == ".json":
            study = read_study(path)
            columns = tuple(dict.fromkeys(chain.from_iterable(study.rows)))
            return cls(study, lambda: iter(study.rows), len(study), columns)
        kept = Store.open(path).snapshot(spec)
        count, columns, environments = 0, {}, {}
        for row, env in kept.rows():
            count += 1
            columns.update(dict.fromkeys(row))
            environments[env] = None
        head = Study((), kept.told(count), kept.environment(environments), kept.spec.name)
        return cls(head, lambda: (row for row, _ in kept.rows()), count, tuple(columns))

    def write(self, folder: Path) -> Iterator[Path]:
        """Write rows.csv, rows.jsonl and study.json, each whole or not at all, and say where as each is there."""
        for name, pieces in (
            ("rows.csv", self.csv_lines()),
            ("rows.jsonl", (strict_json(row) + "\n" for row in self.rows())),
            ("study.json", self.head.json_pieces(self.rows())),
        ):
            path = folder / name
            with whole(path) as scratch, scratch.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces)
            yield path

    def csv_lines(self) -> Iterator[str]:
        """The rows as CSV, columns in the order of the first row and then as they come."""
        if self.columns:
            line = _Line()
            writer = csv.DictWriter(line, fieldnames=self.columns, lineterminator="\n")
            writer.writerow({column: plain_cell(self.head.column_name(column)) for column in self.columns})
            yield line.text
            for row in self.rows():
                writer.writerow({name: plain_cell(value) for name, value in row.items()})
                yield line.text

    def json_list(self) -> Iterator[str]:
        """The rows as one JSON list."""
        before = "["
        for row in self.rows():
            yield f"{before}\n{strict_json(row)}"
            before = ","
        yield "[]\n" if before == "[" else "\n]\n"


class _Line:
    """Where a CSV writer leaves its latest line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text
