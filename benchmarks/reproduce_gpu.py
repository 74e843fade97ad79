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

from headcount.papers import cifar, head_count, text
from headcount.papers.record import Measured, Reproduction, Setting
from headcount.papers.runner import keep
from headcount.results import read_study
from headcount.training.member import Recipe

START = time.perf_counter()
TABLES = ("table-2", "table-3", "table-4")
TIMES = {"table-5": 40.0, "figure-1b": 25.0}  # after this no further length is begun
TINY_CIFAR = cifar.Size(images=64, test=32, epochs=1, canvases=(32, 48), heads=(1, 2), seeds=2, batch=32)
TINY_TEXT = text.Size(candidates=(8,), heads=(1, 2), seeds=2, epochs=2, sets=64, batch=32)


def main() -> None:
    """Run everything that fits into the budget."""
    asked = _arguments()
    setting = Setting(asked.device, data=asked.data, folder=asked.out / "kept", seconds=asked.budget)
    if asked.tiny:
        _shrink()
    synthetic = {r.name: r for r in head_count.SYNTHETIC}
    if asked.study.exists():
        _say(f"{head_count.adopt(read_study(asked.study), setting)} rows taken over from {asked.study}")
    _guard("joint sweep", lambda: head_count.joint_sweep(setting, TABLES))
    for name in (*TABLES, "figure-1a", "reversal", "table-5", "figure-1b"):
        limit = TIMES.get(name, asked.budget)
        _run(synthetic[f"head-count:{name}"], dataclasses.replace(setting, seconds=limit), asked.out)
    left = asked.budget - _elapsed()
    size = TINY_CIFAR if asked.tiny else None
    seconds = asked.cifar or max(30.0, 0.6 * left)
    _run(_sized(cifar.CIFAR, cifar.run, size), dataclasses.replace(setting, seconds=seconds), asked.out)
    seconds = max(20.0, asked.budget - _elapsed() - 4)
    size = TINY_TEXT if asked.tiny else None
    _run(_sized(text.TEXT, text.run, size), dataclasses.replace(setting, seconds=seconds), asked.out)
    _say("done")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=405.0)
    parser.add_argument("--cifar", type=float, default=0.0, help="seconds for CIFAR-10; default: 0.6 of what is left")
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
        for comparison in record.comparisons(reproduction):
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
