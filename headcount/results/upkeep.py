"""Upkeep of stores: see that all is as it was written, save what can be read of a damaged file, join stores."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headcount.files import settle
from headcount.refusals import RefusalError
from headcount.results.database import (
    COUNT,
    DAMAGE,
    OLD,
    TABLES,
    VERSION,
    ForeignError,
    LockedError,
    StoreError,
    exclusive,
    is_sound,
    lengthened,
    no_study,
    reading,
    writing,
)
from headcount.results.leases import alone
from headcount.results.snapshot import TEXTS
from headcount.results.store import Store, address, checked_specs, insert_rows, runs_of_spec, spec_address, store_file

ENVIRONMENTS = "SELECT CAST(id AS BLOB), CAST(environment AS BLOB) FROM environments"
SMALLEST = 32  # bytes that a row takes at least
GAP = 1000  # rows in a row that cannot be read, after which none is looked for where nobody knows the last


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
    """How many rows were saved, which were dropped to be trained again, and where the damaged file was put aside.

    Of a store that was sound, `aside` is empty: nothing was done to it.
    """

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


class _SalvagedSpec(NamedTuple):
    """A spec as far as it could be read: its runs in their order, and its address where it has one."""

    name: str
    text: str
    runs: list[str]
    content: str


@dataclass
class _Salvage:
    """What could be read of a damaged store: rows and environments as their texts, and the runs whose row could not."""

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    environments: list[tuple[str, str]] = field(default_factory=list)
    specs: list[_SalvagedSpec] = field(default_factory=list)


def verify_store(folder: str | Path) -> VerifiedStore:
    """Read every page and every row of a store; change nothing.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp(), create=True)
    >>> _ = store.state("pair", {}, runs=["r1"])
    >>> store.add([("r1", {}, {"run": "r1", "nmse": 0.1})], environment={})
    >>> verify_store(store.path.parent).sound
    True
    """
    path = store_file(folder)
    with reading(path) as db:
        rows, damaged, problems = _looked_at(db)
        (specs,) = db.execute("SELECT count(*) FROM specs").fetchone()
    return VerifiedStore(str(path), VERSION, rows, specs, tuple(damaged), tuple(problems))


def _looked_at(db: sqlite3.Connection) -> tuple[int, list[str], list[str]]:
    """How many rows, which are damaged, what SQLite says of the file, and which other texts are not as they were."""
    problems = [str(words) for (words,) in db.execute("PRAGMA integrity_check(20)") if words != "ok"]
    rows, damaged = 0, []
    try:
        for texts in db.execute(f"SELECT {_texts(db)} FROM rows"):
            rows += 1
            if not _is_as_written(texts):
                damaged.append(_spoken(texts[0]))
        if "content" in _columns(db, "specs"):
            changed = [name for name, as_written in checked_specs(db) if not as_written]
            problems += [f"the spec {name} is not as it was written" for name in changed]
        changed = [name for name, text in db.execute(ENVIRONMENTS) if not _is_addressed(name, text)]
        problems += [f"the environment {_spoken(name)} is not as it was written" for name in changed]
    except DAMAGE as problem:
        problems = problems or [str(problem)]
    return rows, damaged, problems


def _texts(db: sqlite3.Connection) -> str:
    """What to read of a row; an older store has no checksums."""
    known = "checksum" in _columns(db, "rows")
    return TEXTS if known else f"{TEXTS.removesuffix('checksum')} NULL"


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in _readable(db, f"PRAGMA table_info({table})")}


def _is_addressed(name: Any, text: Any) -> bool:
    """Whether an environment is the one that its address was taken of."""
    try:
        content = json.loads(text)
        return isinstance(content, dict) and address(content) == _spoken(name)
    except (ValueError, TypeError, RecursionError):
        return False


def _is_as_written(row: Sequence[Any]) -> bool:
    """Whether the texts of a row fit its checksum, where it has one, and are what a row is."""
    *texts, checksum = row
    fits = all(type(text) is bytes for text in texts) if checksum is None else is_sound(texts, checksum)
    return fits and _is_json(texts[2], dict) and _is_json(texts[1])


def _spoken(run: Any) -> str:
    """A run's name for people, whatever stands there."""
    return run.decode(errors="replace") if isinstance(run, bytes) else str(run)


