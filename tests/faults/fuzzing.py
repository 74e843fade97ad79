"""`python -m tests.faults.fuzzing COUNT [FIRST]`: random specs, arguments, files and folders at every command.

Every case runs in this process, in a folder of its own, with the memory bounded. A case that takes longer than
`PATIENCE` seconds of processor is interrupted as by Ctrl-C and must end with 130 at once. Prints the count of outcomes
as JSON; a line of `broken` is a bug. The checks of shapes and types that the test run makes are not on: what runs is
what a user runs.
"""

import collections
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is asked of nobody

import typer

from headcount.cli import app, main
from headcount.tasks.catalogue import SHIPPED
from tests.faults.fuzz_pool import filled_pool, mutated_spec, spoil_file, spoil_folder

__all__ = ["KINDS", "fuzzed", "in_parts"]

KINDS = ("specs", "arguments", "files", "folders")
PATIENCE = 1.0  # seconds of processor until a case is interrupted
IDLE, GRACE = 15.0, 60.0  # seconds by the clock until the same, and from then on until it counts as stuck
MEMORY = 4 * 2**30  # bytes that cases may add to what the process has at its beginning
FILES = {  # which kinds of file a command reads as its first argument, or after an option
    "sweep": ("SPEC",), "runs": ("STORE",), "export": ("STORE", "STUDY"), "fit": ("STORE", "STUDY", "MEASURED"),
    "report": ("STORE", "STUDY", "MEASURED"), "figure": ("STORE", "STUDY", "MEASURED"), "measure": ("DATA", "TABLE"),
    "apply": ("MODEL",), "interpolate": ("LABELS", "DATA"), "margin": ("SELECTION",), "prompt": ("PROMPT",),
    "saturation": ("BERT", "GPT2"), "compress": ("BERT", "GPT2"), "lens": ("BERT", "GPT2"), "store verify": ("STORE",),
    "store repair": ("STORE",), "store merge": ("STORE",), "ssm deepen": ("SYSTEM",), "ssm flatten": ("SYSTEM",),
    "ssm table": ("SYSTEM",), "ssm quantise": ("SYSTEM",),
}  # fmt: skip
TASKS = [task.__name__ for task in SHIPPED]
OPTIONS = {"--net": ("BUILT", "NET", "MEMORY"), "--text": ("TEXT",)}
SMALL = ("--steps 20", "--epochs 1", "--heads 2", "--starts 1", "--samples 1", "--lengths 8", "--seeds 2", "--json",
         "--measure weights", "--length 8", "--retrievals 2", "--depth 2", "--passages 2")  # fmt: skip
ODD_TEXT = (
    "nan inf -1 0 1 2 3 2.5 1e9 1e-9 1e400 99999999999999999999 -9223372036854775809 x 1,2 1x4 2x8,1x4 0x0 1-3 3-1 - "
    "--nothing a=b length=4 rank=0 retrievals=2 ../x /dev/null /dev/full /proc/self/mem nowhere cpu cuda cuda:99 meta "
    "frobenius nuclear latex svg pdf png 5m 0s all best weights outputs true None 1e-3 07 ½"
)
ODD_WORDS = [*ODD_TEXT.split(), "", " ", "\udcff", "\x1b[31m", "a\nb", "n" * 300]


@dataclass(frozen=True)
class Case:
    """What is typed, and the files that stand in the folder where it is typed."""

    kind: str
    words: tuple[str, ...]


class StuckError(BaseException):
    """A case neither ended nor heeded its interruption."""


