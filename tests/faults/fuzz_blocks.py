"""Many cases of the fuzz, in blocks that are recorded as they end: `python -m tests.faults.fuzz_blocks COUNT FIRST`.

Every block of cases is a line of the record (`--record`), written when all of its cases have ended; the same command
goes on where the record ends. `--processes` share the blocks, `--seconds` after the start none begins another case.
With `--out`, all that is on record is put together and written there, else printed.
"""

import argparse
import collections
import contextlib
import gc
import importlib
import json
import math
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import typer

from tests.faults.fuzz_cases import KINDS
from tests.faults.fuzz_pool import SOUND
from tests.faults.fuzzing import HERE, fuzzed

__all__ = ["in_blocks", "merged", "recorded"]

BLOCK = 20  # cases on a line of the record


def in_blocks(
    count: int, first: int = 0, processes: int = 2, seconds: float = math.inf, record: Path | None = None
) -> dict[str, Any]:
    """The outcomes of so many cases from the first number on, shared among processes, with those on record."""
    until = time.time() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        record = record or Path(scratch) / "record.jsonl"
        done = {(block["first"], block["count"]) for block in recorded(record)}
        asked = [(n, min(BLOCK, first + count - n)) for n in range(first, first + count, BLOCK)]
        left = [block for block in asked if block not in done]
        if left:
            _share(left, Path(scratch), record, processes, until)
        return {
            "first": first,
            **merged([block for block in recorded(record) if first <= block["first"] < first + count]),
        }


def _share(left: list[tuple[int, int]], scratch: Path, record: Path, processes: int, until: float) -> None:
    """Have the blocks done by so many processes, each line put on record as it comes."""
    run = [sys.executable, "-m", "tests.faults.fuzz_pool", f"{scratch}/pool", f"{scratch}/modules"]
    made = subprocess.run(run, cwd=HERE, stderr=subprocess.PIPE, text=True)
    if made.returncode:
        sys.exit(f"the sound files could not be made: {made.stderr[-3000:]}")
    command = [sys.executable, "-m", "tests.faults.fuzz_blocks", "--part", str(scratch), str(until)]
    parts = [[f"{n}:{size}" for n, size in left[k::processes]] for k in range(min(processes, len(left)))]
    running = [subprocess.Popen([*command, *part], stdout=subprocess.PIPE, cwd=HERE, text=True) for part in parts]
    one_at_a_time = threading.Lock()

    def keep(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with one_at_a_time, record.open("a") as file:
                    file.write(line)

    keepers = [threading.Thread(target=keep, args=(process,)) for process in running]
    for keeper in keepers:
        keeper.start()
    for keeper in keepers:
        keeper.join()
    assert [process.wait() for process in running] == [0] * len(running), "the fuzz itself died"


def recorded(record: Path) -> list[dict[str, Any]]:
    """The blocks on record, each once; a line that was cut short is none."""
    blocks: dict[tuple[int, int], dict[str, Any]] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            block = json.loads(line)
            blocks[block["first"], block["count"]] = block
    return list(blocks.values())


def merged(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several outcomes as one."""
    counts: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    for kind, code, times in ((k, c, n) for o in outcomes for k, by in o["counts"].items() for c, n in by.items()):
        counts[kind][code] += times
    return {
        "cases": sum(sum(by.values()) for by in counts.values()),
        "with": sorted({o["with"] for o in outcomes}),
        "counts": {kind: dict(sorted(by.items())) for kind, by in counts.items()},
        "threads": max((o["threads"] for o in outcomes), default=0),
        "slowest_s": max((o["slowest_s"] for o in outcomes), default=0.0),
        "peak_mb": max((o["peak_mb"] for o in outcomes), default=0),
        "processor_s": round(sum(o["processor_s"] for o in outcomes)),
        "succeeded": sum(o["succeeded"] for o in outcomes),
        "compared": sum(o["compared"] for o in outcomes),
        "exactly": sum(o["exactly"] for o in outcomes),
        **{
            name: [line for o in outcomes for line in o[name]]
            for name in ("unfinished", "differing", "broken", "broken_in_company")
        },
    }


def _part(shared: Path, until: float, blocks: Sequence[str]) -> None:
    """Print the outcomes of each block that was done to its end, as a line."""
    typer.main.get_command = cache(typer.main.get_command)  # the same each time, and dear
    for name in json.loads((shared / "modules").read_text()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    pool = {word: shared / "pool" / name for word, name in SOUND.items() if (shared / "pool" / name).exists()}
    gc.freeze()  # what all cases share is not looked through, so not copied, in each of them
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        for block in blocks:
            first, count = map(int, block.split(":"))
            outcomes = fuzzed(range(first, first + count), pool, Path(folder), until - time.time())
            if sum(by.total() for by in outcomes.counts.values()) < count:
                break
            print(json.dumps({"first": first, "count": count, "with": _versions(), **vars(outcomes)}), flush=True)  # noqa: T201
    os._exit(0)  # frozen objects would be reported as leaks


def _versions() -> str:
    return f"Python {platform.python_version()}, torch {torch.__version__}, SQLite {sqlite3.sqlite_version}"


def main() -> None:
    """Run what is left, and write or print all that is on record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = in_blocks(asked.count, asked.first, asked.processes, asked.seconds, asked.record)
    text = json.dumps(found, indent=1) + "\n"
    if asked.out:
        asked.out.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    if sys.argv[1] == "--part":
        _part(Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    else:
        main()
