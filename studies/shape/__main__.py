"""Prepare the text, train the grid and what settles its first two: see the package's first lines."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from headcount.files import text_in
from headcount.sizing.model_shape import ModelShape
from headcount.sizing.paired_difference import best_rates, paired_differences, pooled_deviation
from headcount.sizing.paired_trial import PairedTrial, TrialRows, run
from headcount.sizing.power import promised_width, seeds_for
from headcount.sizing.windows import TokenWindows
from studies.shape.grid import BASE, shapes
from studies.stored import DATA

BRACKET = (7.5e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2)
ROUGH, SEEDS, FRESH = (50, 51), (0, 1, 2, 3, 4), 100  # seeds of the bracket and the grid; the first that settles
WANTED = 0.25  # percent of loss that the last experiment must be able to see
LEAST_SEEDS, MOST_SEEDS = 8, 20


@dataclass(frozen=True)
class Run:
    """One call: what it reads and where it writes, and when it must end."""

    options: argparse.Namespace
    text: TokenWindows
    shapes: dict[str, ModelShape]
    began: float = field(default_factory=time.perf_counter)

    def part(self, name: str, shapes: Sequence[str], rates: Sequence[float], seeds: Sequence[int]) -> TrialRows:
        """Train what is missing of one part; leaves when there is no time for the rest."""
        o = self.options
        facts = {"text": self.text.facts(), "batch": o.batch, "steps": o.steps}
        trial_rows = TrialRows.open(o.out / f"shape_{name}.json", facts)
        trial = PairedTrial({s: self.shapes[s] for s in shapes}, tuple(rates), tuple(seeds), o.batch, o.steps)
        done = run(trial, self.text, trial_rows, device=o.device, until=self.began + o.seconds, say=self.say)
        if not done:
            raise SystemExit(f"{name} is not whole: run the same command again to go on")
        return trial_rows

    def say(self, line: str) -> None:
        print(f"{time.perf_counter() - self.began:5.0f} s  {line}", flush=True)


def train(options: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    text = TokenWindows.read(options.text)
    known = shapes(text.vocab)
    going = Run(options, text, {name: known[name] for name in (BASE, *options.only)} if options.only else known)
    middle = best_rates(going.part("bracket", (BASE,), BRACKET, ROUGH).rows)[BASE]
    going.say(f"the base does best at {middle:g}; the grid takes half of it, it, and twice it")
    grid = going.part("grid", tuple(going.shapes), (middle / 2, middle, middle * 2), SEEDS[: options.seeds])
    settle(going, grid.rows)
    going.say("all done")


def settle(going: Run, rows: Sequence[dict[str, Any]]) -> None:
    """The two best shapes of the grid once more, on new seeds; the interval is promised before they are trained."""
    differences = paired_differences(rows, BASE)
    chosen, (deviation, free) = best_rates(rows), pooled_deviation(differences)
    first, second = [name for _, name in sorted([(0.0, BASE), *((d.mean, d.shape) for d in differences)])][:2]
    seeds = min(MOST_SEEDS, max(LEAST_SEEDS, seeds_for(deviation, WANTED)))
    promise = promised_width(deviation, free, seeds)
    stated = {"first": first, "second": second, "seeds": seeds, "half_width": promise, "deviation": deviation}
    (going.options.out / "shape_promise.json").write_text(json.dumps(stated | {"free": free}, indent=1) + "\n")
    going.say(f"{first} against {second}, {seeds} new seeds: an interval of ± {promise[0]:.3f}% is promised")
    for name in (first, second):
        trial_rows = going.part("settled", (name,), (chosen[name],), range(FRESH, FRESH + seeds))
    (settled,) = paired_differences(trial_rows.rows, first)
    low, high = settled.interval()
    going.say(f"{second} less {first}: {settled.mean:+.3f}% [{low:+.3f}, {high:+.3f}]")


def summary(options: argparse.Namespace) -> None:
    """The grid's differences as they stand."""
    content = json.loads(text_in(options.grid))
    differences = paired_differences(content["rows"], BASE)
    for d in sorted(differences, key=lambda d: d.mean):
        low, high = d.interval()
        print(f"{d.shape:26} {d.mean:+.3f}% [{low:+.3f}, {high:+.3f}]  rate {d.rate:g}{' (edge)' if d.edge else ''}")
    print("noise of one paired difference: {:.3f}% ({} degrees of freedom)".format(*pooled_deviation(differences)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.shape", description="Shapes at equal parameters.")
    doors = parser.add_subparsers(required=True)
    one = doors.add_parser("prepare", help="texts into token windows")
    one.add_argument("--data", type=Path, required=True, help="folder with tinyshakespeare and msmarco")
    one.add_argument("--out", type=Path, default=Path("out/shape/text.npz"))
    one.add_argument("--limit", type=int, default=0, help="so many passages, for a trial")
    one.set_defaults(call=prepared)
    one = doors.add_parser("train", help="bracket the rate, train the grid, settle its first two")
    one.add_argument("--text", type=Path, default=Path("out/shape/text.npz"))
    one.add_argument("--out", type=Path, default=Path("out/shape"))
    one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    one.add_argument("--seconds", type=float, default=420.0, help="no shape is begun that would end later")
    one.add_argument("--batch", type=int, default=16)
    one.add_argument("--seeds", type=int, default=len(SEEDS))
    one.add_argument("--steps", type=int, default=0, help="fewer than a whole pass, for a trial")
    one.add_argument("--only", nargs="*", help="these shapes beside the base")
    one.set_defaults(call=train)
    one = doors.add_parser("summary", help="print the differences")
    one.add_argument("--grid", type=Path, default=DATA / "shape_grid.json")
    one.set_defaults(call=summary)
    options = parser.parse_args()
    options.call(options)


def prepared(options: argparse.Namespace) -> None:
    from studies.shape.text import prepare

    text = prepare(options.data, options.limit)
    print(f"{text.facts()} in {text.write(options.out)}")


if __name__ == "__main__":
    main()
