"""`python -m studies.worst`: train, measure and prove, cell by cell, until the time is up; goes on where it was."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.certificates.worst_case.branching import SearchLimits
from headcount.certificates.worst_case.proofs import prove
from headcount.files import atomic_write
from headcount.kernels.box_program import compile_boxes
from headcount.numerals import now
from studies.worst.cells import REST, SMALL, WHOLE, Plan, StudyBank
from studies.worst.measured_cells import MeasuredCell, Took, checked, measured, proved_columns, sizes_of
from studies.worst.training_banks import TrainedCell, built, trained

Known = dict[str, Any]  # the file: cells by name, checks by name, and what it was made with
PROFILED = ("plain T=2 d=1 D=1 h=1", "plain T=4 d=1 D=2 h=4")
MORE = 25  # times the boxes, for what is open after the first try


@dataclass(frozen=True, eq=False)
class Left:
    """Networks of a cell whose proofs are open, where they stand in its columns, and how they were bounded."""

    part: TrainedCell
    rows: Tensor
    bank: StudyBank


class Run:
    """What is known so far, written after every bank, and the time that is left."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.end = asked, time.perf_counter() + asked.seconds
        self.plan: Plan = SMALL if asked.small else REST if asked.rest else WHOLE
        self.file: Path = asked.out / "worst.json"
        start = asked.start or self.file
        self.known: Known = json.loads(start.read_text()) if start.exists() else {"cells": {}, "checks": {}}
        self.left_open: list[Left] = []
        self.to_check: list[TrainedCell] = []
        asked.out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.end - time.perf_counter()

    def whole(self) -> None:
        """Every bank in order, while there is time; then more boxes for what is open."""
        if self.asked.device.startswith("cuda"):
            start = time.perf_counter()
            compile_boxes([cell.box_shape for bank in self.plan.banks for cell in bank.cells])
            say(f"compiled in {time.perf_counter() - start:.1f} s")
        for number, bank in enumerate(self.plan.banks):
            cells = tuple(cell for cell in bank.cells if cell.first not in self.firsts(cell.name))
            if cells and self.left() > self.asked.reserve:
                self.bank(replace(bank, cells=cells))
                self.write()
                say(f"-- bank {number + 1} of {len(self.plan.banks)}: {self.counted()}; {self.left():.0f} s left")
        for part in self.to_check:
            self.check(part)
        self.more()
        self.write()
        say(self.table())
        say(f"{self.counted()}; {self.left():.0f} s left")

    def firsts(self, name: str) -> list[int]:
        """The first seeds of what is known of a cell."""
        return self.known["cells"].get(name, {}).get("firsts", [])

    def bank(self, bank: StudyBank) -> None:
        """Train the cells and prove each."""
        start = time.perf_counter()
        parts = built(bank) if bank.built else trained(bank, self.asked.device)
        took, members = time.perf_counter() - start, sum(c.members for c in bank.cells)
        say(f"{'built' if bank.built else 'trained'} {members} networks in {took:.1f} s ({parts[0].backend})")
        for part in parts:
            if self.left() < 5:
                return
            seconds = min(self.left() - 5, self.asked.cell_seconds)
            cell = measured(part, self.plan, bank, self.asked.device, seconds)
            self.keep(part, bank, replace(cell, took=cell.took + Took(0, 0, took * part.cell.members / members)))
            if self.asked.profile and part.cell.first == 0 and part.cell.name in PROFILED:
                say(_profiled(part, bank, self.asked.device))
            if part.cell.checked or (self.asked.small and part.cell.first == 0):
                self.to_check.append(part.few(slice(0, self.asked.check)))

    def keep(self, part: TrainedCell, bank: StudyBank, found: MeasuredCell) -> None:
        """Put what was found of a cell behind what is known of it."""
        name, nothing = part.cell.name, {"columns": {}, "took": Took(0, 0).__dict__, "firsts": []}
        cell = self.known["cells"].setdefault(name, {**sizes_of(part, bank.ratio), **nothing})
        before = len(cell["columns"].get("open", []))
        for column, values in found.columns.items():
            cell["columns"].setdefault(column, []).extend(values)
        cell["took"] = (Took(**cell["took"]) + found.took).__dict__
        cell["firsts"] = [*cell["firsts"], part.cell.first]
        if bool(found.open.any()):
            at = found.open.nonzero().flatten().cpu()
            self.left_open.append(Left(part.few(at), at + before, bank))
        say(_line(name, found))

    def more(self) -> None:
        """Many more boxes for every network whose proof is open, the cells with the fewest first."""
        for left in sorted(self.left_open, key=lambda one: len(one.rows)):
            if self.left() < 8:
                return
            net, target = left.part.net.to(self.asked.device), left.part.target.to(self.asked.device)
            budget = SearchLimits(MORE * left.bank.boxes, min(self.left() - 5, 2 * self.asked.cell_seconds))
            proofs = prove(net, target, 0.0, 1.0, ratio=left.bank.ratio, budget=budget)
            cell = self.known["cells"][left.part.cell.name]
            cell["took"] = (Took(**cell["took"]) + Took(0.0, proofs.seconds)).__dict__
            for name, values in proved_columns(proofs).items():
                for row, value in zip(left.rows.tolist(), values, strict=True):
                    cell["columns"][name][row] = value
            closed = int((proofs.open == 0).sum())
            say(f"more boxes, {left.part.cell.name}: {closed} of {len(left.rows)} closed in {proofs.seconds:.1f} s")

    def check(self, part: TrainedCell) -> None:
        """Try a few networks of a cell on many points."""
        if not self.asked.check or self.left() < 20 or part.cell.name in self.known["checks"]:
            return
        checks = checked(part, self.plan, self.asked.device, min(1.0, self.left() / 4))
        kinds = {kind: one.__dict__ for kind, one in checks.items()}
        self.known["checks"][part.cell.name] = {"points": self.plan.checked, **kinds}

    def counted(self) -> str:
        """Networks and how many of them are closed."""
        opens = [o for cell in self.known["cells"].values() for o in cell["columns"]["open"]]
        return f"{sum(o == 0 for o in opens):,} of {len(opens):,} networks closed"

    def table(self) -> str:
        """Closed, open and seconds for every length."""
        rows: dict[tuple[int, int, str], list[float]] = {}
        for cell in self.known["cells"].values():
            row = rows.setdefault((cell["token_dim"], cell["length"], cell["variant"]), [0, 0, 0.0, 0.0])
            opens = cell["columns"]["open"]
            row[0] += sum(o == 0 for o in opens)
            row[1] += sum(o > 0 for o in opens)
            row[2] += cell["took"]["training"]
            row[3] += cell["took"]["proving"]
        lines = [
            f"d={d} T={T} {variant}: {closed:.0f} closed, {left:.0f} open, {closed / max(proving, 1e-9):.0f} a second "
            f"(training {training:.0f} s, proving {proving:.0f} s)"
            for (d, T, variant), (closed, left, training, proving) in sorted(rows.items())
        ]
        return "\n".join(lines)

    def write(self) -> None:
        """All of it, whole or not at all."""
        device = torch.cuda.get_device_name() if self.asked.device.startswith("cuda") else "CPU"
        self.known["about"] = {
            "date": now(),
            "device": device,
            "torch": torch.__version__,
            "command": "python -m studies.worst",
        }
        with atomic_write(self.file) as scratch:
            scratch.write_text(json.dumps(self.known, separators=(",", ":")) + "\n")


