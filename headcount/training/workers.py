"""Who trains banks besides this process: other processes of this machine, on CUDA each with a GPU of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import torch

from headcount.limits import is_refused_memory
from headcount.refusals import RefusalError
from headcount.training.bank_jobs import BankJob, TrainedBank, train_bank_job
from headcount.training.checkpoints import Terminated, heeding_termination
from headcount.training.compile_caches import use_caches

__all__ = ["LocalWorkers", "Lost", "Result", "Workers", "gpu_names"]

PARTING = 30.0  # seconds that a worker has to keep the state of its bank when the sweep ends


@dataclass(frozen=True)
class Lost:
    """A worker ended before its bank was finished; the bank may be tried again."""

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
class _Seat:
    """One place to work: a process that is started when first needed, and again after it died."""

    gpu: str | None
    caches: Path
    process: BaseProcess | None = None
    line: Connection | None = None
    job: BankJob | None = None

    def give(self, job: BankJob) -> None:
        if self.process is None or not self.process.is_alive():
            context = multiprocessing.get_context("spawn")
            ends: Any = context.Pipe()  # its type depends on the system
            self.line, far = ends
            self.process = context.Process(target=_serve, args=(far, self.gpu, self.caches), daemon=True)
            self.process.start()
            far.close()
        self.job = job
        assert self.line is not None
        with contextlib.suppress(OSError):  # it died in the meantime: `take` finds its line closed
            self.line.send(job)

    def take(self) -> tuple[BankJob, Result]:
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


class LocalWorkers:
    """So many processes on this machine; with `device="cuda"`, one for each of as many GPUs."""

    def __init__(self, count: int, device: str = "cpu") -> None:
        if count < 1:
            raise RefusalError(f"workers must be at least 1, got {count}")
        gpus: Sequence[str | None] = [None] * count
        if torch.device(device).type == "cuda":
            gpus = gpu_names(count, torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.compiled = TemporaryDirectory(prefix="headcount-compiled-", ignore_cleanup_errors=True)
        self.seats = [_Seat(gpu, Path(self.compiled.name, str(number))) for number, gpu in enumerate(gpus)]

    def free(self) -> int:
        """How many more jobs would begin at once."""
        return sum(seat.job is None for seat in self.seats)

    def submit(self, job: BankJob) -> None:
        """Give the job to a free worker."""
        next(seat for seat in self.seats if seat.job is None).give(job)

    def finished(self, timeout: float) -> list[tuple[BankJob, Result]]:
        """The results that are there, after waiting for the first of them no longer than `timeout`."""
        busy = {seat.line: seat for seat in self.seats if seat.job is not None and seat.line is not None}
        if not busy:
            time.sleep(timeout)
        return [busy[line].take() for line in wait(list(busy), timeout) if isinstance(line, Connection)]

    def close(self) -> None:
        """End all workers; who is training keeps its state first, where there is a checkpoint."""
        for seat in self.seats:
            seat.close()
        until = time.monotonic() + PARTING
        for seat in self.seats:
            seat.join(until)
        self.compiled.cleanup()


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


def _serve(line: Connection, gpu: str | None, caches: Path) -> None:
    """Train job after job until the line is closed. Ctrl-C is the driver's business."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before the first look at a device
    use_caches(caches)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    with heeding_termination() as termination, contextlib.suppress(EOFError, OSError, Terminated):
        while True:
            job = line.recv()
            try:
                result: Result = train_bank_job(job, termination=termination)
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
