"""Workers on a Ray cluster: a task per bank, as many at once as the cluster has processors or GPUs (extra `ray`)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import torch

from headcount.refusals import RefusalError
from headcount.training.bank_jobs import BankJob, TrainedBank, train_bank_job
from headcount.training.compile_caches import private_caches
from headcount.training.workers import Lost, Result

__all__ = ["RayWorkers", "loaded_ray", "refuse_no_cluster"]

ANSWER = 10.0  # seconds in which whoever listens at an address takes a connection
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
        said = (getattr(problem, "strerror", None) or str(problem)).lower()
        raise RefusalError(f"no Ray cluster at {address!r}: {said}; `ray start` begins one") from None


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
        self.kind = "GPU" if torch.device(device).type == "cuda" else "CPU"
        self.needs = 1 if self.kind == "GPU" else max(1, threads)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
        except (ConnectionError, RuntimeError, ValueError) as problem:
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
        return int(self.ray.cluster_resources().get(self.kind, 0) // self.needs)

    def free(self) -> int:
        """How many more jobs would begin at once."""
        return self.places - len(self.away)

    def submit(self, job: BankJob) -> None:
        """Hand the job to the cluster."""
        self.away[self.train.remote(job)] = job

    def finished(self, timeout: float) -> list[tuple[BankJob, Result]]:
        """The results that are there, after waiting for the first of them no longer than `timeout`."""
        ready, _ = self.ray.wait(list(self.away), timeout=timeout) if self.away else ([], [])
        return [(self.away.pop(one), self._result(one)) for one in ready]

    def _result(self, one: Any) -> Result:
        try:
            return self.ray.get(one)
        except self.ray.exceptions.RayTaskError as problem:
            cause = getattr(problem, "cause", None)
            return cause if isinstance(cause, Exception) else RuntimeError(str(problem))
        except self.ray.exceptions.RayError as problem:
            return Lost(f"{type(problem).__name__}: {_first_line(problem)}")

    def close(self) -> None:
        """Give up what is under way and leave the cluster."""
        for one in self.away:
            self.ray.cancel(one, force=True)
        self.ray.shutdown()
