"""Workers on a Ray cluster: a task per bank, as many at once as the cluster has processors or GPUs (extra `ray`)."""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headcount.refusals import RefusalError
from headcount.training.bank_jobs import BankJob, TrainedBank, train_bank_job
from headcount.training.compile_caches import private_caches
from headcount.training.workers import Lost, Result

ANSWER = 10.0  # seconds in which whoever listens at an address takes a connection
LOOKING = 2.0  # seconds between two looks at the head of the cluster
GONE = 20.0  # seconds without an answer from which on it counts as lost; after 60 Ray would end this process itself
# What Ray reads as it is loaded: tries, of 40 s each, where somebody else than Ray listens, and what it tells of them.
PATIENCE = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_BACKEND_LOG_LEVEL": "error"}


def loaded_ray() -> Any:
    """The library, told to be less patient and to say less, unless the environment says otherwise."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    import ray  # pyright: ignore[reportMissingImports]

    return ray


def refuse_no_cluster(address: str | None) -> None:
    """Refuse an address at which nobody listens: Ray itself tries for more than ten minutes.

    >>> refuse_no_cluster("somewhere")
    Traceback (most recent call last):
    ...
    headcount.refusals.RefusalError: the address of a Ray cluster is host:port or auto, got 'somewhere'
    """
    if address in (None, "auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16):
        raise RefusalError(f"the address of a Ray cluster is host:port or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except (OSError, UnicodeError) as problem:
        reason = (getattr(problem, "strerror", None) or str(problem)).lower()
        raise RefusalError(f"no Ray cluster at {address!r}: {reason}; `ray start` begins one") from None


@contextlib.contextmanager
def addresses_as_given(ray: Any, address: str | None) -> Iterator[None]:
    """Let a loopback address stay one while a cluster is joined: Ray would take the machine's outer one instead."""
    services: Any = getattr(getattr(ray, "_private", None), "services", None)
    before = getattr(services, "resolve_ip_for_localhost", None)
    if before is None or not _is_loopback((address or "").rpartition(":")[0]):
        yield
        return
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = before


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class LogAside:
    """What libraries in C++ write on stderr goes into a file, while Python's own stderr stays where it is."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="headcount-ray-", suffix=".log")
        self.path, self.before = Path(name), None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if sys.stderr.fileno() == 2:
                sys.stderr.flush()
                self.before = (os.dup(2), sys.stderr)
                sys.stderr = os.fdopen(self.before[0], "w", buffering=1, encoding="utf-8", errors="backslashreplace")
                os.dup2(handle, 2)
        os.close(handle)

    def close(self) -> None:
        """Put stderr back; an empty file is removed."""
        if self.before is not None:
            sys.stderr.flush()
            os.dup2(self.before[0], 2)
            ours, sys.stderr, self.before = sys.stderr, self.before[1], None
            ours.close()
        if self.path.exists() and not self.path.stat().st_size:
            self.path.unlink()


class HeadWatch:
    """Looks at the head of a cluster now and then: a minute after its end Ray itself would end this process."""

    def __init__(self, address: str) -> None:
        self.address, self.answered, self.closed = address, time.monotonic(), threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    @property
    def gone(self) -> bool:
        """Whether the head has not answered for long."""
        return time.monotonic() - self.answered > GONE

    def _look(self) -> None:
        host, _, port = self.address.rpartition(":")
        while not self.closed.wait(LOOKING):
            with contextlib.suppress(OSError, ValueError):
                socket.create_connection((host.strip("[]"), int(port)), timeout=LOOKING).close()
                self.answered = time.monotonic()


def _train(job: BankJob) -> TrainedBank:
    """Train on a node of the cluster, with compile caches of the process's own."""
    private_caches()
    return train_bank_job(job)


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0][:200]


