"""Runs of the bench in processes of one thread, in lanes: on cores, on a device, and beside endless loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from headcount.files import atomic_write
from studies.measure.runs import Row, Run

STARTING = 12.0  # seconds that a process may take beside its budget
LOOPS = 4
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass
class Lane:
    """Runs of one kind: how many at once (of those that ask, cores), where, with which words on the command line."""

    kind: Literal["ask", "busy", "plain"]
    at_once: int
    cores: Sequence[int]
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Going:
    run: Run
    process: subprocess.Popen[bytes]
    made: Path


@dataclass
class Pool:
    """Rows kept in a file, the processes that make more, and when to end (of `time.monotonic`)."""

    kept: Path
    until: float
    folder: Path
    rows: list[Row] = field(default_factory=list)
    going: list[_Going] = field(default_factory=list)
    failed: set[Run] = field(default_factory=set)

    def run(self, lanes: Sequence[Lane], wanted: Sequence[Run]) -> None:
        """Keep every lane full, in the order wanted, until nothing is left that ends in time."""
        loops: list[subprocess.Popen[bytes]] = []
        while time.monotonic() < self.until:
            self.collect()
            todo = [run for run in wanted if self.may_begin(run)]
            for lane in lanes:
                of_lane = [run for run in todo if run.kind == lane.kind]
                if lane.kind == "busy" and bool(of_lane or self.of("busy")) != bool(loops):
                    loops = _ended(loops) if loops else _endless(lane.cores)
                for run in of_lane:
                    if _needs(run) <= lane.at_once - sum(_needs(one.run) for one in self.of(lane.kind)):
                        self.start(run, lane)
            if not self.going:
                break
            time.sleep(0.3)
        _ended(loops)
        self.collect(last=True)

    def of(self, kind: str) -> list[_Going]:
        """What runs now in a lane."""
        return [one for one in self.going if one.run.kind == kind]

    def may_begin(self, run: Run) -> bool:
        """Whether it is neither kept nor running nor failed, and would end in time.

        A plain encoder keeps the head counts that it has when it is ended.
        """
        late = time.monotonic() + 1.05 * (run.budget or 0.0) + STARTING > self.until
        going = [one.run for one in self.going]
        return not (late or self.has(run) or run in self.failed or run in going)

    def has(self, run: Run) -> bool:
        """Whether all rows of a run are kept."""
        return not run.missing(self.rows)

    def start(self, run: Run, lane: Lane) -> None:
        """A process that appends its rows to a file of its own."""
        name = f"{len(list(self.folder.glob('*.jsonl')))}"
        rows_file, before = self.folder / f"{name}.jsonl", self.folder / f"{name}.json"
        rows_file.touch()
        before.write_text(json.dumps([row for row in self.rows if row["set"] == run.set]))
        arguments = ["--one", json.dumps(asdict(run)), "--rows", str(rows_file), "--kept", str(before), *lane.words]
        with rows_file.with_suffix(".log").open("wb") as log:
            command = [sys.executable, "-m", "studies.measure.bench", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | ONE_THREAD)
        os.sched_setaffinity(process.pid, lane.cores)
        self.going.append(_Going(run, process, rows_file))

    def collect(self, last: bool = False) -> None:
        """Keep what ended processes have made, or, at the end, what all have."""
        still = []
        for one in self.going:
            if one.process.poll() is None and not last:
                still.append(one)
                continue
            if one.process.poll() is None:
                _ended([one.process])
            elif one.process.returncode:
                self.failed.add(one.run)
                log = one.made.with_suffix(".log").read_text()[-600:]
                print(f"{one.run.set} ({one.run.form}) failed: {log}", flush=True)
            whole_lines = (line for line in one.made.read_text().splitlines(keepends=True) if line.endswith("\n"))
            self.keep([json.loads(line) for line in whole_lines])
        self.going = still

    def keep(self, rows: Sequence[Row]) -> None:
        """Add rows, say them, and write the file whole."""
        if not rows:
            return
        self.rows += rows
        write_rows(self.kept, self.rows)
        for row in rows:
            print(described(row), flush=True)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """A line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as scratch:
        Path(scratch).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def described(row: Mapping[str, Any]) -> str:
    """A row in a line."""
    if row["form"] == "plain":
        outer = [pair[0] for pair in row["by_split"].values() if pair[0] is not None]
        mean = sum(outer) / max(1, len(outer))
        return f"{row['set']}, plain {row['heads']} x {row['layers']}: {mean:.4g} in {row['seconds']} s"
    times = f"wall {row['wall_seconds']}, CPU {row['cpu_seconds']} s"
    return f"{row['set']} ({row['form']}; {times}): {row['advice'][:160]}"


def _needs(run: Run) -> int:
    return run.workers if run.kind == "ask" else 1


def _endless(cores: Sequence[int]) -> list[subprocess.Popen[bytes]]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    for one in loops:
        os.sched_setaffinity(one.pid, cores)
    return loops


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    for one in processes:
        one.kill()
        one.wait()
    return []