def _profiled(part: TrainedCell, bank: StudyBank, device: str) -> str:
    """Where the time of a proof goes: the operators that take most of it."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * device.startswith("cuda")
    net, target = part.net.to(device), part.target.to(device)
    with profile(activities=kinds) as profiler:
        proofs = prove(net, target, 0.0, 1.0, ratio=bank.ratio, budget=SearchLimits(bank.boxes, 5.0))
    order = "self_device_time_total" if device.startswith("cuda") else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=order, row_limit=14, max_name_column_width=44)
    return f"{part.cell.name}: {int(proofs.boxes.sum()):,} boxes in {proofs.seconds:.2f} s, profiled\n{table}"


def _line(name: str, cell: MeasuredCell) -> str:
    columns, took, method = cell.columns, cell.took, "compiled" if cell.compiled else "by products"
    middle = lambda key: sorted(columns[key])[len(columns[key]) // 2]  # noqa: E731
    closed = sum(o == 0 for o in columns["open"])
    numbers = "  ".join(f"{key} {middle(key):.1e}" for key in ("nmse", "rms", "worst_lower", "worst_upper"))
    return (
        f"{name}: {closed}/{len(columns['open'])} closed  {numbers}  boxes {middle('boxes'):,} of "
        f"{sum(columns['boxes']):,} {method}  {took.measuring:.1f} + {took.proving:.1f} s"
    )


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.worst", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=450.0, help="when to stop beginning new work")
    parser.add_argument("--cell-seconds", type=float, default=4.0, help="the most that a cell's proof may take")
    parser.add_argument("--reserve", type=float, default=60.0, help="seconds kept for checks and for what is open")
    parser.add_argument("--check", type=int, default=6, help="networks of a kind and cell tried on many points")
    parser.add_argument("--profile", action="store_true", help="say for two cells where the time of a proof goes")
    parser.add_argument("--small", action="store_true", help="the same in small, for a CPU")
    parser.add_argument("--rest", action="store_true", help="what the whole plan leaves short, in larger parts")
    parser.add_argument("--start", type=Path, help="go on from this file of an earlier run")
    parser.add_argument("--out", type=Path, required=True)
    Run(parser.parse_args()).whole()


if __name__ == "__main__":
    main()