def fuzzed(numbers: range, folder: Path) -> dict[str, Any]:
    """How the cases of these numbers ended: counts by kind and exit code, the slowest, the peak, and what broke."""
    pool = filled_pool(folder / "pool")
    typer.main.get_command = cache(typer.main.get_command)  # the same each time, and dear
    commands = dict(_commands(typer.main.get_command(app)))
    counts: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    broken, slowest = [], 0.0
    with _bounded_memory():
        for number in numbers:
            where = folder / "case"
            with _standing_in(where):
                case = _case(random.Random(number), pool, commands, where)
                (folder / "last").write_text(f"{number} {case}", errors="replace")
                code, said, seconds = _ended(list(case.words))
            counts[case.kind][str(code)] += 1
            slowest = max(slowest, seconds)
            if code not in (0, 2, 130) or said.count("\n") > 3 or "Traceback" in said:
                broken.append(
                    {"number": number, "kind": case.kind, "words": list(case.words), "code": code, "said": said}
                )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    spent = round(time.process_time(), 1)
    return {"counts": counts, "slowest_s": round(slowest, 1), "peak_mb": peak, "processor_s": spent, "broken": broken}


# What is typed -------------------------------------------------------------------------------------------------------


def _case(rng: random.Random, pool: dict[str, Path], commands: dict[str, list[Any]], where: Path) -> Case:
    kind = KINDS[rng.randrange(len(KINDS))]
    if kind == "specs":
        (where / "x.toml").write_text(mutated_spec(rng), encoding="utf-8")
        return Case(kind, ("sweep", "x.toml", "--store", "s"))
    if kind == "arguments":
        return Case(kind, tuple(_arguments(rng, pool, commands, where)))
    return Case(kind, tuple(_spoilt(rng, pool, where, kind)))


def _arguments(rng: random.Random, pool: dict[str, Path], commands: dict[str, list[Any]], where: Path) -> Iterator[str]:
    """A command with arguments and options of its own, their values sensible or odd."""
    name = rng.choice(list(commands))
    yield from name.split()
    for parameter in commands[name]:
        if parameter.param_type_name == "argument":
            if parameter.required or rng.random() < 0.7:
                yield _argument(rng, name, pool, where)
        elif rng.random() < 0.3:
            yield parameter.opts[0]
            if not isinstance(parameter.default, bool):
                yield _value(rng, parameter, pool, where)
    if rng.random() < 0.1:
        yield rng.choice(ODD_WORDS)


def _argument(rng: random.Random, name: str, pool: dict[str, Path], where: Path) -> str:
    if rng.random() < 0.15:
        return rng.choice(ODD_WORDS)
    if name in FILES:
        return _placed(rng.choice(FILES[name]), pool, where)
    return rng.choice(TASKS) if rng.random() < 0.8 else rng.choice(ODD_WORDS)


def _value(rng: random.Random, parameter: Any, pool: dict[str, Path], where: Path) -> str:
    option = parameter.opts[0]
    if option in OPTIONS and rng.random() < 0.8:
        return _placed(rng.choice(OPTIONS[option]), pool, where)
    if option == "--out" and rng.random() < 0.8:
        return "out"
    if rng.random() < 0.4 and parameter.default is not None:
        return str(parameter.default)
    return rng.choice(("1", "2", "3", "8", "0.5")) if rng.random() < 0.5 else rng.choice(ODD_WORDS)


def _spoilt(rng: random.Random, pool: dict[str, Path], where: Path, kind: str) -> Iterator[str]:
    """A command that reads a file (or a folder), which is spoilt, with a few sensible options."""
    readers = [(name, word) for name, words in FILES.items() for word in words]
    readers += [("collide --net", "BUILT"), ("probe LinearMax --net", "NET"), ("interpolate LABELS --net", "MEMORY")]
    readers += [("apply MODEL", "DATA"), ("apply MODEL", "TABLE")]
    wanted = [(name, word) for name, word in readers if word in pool and pool[word].is_dir() == (kind == "folders")]
    name, word = rng.choice(wanted)
    path = where / _placed(word, pool, where)
    (spoil_folder if path.is_dir() else spoil_file)(rng, path)
    yield from (_placed(part, pool, where) if part in pool else part for part in name.split())
    yield path.name
    if name == "apply":
        yield _placed("DATA", pool, where)
    for option in rng.sample(SMALL, 3):
        if _takes(name, option.split()[0]):
            yield from option.split()


