"""The reproductions that need a GPU, within a time.

    python3 -m benchmarks.reproduce_gpu --data DIR --out DIR --budget 405

In order of value, each result written as it finishes: the head-count tables, CIFAR-10, text retrieval. `--tiny` runs
everything at the smallest size on any device, to see that it runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from headcount.fits.agreement import comparisons
from headcount.papers.head_count import cifar, text_retrieval
from headcount.papers.head_count import reproduce as head_count
from headcount.reproduction.runner import keep
from headcount.results import read_study
from headcount.results.record import Measured, Reproduction, Setting
from headcount.training.member import Recipe

START = time.perf_counter()
TABLES = ("table-2", "table-3", "table-4")
TIMES = {"table-5": 40.0, "figure-1b": 25.0}  # after this no further length is begun
TINY_CIFAR = cifar.ImageGrid(images=64, test=32, epochs=1, canvases=(32, 48), heads=(1, 2), seeds=2, batch=32)
TINY_TEXT = text_retrieval.TextGrid(candidates=(8,), heads=(1, 2), seeds=2, epochs=2, sets=64, batch=32)


def main() -> None:
    """Run one part, or all; parts in processes of their own cannot spoil each other's device."""
    asked = _arguments()
    if asked.tiny:
        _shrink()
    setting = Setting(asked.device, data=asked.data, folder=asked.out / "kept", seconds=asked.budget)
    parts = {"tables": _tables, "cifar": _cifar, "text": _text}
    for name, part in parts.items():
        if asked.only in (None, name):
            part(setting, asked)
    _say("done")


def _tables(setting: Setting, asked: argparse.Namespace) -> None:
    synthetic = {r.name: r for r in head_count.SYNTHETIC}
    if asked.study.exists():
        _say(f"{head_count.adopt(read_study(asked.study), setting)} rows taken over from {asked.study}")
    _guard("joint sweep", lambda: head_count.joint_sweep(setting, TABLES))
    for name in (*TABLES, "figure-1a", "reversal", "table-5", "figure-1b"):
        limit = TIMES.get(name, asked.budget)
        _run(synthetic[f"head-count:{name}"], dataclasses.replace(setting, seconds=limit), asked.out)


def _cifar(setting: Setting, asked: argparse.Namespace) -> None:
    left = setting.seconds if asked.only else 0.6 * (asked.budget - _elapsed())
    sized = _sized(cifar.CIFAR, cifar.run, TINY_CIFAR if asked.tiny else None)
    _run(sized, dataclasses.replace(setting, seconds=max(30.0, (left or 0.0) - 5)), asked.out)


def _text(setting: Setting, asked: argparse.Namespace) -> None:
    sized = _sized(text_retrieval.TEXT, text_retrieval.run, TINY_TEXT if asked.tiny else None)
    _run(sized, dataclasses.replace(setting, seconds=max(20.0, asked.budget - _elapsed() - 4)), asked.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=405.0)
    parser.add_argument("--only", choices=("tables", "cifar", "text"), help="one part, with the whole budget")
    parser.add_argument("--study", type=Path, default=Path("docs/data/head_count.json"), help="rows already at hand")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def _sized(reproduction: Reproduction, run: Callable[..., Measured], size: object) -> Reproduction:
    return dataclasses.replace(reproduction, run=lambda setting: run(setting, size))


def _shrink() -> None:
    recipe = Recipe(samples=64, validation=32, epochs=2, batch=32)
    for name, grid in head_count.GRIDS.items():
        head_count.GRIDS[name] = dataclasses.replace(grid, lengths=(8, 16, 32), seeds=2, recipe=recipe)
    head_count.VARIED = dataclasses.replace(head_count.VARIED, seeds=2, recipe=recipe)


def _run(reproduction: Reproduction, setting: Setting, out: Path) -> None:
    def whole() -> None:
        record = reproduction.measure(setting)
        keep(out / reproduction.file(quick=False), record.to_json())
        for comparison in comparisons(record, reproduction):
            _say(f"{comparison.published.title}: {comparison.verdict}")
        for claim in record.measured.claims:
            _say(f"{'holds' if claim.holds else 'FAILS'}: {claim.says}: {claim.ours}")

    _guard(reproduction.name, whole)


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
