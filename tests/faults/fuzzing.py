"""Random specs, arguments, files and folders at every command; `tests.faults.fuzz_blocks` runs many of them.

Every case runs in a process of its own, which is forked from one that has loaded everything and done nothing: no case
can meet what another left behind, and one that dies is known by its number. Its folder, its outputs and its memory are
its own; what runs in it is `headcount.__main__`, as a user's command. A case that takes longer than `PATIENCE` seconds
of processor, three of ten after a random share of it, is interrupted as by Ctrl-C and must end with 130 at once.
Sweeps that can be trained are interrupted or killed at random moments, on stores that others left; every sweep that
begins is run to its end and compared with one on a fresh store.

A case that breaks is run once more alone, by `python -m headcount` in a process that nobody forked. It is `broken` when
it breaks there too, and else `broken_in_company`, with what it said. The checks of shapes and types that the test run
makes are not on: what runs is what a user runs.
"""

import collections
import contextlib
import faulthandler
import math
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is asked of nobody
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as the command itself sets it, before torch is loaded
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a process that is forked cannot use one, and what is tried is no kernel
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would begin as it is loaded, and a fork has none of them


from headcount.__main__ import main
from tests.faults.fuzz_cases import KINDS, Case, case_of
from tests.faults.fuzz_sweeps import Strike, Struck, after_a_strike, is_exact, strike_of

__all__ = ["GRACE", "HERE", "IDLE", "KINDS", "MEMORY", "Outcomes", "forked", "fuzzed", "left_alone", "typed_words"]

PATIENCE = 1.0  # seconds of processor until a case is interrupted
IDLE, GRACE = 15.0, 60.0  # seconds by the clock until the same, and from then on until it counts as stuck
MEMORY = 4 * 2**30  # bytes that a case may add to what the process has at its beginning
ALLOWED = (0, 2, 130)
ALONE = 20.0  # seconds of processor for a case that is run alone and has to load everything first
LEFT_ALONE = Strike(20.0)  # a sweep that is to be compared is interrupted no sooner, however busy the machine
UNHURRIED = 300.0  # seconds by the clock for such a sweep
HERE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ending:
    """How a case ended: its exit code (below zero a signal), what it wrote to stderr, and what it cost."""

    code: int | str
    said: str
    seconds: float
    processor: float
    peak_mb: int

    @property
    def allowed(self) -> bool:
        """Whether it ended as it should: 0, 2 or 130, three lines at most, no traceback."""
        return self.code in ALLOWED and self.said.count("\n") <= 3 and "Traceback" not in self.said


@dataclass
class Outcomes:
    """How the cases ended: counts by kind and exit code, the dearest, and those that broke."""

    counts: dict[str, collections.Counter[str]] = field(
        default_factory=lambda: {kind: collections.Counter() for kind in KINDS}
    )
    threads: int = 1  # of the process that is forked; where a library began some, a case may break in company alone
    slowest_s: float = 0.0
    peak_mb: int = 0
    processor_s: float = 0.0
    succeeded: int = 0  # sweeps that said so, all of which are compared, and those among them that were interrupted
    compared: int = 0
    exactly: int = 0
    unfinished: list[str] = field(default_factory=list)
    differing: list[dict[str, Any]] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    broken_in_company: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, ending: Ending) -> None:
        """Count a case."""
        self.counts[kind][str(ending.code)] += 1
        self.slowest_s = round(max(self.slowest_s, ending.seconds), 1)
        self.peak_mb = max(self.peak_mb, ending.peak_mb)
        self.processor_s += ending.processor

    def compare(self, number: int, case: Case, struck: Struck, succeeded: bool) -> None:
        """Count a sweep that was run to its end; one whose rows are others' than a fresh one's is told."""
        self.succeeded += succeeded
        self.compared += struck.same is not None
        self.exactly += struck.same is not None and struck.exactly
        self.unfinished += [f"{number}: {struck.said[-200:].strip()}"] if struck.same is None else []
        if struck.same is False or (succeeded and struck.same is None) or not set(struck.codes) <= set(ALLOWED):
            self.differing.append({"number": number, "kind": case.kind, "words": list(case.words), **asdict(struck)})


def fuzzed(numbers: range, pool: dict[str, Path], folder: Path, seconds: float = math.inf) -> Outcomes:
    """How the cases of these numbers ended; none is begun after so many seconds."""
    outcomes, until = Outcomes(threads=threads()), time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > until:
            break
        with _laid_out(number, pool, folder) as case:
            strike = strike_of(number) if case.kind == "sweeps" else Strike(_patience(number))
            exactly = _is_sweep(case) and is_exact(case.words)
            ending = forked(lambda strike=strike, case=case: typed_words(case.words, strike), folder)
            killed = signal.SIGKILL in strike.signals and ending.code == -signal.SIGKILL
            if _is_sweep(case) and (killed or ending.code in (0, 130)):
                alone, succeeded = partial(left_alone, outcomes, folder), ending.code == 0
                struck = after_a_strike(case.words, alone, exactly=exactly, succeeded=succeeded)
                outcomes.compare(number, case, struck, succeeded)
        if not ending.allowed and not killed:
            found = {"number": number, "kind": case.kind, "words": list(case.words), **asdict(ending)}
            with _laid_out(number, pool, folder) as case:
                again = _alone(case.words, folder)
            if again.allowed:
                outcomes.broken_in_company.append(found)
                ending = again
            else:
                outcomes.broken.append({**found, "alone": asdict(again)})
        outcomes.add(case.kind, ending)
    return outcomes


