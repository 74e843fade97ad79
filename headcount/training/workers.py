"""Who works besides this process: other processes of this machine; banks on CUDA have a GPU of their own each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch

from headcount.limits import is_refused_memory
from headcount.refusals import RefusalError
from headcount.training.bank_jobs import BankJob, TrainedBank, train_bank_job
from headcount.training.checkpoints import Terminated, Termination, heeding_termination
from headcount.training.compile_caches import caches_below

PARTING = 30.0  # seconds that a worker has to keep the state of its job when the pool ends
UNGUARDED = 'a worker runs the script that asks for it: put what the script does behind `if __name__ == "__main__":`'

JobT = TypeVar("JobT", bound=Hashable)
DoneT = TypeVar("DoneT")
Begin = Callable[[], Callable[[JobT, Termination], DoneT]]  # called once in the process: what it does with every job


@dataclass(frozen=True)
class Lost:
    """A worker ended before its job was finished; the job may be tried again."""

    why: str


Result = TrainedBank | Lost | Exception


@runtime_checkable
class Workers(Protocol):
    """Who takes jobs and gives results back, in any order. An exception is what the training itself raised."""

    def free(self) -> int: ...
    def submit(self, job: BankJob) -> None: ...
    def finished(self, timeout: float) -> list[tuple[BankJob, Result]]: ...
    def close(self) -> None: ...


@dataclass(eq=False)
class _Seat(Generic[JobT, DoneT]):
    """One place to work: a process that is started when first needed, and again after it died."""

    begin: Begin[JobT, DoneT]
    settings: Mapping[str, str]
    process: BaseProcess | None = None
    line: Connection | None = None
    job: JobT | None = None

    def give(self, job: JobT) -> None:
        fresh = self.process is None or not self.process.is_alive()
        if fresh:
            self._start()
        self.job = job
        assert self.line is not None
        with contextlib.suppress(OSError):  # it died in the meantime: `take` finds its line closed
            if fresh:
                self.line.send((self.begin, self.settings))
            self.line.send(job)

    def _start(self) -> None:
        """A process that is told by its line what to do.

        What `Process` itself hands over it writes to a pipe whose other end it holds: of a process that dies first, as
        in a script without a guard, it would wait for ever.
        """
        context = multiprocessing.get_context("spawn")
        ends: Any = context.Pipe()  # its type depends on the system
        self.line, far = ends
        process = context.Process(target=_serve, args=(far,), daemon=True)
        try:
            process.start()
        except RuntimeError as problem:  # in a worker that runs the script that began it
            raise RefusalError(UNGUARDED) from problem
        self.process = process
        far.close()

    def take(self) -> tuple[JobT, DoneT | Lost | Exception]:
        """What the worker sent; that it is gone, if its line is closed."""
        assert self.line is not None and self.job is not None and self.process is not None
        job, self.job = self.job, None
        try:
            return job, self.line.recv()
        except (EOFError, OSError):
            self.process.join(PARTING)
            code, self.process = self.process.exitcode, None
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return job, Lost(f"its worker ended with {how}")

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
        if self.process is not None and self.job is not None:
            self.process.terminate()

    def join(self, until: float) -> None:
        if self.process is not None:
            self.process.join(max(0.0, until - time.monotonic()))
            self.process.kill()


class ProcessPool(Generic[JobT, DoneT]):
    """A process for each of these settings of its environment; `parting` is the time that each has to end."""

    def __init__(
        self, begin: Begin[JobT, DoneT], settings: Sequence[Mapping[str, str]], parting: float = PARTING
    ) -> None:
        self.seats = [_Seat(begin, own) for own in settings]
        self.parting = parting

    def free(self) -> int:
        """How many more jobs would begin at once."""
        return sum(seat.job is None for seat in self.seats)

    def submit(self, job: JobT) -> None:
        """Give the job to a free worker."""
        next(seat for seat in self.seats if seat.job is None).give(job)

    def finished(self, timeout: float) -> list[tuple[JobT, DoneT | Lost | Exception]]:
        """The results that are there, after waiting for the first of them no longer than `timeout`."""
        busy = {seat.line: seat for seat in self.seats if seat.job is not None and seat.line is not None}
        if not busy:
            time.sleep(timeout)
        return [busy[line].take() for line in wait(list(busy), timeout) if isinstance(line, Connection)]

    def in_order(self, jobs: Sequence[JobT]) -> Iterator[DoneT]:
        """The results of different jobs in their order; what went wrong with one is raised in its place."""
        left = list(jobs)
        results: dict[JobT, DoneT | Lost | Exception] = {}
        for job in jobs:
            while job not in results:
                while left and self.free():
                    self.submit(left.pop(0))
                results |= self.finished(PARTING)
            result = results.pop(job)
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Lost):
                raise RefusalError(f"{result.why}; all that was finished is kept, run the same command to try again")
            yield result

    def close(self) -> None:
        """End all workers; who is at work keeps its state first, where its job does and there is time."""
        for seat in self.seats:
            seat.close()
        until = time.monotonic() + self.parting
        for seat in self.seats:
            seat.join(until)


class LocalWorkers(ProcessPool[BankJob, TrainedBank]):
    """So many processes on this machine; with `device="cuda"`, one for each of as many GPUs."""

    def __init__(self, count: int, device: str = "cpu") -> None:
        if count < 1:
            raise RefusalError(f"workers must be at least 1, got {count}")
        gpus: list[dict[str, str]] = [{}] * count
        if torch.device(device).type == "cuda":
            names = gpu_names(count, torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES"))
            gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        self.compiled = TemporaryDirectory(prefix="headcount-compiled-", ignore_cleanup_errors=True)
        folder = Path(self.compiled.name)
        super().__init__(_bank_trainer, [gpu | caches_below(folder / str(n)) for n, gpu in enumerate(gpus)])

    def close(self) -> None:
        """End all workers; who is training keeps its state first, where there is a checkpoint."""
        super().close()
        self.compiled.cleanup()


def _bank_trainer() -> Callable[[BankJob, Termination], TrainedBank]:
    return lambda job, termination: train_bank_job(job, termination=termination)


def gpu_names(count: int, there: int, visible: str | None) -> list[str]:
    """The GPUs of so many workers, one each, as CUDA_VISIBLE_DEVICES takes them: `there` are, `visible` names them.

    >>> gpu_names(2, 8, None), gpu_names(2, 3, "5,6,7"), gpu_names(1, 2, "GPU-8f2a,GPU-11bc")
    (['0', '1'], ['5', '6'], ['GPU-8f2a'])
    >>> gpu_names(9, 8, None)
    Traceback (most recent call last):
    ...
    headcount.refusals.RefusalError: 9 workers were asked for, one per GPU, and this machine has 8
    """
    if count > there:
        raise RefusalError(f"{count} workers were asked for, one per GPU, and this machine has {there}")
    names = [name.strip() for name in visible.split(",")] if visible else [str(number) for number in range(there)]
    return names[:count]


def _serve(line: Connection) -> None:
    """Do job after job until the line is closed. Ctrl-C is the driver's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    with heeding_termination() as termination, contextlib.suppress(EOFError, OSError, Terminated):
        begin, settings = line.recv()
        os.environ.update(settings)  # before the first look at a device
        work = begin()
        while True:
            job = line.recv()
            try:
                result = work(job, termination)
            except Exception as problem:
                result = _sendable(problem)
            line.send(result)


def _end_with_the_driver() -> None:
    """Ask this worker to end when its driver has died: nobody is left to take what it trains."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _sendable(problem: Exception) -> Exception:
    """The error without what holds it here: another process makes it again from its words."""
    if is_refused_memory(problem):
        return MemoryError(str(problem))
    return RefusalError(str(problem)) if isinstance(problem, ValueError) else RuntimeError(f"{problem!r} in a worker")
