"""Power cuts: what a program wrote, as the system saw it, and the disks that a cut at any moment may leave.

The writes of a true process are recorded with strace. What a sync has not reached when the power fails may be on the
disk or not, each sector of 512 bytes and each change of a folder by itself: `disk` makes any of these disks.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Acknowledged", "Change", "Piece", "Recording", "record"]

SECTOR = 512
CALLS = "openat,open,creat,write,pwrite64,ftruncate,fsync,fdatasync,unlink,rename,mkdir,lseek"
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
HEX = re.compile(r"((?:\\x[0-9a-f]{2})+)")
MARK = "acknowledged"


@dataclass(frozen=True)
class Change:
    """A folder's change: paths that now lead to an inode, or to nothing; on the disk when the folder is synced."""

    folder: str
    entries: dict[str, int | None]


@dataclass(frozen=True)
class Piece:
    """Bytes written to an inode at a place, or (no bytes) its cut to that size; on the disk when it is synced."""

    inode: int
    place: int
    data: bytes | None


@dataclass(frozen=True)
class Synced:
    """An inode or a folder all of whose earlier changes are now on the disk."""

    what: int | str


@dataclass(frozen=True)
class Acknowledged:
    """The program was told that this much is done."""

    number: int


Operation = Change | Piece | Synced | Acknowledged
Keep = Callable[[], bool]  # whether something that no sync has reached is on the disk all the same


@dataclass(eq=False)
class Recording:
    """All operations of a program in their order, the folders made among them."""

    operations: list[Operation] = field(default_factory=list)
    folders: set[int] = field(default_factory=set)

    def acknowledged(self, until: int) -> int:
        """The last number that the program was told of before this moment, -1 for none."""
        return max((o.number for o in self.operations[:until] if isinstance(o, Acknowledged)), default=-1)

    def disk(self, until: int, keep: Keep) -> dict[str, bytes]:
        """The files on the disk when the power fails after `until` operations."""
        safe = self._safe(until)
        paths: dict[str, int] = {}
        content: dict[int, bytearray] = {}
        for number, operation in enumerate(self.operations[:until]):
            if isinstance(operation, Change) and (number in safe or keep()):
                for path, inode in operation.entries.items():
                    paths.pop(path, None) if inode is None else paths.update({path: inode})
            elif isinstance(operation, Piece):
                written = content.setdefault(operation.inode, bytearray())
                for piece in _sectors(operation):
                    if number in safe or keep():
                        _write(written, piece)
        there = {"", *(path for path, inode in paths.items() if inode in self.folders)}
        return {
            path: bytes(content.get(inode, b""))
            for path, inode in paths.items()
            if inode not in self.folders and all(str(p) in there or str(p) == "." for p in Path(path).parents)
        }

    def _safe(self, until: int) -> set[int]:
        """The operations that a sync has reached."""
        safe: set[int] = set()
        pending: dict[int | str, list[int]] = {}
        for number, operation in enumerate(self.operations[:until]):
            if isinstance(operation, Synced):
                safe.update(pending.pop(operation.what, []))
            elif isinstance(operation, Change | Piece):
                key = operation.folder if isinstance(operation, Change) else operation.inode
                pending.setdefault(key, []).append(number)
        return safe


def _sectors(piece: Piece) -> Iterator[Piece]:
    if piece.data is None:
        yield piece
        return
    start = 0
    while start < len(piece.data):
        end = start + SECTOR - (piece.place + start) % SECTOR
        yield Piece(piece.inode, piece.place + start, piece.data[start:end])
        start = end


def _write(content: bytearray, piece: Piece) -> None:
    if piece.data is None:
        del content[piece.place :]
        content.extend(bytes(piece.place - len(content)))
        return
    content.extend(bytes(max(0, piece.place - len(content))))
    content[piece.place : piece.place + len(piece.data)] = piece.data


# Recording -----------------------------------------------------------------------------------------------------------


def record(script: str, base: Path) -> Recording:
    """The operations of a Python script below the folder `base`, which it gets as its first argument.

    A number that the script writes to the file `acknowledged` there says how much it was told is done.
    """
    log = base.with_name(f"{base.name}.strace")
    watch = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(log)]
    subprocess.run([*watch, sys.executable, "-c", script, str(base)], check=True, cwd=Path(__file__).parents[2])
    reader = _Reader(str(base))
    with log.open() as lines:
        for line in lines:
            if found := CALL.match(line):
                name, given, result = found.groups()
                if int(result) >= 0:
                    reader.take(name, given, int(result))
    log.unlink()
    return reader.recording