def _is_sweep(case: Case) -> bool:
    """Whether rows of its own can be asked for: a spec in the case's folder that is to be trained."""
    words = case.words
    return words[0] == "sweep" and len(words) > 1 and Path(words[1]).suffix == ".toml" and Path(words[1]).is_file()


def left_alone(outcomes: Outcomes, folder: Path, words: tuple[str, ...]) -> tuple[int | str, str]:
    """Exit code and stderr of a command that nobody interrupts."""
    ending = forked(lambda: typed_words(words, LEFT_ALONE), folder, UNHURRIED)
    outcomes.processor_s += ending.processor
    return ending.code, ending.said


def threads() -> int:
    """How many threads this process has."""
    return len(list(Path("/proc/self/task").iterdir()))


@contextlib.contextmanager
def _laid_out(number: int, pool: dict[str, Path], folder: Path) -> Iterator[Case]:
    """The case of this number, while its files are laid out in the folder one stands in."""
    where = folder / "case" / "here"  # `..` is the case's own, too
    where.mkdir(parents=True)
    (folder / "scratch").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "scratch")
    os.chdir(where)
    try:
        yield case_of(number, pool, where)
    finally:
        os.chdir(folder)
        shutil.rmtree(where.parent)
        shutil.rmtree(folder / "scratch")


# A process of its own ------------------------------------------------------------------------------------------------


def forked(work: Callable[[], NoReturn], folder: Path, longest: float | None = None) -> Ending:
    """How a forked process ends that does `work`."""
    with (folder / "out").open("wb") as out, (folder / "err").open("w+b") as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGHUP):  # nohup and a script's background have some ignored
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                faulthandler.disable()  # pytest's, which would tell the terminal of an end that the case itself reports
                for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out.fileno()), (2, err.fileno())):
                    os.dup2(source, target)
                work()
            finally:
                os._exit(99)
        status, usage = _awaited(child, (longest or IDLE) + GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that it started and did not end
        err.seek(0)
        said = err.read(20_000).decode("utf-8", "replace")
    code = "stuck" if status is None else os.waitstatus_to_exitcode(status)
    spent = usage.ru_utime + usage.ru_stime
    return Ending(code, said + _kept_traceback(said), time.monotonic() - began, spent, usage.ru_maxrss // 1024)


def _awaited(child: int, seconds: float) -> tuple[int | None, resource.struct_rusage]:
    """The status with which a child ended, None if it had to be killed, and what it used."""
    descriptor = os.pidfd_open(child)
    try:
        in_time = bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
    if not in_time:
        os.kill(child, signal.SIGABRT)  # `faulthandler` says where it is stuck
        time.sleep(1)
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return (status if in_time else None), usage


def _patience(number: int) -> float:
    """Seconds of processor until a case is interrupted: in three of ten a random moment, most likely an early one."""
    rng = random.Random(f"patience of {number}")
    return PATIENCE * 10 ** rng.uniform(-2.4, 0) if rng.random() < 0.3 else PATIENCE


def typed_words(words: tuple[str, ...], strike: Strike) -> NoReturn:
    """What `headcount WORDS` does from here on, ending the process; all but the interpreter's own leave-taking."""
    faulthandler.enable()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _limit_memory(pages * resource.getpagesize() + MEMORY)
    _strike_after(strike)
    sys.argv = ["headcount", *words]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _strike_after(strike: Strike) -> None:
    def late(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        first, *more = strike.signals
        for one in more:  # soon after the first, wherever that has led
            command = f"sleep {strike.apart:.4f}; kill -{int(one)} {os.getpid()}"
            os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ)
        os.kill(os.getpid(), first)

    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, strike.seconds)
    signal.setitimer(signal.ITIMER_REAL, UNHURRIED if strike is LEFT_ALONE else IDLE)


def _alone(words: tuple[str, ...], folder: Path) -> Ending:
    """How the case ends in a process that nobody forked, with as much memory and time and what loading takes."""

    def work() -> NoReturn:
        _limit_memory(MEMORY + 2 * 2**30)
        resource.setrlimit(resource.RLIMIT_CPU, (int(ALONE), int(ALONE + GRACE)))
        os.environ["PYTHONPATH"] = str(HERE)
        os.execv(sys.executable, [sys.executable, "-X", "faulthandler", "-c", _INTERRUPTED, *words])

    return forked(work, folder)


_INTERRUPTED = """
import os, signal
signal.signal(signal.SIGXCPU, lambda number, frame: os.kill(os.getpid(), signal.SIGINT))
from headcount.__main__ import main
main()
"""


def _kept_traceback(said: str) -> str:
    if "the traceback is in " not in said:
        return ""
    file = Path(said.rsplit("the traceback is in ", 1)[1].strip())
    return file.read_text(errors="replace") if file.is_file() else ""
