"""The store of a sweep: one SQLite file, one transaction a finished bank, so a killed sweep loses nothing finished."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headcount.files import text_in
from headcount.refusals import RefusalError
from headcount.results.database import (
    COUNT,
    OLD,
    EmptyStoreError,
    LockedError,
    checksum,
    is_sound,
    no_study,
    reading,
    writing,
)
from headcount.results.disk_probe import JOURNALS, probe_disk
from headcount.results.leases import Leases
from headcount.results.snapshot import TEXTS, Snapshot, StatedSpec, stated_specs, taken
from headcount.results.study import Row, Study

Seen = TypeVar("Seen")

FILE = "rows.sqlite"
PATIENCE = 24 * 3600.0  # seconds that a finished bank waits for the lock


def address(content: Mapping[str, object]) -> str:
    """The content address of a JSON-ready value: equal content, equal address, whatever the order of its keys.

    >>> address({"heads": 4, "seed": 0}) == address({"seed": 0, "heads": 4})
    True
    """
    return digest(canonical(content))


def canonical(content: Mapping[str, object]) -> str:
    """A JSON-ready value as the one text that its address is taken of."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """The address of a canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_study(path: str | Path, spec: str | None = None) -> Study:
    """The study in a store's folder, or in the one JSON file that `headcount runs export` makes of it.

    A store may hold several specs: `spec` names one, the latest is meant without it.
    """
    path = Path(path)
    if path.suffix != ".json":
        return Store.open(path).study(spec)
    try:
        return Study.from_json(text_in(path))
    except (ValueError, RecursionError) as problem:
        raise RefusalError(f"{path}: {problem}") from None


def store_file(folder: str | Path) -> Path:
    """The file of the store in a folder; where it is a link, what it leads to: journal and leases lie beside that."""
    path = Path(folder)
    path = path if path.suffix == ".sqlite" else path / FILE
    return path.resolve() if path.is_symlink() else path


class Store:
    """The rows of one folder, with every spec asked for and the environment of every row.

    Nothing is made on the disk before something is stated or added.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp(), create=True)
    >>> first = store.state("pair", {"task": "x"}, runs=["r1", "r2"])
    >>> store.add([("r1", {"heads": 4}, {"run": "r1", "heads": 4, "nmse": 0.1})], environment={"torch": "2"})
    >>> store.missing(["r1", "r2"])
    ['r2']
    >>> _ = store.state("other", {"task": "y"}, runs=["r2"])
    >>> len(store.study(first)), len(store.study()), [spec.name for spec in store.specs()]
    (1, 0, ['pair', 'other'])
    """

    def __init__(self, path: Path, wait: float | None = None) -> None:
        self.path, self.wait, self.journal = path, wait, JOURNALS[0]

    @classmethod
    def open(cls, folder: str | Path, *, create: bool = False) -> Store:
        """The store in `folder`, read to see that it is one; a missing one is refused unless `create` is set."""
        store = cls(store_file(folder))
        if not store.path.exists():
            if not create:
                raise no_study(store.path)
            return store
        try:
            with reading(store.path):
                pass
        except EmptyStoreError:
            if not create:
                raise
        return store

    def try_disk(self) -> tuple[str, ...]:
        """Try what the disk can do, and write accordingly; a line for each way in which it is not the usual one."""
        probe = probe_disk(self.path.parent)
        self.journal = probe.journal
        return probe.notes

    def leases(self, *, take_over: bool = False) -> Leases:
        """Leases on banks, so that processes on one store train each bank once."""
        return Leases(self.path.with_suffix(".leases"), take_over=take_over)

    def state(self, name: str, spec: Mapping[str, object], runs: Iterable[str]) -> str:
        """Record what is asked for, a spec and the runs it names, and return the address to ask for it by."""
        runs = list(dict.fromkeys(runs))
        text = json.dumps(spec, sort_keys=True)
        content = spec_address(name, text, runs)
        with writing(self.path, self.wait, self.journal) as db:
            (turn,) = db.execute("SELECT coalesce(max(turn), 0) + 1 FROM specs").fetchone()
            known = db.execute("SELECT id FROM specs WHERE content = ?", (content,)).fetchone()
            if known is None:
                insert = "INSERT INTO specs (content, name, spec, turn, asked) VALUES (?, ?, ?, ?, ?)"
                number = db.execute(insert, (content, name, text, turn, len(runs))).lastrowid
            else:  # also what may have been damaged meanwhile
                (number,) = known
                change = "UPDATE specs SET name = ?, spec = ?, turn = ?, asked = ? WHERE id = ?"
                db.execute(change, (name, text, turn, len(runs), number))
            if known is None or runs_of_spec(db, number) != runs:
                db.execute("DELETE FROM asked WHERE spec = ?", (number,))
                db.executemany("INSERT INTO asked VALUES (?, ?, ?)", ((run, number, i) for i, run in enumerate(runs)))
            db.execute(f"{COUNT} WHERE id = ?", (number,))
        return content

    def is_stated(self, content: str) -> bool:
        """Whether a spec stands there as it was recorded under this address, and so with all the runs it names."""
        return self._seen(lambda db: any(as_written for _, as_written in checked_specs(db, content)), False)

    def specs(self) -> list[StatedSpec]:
        """Every spec ever asked for, the latest last."""
        return self._seen(stated_specs, [])

    def add(self, finished: Iterable[tuple[str, Mapping[str, object], Row]], environment: Mapping[str, object]) -> None:
        """Add the rows of one finished bank, (run, member, row) each, in one transaction; wait for the lock.

        A row that is there already stays, unless its checksum says that it is damaged.
        """
        env = address(environment)
        rows = [(run, json.dumps(member), json.dumps(row), row.get("status")) for run, member, row in finished]
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with writing(self.path, self.wait, self.journal) as db:
                    # One that is there may have been damaged.
                    db.execute("INSERT OR REPLACE INTO environments VALUES (?, ?)", (env, json.dumps(environment)))
                    insert_rows(db, ((run, member, row, env, status) for run, member, row, status in rows))
                return
            except LockedError:
                if time.monotonic() > until:
                    raise

    def missing(self, runs: Iterable[str]) -> list[str]:
        """Those of `runs` that have no row yet, or a damaged one, in the order given."""
        runs = list(runs)
        have = self._seen(lambda db: {run for run, _, sound in _checked_runs(db, runs) if sound}, set())
        return [run for run in runs if run not in have]

    def damaged(self, runs: Iterable[str]) -> list[str]:
        """Those of `runs` that have a row which is not as it was written."""
        return self._seen(lambda db: [run for run, _, sound in _checked_runs(db, list(runs)) if not sound], [])

    def snapshot(self, spec: str | None = None) -> Snapshot:
        """A spec and its rows as they stand now; of the spec stated last unless `spec` says which."""
        with reading(self.path, self.wait) as db:
            return taken(db, self.path, spec, self.wait)

    def content(self, run: str) -> dict[str, object]:
        """Everything that determined a row, as it was when it was trained."""
        with reading(self.path, self.wait) as db:
            record = db.execute("SELECT member FROM rows WHERE run = ?", (run,)).fetchone()
        if record is None:
            raise ValueError(f"{self.path} holds no row {run!r}")
        return json.loads(record[0])

    def trained_in(self, runs: Iterable[str]) -> dict[str, str]:
        """The address of the bank in which each of `runs` was trained, of those that have a sound row that says it."""
        sound = self._seen(lambda db: [row for row in _checked_runs(db, list(runs)) if row[2]], [])
        banks = ((run, _bank_of(member)) for run, member, _ in sound)
        return {run: bank for run, bank in banks if bank is not None}

    def study(self, spec: str | None = None) -> Study:
        """The rows of a spec that are finished, in the spec's order; of the latest one unless `spec` says which."""
        return self.snapshot(spec).study()

    def heads(self) -> list[tuple[StatedSpec, Study]]:
        """Every spec with its study's first and last row, all as they stand at one moment."""
        with reading(self.path, self.wait) as db:
            snapshots = [taken(db, self.path, spec.content, self.wait) for spec in stated_specs(db)]
            return [(each.spec, each.ends(db)) for each in snapshots]

    def _seen(self, look: Callable[[sqlite3.Connection], Seen], nothing: Seen) -> Seen:
        """What a look at the file finds; `nothing` of a store that nobody has written to yet."""
        if not self.path.exists():
            return nothing
        try:
            with reading(self.path, self.wait) as db:
                return look(db)
        except EmptyStoreError:
            return nothing


