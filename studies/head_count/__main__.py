"""The tables of the head-count paper within a time: `python -m studies.head_count --data DIR --out DIR --budget 405`.

In order of value, each result written as it finishes: the synthetic tables, CIFAR-10, text retrieval. `--tiny` runs
everything at the smallest size on any device, to see that it runs.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headcount.files import write_text
from headcount.papers.head_count import reproduce as synthetic
from headcount.reproduction.side_by_side import outcome_lines
from headcount.results import read_study
from headcount.results.record import Reproduction, Setting
from headcount.training.member import Recipe
from studies.head_count import cifar, text_retrieval
from studies.stored import DATA

START = time.perf_counter()
TABLES = ("table-2", "table-3", "table-4")
TIMES = {"table-5": 40.0, "figure-1b": 25.0}  # after this no further length is begun
TINY_CIFAR = cifar.ImageGrid(images=64, test=32, epochs=1, canvases=(32, 48), heads=(1, 2), seeds=2, batch=32)
TINY_TEXT = text_retrieval.TextGrid(candidates=(8,), heads=(1, 2), seeds=2, epochs=2, sets=64, batch=32)


def main() -> None:
    """Run one part, or all; parts in processes of their own cannot spoil each other's device."""
    options = _options()
    if options.tiny:
        _shrink()
    setting = Setting(options.device, options.quick, options.data, options.out / "kept", options.budget)
    parts = {"tables": _tables, "cifar": _cifar, "text": _text}
    for name, part in parts.items():
        if options.part in (None, name):
            part(setting, options)
    _say("done")


def _tables(setting: Setting, options: argparse.Namespace) -> None:
    known = {r.name: r for r in synthetic.SYNTHETIC}
    if options.study.exists():
        _say(f"{synthetic.adopt(read_study(options.study), setting)} rows taken over from {options.study}")
    _guard("joint sweep", lambda: synthetic.joint_sweep(setting, TABLES))
    for name in (*TABLES, "figure-1a", "reversal", "table-5", "figure-1b"):
        limit = TIMES.get(name, options.budget)
        _run(known[f"head-count:{name}"], replace(setting, seconds=limit), options.out)


def _cifar(setting: Setting, options: argparse.Namespace) -> None:
    left = setting.seconds if options.part else 0.6 * (options.budget - _elapsed())
    size = TINY_CIFAR if options.tiny else None
    trained = replace(synthetic.CIFAR, run=lambda given: cifar.run(given, size))
    _run(trained, replace(setting, seconds=max(30.0, (left or 0.0) - 5)), options.out, "cifar")


def _text(setting: Setting, options: argparse.Namespace) -> None:
    size = TINY_TEXT if options.tiny else None
    trained = replace(synthetic.TEXT, run=lambda given: text_retrieval.run(given, size))
    _run(trained, replace(setting, seconds=max(20.0, options.budget - _elapsed() - 4)), options.out, "text")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=405.0, help="seconds")
    parser.add_argument("part", nargs="?", choices=("tables", "cifar", "text"), help="one part, with the whole budget")
    parser.add_argument("--study", type=Path, default=DATA / "head_count.json", help="rows already at hand")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a smaller version, in minutes on a CPU")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def _shrink() -> None:
    recipe = Recipe(samples=64, validation=32, epochs=2, batch=32)
    for name, grid in synthetic.GRIDS.items():
        synthetic.GRIDS[name] = replace(grid, lengths=(8, 16, 32), seeds=2, recipe=recipe)
    synthetic.VARIED = replace(synthetic.VARIED, seeds=2, recipe=recipe)


def _run(reproduction: Reproduction, setting: Setting, out: Path, part: str = "") -> None:
    def measure() -> None:
        record = reproduction.measure(setting)
        if part:  # the package trains no images and no text: say who did
            door = f"python -m studies.head_count {part} --out OUT"
            record = replace(record, command=record.command.replace(f"headcount reproduce {record.name}", door))
        write_text(out / reproduction.file(quick=setting.quick), record.to_json())
        for line in outcome_lines(record, reproduction):
            _say(line)

    _guard(reproduction.name, measure)


def _guard(name: str, work: Callable[[], None]) -> None:
    """One part that fails must not take the others with it."""
    start = time.perf_counter()
    try:
        work()
    except Exception:
        traceback.print_exc()
    _say(f"{name}: {time.perf_counter() - start:.1f} s")


def _elapsed() -> float:
    return time.perf_counter() - START


def _say(words: str) -> None:
    print(f"[{_elapsed():6.1f}] {words}", flush=True)


if __name__ == "__main__":
    main()
