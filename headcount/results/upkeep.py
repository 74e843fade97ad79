"""Upkeep of stores: see that every row is as it was written, save what can be read of a damaged file, join stores."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.refusals import RefusalError
from headcount.results.database import COUNT, TABLES, VERSION, StoreError, checksum, reading, writing
from headcount.results.store import FILE, Store, address, insert_rows

__all__ = ["MergedStore", "RepairedStore", "VerifiedStore", "merge_stores", "repair_store", "verify_store"]


@dataclass(frozen=True)
class VerifiedStore:
    """What a store holds: rows as they were written, runs whose row is damaged, and what SQLite says of the file."""

    path: str
    version: int
    rows: int
    specs: int
    damaged: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.damaged or self.problems)


@dataclass(frozen=True)
class RepairedStore:
    """How many rows were saved, which were dropped to be trained again, and where the damaged file was put aside."""

    path: str
    rows: int
    dropped: tuple[str, ...]
    aside: str


@dataclass(frozen=True)
class MergedStore:
    """How many rows and specs came over, and runs whose rows differ: there the first store's stand."""

    path: str
    added: int
    specs: int
    differing: tuple[str, ...]


def verify_store(folder: str | Path) -> VerifiedStore:
    """Read every page and every row of a store; change nothing.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp(), create=True)
    >>> _ = store.state("pair", {}, runs=["r1"])
    >>> store.add([("r1", {}, {"run": "r1", "nmse": 0.1})], environment={})
    >>> verify_store(store.path.parent).sound
    True
    """
    path = _file(folder)
    with reading(path) as db:
        problems = [words for (words,) in db.execute("PRAGMA integrity_check(20)") if words != "ok"]
        rows, damaged = 0, []
        with contextlib.suppress(sqlite3.DatabaseError):  # said by the check above
            for run, *texts, said in db.execute("SELECT run, member, row, environment, checksum FROM rows"):
                rows += 1
                if checksum(run, *texts) != said or not _is_json(texts[1], dict):
                    damaged.append(run)
        (specs,) = db.execute("SELECT count(*) FROM specs").fetchone()
    return VerifiedStore(str(path), VERSION, rows, specs, tuple(damaged), tuple(problems))


def repair_store(folder: str | Path) -> RepairedStore:
    """Write a sound store from all that can be read of a damaged one, which is put aside; the sweep trains the rest."""
    path = _file(folder)
    if not path.is_file():
        raise FileNotFoundError(f"no study at {folder}: {path} does not exist; `headcount sweep` makes one")
    fresh = path.with_name(f"{path.name}.repaired")
    if fresh.exists():
        raise RefusalError(f"{fresh} stands in the way, left by another repair; move it first")
    saved = _salvaged(path)
    if not saved["tables"] >= TABLES:
        raise StoreError(f"{path} is not a headcount store that can be read: its list of tables is gone or another's")
    with writing(fresh) as db:
        _write_salvaged(db, saved)
        (rows,) = db.execute("SELECT count(*) FROM rows").fetchone()
    aside = _free_name(path)
    path.rename(aside)
    for rest in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + rest).unlink(missing_ok=True)
    fresh.rename(path)
    return RepairedStore(str(path), rows, tuple(saved["dropped"]), str(aside))


def merge_stores(into: str | Path, *others: str | Path) -> MergedStore:
    """Bring the rows and specs of other stores into one; a row that is there stays, one that differs is named."""
    target = Store.open(into, create=True)
    added = specs = 0
    differing: list[str] = []
    for other in others:
        source = Store.open(other).path
        if target.path.exists() and source.samefile(target.path):
            raise RefusalError(f"{other} is the store to merge into; give another")
        with reading(source) as read, writing(target.path) as db:
            (here,) = db.execute("SELECT count(*) FROM rows").fetchone()
            differing += _bring_rows(read, db)
            added += db.execute("SELECT count(*) FROM rows").fetchone()[0] - here
            specs += _bring_specs(read, db)
    return MergedStore(str(target.path), added, specs, tuple(differing))


def _bring_rows(read: sqlite3.Connection, db: sqlite3.Connection) -> list[str]:
    db.executemany("INSERT OR IGNORE INTO environments VALUES (?, ?)", read.execute("SELECT * FROM environments"))
    differing = []
    for run, member, row, env, status, said in read.execute(
        "SELECT run, member, row, environment, status, checksum FROM rows"
    ):
        if checksum(run, member, row, env) != said:
            continue
        insert_rows(db, [(run, member, row, env, status)])
        (kept,) = db.execute("SELECT row FROM rows WHERE run = ?", (run,)).fetchone()
        if kept != row and json.loads(kept) != json.loads(row):
            differing.append(run)
    return differing


