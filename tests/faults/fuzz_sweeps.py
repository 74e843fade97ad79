"""Sweeps that are struck: interrupted or killed at a random moment, on stores that others left half done or damaged.

Whoever says that it succeeded must have the rows of a sweep left alone on a fresh store. So a sweep that was struck is
run again as a person would (the same words, `runs repair` where that is advised) until it says so, and compared: bit
for bit if the store had no rows of other banks, up to rounding if it had.
"""

import contextlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.fuzz_pool import spoilt_bytes
from tests.faults.sweep_specs import SPEC, rows_of

__all__ = ["Strike", "Struck", "after_a_strike", "is_exact", "leave_store", "same_rows", "strike_of", "sweep_words"]

ROUNDING = 1e-4  # of float32, over a few dozen steps
AGAIN = 5  # times that the same words are typed until a sweep says that it succeeded
CHANGES = {  # what of the spec is changed, so that a store may lack some of the rows, or all
    "seeds = 2": ("seeds = 1", "seeds = 2", "seeds = 3"),
    "lengths = [4, 6]": ("lengths = [4]", "lengths = [4, 6]", "lengths = [6, 5]", "lengths = [3, 4, 5, 6]"),
    "heads = [1, 2]": ("heads = [1]", "heads = [1, 2]", "heads = [2, 1]"),
    "epochs = 2": ("epochs = 2", "epochs = 2", "epochs = 12"),
    "rank = 1": ("rank = 1", "rank = 1", "rank = 2"),
}
OPTIONS = ("--save best", "--save all", "--checkpoint 0.001s", "--checkpoint 0", "--take-over")


@dataclass(frozen=True)
class Strike:
    """Which signals come after how many seconds of processor, the second so many seconds of the clock after it."""

    seconds: float
    signals: tuple[int, ...] = (signal.SIGINT,)
    apart: float = 0.0


@dataclass(frozen=True)
class Struck:
    """What became of a sweep that was struck: the codes of its runs, and whether its rows are those of a fresh one."""

    codes: tuple[int | str, ...]
    same: bool | None
    exactly: bool
    said: str = ""


def strike_of(number: int) -> Strike:
    """What strikes the sweep of this number, most likely early: one of four signals, or two after each other."""
    rng = random.Random(f"strike of {number}")
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    one = rng.choice((*ending, signal.SIGKILL, signal.SIGKILL))
    pair = (one,) if rng.random() < 0.6 or one is signal.SIGKILL else (one, rng.choice((*ending, signal.SIGKILL)))
    return Strike(10 ** rng.uniform(-2.4, -0.3), pair, rng.choice((0.0, 0.002, 0.01, 0.1)))


def sweep_words(rng: random.Random, where: Path) -> tuple[str, ...]:
    """A sweep that can be trained, and its spec in the folder."""
    text = SPEC
    for old, new in CHANGES.items() if rng.random() < 0.7 else ():
        text = text.replace(old, rng.choice(new))
    (where / "x.toml").write_text(text)
    options = [word for option in OPTIONS if rng.random() < 0.2 for word in option.split()]
    return ("sweep", "x.toml", "--store", "s", *options)


def leave_store(rng: random.Random, sound: Path, where: Path) -> None:
    """Leave a store as others may have left it: none, a sound one, or one that is damaged."""
    if rng.random() < 0.4:
        return
    shutil.copytree(sound, where / "s")
    if rng.random() < 0.7:
        rng.choice(LEFT)(rng, where / "s" / "rows.sqlite")


def _spoilt(rng: random.Random, path: Path) -> None:
    path.write_bytes(spoilt_bytes(rng, path.read_bytes()))


def _rows_gone(rng: random.Random, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"DELETE FROM rows WHERE rowid % 3 = {rng.randrange(3)}")


def _rows_changed(rng: random.Random, path: Path) -> None:
    """Change rows and leave their checksums: what no program of ours writes."""
    column = rng.choice(("row", "member", "environment", "checksum"))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE rows SET {column} = {column} || ' ' WHERE rowid % 2 = {rng.randrange(2)}")


def _half_written(rng: random.Random, path: Path) -> None:
    """What a writer leaves that is killed with half of its transaction on the disk."""
    child = os.fork()
    if child == 0:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE rows SET row = replace(row, '0.', '1.')")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def _strange_files(rng: random.Random, path: Path) -> None:
    """Files beside the store that nobody asked for: leases of nobody, states and networks that are none."""
    names = ("rows.leases/guard", "rows.leases/0123456789abcdef", "checkpoints/0123456789abcdef.safetensors",
             "networks/x.safetensors", "rows.sqlite.repaired", "rows.sqlite.damaged", "x.part")  # fmt: skip
    for name in rng.sample(names, 3):
        file = path.parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(rng.randbytes(rng.choice((0, 7, 3000))))


def _emptied(rng: random.Random, path: Path) -> None:
    path.write_bytes(b"")


LEFT: tuple[Callable[[random.Random, Path], None], ...] = (
    _spoilt,
    _rows_gone,
    _rows_changed,
    _half_written,
    _strange_files,
    _emptied,
)


def is_exact(words: tuple[str, ...]) -> bool:
    """Whether the rows to come must be a fresh store's bit for bit: none were there, or those of the same spec."""
    return not os.path.lexists(store_of(words)) or Path(words[1]).read_bytes() == SPEC.encode()


def store_of(words: tuple[str, ...]) -> Path:
    """Where a sweep keeps its rows."""
    if "--store" in words:
        return Path(*words[words.index("--store") + 1 :][:1])
    return Path("runs", "small")


def after_a_strike(
    words: tuple[str, ...],
    typed: Callable[[tuple[str, ...]], tuple[int | str, str]],
    *,
    exactly: bool,
    succeeded: bool = False,
) -> Struck:
    """Type the same words until they succeed, if they have not, and on a fresh store; `typed` gives code and stderr."""
    codes: list[int | str] = []
    said, store = "", store_of(words)
    for _ in range(AGAIN):
        if succeeded:
            break
        code, said = typed(words)
        codes.append(code)
        succeeded = code == 0
        if not succeeded and "runs repair" not in said:
            return Struck(tuple(codes), None, exactly, said)
        if not succeeded:
            codes.append(typed(("runs", "repair", str(store)))[0])
    if not succeeded:
        return Struck(tuple(codes), None, exactly, said)
    code, said = typed((*_without_store(words), "--store", "fresh"))
    return Struck((*codes, code), code == 0 and same_rows(store, Path("fresh"), exactly), exactly, said)


def _without_store(words: tuple[str, ...]) -> tuple[str, ...]:
    at = words.index("--store") if "--store" in words else len(words)
    return words[:at] + words[at + 2 :]


def same_rows(one: Path, other: Path, exactly: bool) -> bool:
    """Whether two stores have the same rows of their latest spec, bit for bit or up to rounding."""
    left, right = rows_of(one), rows_of(other)
    if exactly or len(left) != len(right):
        return json.dumps(left) == json.dumps(right)
    return all(
        a.keys() == b.keys() and all(_near(a[name], b[name]) for name in a) for a, b in zip(left, right, strict=True)
    )


def _near(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING) or (math.isnan(one) and math.isnan(other))
    return one == other
