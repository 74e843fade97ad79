"""The store of a sweep: one SQLite file, one transaction a finished bank, so a killed sweep loses nothing finished."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headcount.results.study import Row, Study

__all__ = ["Store", "address", "read_study"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (run TEXT PRIMARY KEY, member TEXT NOT NULL, row TEXT NOT NULL,
                                 environment TEXT NOT NULL,
                                 finished TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE IF NOT EXISTS environments (id TEXT PRIMARY KEY, environment TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS specs (id INTEGER PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, runs TEXT NOT NULL,
                                  stated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
"""
FILE = "rows.sqlite"


def address(content: dict[str, Any]) -> str:
    """The content address of a JSON-ready value: equal content, equal address, whatever the order of its keys.

    >>> address({"heads": 4, "seed": 0}) == address({"seed": 0, "heads": 4})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_study(path: str | Path) -> Study:
    """The study in a store's folder, or in the one JSON file that `headcount export` makes of it."""
    path = Path(path)
    if path.suffix != ".json":
        return Store.open(path).study()
    try:
        return Study.from_json(path.read_text())
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


class Store:
    """The rows of one folder, with the spec asked for last and the environment of every row.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp(), create=True)
    >>> store.state("pair", {"task": "x"}, runs=["r1", "r2"])
    >>> store.add([("r1", {"heads": 4}, {"run": "r1", "heads": 4, "nmse": 0.1})], environment={"torch": "2"})
    >>> store.missing(["r1", "r2"])
    ['r2']
    >>> len(store.study())
    1
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, folder: str | Path, *, create: bool = False) -> Store:
        """The store in `folder`; a missing one is made only when `create` is set."""
        path = Path(folder)
        path = path if path.suffix == ".sqlite" else path / FILE
        if not path.exists() and not create:
            raise FileNotFoundError(f"no study at {folder}: {path} does not exist; `headcount sweep` makes one")
        path.parent.mkdir(parents=True, exist_ok=True)
        store = cls(path)
        try:
            with store._connect() as db:
                db.executescript(SCHEMA)
        except sqlite3.DatabaseError as problem:
            raise ValueError(f"{path} is not a headcount store: {problem}") from None
        return store

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=60)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            with db:  # one transaction: all of it or nothing
                yield db
        finally:
            db.close()

    def state(self, name: str, spec: dict[str, Any], runs: Iterable[str]) -> None:
        """Record what is asked for: a spec and the runs it names. The latest statement is the study."""
        entry = (name, json.dumps(spec, sort_keys=True), json.dumps(list(runs)))
        with self._connect() as db:
            last = db.execute("SELECT name, spec, runs FROM specs ORDER BY id DESC LIMIT 1").fetchone()
            if last != entry:
                db.execute("INSERT INTO specs (name, spec, runs) VALUES (?, ?, ?)", entry)

    @property
    def stated(self) -> bool:
        """Whether anything was ever asked for here."""
        with self._connect() as db:
            return db.execute("SELECT 1 FROM specs LIMIT 1").fetchone() is not None

    def add(self, finished: Iterable[tuple[str, dict[str, Any], Row]], environment: dict[str, Any]) -> None:
        """Add the rows of one finished bank, (run, member, row) each, in one transaction."""
        env = address(environment)
        with self._connect() as db:
            db.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (env, json.dumps(environment)))
            db.executemany(
                "INSERT OR IGNORE INTO rows (run, member, row, environment) VALUES (?, ?, ?, ?)",
                [(run, json.dumps(member), json.dumps(row), env) for run, member, row in finished],
            )

    def missing(self, runs: Iterable[str]) -> list[str]:
        """Those of `runs` that have no row yet, in the order given."""
        with self._connect() as db:
            have = {run for (run,) in db.execute("SELECT run FROM rows")}
        return [run for run in runs if run not in have]

    def study(self) -> Study:
        """The rows of the latest spec that are finished, in the spec's order."""
        with self._connect() as db:
            last = db.execute("SELECT name, spec, runs FROM specs ORDER BY id DESC LIMIT 1").fetchone()
            if last is None:
                raise ValueError(f"{self.path} holds no spec; `headcount sweep` states one")
            rows = {
                run: (json.loads(row), env) for run, row, env in db.execute("SELECT run, row, environment FROM rows")
            }
            environments = dict(db.execute("SELECT id, environment FROM environments").fetchall())
        name, spec, runs = last[0], json.loads(last[1]), json.loads(last[2])
        done = [rows[run] for run in runs if run in rows]
        used = dict.fromkeys(env for _, env in done)
        environment = json.loads(environments[next(iter(used))]) if used else {}
        if len(used) > 1:
            environment["also"] = [json.loads(environments[env]) for env in list(used)[1:]]
        return Study(tuple(row for row, _ in done), {**spec, "asked": len(runs)}, environment, name)