class _Reader:
    """Follows paths, inodes and places in files through the calls of one process."""

    def __init__(self, base: str) -> None:
        self.base, self.recording, self.count = base, Recording(), 0
        self.paths: dict[str, int] = {}
        self.sizes: dict[int, int] = {}
        self.files: dict[int, int] = {}  # inode by descriptor
        self.opened: dict[int, str] = {}  # path by descriptor
        self.places: dict[int, int] = {}

    def take(self, name: str, given: str, result: int) -> None:
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in HEX.findall(given)]
        method = getattr(self, f"_{name}", None)
        if method is not None:
            method(given, texts, result)

    def _add(self, operation: Operation) -> None:
        self.recording.operations.append(operation)

    def _inside(self, text: bytes) -> str | None:
        path = text.decode("utf-8", "replace")
        return str(Path(path).relative_to(self.base)) if path.startswith(self.base + "/") else None

    def _change(self, **entries: int | None) -> None:
        self._add(Change(str(Path(next(iter(entries))).parent), entries))
        for path, inode in entries.items():
            self.paths.pop(path, None) if inode is None else self.paths.update({path: inode})

    def _new(self, path: str) -> int:
        self.count += 1
        self.sizes[self.count] = 0
        self._change(**{path: self.count})
        return self.count

    def _openat(self, given: str, texts: list[bytes], result: int) -> None:
        path = self._inside(texts[1] if given.startswith("AT_FDCWD<") else texts[0])
        self.files.pop(result, None)
        self.opened[result] = str(texts[1] if given.startswith("AT_FDCWD<") else texts[0], "utf-8", "replace")
        if path is None or "O_DIRECTORY" in given or self.paths.get(path) in self.recording.folders:
            return
        inode = self.paths[path] if path in self.paths else self._new(path)
        self.files[result] = inode
        self.places[result] = 0
        if "O_TRUNC" in given and self.sizes[inode]:
            self._cut(inode, 0)
        if "O_APPEND" in given:
            self.places[result] = self.sizes[inode]

    def _mkdir(self, given: str, texts: list[bytes], result: int) -> None:
        path = self._inside(texts[0])
        if path is not None:
            self.recording.folders.add(self._new(path))

    def _pwrite64(self, given: str, texts: list[bytes], result: int) -> None:
        self._written(given, texts[-1], int(given.rsplit(",", 1)[1]))

    def _write(self, given: str, texts: list[bytes], result: int) -> None:
        number = int(given.split("<")[0])
        if self.opened.get(number) == f"{self.base}/{MARK}":
            self._add(Acknowledged(int(texts[-1])))
        elif number in self.files:
            self._written(given, texts[-1], self.places[number])
            self.places[number] += result

    def _written(self, given: str, data: bytes, place: int) -> None:
        inode = self.files.get(int(given.split("<")[0]))
        if inode is not None:
            self._add(Piece(inode, place, data))
            self.sizes[inode] = max(self.sizes[inode], place + len(data))

    def _lseek(self, given: str, texts: list[bytes], result: int) -> None:
        self.places[int(given.split("<")[0])] = result

    def _ftruncate(self, given: str, texts: list[bytes], result: int) -> None:
        inode = self.files.get(int(given.split("<")[0]))
        if inode is not None:
            self._cut(inode, int(given.rsplit(",", 1)[1]))

    def _cut(self, inode: int, size: int) -> None:
        self._add(Piece(inode, size, None))
        self.sizes[inode] = size

    def _fsync(self, given: str, texts: list[bytes], result: int) -> None:
        number = int(given.split("<")[0])
        if number in self.files:
            self._add(Synced(self.files[number]))
        elif self.opened.get(number, "").startswith(self.base):
            self._add(Synced(str(Path(self.opened[number]).relative_to(self.base))))

    _fdatasync = _fsync

    def _unlink(self, given: str, texts: list[bytes], result: int) -> None:
        path = self._inside(texts[0])
        if path in self.paths:
            self._change(**{path: None})

    def _rename(self, given: str, texts: list[bytes], result: int) -> None:
        old, new = self._inside(texts[0]), self._inside(texts[1])
        if old in self.paths and new is not None:
            self._change(**{new: self.paths[old], old: None})