def _bring_specs(read: sqlite3.Connection, db: sqlite3.Connection) -> int:
    count = 0
    columns = "content, name, spec, turn, asked, stated"
    for number, *spec in read.execute(f"SELECT id, {columns} FROM specs ORDER BY turn").fetchall():
        if db.execute("SELECT 1 FROM specs WHERE content = ?", (spec[0],)).fetchone():
            continue
        (spec[3],) = db.execute("SELECT coalesce(max(turn), 0) + 1 FROM specs").fetchone()
        new = db.execute(f"INSERT INTO specs ({columns}) VALUES (?, ?, ?, ?, ?, ?)", spec).lastrowid
        runs = read.execute("SELECT run, place FROM asked WHERE spec = ?", (number,))
        db.executemany("INSERT INTO asked VALUES (?, ?, ?)", ((run, new, place) for run, place in runs))
        count += 1
    db.execute(COUNT)
    return count


def _salvaged(path: Path) -> dict[str, Any]:
    """Every row of every table that can be read, and the runs whose row cannot."""
    saved: dict[str, Any] = {"tables": set(), "rows": [], "dropped": []}
    with contextlib.closing(sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        saved["tables"] = {name for (name,) in _readable(db, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not saved["tables"] >= TABLES:
            return saved
        columns = {row[1] for row in _readable(db, "PRAGMA table_info(rows)")}
        said = "checksum" if "checksum" in columns else "NULL"
        for run, member, row, env, known in _each(db, "rows", f"run, member, row, environment, {said}"):
            sound = _is_json(row, dict) and _is_json(member) and known in (None, checksum(run, member, row, env))
            saved["rows" if sound else "dropped"].append((run, member, row, env) if sound else str(run))
        saved["environments"] = list(_each(db, "environments", "id, environment"))
        saved["specs"] = _salvaged_specs(db)
    return saved


def _salvaged_specs(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Name, spec and runs of every spec, in the order in which they were stated."""
    columns = {row[1] for row in _readable(db, "PRAGMA table_info(specs)")}
    if "runs" in columns:
        return [
            (name, spec, json.loads(runs), "")
            for name, spec, runs in _each(db, "specs", "name, spec, runs")
            if _is_json(runs, list)
        ]
    asked: dict[int, dict[int, str]] = {}
    for run, number, place in _readable(db, "SELECT run, spec, place FROM asked"):
        asked.setdefault(number, {})[place] = run
    specs = sorted(_each(db, "specs", "turn, id, name, spec, content"))
    return [
        (name, spec, [asked.get(n, {})[i] for i in sorted(asked.get(n, {}))], content)
        for _, n, name, spec, content in specs
    ]


def _each(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table one by one by their number, past the pages that cannot be read."""
    try:
        (most,) = db.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()
    except sqlite3.DatabaseError:
        most = 0
    last = 0
    while last < most:
        try:
            found = db.execute(f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid", (last,))
            for number, *rest in found:
                last = number
                yield tuple(rest)
            return
        except sqlite3.DatabaseError:
            last += 1  # a page that cannot be read: go on behind it


def _readable(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    with contextlib.suppress(sqlite3.DatabaseError):
        yield from db.execute(query)


def _write_salvaged(db: sqlite3.Connection, saved: dict[str, Any]) -> None:
    db.executemany("INSERT OR IGNORE INTO environments VALUES (?, ?)", saved["environments"])
    insert_rows(db, ((run, m, row, env, json.loads(row).get("status")) for run, m, row, env in saved["rows"]))
    for turn, (name, spec, runs, content) in enumerate(saved["specs"], 1):
        content = content or address({"name": name, "spec": spec, "runs": runs})
        insert = "INSERT OR IGNORE INTO specs (content, name, spec, turn, asked) VALUES (?, ?, ?, ?, ?)"
        number = db.execute(insert, (content, name, spec, turn, len(runs))).lastrowid
        db.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", ((r, number, i) for i, r in enumerate(runs)))
    db.execute(COUNT)


def _file(folder: str | Path) -> Path:
    path = Path(folder)
    return path if path.suffix == ".sqlite" else path / FILE


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _is_json(text: str, kind: type = object) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, TypeError, RecursionError):
        return False
