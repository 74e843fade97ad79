"""All methods on one language model in one run: the same calibration, the same windows, each with its interval.

Rivals are their scores in our pipeline, not their pipelines. Everything was tuned on the calibration text; the text to
judge on is looked at once a method. Rows are written as they come, and those that are there are not measured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.files import write_text
from headcount.nets.pretrained.families import family_of
from headcount.papers.allocation.moments import PARTS
from headcount.shrinking.bench_table import BenchRow, MethodBench
from headcount.shrinking.file_bytes import rounded_to
from headcount.shrinking.language_model import Calibrated
from headcount.shrinking.loss_plan import LossPlan, loss_plan, putting
from headcount.shrinking.perplexity import compared, losses_of
from headcount.shrinking.rival_cuts import RIVALS, groups_removed, in_eight_bits, mixed_keys, rival_plan
from headcount.shrinking.text_windows import TextSplit, split_text

Progress = Callable[[str], None]
BOTH = "both"
OURS = "headcount"
FIRST = (OURS, RIVALS[2].name, RIVALS[1].name)  # the three that are also taken at half the budget, and at length
WHERE = {"query-key": ("query-key",), "value-output": ("value-output",), BOTH: PARTS}


@dataclass(frozen=True)
class BenchTrial:
    """One method at one budget and length."""

    method: str
    source: str
    part: str
    keep: float
    length: int

    @property
    def key(self) -> tuple[str, str, float, int]:
        return self.method, self.part, self.keep, self.length


def trials(lengths: tuple[int, ...] = (512, 2048), keeps: tuple[float, ...] = (0.75, 0.5)) -> list[BenchTrial]:
    """All methods at the first length and budget; the first three at the others. The most wanted come first."""
    named = {r.name: r.source for r in RIVALS} | {OURS: "slopes of the loss, one budget"}
    planned = [BenchTrial(name, named[name], BOTH, keeps[0], lengths[0]) for name in FIRST]
    planned += [BenchTrial(name, named[name], part, keeps[0], lengths[0]) for part in PARTS for name in FIRST]
    planned += [BenchTrial(name, named[name], BOTH, keep, lengths[0]) for keep in keeps[1:] for name in FIRST]
    rest = [name for name in named if name not in FIRST]
    planned += [BenchTrial(name, named[name], part, keeps[0], lengths[0]) for part in (BOTH, *PARTS) for name in rest]
    planned.append(BenchTrial("whole groups removed", "those the loss leans on least", BOTH, keeps[0], lengths[0]))
    planned.append(
        BenchTrial("RoRoPE, keys only", "TransMLA's rotation (arXiv 2502.07864)", "query-key", keeps[0], lengths[0])
    )
    planned.append(BenchTrial("int8", "every matrix, a scale per row", "whole model", 1.0, lengths[0]))
    planned.append(BenchTrial("bf16", "cast", "whole model", 1.0, lengths[0]))
    planned += [BenchTrial(name, named[name], BOTH, keeps[0], length) for length in lengths[1:] for name in FIRST]
    return planned


def bench_splits(
    text: Path, tokenizer: Any, length: int, tokens: tuple[int, int], test: Path | None = None, *, quick: bool = False
) -> list[TextSplit]:
    """The windows that a bench calibrates and judges on, at a length and at four times that; a quick one at one."""
    first, judging = (2048, 2048) if quick else (tokens[0], max(tokens[1], 20480))
    lengths = (length,) if quick else (length, 4 * length)
    return [split_text(text, tokenizer, n, (max(1, first // n), 2, max(2, judging // n)), test) for n in lengths]


def benched(
    calibrate: Callable[[TextSplit], Calibrated],
    splits: Sequence[TextSplit],
    *,
    keeps: tuple[float, ...] = (0.75, 0.5),
    out: Path | None = None,
    say: Progress = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
) -> MethodBench:
    """Measure every trial on the windows kept for judging: all methods at the first split's length, three at others.

    It ends before a trial where `enough` says so; called again with the same file it goes on there.
    """
    lengths = tuple(split.judging.shape[1] for split in splits)
    bench = _begun(out)
    for length, split in zip(lengths, splits, strict=True):
        todo = [t for t in trials(lengths, keeps) if t.length == length and not _there(bench, t)]
        if not todo or enough():
            continue
        began, worked = time.perf_counter(), time.process_time()
        calibration = calibrate(split)
        bench["setup"]["model"] = calibration.title
        bench["setup"][f"at {length}"] = {
            "seconds of calibration": round(time.perf_counter() - began, 1),
            "processor seconds of calibration": round(time.process_time() - worked, 1),
            "perplexity": float(calibration.judged_by.mean().exp()),
            "tokens to calibrate on": split.calibration.numel(),
            "tokens to judge on": split.judging.numel(),
        }
        for trial in todo:
            if enough():
                break
            if (row := measured_row(calibration, trial)) is not None:
                bench["rows"].append(row)
                say(f"{trial.method}, {trial.part}, {trial.keep:g}, {length} tokens: x {row['ratio']:.3f}")
            _keep(bench, out)
    return bench


def measured_row(seen: Calibrated, trial: BenchTrial) -> BenchRow | None:
    """One method judged on the windows kept for that; None where this family of models has no such part."""
    began, worked = time.perf_counter(), time.process_time()
    applied = _applied(seen, trial)
    if applied is None:
        return None
    cache, context = applied
    with torch.no_grad(), context:
        losses = losses_of(seen.model, seen.split.judging)
    comparison = compared(losses, seen.judged_by, seen.length)
    return {
        "method": trial.method,
        "source": trial.source,
        "part": trial.part,
        "keep": trial.keep,
        "length": trial.length,
        "ratio": comparison.ratio,
        "low": comparison.low,
        "high": comparison.high,
        "original": comparison.original,
        "windows": comparison.windows,
        "tokens": comparison.tokens,
        "cache": cache,
        "seconds": round(time.perf_counter() - began, 1),
        "processor": round(time.process_time() - worked, 1),
        "losses": [round(float(x), 5) for x in losses],
    }


def _applied(calibration: Calibrated, trial: BenchTrial) -> tuple[float, AbstractContextManager[nn.Module]] | None:
    """The share of the cache that is left, and the model under the method."""
    family = family_of(calibration.model)
    layers, units = (
        family.layers(calibration.model),
        [u for u in calibration.units if u.part in WHERE.get(trial.part, PARTS)],
    )
    if trial.method == "int8":
        return 1.0, in_eight_bits(calibration.model)
    if trial.method == "bf16":
        return 1.0, rounded_to(calibration.model, torch.bfloat16)
    if not units:
        return None
    if trial.method == OURS:
        return _put(calibration, loss_plan(units, trial.keep, calibration.means))
    if trial.method.startswith("whole groups"):
        whole_plan = loss_plan(units, 1.0, calibration.means)
        return trial.keep, putting(calibration.model, groups_removed(whole_plan, trial.keep), calibration.means)
    if trial.method.startswith("RoRoPE"):
        rotary = all(s.pairs is not None for s in calibration.slopes)
        return (0.5 + trial.keep / 2, _mixed(calibration, trial.keep)) if rotary else None
    rival = next(r for r in RIVALS if r.name == trial.method)
    plan = rival_plan(family, layers, calibration.slopes, calibration.means, rival, WHERE[trial.part], trial.keep)
    return _put(calibration, plan)


def _put(calibration: Calibrated, plan: LossPlan) -> tuple[float, AbstractContextManager[nn.Module]]:
    """The plan in the model's place, and the share of its cache that is left."""
    family = family_of(calibration.model)
    layouts = [family.read(layer).layout for layer in family.layers(calibration.model)]
    whole_cache = sum(l.key_rows + l.value_rows for l in layouts)
    gone = sum(row["of"] - row["sum"] for row in plan.rows)
    return 1 - gone / whole_cache, putting(calibration.model, plan.products(), calibration.means)


@contextmanager
def _mixed(calibration: Calibrated, keep: float) -> Iterator[nn.Module]:
    with (
        mixed_keys(calibration.model, calibration.slopes, keep),
        putting(calibration.model, {}, calibration.means) as model,
    ):
        yield model


def _begun(out: Path | None) -> MethodBench:
    """What a file holds already, or nothing yet."""
    bench: MethodBench = {"rows": [], "setup": {}}
    if out and out.exists():
        bench.update(json.loads(out.read_text(encoding="utf-8")))
    return bench


def _there(bench: MethodBench, trial: BenchTrial) -> bool:
    return any((r["method"], r["part"], r["keep"], r["length"]) == trial.key for r in bench["rows"])


def _keep(bench: MethodBench, out: Path | None) -> None:
    if out is not None:
        write_text(out, json.dumps(bench, indent=1))
