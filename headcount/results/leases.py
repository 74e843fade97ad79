"""Leases on banks: who trains what when several processes share a store, by name. A dead process holds none.

A lease is a small file beside the store, named after the bank, locked by its holder and signed with host, process and
time. The system drops the lock when its holder ends, however it ends. A holder that lives sets the file's time again
and again; one that is stopped does not, and whoever waits long enough by its own clock puts a file of its own in the
place. Woken, the former holder finds another file there, and knows that it has lost. No two clocks are compared, and
what is kept never depends on a lease: a row stands once in the store, whoever trains it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import secrets
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from headcount.files import make_folder
from headcount.numerals import counted
from headcount.results.database import LockedError

try:
    import fcntl
except ImportError:  # Windows: every lease is granted, and rows are still kept once
    fcntl = None

RENEWAL = 15.0  # seconds between two signs of life
PATIENCE = 600.0  # seconds without one after which a bank is taken over
HASTE = 45.0  # the same where that was asked for
SAYING = 60.0  # seconds between two lines on who is waited for
GUARDING = 5.0  # seconds that one waits for a process that stands still while it looks at leases
REPAIR = 60.0  # seconds that a sweep waits for a repair
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
GUARD, STORE = "guard", "store"


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds a lease: a process of a machine, since when.

    >>> str(LeaseHolder("ada", 17, "2026-11-16 18:00:05 UTC"))
    'process 17 of ada (since 2026-11-16 18:00:05 UTC)'
    """

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host} (since {self.since})"

    @classmethod
    def here(cls) -> LeaseHolder:
        """This process, now."""
        return cls(socket.gethostname(), os.getpid(), f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC")

    @classmethod
    def of(cls, path: Path) -> LeaseHolder:
        """Who signed a lease; a signature that cannot be read is nobody's in particular."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls("a machine", 0, "an unknown time")


class Leases:
    """The leases that this object has on a store's banks; closing it gives all back.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "rows.leases"
    >>> with Leases(folder) as mine, Leases(folder) as yours:
    ...     mine.take("1f"), yours.take("1f"), yours.holder("1f") == mine.holder("1f"), mine.holds("1f")
    ...     mine.give_back("1f"), yours.take("1f"), mine.take("1f")
    (True, False, True, True)
    (None, True, False)
    """

    def __init__(self, folder: Path, *, take_over: bool = False) -> None:
        self.folder, self.patience = folder, HASTE if take_over else PATIENCE
        self.held: dict[str, int] = {}  # the file of every bank that is ours
        self.seen: dict[str, tuple[int, float]] = {}  # the last sign of life of others, and when it was seen
        self.taken_over: list[str] = []
        self.said = -SAYING
        self.closed = threading.Event()
        self.renewing: threading.Thread | None = None
        make_folder(folder)
        self.store = _shared(folder)
        _OPEN.add(self)

    def take(self, bank: str) -> bool:
        """Whether the bank of this address is now ours to train; never waits for its holder."""
        if bank in self.held:
            return False
        with _guarded(self.folder):
            file = self._free(bank)
            file = self._silent(bank) if file is None else file
            if file is None:
                return False
            _sign(file)
            self.held[bank] = file
        self.seen.pop(bank, None)
        self._renew()
        return True

    def holds(self, bank: str) -> bool:
        """Whether the bank is still ours: another's file in the place of ours says that it was taken over."""
        return bank in self.held and _stands(self.folder / bank, self.held[bank])

    def holder(self, bank: str) -> LeaseHolder:
        """Who holds a bank."""
        return LeaseHolder.of(self.folder / bank)

    def give_back(self, bank: str) -> None:
        """Let others have it."""
        if bank in self.held:
            with _guarded(self.folder):
                if self.holds(bank):
                    (self.folder / bank).unlink(missing_ok=True)
                os.close(self.held.pop(bank))

    def news(self) -> Iterator[str]:
        """What whoever waits should say now: what was taken over, and once a minute who is waited for."""
        while self.taken_over:
            yield self.taken_over.pop()
        if self.seen and time.monotonic() - self.said >= SAYING:
            self.said = time.monotonic()
            holders = Counter(str(self.holder(bank)) for bank in self.seen)
            who = ", ".join(f"{counted(n, 'bank')} of {holder}" for holder, n in holders.most_common(3))
            rest = f" and {len(holders) - 3} others" if len(holders) > 3 else ""
            yield f"waiting for {who}{rest}; one that gives no sign of life for {self.patience:.0f} s is taken over"

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.closed.set()
        for bank in list(self.held):
            with contextlib.suppress(OSError):
                self.give_back(bank)
        if self.store is not None:
            os.close(self.store)
            self.store = None

    def _free(self, bank: str) -> int | None:
        """The locked file of a bank that nobody holds."""
        path = self.folder / bank
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if _locked(file) and _stands(path, file):
            return file
        os.close(file)
        return None

    def _silent(self, bank: str) -> int | None:
        """A locked file put in the place of one whose holder has given no sign of life for long."""
        path, now = self.folder / bank, time.monotonic()
        try:
            sign = path.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        last, since = self.seen.setdefault(bank, (sign, now))
        if last != sign:
            self.seen[bank] = (sign, now)
        if last != sign or now - since < self.patience:
            return None
        former = self.holder(bank)
        ours = path.with_name(f"{secrets.token_hex(8)}.part")
        file = os.open(ours, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _locked(file)
        ours.replace(path)
        self.taken_over.append(f"a bank is taken over from {former}: no sign of life for {now - since:.0f} s")
        return file

    def _renew(self) -> None:
        """Give signs of life from now on, however long a bank takes."""
        if self.renewing is None:
            self.renewing = threading.Thread(target=_give_signs, args=(weakref.ref(self), self.closed), daemon=True)
            self.renewing.start()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep every sweep away from a store; refused where one is at it, with its name."""
    make_folder(folder)
    file = os.open(folder / STORE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _locked(file):
            banks = [path for path in folder.iterdir() if path.name not in (GUARD, STORE)]
            who = [str(LeaseHolder.of(path)) for path in banks if not _is_free(path)]
            holders = ", ".join(dict.fromkeys(who)) or "another process"
            raise LockedError(
                f"{folder.with_suffix('.sqlite')}: in use by {holders}; run this again when that has ended"
            )
        _sign(file)
        yield
    finally:
        os.close(file)


def _shared(folder: Path) -> int:
    """The store's own lock, beside other sweeps; a repair is waited for."""
    file = os.open(folder / STORE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    until = time.monotonic() + REPAIR
    while not _locked(file, shared=True):
        if time.monotonic() > until:
            os.close(file)
            words = f"being repaired by {LeaseHolder.of(folder / STORE)}"
            raise LockedError(f"{folder.with_suffix('.sqlite')}: {words}; run the same command when that has ended")
        time.sleep(0.1)
    return file


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """One process at a time looks at leases; one that stands still meanwhile is not waited for long."""
    file = os.open(folder / GUARD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    until = time.monotonic() + GUARDING
    try:
        while not _locked(file) and time.monotonic() < until:
            time.sleep(0.005)
        yield
    finally:
        os.close(file)


def _locked(file: int, *, shared: bool = False) -> bool:
    """Whether this opening of a file now has it locked; where a disk knows no locks, everybody has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in NO_LOCKS:
            return True
        raise


def _is_free(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return _locked(file)
    finally:
        os.close(file)


def _stands(path: Path, file: int) -> bool:
    """Whether an open file is the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _sign(file: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(asdict(LeaseHolder.here())).encode(), 0)


def _give_signs(of: weakref.ref[Leases], closed: threading.Event) -> None:
    while not closed.wait(RENEWAL):
        leases = of()
        if leases is None:
            return
        for file in list(leases.held.values()):
            with contextlib.suppress(OSError):
                os.utime(file)
        del leases


_OPEN: weakref.WeakSet[Leases] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: its copies of the files would hold the leases of a parent that has died."""
    for leases in list(_OPEN):
        for file in (*leases.held.values(), *(() if leases.store is None else (leases.store,))):
            with contextlib.suppress(OSError):
                os.close(file)
        leases.held, leases.store = {}, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
