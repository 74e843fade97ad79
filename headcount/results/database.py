"""The SQLite file under a store: opened for reading alone or for one transaction, its errors said in one line.

SQLite is its one owner: nothing else in this process opens it, since whoever closes a file drops every lock that the
process has on it (POSIX), those of other threads too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headcount.files import make_folder
from headcount.refusals import RefusalError

VERSION = 2  # 0 is what headcount 0.1.0 wrote: no checksums, one list of runs per spec
OLD = "old "  # how the address of a spec begins that was brought over from version 0
TABLES = {"rows", "environments", "specs"}
LOCK_WAIT = 60.0  # seconds
BRIEFLY = 2.0  # seconds that a repair waits for whoever reads or writes
LONGEST_COPY = 2**40  # bytes, of which only those that are there take any room
COPIES = 20  # tries to read or write one file before another takes its place
SYNCHRONOUS = "EXTRA"  # a power cut after a transaction leaves it done
SCHEMA = """
CREATE TABLE rows (run TEXT PRIMARY KEY, member TEXT NOT NULL, row TEXT NOT NULL, environment TEXT NOT NULL,
                   status TEXT, checksum TEXT NOT NULL,
                   finished TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE environments (id TEXT PRIMARY KEY, environment TEXT NOT NULL);
CREATE TABLE specs (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE, name TEXT NOT NULL, spec TEXT NOT NULL,
                    turn INTEGER NOT NULL, asked INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT 0,
                    diverged INTEGER NOT NULL DEFAULT 0,
                    stated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE asked (run TEXT NOT NULL, spec INTEGER NOT NULL, place INTEGER NOT NULL,
                    PRIMARY KEY (run, spec)) WITHOUT ROWID;
CREATE INDEX in_order ON asked (spec, place);
CREATE TRIGGER row_kept AFTER INSERT ON rows BEGIN
    UPDATE specs SET kept = kept + 1, diverged = diverged + (NEW.status IS 'diverged')
    WHERE id IN (SELECT spec FROM asked WHERE run = NEW.run); END;
CREATE TRIGGER row_dropped AFTER DELETE ON rows BEGIN
    UPDATE specs SET kept = kept - 1, diverged = diverged - (OLD.status IS 'diverged')
    WHERE id IN (SELECT spec FROM asked WHERE run = OLD.run); END;
"""
COUNT = """
UPDATE specs SET (kept, diverged) = (SELECT count(*), coalesce(sum(status IS 'diverged'), 0)
                                     FROM asked JOIN rows USING (run) WHERE asked.spec = specs.id)
"""
SAID = {
    "SQLITE_FULL": "the disk is full; free some space and run the same command to go on",
    "SQLITE_IOERR": "the disk fails to read or write; look to it, then run the same command to go on",
    "SQLITE_READONLY": "it cannot be written here",
    "SQLITE_CANTOPEN": "it cannot be opened or made here",
    "SQLITE_PERM": "it may not be opened",
    "SQLITE_NOTADB": "it is not a headcount store: the file is no SQLite database",
    "SQLITE_CORRUPT": "it is damaged; `headcount runs repair` saves every row that can be read",
}


DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)  # what reading a damaged file raises


class StoreError(RefusalError):
    """A store that cannot be read or written, and why, in one line."""


class EmptyStoreError(StoreError):
    """A file without a table: whoever made it was stopped before anything stood in it."""


class ForeignError(StoreError):
    """A file that is somebody else's, or of a version to come."""


class DamagedTextError(ValueError):
    """A text of the store that is not what a program of ours writes; whoever opened the store says of which."""


class LockedError(StoreError):
    """A store that another program has kept locked for longer than one waits."""


def checksum(run: str, member: str, row: str, environment: str) -> str:
    """What a row's texts must hash to.

    >>> checksum("r", "{}", "{}", "e") == checksum("r", "{}", "{ }", "e")
    False
    """
    return _hashed((run.encode(), member.encode(), row.encode(), environment.encode()))


def is_sound(texts: Sequence[Any], said: Any) -> bool:
    """Whether the bytes of a row's texts hash to what the store says; what is no bytes was never written so.

    >>> is_sound((b"r", b"{}", b"{}", b"e"), checksum("r", "{}", "{}", "e")), is_sound((b"r", None), "")
    (True, False)
    """
    return all(type(text) is bytes for text in texts) and said == _hashed(texts)


def _hashed(texts: Sequence[bytes]) -> str:
    return hashlib.blake2b(b"\0".join(texts), digest_size=8).hexdigest()


@contextlib.contextmanager
def writing(path: Path, wait: float | None = None, journal: str = "delete") -> Iterator[sqlite3.Connection]:
    """One transaction, all of it or nothing, on the disk when it ends; a missing file is made."""
    make_folder(path.parent)
    with in_one_line(path), contextlib.ExitStack() as stack:
        yield _begun(path, wait, journal, stack)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[sqlite3.Connection]:
    """The file with every other reader and writer kept out; refused at once where one is at it. Nothing is prepared."""
    with in_one_line(path), contextlib.closing(_connected(path, BRIEFLY)) as db:
        with contextlib.suppress(sqlite3.DatabaseError):  # where it is in write-ahead mode
            db.execute("PRAGMA journal_mode=DELETE")
        db.execute("BEGIN EXCLUSIVE")
        yield db


@contextlib.contextmanager
def lengthened(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a file that was cut short, made as long as its first page says: SQLite opens no shorter one."""
    with in_one_line(path), _copies() as folder:
        copy = folder / "copy"
        for rest in ("", "-journal"):
            if path.with_name(f"{path.name}{rest}").exists():
                _copy(path.with_name(f"{path.name}{rest}"), folder / f"copy{rest}")
        with copy.open("r+b") as file:
            head = file.read(100)
            page, pages = (int.from_bytes(head[at : at + size], "big") for at, size in ((16, 2), (28, 4)))
            stated_size = min((65536 if page == 1 else page) * pages, LONGEST_COPY)
            file.truncate(max(stated_size, file.seek(0, 2)))
        with contextlib.closing(_connected(copy, None)) as db:
            yield db


@contextlib.contextmanager
def reading(path: Path, wait: float | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing: not the file, nothing beside it; it works on a read-only disk."""
    with in_one_line(path), contextlib.ExitStack() as stack:
        db = _opened(path, wait, stack)
        _version(db, path)
        db.execute("BEGIN")
        yield db


def identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path: another one of the same name differs. None where there is none."""
    try:
        status = path.stat()
        return status.st_dev, status.st_ino
    except FileNotFoundError:
        return None


def _begun(path: Path, wait: float | None, journal: str, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """A connection within a transaction on the file that stands at the path, not on one that was put aside meanwhile.

    Whoever puts a file in the place of another holds all its locks; so what stands here under our lock will stay.
    """
    for _ in range(COPIES):
        before = identity(path)
        with contextlib.ExitStack() as attempt:
            db = attempt.enter_context(contextlib.closing(_connected(path, wait)))
            db.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
            if path.with_name(f"{path.name}-wal").exists() or _is_old(path):
                with contextlib.suppress(sqlite3.OperationalError):  # as it is while others are connected
                    db.execute("PRAGMA journal_mode=DELETE")
            attempt.enter_context(_transaction(db))
            if identity(path) == before:
                if journal != "delete":  # what every connection begins with
                    db.execute(f"PRAGMA journal_mode={journal}")
                _prepare(db, path)
                stack.enter_context(attempt.pop_all())
                return db
    raise LockedError(f"{path}: another file takes its place again and again; run the same command again")


def no_study(path: Path) -> FileNotFoundError:
    """What is said where there is no store, with what else lies in its folder that a command reads."""
    other = path.with_name("study.json")
    hint = f"a study of another command is there: {other}" if other.is_file() else "`headcount sweep` makes one"
    return FileNotFoundError(f"no study at {path.parent}: {path} does not exist; {hint}")


def _opened(path: Path, wait: float | None, stack: contextlib.ExitStack) -> sqlite3.Connection:
    if not path.is_file():
        raise no_study(path)
    for _ in range(COPIES):
        with contextlib.ExitStack() as attempt:
            db = _as_it_stands(path, wait, attempt) or _copied(path, attempt)
            if db is not None:
                stack.enter_context(attempt.pop_all())
                return db
    raise LockedError(f"{path}: it changes faster than it can be read; run the same command again")


def _as_it_stands(path: Path, wait: float | None, stack: contextlib.ExitStack) -> sqlite3.Connection | None:
    """The file itself; None where it can be read in a copy alone: written by 0.1.0, or with a dead writer's half."""
    if _is_old(path):
        return None
    try:
        db = stack.enter_context(contextlib.closing(_connected(_address(path), wait)))
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as problem:
        if not problem.sqlite_errorname.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise
        return None
    return db


def _is_old(path: Path) -> bool:
    """Whether it is a store of an earlier version, as its first page says; locks are asked for afterwards.

    Such a one may be in write-ahead mode, and to read that, SQLite makes two files beside it.
    """
    try:
        with contextlib.closing(_connected(f"{_address(path)}&immutable=1", 0)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            return version < VERSION and _tables(db) >= TABLES
    except sqlite3.Error:  # what is wrong is said by whoever reads it in earnest
        return False


def _copied(path: Path, stack: contextlib.ExitStack) -> sqlite3.Connection | None:
    """A copy, brought up to date, without what a killed writer left of a transaction; None if it changed meanwhile."""
    folder = stack.enter_context(_copies())
    files = [path.with_name(f"{path.name}{rest}") for rest in ("", "-journal", "-wal")]
    before = [_stamp(file) for file in files]
    for file, stamp in zip(files, before, strict=True):
        if stamp is not None:
            _copy(file, folder / file.name)
    if [_stamp(file) for file in files] != before:  # another writer came: half of the copy would be older
        return None
    db = stack.enter_context(contextlib.closing(_connected(folder / path.name, None)))
    _version(db, path)
    db.execute("PRAGMA journal_mode=DELETE")
    with _transaction(db):
        _prepare(db, path)
    return db


@contextlib.contextmanager
def _copies() -> Iterator[Path]:
    """A folder for copies."""
    try:
        temporary = TemporaryDirectory()
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        words = "a store can be read in a copy alone, and no folder for one can be made"
        raise StoreError(f"{words} ({reason}); let TMPDIR name a folder that can be written") from None
    with temporary as folder:
        yield Path(folder)


def _copy(file: Path, to: Path) -> None:
    """Copy by another process: closing a file here, whoever opened it, would drop every lock this process has on it."""
    import shutil
    import subprocess
    import sys

    python = (sys.executable, "-I", "-S", "-c", "import shutil, sys; shutil.copyfile(sys.argv[2], sys.argv[3])")
    copier = shutil.which("cp")  # starts sooner
    command = [*((copier,) if copier else python), "--", str(file.absolute()), str(to)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode and file.exists():  # one that is gone has another stamp
        message = done.stderr.decode(errors="replace").strip().splitlines()
        raise StoreError(f"{file}: it could not be copied to be read ({message[-1] if message else done.returncode})")


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    except FileNotFoundError:
        return None


def _address(path: Path) -> str:
    return f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"


def _connected(file: Path | str, wait: float | None) -> sqlite3.Connection:
    """A connection that waits so many seconds for a lock, begins no transaction by itself, and may change threads."""
    seconds, uri = LOCK_WAIT if wait is None else wait, isinstance(file, str)
    return sqlite3.connect(file, timeout=seconds, isolation_level=None, uri=uri, check_same_thread=False)


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of a store's tables; a database of anybody else's is refused."""
    tables = _tables(db)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not tables:
        raise EmptyStoreError(f"{path} is empty, so not a headcount store yet; a sweep that begins fills it at once")
    if not tables >= TABLES:
        raise ForeignError(f"{path} is not a headcount store: it lacks the table {min(TABLES - tables)!r}")
    if version > VERSION:
        raise ForeignError(f"{path} was written by a newer headcount (version {version}, this one reads {VERSION})")
    return version


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Within a transaction: make the tables of an empty file, or bring an older store's up to date; no one else's."""
    if not _tables(db):
        _execute_all(db, SCHEMA)
    elif _version(db, path) < VERSION:
        _bring_up_to_date(db)
    else:
        return
    db.execute(f"PRAGMA user_version={VERSION}")


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    db.create_function("checksum", 4, checksum)
    db.create_function("status_of", 1, lambda row: json.loads(row).get("status"))
    for table in ("rows", "specs", "environments"):
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _execute_all(db, SCHEMA)
    db.execute("INSERT INTO environments SELECT id, environment FROM old_environments")
    db.execute("""INSERT INTO rows SELECT run, member, row, environment, status_of(row),
                  checksum(run, member, row, environment), finished FROM old_rows""")
    db.execute(f"""INSERT INTO specs (id, content, name, spec, turn, asked, stated)
                  SELECT id, '{OLD}' || id, name, spec, id, json_array_length(runs), stated FROM old_specs""")
    db.execute("""INSERT OR IGNORE INTO asked SELECT each.value, old_specs.id, each.key
                  FROM old_specs, json_each(old_specs.runs) AS each""")
    db.execute(COUNT)
    for table in ("rows", "specs", "environments"):
        db.execute(f"DROP TABLE old_{table}")


def _execute_all(db: sqlite3.Connection, script: str) -> None:
    """Every statement of a script, within the transaction (`executescript` would end it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def in_one_line(path: Path) -> Iterator[None]:
    """What SQLite finds wrong with the store at `path`, as a refusal."""
    try:
        yield
    except (UnicodeDecodeError, DamagedTextError) as problem:  # the former: of what SQLite says of a damaged name
        raise StoreError(f"{path}: {SAID['SQLITE_CORRUPT']}") from problem
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise LockedError(f"{path}: another program keeps it locked; run the same command again") from problem
        if str(problem).startswith("Could not decode to UTF-8"):  # of a text that has no checksum
            name = "SQLITE_CORRUPT"
        reason = next((words for kind, words in SAID.items() if name.startswith(kind)), str(problem))
        kind = ForeignError if name.startswith("SQLITE_NOTADB") else StoreError
        raise kind(f"{path}: {reason}{_size_limit(name)}") from problem


def _size_limit(name: str) -> str:
    """Where files may not grow without end here, so much: SQLite calls that a disk that fails."""
    if not name.startswith(("SQLITE_IOERR_WRITE", "SQLITE_FULL")):
        return ""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return "" if limit == resource.RLIM_INFINITY else f" (files may not pass {limit:,} bytes here: ulimit -f)"
