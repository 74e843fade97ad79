"""`python -m studies.worst`: train, measure and prove, cell by cell, until the time is up; goes on where it was."""

from __future__ import annotations

import argparse
import datetime
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headcount.files import whole
from studies.worst.cells import SMALL, WHOLE, Plan, StudyBank
from studies.worst.measured_cells import checked, measured
from studies.worst.training_banks import trained


class Run:
    """What is known so far, written after every cell, and the time that is left."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.end = asked, time.perf_counter() + asked.seconds
        self.plan: Plan = SMALL if asked.small else WHOLE
        self.file: Path = asked.out / "worst.json"
        start = asked.start or self.file
        self.known: dict[str, Any] = json.loads(start.read_text()) if start.exists() else {"cells": {}, "checks": {}}
        self.known["cells"] = {name: cell for name, cell in self.known["cells"].items() if settled(cell)}
        asked.out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.end - time.perf_counter()

    def whole(self) -> None:
        """Every bank in order, while there is time."""
        for bank in self.plan.banks:
            cells = tuple(cell for cell in bank.cells if cell.name not in self.known["cells"])
            if cells and self.left() > 20:
                self.bank(replace(bank, cells=cells))
        self.write()
        closed = sum(o == 0 for cell in self.known["cells"].values() for o in cell["columns"]["open"])
        say(f"{closed} networks closed; {len(self.known['cells'])} cells; {self.left():.0f} s left")

    def bank(self, bank: StudyBank) -> None:
        """Train the cells and prove each."""
        start = time.perf_counter()
        parts = trained(bank, self.asked.device)
        took = time.perf_counter() - start
        say(
            f"trained {sum(c.members for c in bank.cells)} networks in {took:.1f} s ({parts[0].rows[0].get('backend')})"
        )
        share = took / sum(c.members for c in bank.cells)
        for part in parts:
            if self.left() < 5:
                return
            seconds = min(self.left() - 5, self.asked.cell_seconds)
            found = measured(part, self.plan, bank, self.asked.device, seconds)
            found["took"]["training"] = share * part.cell.members
            self.known["cells"][part.cell.name] = found
            self.write()
            say(_line(part.cell.name, found))
            if part.cell.checked or self.asked.small:
                self.check(part)

    def check(self, part: Any) -> None:
        """Try a few networks of a cell on many points."""
        few = self.asked.check
        if not few or self.left() < 20 or part.cell.name in self.known["checks"]:
            return
        part.net, part.target = part.net.of(slice(0, few)), part.target.of(slice(0, few))
        self.known["checks"][part.cell.name] = checked(part, self.plan, self.asked.device, min(2.0, self.left() / 4))
        self.write()

    def write(self) -> None:
        """All of it, whole or not at all."""
        device = torch.cuda.get_device_name() if self.asked.device.startswith("cuda") else "CPU"
        self.known["about"] = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "device": device,
            "torch": torch.__version__,
            "command": "python -m studies.worst",
        }
        with whole(self.file) as scratch:
            scratch.write_text(json.dumps(self.known, separators=(",", ":")) + "\n")


def settled(cell: dict[str, Any]) -> bool:
    """Whether nearly all proofs of a cell closed; one that ran out of time is made again."""
    left = cell["columns"]["open"]
    return sum(o > 0 for o in left) <= 0.1 * len(left)


def _line(name: str, found: dict[str, Any]) -> str:
    columns, took = found["columns"], found["took"]
    middle = lambda key: sorted(columns[key])[len(columns[key]) // 2]  # noqa: E731
    closed = sum(o == 0 for o in columns["open"])
    numbers = "  ".join(
        f"{key} {middle(key):.2e}" for key in ("nmse", "rms", "sampled", "attacked", "worst_lower", "worst_upper")
    )
    return (
        f"{name}: {closed}/{len(columns['open'])} closed  {numbers}  boxes {middle('boxes'):,}"
        f"  {took['measuring']:.1f} + {took['proving']:.1f} s"
    )


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(prog="python -m studies.worst", description=__doc__)
    ask.add_argument("--device", default="cpu")
    ask.add_argument("--seconds", type=float, default=450.0, help="when to stop beginning new work")
    ask.add_argument("--cell-seconds", type=float, default=8.0, help="the most that a cell's proof may take")
    ask.add_argument("--check", type=int, default=6, help="networks of a kind and cell tried on many points")
    ask.add_argument("--small", action="store_true", help="the same in small, for a CPU")
    ask.add_argument("--start", type=Path, help="go on from this file of an earlier run")
    ask.add_argument("--out", type=Path, required=True)
    Run(ask.parse_args()).whole()


if __name__ == "__main__":
    main()