def spec_address(name: str, text: str, runs: Sequence[str]) -> str:
    """The address of a spec: of its name, its text and the runs that it names, in their order."""
    return address({"name": name, "spec": text, "runs": [*runs]})


def runs_of_spec(db: sqlite3.Connection, number: int | None) -> list[str]:
    """The runs that the spec of this number names, in their order; whatever is no text any more, as it looks."""
    records = db.execute("SELECT CAST(run AS BLOB) FROM asked WHERE spec = ? ORDER BY place", (number,))
    return [_looks(run) for (run,) in records]


def checked_specs(db: sqlite3.Connection, only: str | None = None) -> Iterator[tuple[str, bool]]:
    """The name of every spec (of the one at an address), and whether its address is that of name, text and runs.

    The address of one that an older version wrote says nothing of them.
    """
    columns = "id, CAST(content AS BLOB), CAST(name AS BLOB), CAST(spec AS BLOB)"
    for number, *texts in db.execute(f"SELECT {columns} FROM specs ORDER BY turn").fetchall():
        content, name, text = map(_looks, texts)
        if only in (None, content):
            yield name, content.startswith(OLD) or content == spec_address(name, text, runs_of_spec(db, number))


def _looks(text: Any) -> str:
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)


def insert_rows(db: sqlite3.Connection, rows: Iterable[tuple[str, str, str, str, str | None]]) -> int:
    """Insert rows (run, member, row, environment, status) where none stands or a damaged one does; how many."""
    before = db.total_changes
    db.create_function("is_sound", 5, lambda *row: is_sound(row[:4], row[4]))
    for run, member, row, env, status in rows:
        db.execute(f"DELETE FROM rows WHERE run = ? AND NOT is_sound({TEXTS})", (run,))
        db.execute(
            "INSERT OR IGNORE INTO rows (run, member, row, environment, status, checksum) VALUES (?, ?, ?, ?, ?, ?)",
            (run, member, row, env, status, checksum(run, member, row, env)),
        )
    return db.total_changes - before


def _checked_runs(db: sqlite3.Connection, runs: list[str]) -> Iterator[tuple[str, bytes, bool]]:
    """Those of `runs` that have a row, what determined it, and whether it is as it was written."""
    for start in range(0, len(runs), 500):
        some = runs[start : start + 500]
        for row in db.execute(f"SELECT run, {TEXTS} FROM rows WHERE run IN ({','.join('?' * len(some))})", some):
            yield row[0], row[2], is_sound(row[1:5], row[5])


def _bank_of(member: bytes) -> str | None:
    """The bank that the text of what determined a row names; a stranger may have written anything."""
    try:
        content = json.loads(member)
    except (ValueError, RecursionError):
        return None
    bank = content.get("bank") if isinstance(content, dict) else None
    return bank if isinstance(bank, str) else None
