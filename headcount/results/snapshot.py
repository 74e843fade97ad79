"""A study as it stood at one moment: a spec and the rows kept by then, however long reading them takes.

Rows are only ever added, each with a number above all before it. So a spec's address and the greatest number, read in
one transaction, say for good which rows are meant; they are then fetched some at a time, and a writer in between waits
for no reader.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headcount.frozen import decode
from headcount.refusals import RefusalError, nearest
from headcount.results.database import DamagedTextError, StoreError, identity, is_sound, reading
from headcount.results.row_packing import RowPacking
from headcount.results.study import Row, Study, as_rows, as_spec, as_table

CHUNK = 1000  # rows parsed at once: they share the names of their columns
TEXTS = "CAST(rows.run AS BLOB), CAST(member AS BLOB), CAST(row AS BLOB), CAST(environment AS BLOB), checksum"


@dataclass(frozen=True)
class StatedSpec:
    """A spec that was asked for: how many networks, how many of them are kept, how many of those diverged."""

    id: int
    content: str
    name: str
    wanted: int
    trained: int
    diverged: int
    stated: str

    @property
    def label(self) -> str:
        """Its name with the beginning of its address: two specs of one name differ."""
        return f"{self.name}@{self.content.removeprefix('old ')[:6]}"


@dataclass(frozen=True)
class Snapshot:
    """One spec of a store and its rows up to `last`, the greatest number that a row had then."""

    path: Path
    file: tuple[int, int] | None
    spec: StatedSpec
    about: dict[str, object]
    environments: dict[str, bytes]
    last: int
    wait: float | None = None

    def rows(self) -> Iterator[tuple[Row, str, str]]:
        """The finished rows in the spec's order, one by one, each with its environment's address and its own text."""
        first: Row | None = None
        for chunk in self._chunks():
            rows = as_rows(f"[{','.join(text for text, _ in chunk)}]", "the store", first)
            first = rows[0] if first is None and rows else first
            yield from ((row, env, text) for row, (text, env) in zip(rows, chunk, strict=True))

    def _chunks(self) -> Iterator[list[tuple[str, str]]]:
        """The same as JSON texts, some at a time; no lock is held while they are used."""
        with reading(self.path, self.wait) as db:
            self._refuse_another_file()
            place = -1
            while chunk := self._some(db, "place > ?", "ASC", place):
                db.execute("COMMIT")
                if chunk[-1][-1] <= place:  # a damaged index would lead round in a ring
                    raise DamagedTextError("rows that are not in their order")
                place = chunk[-1][-1]
                yield _sound(chunk)
                db.execute("BEGIN")

    def study(self) -> Study:
        """All of its rows, in the spec's order."""
        used: dict[str, None] = {}
        rows, packed = [], RowPacking()
        for row, env, _ in self.rows():
            rows.append(packed(row))
            used.setdefault(env)
        return Study(tuple(rows), self.told(len(rows)), self.environment(used), self.spec.name)

    def told(self, sound: int) -> dict[str, object]:
        """The spec with how many networks it asked for, and how many of those kept are not as they were written."""
        spec = {**self.about, "asked": self.spec.wanted}
        return spec if sound >= self.spec.trained else {**spec, "damaged": self.spec.trained - sound}

    def environment(self, used: Iterable[str]) -> dict[str, object]:
        """The environment of the first of these addresses, with those of others beside it; none of a damaged one."""
        known = []
        for text in (self.environments[env] for env in used if env in self.environments):
            with contextlib.suppress(ValueError, RecursionError):
                known.append(as_table(json.loads(text), "an environment"))
        return {**known[0], "also": known[1:]} if len(known) > 1 else known[0] if known else {}

    def ends(self, db: sqlite3.Connection) -> Study:
        """The study with its first and last row alone: what a list of studies needs, at no cost."""
        sides = (("place > ?", "ASC", -1), ("place < ?", "DESC", self.spec.wanted)) if self.spec.trained else ()
        texts = [text for side in sides for text in _sound(self._some(db, *side))[:1]]
        rows = as_rows(f"[{','.join(text for text, _ in texts)}]", "the store")
        used = dict.fromkeys(env for _, env in texts)
        return Study(tuple(rows), self.told(self.spec.trained), self.environment(used), self.spec.name)

    def _some(self, db: sqlite3.Connection, where: str, order: str, place: int) -> list[tuple[Any, ...]]:
        query = f"SELECT {TEXTS}, place FROM asked JOIN rows USING (run) WHERE asked.spec = ? AND {where}"
        query += f" AND rows.rowid <= ? ORDER BY place {order} LIMIT {CHUNK}"
        return db.execute(query, (self.spec.id, place, self.last)).fetchall()

    def _refuse_another_file(self) -> None:
        if identity(self.path) != self.file:
            raise StoreError(f"{self.path}: another file took its place while it was read; run the same command again")


def taken(db: sqlite3.Connection, path: Path, spec: str | None, wait: float | None) -> Snapshot:
    """The snapshot of a spec within the transaction of `db`; of the one stated last unless `spec` says which."""
    stated = chosen(stated_specs(db), spec, path)
    (text,) = db.execute("SELECT CAST(spec AS BLOB) FROM specs WHERE id = ?", (stated.id,)).fetchone()
    (last,) = db.execute("SELECT coalesce(max(rowid), 0) FROM rows").fetchone()
    stored = db.execute("SELECT id, CAST(environment AS BLOB) FROM environments").fetchall()
    environments = {name: text for name, text in stored if isinstance(name, str) and isinstance(text, bytes)}
    about = as_spec(_parsed(text), f"the spec of {path}")
    return Snapshot(path, identity(path), stated, about, environments, last, wait)


def chosen(specs: list[StatedSpec], spec: str | None, path: Path) -> StatedSpec:
    """The spec of this address, label or name (the latest of that name); without one, the latest of all."""
    if not specs:
        raise RefusalError(f"{path} holds no spec; `headcount sweep` states one")
    fits = [s for s in specs if spec is None or spec in (s.content, s.label, s.name)]
    if not fits:
        raise RefusalError(f"{path} holds no spec {spec!r}; {nearest(str(spec), dict.fromkeys(s.name for s in specs))}")
    return fits[-1]


def stated_specs(db: sqlite3.Connection) -> list[StatedSpec]:
    """Every spec ever asked for, the latest last."""
    names = [field.name for field in fields(StatedSpec)]
    records = db.execute("SELECT id, content, name, asked, kept, diverged, stated FROM specs ORDER BY turn")
    try:
        return [decode(StatedSpec, dict(zip(names, row, strict=True)), "the store's list of specs") for row in records]
    except ValueError as problem:
        raise DamagedTextError(str(problem)) from problem


def _parsed(text: Any) -> Any:
    """The value of a JSON text of the store."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as problem:
        raise DamagedTextError(str(problem)) from problem


def _sound(records: list[tuple[Any, ...]]) -> list[tuple[str, str]]:
    """Row and environment of those that are as they were written."""
    return [(row[2].decode(), row[3].decode()) for row in records if is_sound(row[:4], row[4])]
