"""Share the banks of a sweep among workers, or train them here: one process writes, a lost bank is tried again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headcount.refusals import RefusalError
from headcount.results import Store
from headcount.results.leases import Leases
from headcount.training.bank_jobs import BankJob, TrainedBank, train_bank_job
from headcount.training.checkpoints import Terminated, Termination
from headcount.training.leased_banks import LeasedBank
from headcount.training.member import Member
from headcount.training.progress import Progress
from headcount.training.workers import Lost, Result, Workers

POLL = 0.2  # seconds between two looks at workers and at banks of other processes
RETRIES = 2  # how often a bank is tried again whose worker was lost

Keep = Callable[[Sequence[Member], TrainedBank], None]


@dataclass(eq=False)
class ThisProcess:
    """The worker that a sweep without others is: it trains one bank, when its result is waited for."""

    progress: Progress
    termination: Termination
    job: BankJob | None = None

    def free(self) -> int:
        """Whether it has nothing to do."""
        return int(self.job is None)

    def submit(self, job: BankJob) -> None:
        """Take the job."""
        self.job = job

    def finished(self, timeout: float) -> list[tuple[BankJob, Result]]:
        """The result of its job; without one it waits."""
        if self.job is None:
            time.sleep(timeout)
            return []
        job, self.job = self.job, None
        return [(job, train_bank_job(job, self.progress, self.termination))]

    def close(self) -> None:
        """Nothing is under way when nobody waits."""


@dataclass(eq=False)
class SharedBanks:
    """The banks of a sweep that are left, those that workers have, and those that were lost too often."""

    store: Store
    job: BankJob
    keep: Keep
    leases: Leases
    progress: Progress
    left: list[LeasedBank]
    away: dict[tuple[Member, ...], LeasedBank] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    given_up: list[str] = field(default_factory=list)

    def train(self, workers: Workers, termination: Termination) -> None:
        """Train all that is left in its order, and close the workers whatever happens."""
        try:
            while self.left or self.away:
                if termination.came:
                    raise Terminated
                self._hand_out(workers)
                if not self.away:
                    for line in self.leases.news():
                        self.progress.note(line)
                for job, result in workers.finished(POLL):
                    self._settle(self.away.pop(job.members), job, result)
        finally:
            workers.close()
        if self.given_up:
            raise RefusalError(f"{self.given_up[0]}; all other rows are kept, run the same command to try again")

    def _hand_out(self, workers: Workers) -> None:
        """Give banks that nobody else has locked to the workers that are free."""
        for bank in list(self.left):
            if workers.free() < 1:
                return
            if self.leases.take(bank.address):
                self.left.remove(bank)
                self._submit(bank, workers)

    def _submit(self, bank: LeasedBank, workers: Workers) -> None:
        missing = set(self.store.missing(bank.runs))  # another process may have brought them
        if not missing:
            self._done(bank)
            return
        members = bank.to_train(missing, self.store.trained_in(bank.runs))
        job = replace(self.job, members=tuple(members))
        self.away[job.members] = bank
        workers.submit(job)

    def _settle(self, bank: LeasedBank, job: BankJob, result: Result) -> None:
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Lost):
            self._lost(bank, result)
            return
        if not self.leases.holds(bank.address):
            new = self.leases.holder(bank.address)
            self.progress.note(f"{bank} was taken over by {new} while this process stood still")
            self.leases.give_back(bank.address)
            self.left.append(bank)
            return
        self.keep(job.members, result)
        for note in result.notes:
            self.progress.note(note)
        self._done(bank)

    def _lost(self, bank: LeasedBank, lost: Lost) -> None:
        self.leases.give_back(bank.address)
        self.losses[bank.address] += 1
        times = self.losses[bank.address]
        if times > RETRIES:
            self.given_up.append(f"{bank} was lost {times} times, the last because {lost.why}")
            return
        self.progress.note(f"{bank} was lost: {lost.why}; it is tried again")
        self.left.append(bank)

    def _done(self, bank: LeasedBank) -> None:
        self.leases.give_back(bank.address)
        self.progress.bank_done(len(bank.members))