def repair_store(folder: str | Path) -> RepairedStore:
    """Write a sound store from all that can be read of a damaged one, which is put aside; the sweep trains the rest.

    A sound one is left as it is. Nobody else is at the store meanwhile: sweeps by their leases, all others by SQLite's
    own lock; where somebody is, it is refused.
    """
    path = store_file(folder)
    if not path.is_file():
        raise no_study(path)
    _refuse_no_store(path)
    with alone(path.with_suffix(".leases")):
        try:
            with exclusive(path) as db:
                rows = _sound_rows(db)
                return RepairedStore(str(path), rows or 0, (), "") if rows is not None else _mended(db, path)
        except StoreError as problem:
            cut = getattr(problem.__cause__, "sqlite_errorname", "").startswith("SQLITE_CORRUPT")
            if not cut and not isinstance(problem.__cause__, UnicodeDecodeError):
                raise
        with lengthened(path) as db:  # nobody else can have opened it either
            return _mended(db, path)


def _refuse_no_store(path: Path) -> None:
    """Refuse, before anything is made beside it, what is no store of this package's."""
    try:
        with reading(path):
            pass
    except (ForeignError, LockedError):
        raise
    except StoreError:  # damaged, and so to be repaired
        pass


def _sound_rows(db: sqlite3.Connection) -> int | None:
    """How many rows a store holds that is sound; None of one that is not."""
    with contextlib.suppress(*DAMAGE):
        rows, damaged, problems = _looked_at(db)
        return None if damaged or problems else rows
    return None


def _mended(db: sqlite3.Connection, path: Path) -> RepairedStore:
    saved = _salvaged(db, path)
    fresh = path.with_name(f"{path.name}.repaired")
    for rest in ("", "-journal"):  # left by a repair that was killed: the store itself was not touched
        fresh.with_name(fresh.name + rest).unlink(missing_ok=True)
    with writing(fresh) as db:
        _write_salvaged(db, saved)
        (rows,) = db.execute("SELECT count(*) FROM rows").fetchone()
    backup = _free_name(path)
    try:
        os.link(path, backup)  # whoever looks finds the old file or the new one, at no moment none
    except OSError:  # a disk that knows no links
        path.rename(backup)
    for rest in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + rest).rename(backup.with_name(backup.name + rest))
    fresh.replace(path)
    settle(path.parent)
    return RepairedStore(str(path), rows, tuple(saved.dropped), str(backup))


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
            (before,) = db.execute("SELECT count(*) FROM rows").fetchone()
            differing += _bring_rows(read, db)
            added += db.execute("SELECT count(*) FROM rows").fetchone()[0] - before
            specs += _bring_specs(read, db)
    return MergedStore(str(target.path), added, specs, tuple(differing))


def _bring_rows(read: sqlite3.Connection, db: sqlite3.Connection) -> list[str]:
    db.executemany("INSERT OR IGNORE INTO environments VALUES (?, ?)", read.execute("SELECT * FROM environments"))
    differing = []
    for record in read.execute(f"SELECT {TEXTS} FROM rows"):
        if not _is_as_written(record):
            continue
        run, member, row, env = (text.decode() for text in record[:4])
        insert_rows(db, [(run, member, row, env, _status(row))])
        (stored,) = db.execute("SELECT row FROM rows WHERE run = ?", (run,)).fetchone()
        if stored != row and json.loads(stored) != json.loads(row):
            differing.append(run)
    return differing


def _bring_specs(read: sqlite3.Connection, db: sqlite3.Connection) -> int:
    count = 0
    columns = "content, name, spec, turn, asked, stated"
    for number, *spec in read.execute(f"SELECT id, {columns} FROM specs ORDER BY turn").fetchall():
        if db.execute("SELECT 1 FROM specs WHERE content = ?", (spec[0],)).fetchone():
            continue
        (spec[3],) = db.execute("SELECT coalesce(max(turn), 0) + 1 FROM specs").fetchone()
        runs = runs_of_spec(read, number)
        if not spec[0].startswith(OLD) and (own := spec_address(spec[1], spec[2], runs)) != spec[0]:
            spec[0], spec[4] = own, len(runs)  # what is left of a damaged one, under an address of its own
        inserted = db.execute(f"INSERT OR IGNORE INTO specs ({columns}) VALUES (?, ?, ?, ?, ?, ?)", spec)
        if inserted.rowcount:
            requests = ((run, inserted.lastrowid, place) for place, run in enumerate(runs))
            db.executemany("INSERT INTO asked VALUES (?, ?, ?)", requests)
            count += 1
    db.execute(COUNT)
    return count