class RayWorkers:
    """The cluster at `address` ("auto": the one that this machine belongs to), or one made here for the time being.

    Every node needs this package in the same version. A task is never tried again by Ray itself: the driver counts.
    """

    def __init__(self, address: str | None = None, device: str = "cpu", threads: int = 1) -> None:
        ray = loaded_ray()
        refuse_no_cluster(address)
        self.ray: Any = ray
        self.address, self.log, self.watch = address, LogAside(), None
        self.kind = "GPU" if torch.device(device).type == "cuda" else "CPU"
        self.needs = 1 if self.kind == "GPU" else max(1, threads)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
        try:
            with addresses_as_given(ray, address):
                ray.init(address=address, **quiet)
            if head := _head_of(ray):
                self.watch = HeadWatch(head)
        except (ConnectionError, RuntimeError, ValueError) as problem:
            self.log.close()
            raise RefusalError(f"no Ray cluster at {address!r}: {_first_line(problem)}") from None
        gpus = 1 if self.kind == "GPU" else 0
        self.train = ray.remote(num_cpus=max(1, threads), num_gpus=gpus, max_retries=0)(_train)
        self.away: dict[Any, BankJob] = {}
        if self.places < 1:
            self.close()
            raise RefusalError(f"the Ray cluster has no {self.kind} for a bank, which needs {self.needs}")

    @property
    def places(self) -> int:
        """How many banks the cluster trains at once, as it is now."""
        return int(self._asked(self.ray.cluster_resources).get(self.kind, 0) // self.needs)

    def free(self) -> int:
        """How many more jobs would begin at once."""
        return self.places - len(self.away)

    def submit(self, job: BankJob) -> None:
        """Hand the job to the cluster."""
        self.away[self.train.remote(job)] = job

    def finished(self, timeout: float) -> list[tuple[BankJob, Result]]:
        """The results that are there, after waiting for the first of them no longer than `timeout`."""
        wait = partial(self.ray.wait, list(self.away), timeout=timeout)
        ready, _ = self._asked(wait) if self.away else ([], [])
        return [(self.away.pop(one), self._result(one)) for one in ready]

    def _result(self, one: Any) -> Result:
        try:
            return self._asked(partial(self.ray.get, one))
        except self.ray.exceptions.RayTaskError as problem:
            cause = getattr(problem, "cause", None)
            if isinstance(cause, self.ray.exceptions.RayError):
                errors = [line for line in str(cause).splitlines() if "Error" in line]
                reason = (errors or [type(cause).__name__])[-1].strip()[:200]
                return RefusalError(f"a node cannot take a bank ({reason}); every node needs headcount in this version")
            return cause if isinstance(cause, Exception) else RuntimeError(str(problem))
        except self.ray.exceptions.RayError as problem:
            return Lost(f"{type(problem).__name__}: {_first_line(problem)}")

    def _asked(self, question: Callable[[], Any]) -> Any:
        """What Ray answers; asked by another thread, since with its head gone Ray answers nothing for a minute."""
        answer: list[Any] = []

        def call() -> None:
            try:
                answer.append((question(), None))
            except BaseException as problem:
                answer.append((None, problem))

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        while not answer:
            thread.join(LOOKING / 4)
            if not answer:
                self._refuse_gone()
        value, problem = answer[0]
        if problem is not None:
            raise problem
        return value

    def _refuse_gone(self) -> None:
        if self.watch is not None and self.watch.gone:
            where = f" at {self.address!r}" if self.address else ""
            raise RefusalError(
                f"the head of the Ray cluster{where} is gone; every finished bank is kept, and the same command "
                f"goes on when there is a cluster again (Ray's own words: {self.log.path})"
            )

    def close(self) -> None:
        """Give up what is under way and leave the cluster; one whose head is gone is not waited for."""
        gone = self.watch is not None and time.monotonic() - self.watch.answered > 2 * LOOKING + 1
        if self.watch is not None:
            self.watch.closed.set()
        if gone:
            atexit.unregister(self.ray.shutdown)
            atexit.register(_end_now)  # Ray's threads wait for the head, and would end this process in their own way
            return
        for one in self.away:
            self.ray.cancel(one, force=True)
        self.ray.shutdown()
        self.log.close()


def _head_of(ray: Any) -> str:
    """Where the head listens; nothing where Ray does not say."""
    try:
        return str(ray.get_runtime_context().gcs_address or "")
    except Exception:  # a client, or another version of Ray
        return ""


def _end_now() -> None:
    """End without Ray's clean-up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(2)
