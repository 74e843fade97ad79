"""Commands that are asked to end at random moments: `python -m tests.faults.signalling COUNT FIRST [--record FILE]`.

A command is struck by one or two of SIGINT, SIGTERM and SIGHUP while Python and its libraries are still being loaded,
before or while it trains, within a transaction of the store, or while it exports, reports, fits, merges or repairs. It
must end with 130 and one line, or with 0 if it was quicker, and leave no scratch file. The same words, typed again,
must then do what they do where nobody struck: the same rows bit for bit, the same files byte for byte. Every moment is
a line of the record; the same command goes on where it ends. Prints what happened as JSON.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.load import large_store
from headcount.results import store as storing
from headcount.results.upkeep import verify_store
from tests.faults.fuzz_sweeps import Strike, after_a_strike
from tests.faults.fuzzing import Ending, Outcomes, forked, left_alone, typed_words
from tests.faults.sweep_specs import start, with_

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SPECS = (
    with_(),
    with_(("epochs = 2", "epochs = 60")),
    with_(("epochs = 2", "epochs = 12"), ("seeds = 2", "seeds = 4")),
)
WAYS = ((), ("--checkpoint", "0.001s"), ("--checkpoint", "0"), ("--save", "all"))
READING = (
    ("runs", "export", "large", "--out", "out"),
    ("report", "large", "--out", "out"),
    ("fit", "large", "--json"),
    ("runs", "verify", "large"),
    ("runs", "merge", "out", "large", "small"),
    ("runs", "repair", "broken"),
)
EARLY = "Python's own"  # the end of a process that had not come to the first line of this package
ROWS = 6000  # of the store that is read
KINDS = ("loading", "sweep", "sweep", "transaction", "reading")  # where the moment lies


@dataclass(frozen=True)
class Moment:
    """What is typed, and which signals come when: after a share of the processor's time that it takes, or at a row."""

    kind: str
    words: tuple[str, ...]
    share: float
    signals: tuple[int, ...]
    apart: float
    row: int

    def strike(self, whole: float) -> Strike:
        """The signals, where the command takes so many seconds in all."""
        return Strike(max(0.002, self.share * whole), self.signals, self.apart)


def moment_of(number: int) -> Moment:
    """The moment of this number; a sweep's spec is laid into the folder one stands in."""
    rng = random.Random(f"signals of {number}")
    kind = KINDS[number % len(KINDS)]
    signals = tuple(rng.choice(ENDING) for _ in range(rng.choice((1, 1, 2))))
    words = rng.choice(READING)
    if kind in ("sweep", "transaction") or (kind == "loading" and rng.random() < 0.5):
        words = ("sweep", "x.toml", "--store", "s", *rng.choice(WAYS))
        Path("x.toml").write_text(rng.choice(SPECS) if kind != "loading" else SPECS[0])
    return Moment(kind, words, rng.random(), signals, rng.choice((0.0, 0.003, 0.03)), rng.randrange(4))


def struck(number: int, sound: Path, folder: Path) -> dict[str, Any]:
    """How the command of this number ended, and whether it did the same as one left alone when it was typed again."""
    moment = moment_of(number)
    again: Callable[[tuple[str, ...]], tuple[int | str, str]] = partial(left_alone, Outcomes(), folder)
    reference = _reference(moment, sound, folder)
    _copy_stores(moment.words, sound)
    ending = HOW[moment.kind](moment, folder, reference.seconds)
    left = [str(path) for path in (*Path().rglob("*.part"), *scratch_files())]
    if moment.words[0] == "sweep":
        after = after_a_strike(moment.words, again, exactly=True, succeeded=ending.code == 0)
        same, codes = after.same is True, after.codes
    else:
        codes = () if ending.code == 0 else (again(moment.words)[0],)
        same = set(codes) <= {0} and _did() == reference.did
    one_line = ending.said.count("\n") == 1 and ending.said.startswith("headcount: interrupted.")
    quiet = ending.code == EARLY or (ending.code == 0 and not ending.said) or (ending.code == 130 and one_line)
    told = {"number": number, "kind": moment.kind, "words": " ".join(moment.words), "said": ending.said, "left": left}
    told |= {"signals": [int(one) for one in moment.signals], "after": codes, "same": same}
    return {"code": ending.code, "sound": quiet and not left and same, **told}


def scratch_files() -> Iterator[Path]:
    """What a command left where scratch files go."""
    yield from Path(tempfile.gettempdir()).glob("*headcount*")


def _forked(moment: Moment, folder: Path, whole: float) -> Ending:
    return forked(lambda: typed_words(moment.words, moment.strike(whole)), folder)