def _placed(word: str, pool: dict[str, Path], where: Path) -> str:
    """A copy of a sound file in the folder of the case; its name."""
    if word not in pool:
        return word
    source = pool[word]
    target = where / f"{word.lower()}{source.suffix}"
    if not target.exists():
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    return target.name


def _takes(name: str, option: str) -> bool:
    commands = dict(_commands(typer.main.get_command(app)))
    known = next((commands[n] for n in (name, name.split()[0]) if n in commands), [])
    return any(option in parameter.opts for parameter in known)


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, list[Any]]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", list(command.params)


# How it ends ---------------------------------------------------------------------------------------------------------


def _ended(words: list[str]) -> tuple[int | str, str, float]:
    """Exit code, what stderr said, seconds."""
    out, err = _Output(), _Output()
    began, code = time.monotonic(), "no exit"
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _interrupted_when_long():
            main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except StuckError:
        code = "stuck"
        err.write(traceback.format_exc())
    except BaseException:
        err.write(traceback.format_exc())
    said = err.getvalue()
    if code == 1 and "the traceback is in " in said:
        file = Path(said.rsplit("the traceback is in ", 1)[1].strip())
        said += file.read_text(errors="replace")
        file.unlink()
    return code, said, time.monotonic() - began


class _Output(io.StringIO):
    """What is printed, kept; it has the number of a true file, as an output has."""

    encoding = "utf-8"

    def fileno(self) -> int:
        return NOWHERE


NOWHERE = os.open(os.devnull, os.O_WRONLY)


@contextlib.contextmanager
def _interrupted_when_long() -> Iterator[None]:
    fired = 0

    def late(number: int, frame: FrameType | None) -> None:
        nonlocal fired
        fired += 1
        if fired > 1:
            raise StuckError
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.setitimer(signal.ITIMER_REAL, IDLE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _standing_in(where: Path) -> Iterator[None]:
    where.mkdir()
    before = Path.cwd()
    os.chdir(where)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(where)


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def in_parts(count: int, processes: int = 2, first: int = 0) -> dict[str, Any]:
    """The outcomes of so many cases, shared among processes; one that dies of a case is a bug as well."""
    size = -(-count // processes)
    starts = range(first, first + count, size)
    command = [sys.executable, "-m", "tests.faults.fuzzing", "--part"]
    parts = [(n, min(size, first + count - n)) for n in starts]
    running = [subprocess.Popen([*command, str(n), str(k)], stdout=subprocess.PIPE, text=True) for n, k in parts]
    outcomes = []
    for (start, _), process in zip(parts, running, strict=True):
        out, _ = process.communicate()
        died = {"number": f"in the part from {start} on", "code": process.returncode, "said": out[-2000:]}
        nothing = {"counts": {}, "slowest_s": 0.0, "peak_mb": 0, "processor_s": 0.0, "broken": [died]}
        outcomes.append(nothing if process.returncode else json.loads(out))
    return merged(outcomes)


def merged(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Several outcomes as one."""
    counts: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    for kind, code, times in ((k, c, n) for o in outcomes for k, by in o["counts"].items() for c, n in by.items()):
        counts[kind][code] += times
    return {
        "cases": sum(sum(by.values()) for by in counts.values()),
        "counts": {kind: dict(sorted(by.items())) for kind, by in counts.items()},
        "slowest_s": max(o["slowest_s"] for o in outcomes),
        "peak_mb": max(o["peak_mb"] for o in outcomes),
        "processor_s": round(sum(o["processor_s"] for o in outcomes)),
        "broken": [line for o in outcomes for line in o["broken"]],
    }


def _part(first: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(fuzzed(range(first, first + count), Path(scratch))))  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1] == "--part":
        _part(int(sys.argv[2]), int(sys.argv[3]))
    else:
        numbers = [int(word) for word in sys.argv[1:]]
        print(json.dumps(in_parts(numbers[0], first=sum(numbers[1:])), indent=1))  # noqa: T201
