"""The bench as a user runs it, on two cores: its quick form whole, then as much of the full one as fits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from headcount.shrinking.bench_table import MethodBench
from headcount.shrinking.language_model import calibrated
from headcount.shrinking.loss_bench import benched, trials
from headcount.shrinking.text_windows import TextSplit
from studies.language_model.device_steps import KEEP, DeviceRun, Figures, say, sometimes, spread, windows

QUICK, FULL = (2048, 2048), (8192, 20_480)  # tokens to calibrate and to judge on, as the command takes them
CHOSEN = 2  # windows


def two_cores(measured: DeviceRun, lengths: tuple[int, int] = (512, 2048), threads: int = 2) -> None:
    """Rows with their seconds, and the seconds of the clock and of the processor that everything took together.

    With more threads than two the processor's seconds are what counts: two cores take half of them.
    A form that is there whole is not taken again, and one that was cut short goes on.
    """
    torch.set_num_threads(threads)
    for form, tokens, some in (("quick", QUICK, lengths[:1]), ("full", FULL, lengths)):
        known = measured.known().get(form, {})
        if measured.left() > 20 and len(known.get("rows", ())) < len(trials(some)):
            splits = [split(measured, length, tokens) for length in some]
            measured.keep(form, _timed(measured, splits, measured.path.with_name(f"bench_{form}.json")))


def _timed(measured: DeviceRun, splits: list[TextSplit], path: Path) -> Figures:
    clock = time.perf_counter()
    bench = benched(
        lambda split: calibrated(measured.name, split, keep=KEEP, say=sometimes(16)),
        splits,
        out=path,
        say=say,
        enough=lambda: measured.left() < 20,
    )
    planned = len(trials(tuple(s.judging.shape[1] for s in splits)))
    took = {"seconds": time.perf_counter() - clock, "cpu seconds": processor_seconds(bench)}
    say(f"{len(bench['rows'])} of {planned} rows in {json.dumps(took)}")
    return bench | {"took": took, "of": planned, "threads": torch.get_num_threads()}


def processor_seconds(found: MethodBench) -> float:
    """What all rows and calibrations took, also where some of them were measured in an earlier run."""
    calibrations = [at for at in found["setup"].values() if not isinstance(at, str)]
    return sum(row.get("processor", 0.0) for row in found["rows"]) + sum(
        at.get("processor seconds of calibration", 0.0) for at in calibrations
    )


def split(measured: DeviceRun, length: int, tokens: tuple[int, int]) -> TextSplit:
    valid = windows(measured.texts["valid"], length)
    part = max(1, len(valid) // 5)
    parts = (valid[:-part], tokens[0]), (valid[-part:], CHOSEN * length)
    return TextSplit(*(spread(w, n) for w, n in (*parts, (windows(measured.texts["test"], length), tokens[1]))))