def _within_a_transaction(moment: Moment, folder: Path, whole: float) -> Ending:
    """Strike when so many rows are inserted and nothing is committed."""

    def work() -> NoReturn:
        true = storing.insert_rows

        def insert(db: Any, rows: Any) -> int:
            def some() -> Iterator[Any]:
                for at, row in enumerate(rows):
                    if at == moment.row:
                        for one in moment.signals:
                            os.kill(os.getpid(), one)
                    yield row

            return true(db, some())

        storing.insert_rows = insert
        typed_words(moment.words, Strike(60.0))

    return forked(work, folder)


def _while_loading(moment: Moment, folder: Path, whole: float) -> Ending:
    """Strike a process that nobody forked, after so many seconds of processor: Python begins to load at the first."""
    began, command = time.monotonic(), start(*moment.words, TMPDIR=tempfile.gettempdir())
    strike, taken = moment.strike(whole), 0.0
    while command.poll() is None and (taken := max(taken, _processor(command.pid))) < strike.seconds:
        time.sleep(0.002)
    for one in strike.signals:
        if command.poll() is None:
            command.send_signal(one)
            time.sleep(strike.apart)
    try:
        _, said = command.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        command.kill()
        return Ending("stuck", command.communicate()[1], time.monotonic() - began, 0.0, 0)
    # Before the first line of the package is read, Python itself answers: it dies, or says so in its own words.
    early = command.returncode in {-one for one in ENDING} and "headcount/" not in said
    return Ending(EARLY if early else command.returncode, said, time.monotonic() - began, taken, 0)


HOW = {"transaction": _within_a_transaction, "loading": _while_loading, "sweep": _forked, "reading": _forked}


def _processor(pid: int) -> float:
    """Seconds of processor that a process has taken so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _did() -> dict[str, Any]:
    """What stands there once a command has succeeded: the files it wrote, and the stores."""
    files = sorted(path for path in Path("out").rglob("*") if path.is_file() and path.suffix != ".sqlite")
    stores = [path.parent for path in sorted(Path().glob("*/rows.sqlite"))]
    found = {str(path): path.read_bytes() for path in files if "rows.leases" not in path.parts}
    return found | {f"rows of {folder}": verify_store(folder).rows for folder in stores}


@dataclass(frozen=True)
class Reference:
    """What a command does and how many seconds of processor it takes, where nobody strikes."""

    did: dict[str, Any]
    seconds: float


_KNOWN: dict[object, Reference] = {}


def _reference(moment: Moment, sound: Path, folder: Path) -> Reference:
    spec = Path("x.toml").read_text() if moment.words[0] == "sweep" else ""
    key = (moment.kind == "loading", moment.words, spec)
    if key not in _KNOWN:
        with tempfile.TemporaryDirectory(dir=folder) as here, contextlib.chdir(here):
            Path("x.toml").write_text(spec)
            _copy_stores(moment.words, sound)
            how = _while_loading if moment.kind == "loading" else _forked
            ending = how(replace(moment, share=1.0, signals=(signal.SIGINT,)), folder, 100.0)
            assert ending.code == 0, ending
            _KNOWN[key] = Reference(_did(), ending.processor)
    return _KNOWN[key]


def _copy_stores(words: tuple[str, ...], sound: Path) -> None:
    for name in {"large", "small", "broken"}.intersection(words):
        shutil.copytree(sound / name, name)


def lay_out(folder: Path) -> None:
    """The stores that are read: a large and a small one, and one with a row that is not as it was written."""
    large_store(folder / "large", ROWS)
    large_store(folder / "small", 40)
    broken = large_store(folder / "broken", ROWS // 3)
    content = bytearray(broken.path.read_bytes())
    at = content.rindex(b"LinearMax")
    content[at : at + 4] = b"Lima"
    broken.path.write_bytes(bytes(content))


def main(count: int, first: int, record: Path | None = None) -> dict[str, Any]:
    """All of them, but those on record."""
    known = [json.loads(line) for line in record.read_text().splitlines()] if record and record.exists() else []
    found = {one["number"]: one for one in known}
    with tempfile.TemporaryDirectory() as scratch:
        folder, sound = Path(scratch), Path(scratch, "sound")
        lay_out(sound)
        for number in range(first, first + count):
            if number in found:
                continue
            with tempfile.TemporaryDirectory(dir=folder) as here, contextlib.chdir(here):
                (Path(here) / "scratch").mkdir()
                os.environ["TMPDIR"] = tempfile.tempdir = f"{here}/scratch"
                found[number] = struck(number, sound, folder)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(found[number]) + "\n")
        tempfile.tempdir = None
    chosen = [found[number] for number in range(first, first + count)]
    by_kind = {kind: Counter(str(one["code"]) for one in chosen if one["kind"] == kind) for kind in sorted({*KINDS})}
    pairs = sum(len(one["signals"]) > 1 for one in chosen)
    wrong = [one for one in chosen if not one["sound"]]
    return {"moments": count, "first": first, "pairs": pairs, "codes": by_kind, "wrong": wrong}


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    print(json.dumps(main(asked.count, asked.first, asked.record), indent=1), flush=True)  # noqa: T201
    os._exit(0)