def _salvaged(db: sqlite3.Connection, path: Path) -> _Salvage:
    """Every row of every table that can be read, and the runs whose row cannot."""
    saved = _Salvage()
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    if not {name for (name,) in _readable(db, "SELECT name FROM sqlite_master WHERE type = 'table'")} >= TABLES:
        words = "is not a headcount store that can be read: its list of tables is gone or another's"
        raise StoreError(f"{path} {words}; move it away, and a sweep makes it anew")
    for row in _each(db, "rows", _texts(db)):
        if _is_as_written(row):
            run, member, text, env = (text.decode() for text in row[:4])
            saved.rows.append((run, member, text, env))
        else:
            saved.dropped.append(_spoken(row[0]))
    saved.environments = [
        (name, text) for name, text in _each(db, "environments", "id, environment") if _is_addressed(name, text)
    ]
    saved.specs = _salvaged_specs(db)
    return saved


def _salvaged_specs(db: sqlite3.Connection) -> list[_SalvagedSpec]:
    """Name, spec and runs of every spec, in the order in which they were stated."""
    if "runs" in _columns(db, "specs"):
        return [
            _SalvagedSpec(name, spec, json.loads(runs), "")
            for name, spec, runs in _each(db, "specs", "name, spec, runs")
            if _is_json(runs, list)
        ]
    runs_of: dict[int, dict[int, str]] = {}
    for row in _readable(db, "SELECT run, spec, place FROM asked"):
        if _are(row, str, int, int):
            runs_of.setdefault(row[1], {})[row[2]] = row[0]
    specs = [row for row in _each(db, "specs", "turn, id, name, spec, content") if _are(row, int, int, str, str, str)]
    return [
        _SalvagedSpec(name, spec, [runs_of.get(n, {})[i] for i in sorted(runs_of.get(n, {}))], content)
        for _, n, name, spec, content in sorted(specs)
        if _is_json(spec, dict)
    ]


def _each(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table one by one by their number, past the pages that cannot be read.

    A damaged page may stand for another, so that SQLite goes round in a ring, or name a number that no row can have:
    every number is given once, and none beyond what the file has room for.
    """
    last = failed = 0
    most = _most(db, table)
    while most is None or last < most:
        try:
            records = db.execute(f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid", (last,))
            for number, *rest in records:
                if number <= last:
                    raise sqlite3.DatabaseError("rows that are not in their order")
                last, failed = number, 0
                yield tuple(rest)
            return
        except DAMAGE:
            last += 1  # a page that cannot be read: go on behind it
            failed += 1
            if most is None and failed > GAP:
                return


def _most(db: sqlite3.Connection, table: str) -> int | None:
    """The greatest number that a row of a table has and can have; None where its page is gone."""
    try:
        (most,) = db.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()
        (pages,), (size,) = (db.execute(f"PRAGMA page_{word}").fetchone() for word in ("count", "size"))
    except DAMAGE:
        return None
    return min(most, pages * size // SMALLEST)


def _readable(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    with contextlib.suppress(*DAMAGE):
        yield from db.execute(query)


def _write_salvaged(db: sqlite3.Connection, saved: _Salvage) -> None:
    db.executemany("INSERT OR IGNORE INTO environments VALUES (?, ?)", saved.environments)
    insert_rows(db, ((run, m, row, env, _status(row)) for run, m, row, env in saved.rows))
    for turn, (name, spec, runs, content) in enumerate(saved.specs, 1):
        # What of a spec is left is a spec of its own: the sweep that stated the whole one states it again.
        content = content if content.startswith(OLD) else spec_address(name, spec, runs)
        insert = "INSERT OR IGNORE INTO specs (content, name, spec, turn, asked) VALUES (?, ?, ?, ?, ?)"
        inserted = db.execute(insert, (content, name, spec, turn, len(runs))) if runs else None
        if inserted is not None and inserted.rowcount:
            requests = ((run, inserted.lastrowid, i) for i, run in enumerate(runs))
            db.executemany("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", requests)
    db.execute(COUNT)


def _status(row: str) -> str | None:
    status = json.loads(row).get("status")
    return status if isinstance(status, str) else None


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _are(row: Sequence[Any], *types: type) -> bool:
    """Whether the values of a row have these types, as they were written."""
    return all(type(value) is kind for value, kind in zip(row, types, strict=True))


def _is_json(text: Any, kind: type = object) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, TypeError, RecursionError):
        return False
