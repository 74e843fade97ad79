"""The whole of `headcount compress`: from a name and a budget to a smaller model on disk, and its table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headcount.nets.pretrained.batches import TextBatch, batches_of, passages
from headcount.nets.pretrained.families import family_of
from headcount.nets.pretrained.folders import folder_of, load, readout_for, tokenizer_of
from headcount.shrinking.checkpoint import save_compact, save_padded, tensor_bytes
from headcount.shrinking.distillation import distil
from headcount.shrinking.rank_plan import check_wish
from headcount.shrinking.surgery import shrink_model
from headcount.shrinking.weight_and_time import gap, latencies, size, tokens_that_fit

__all__ = ["Wish", "compress"]

Say = Callable[[str], None]
LENGTH = 128


@dataclass(frozen=True)
class Wish:
    """What someone asks of `headcount compress`."""

    model: str
    keep: float
    text: Path | None
    parts: tuple[str, ...]
    measure: str
    rule: str
    passages: int
    grouping: bool
    minutes: float
    out: Path | None
    padded: bool


def compress(wish: Wish, say: Say = lambda _: None) -> dict[str, Any]:
    """Do it; the report holds the plan, the table of before and after, and the files written."""
    _check(wish)
    model = load(wish.model)
    before, stored = size(model), tensor_bytes(model)
    head_dim = family_of(model).read(family_of(model).layers(model)[0]).layout.padded
    calibration, others = _texts(wish, model)
    read = readout_for(wish.model)
    plan = shrink_model(
        model,
        wish.keep,
        batches=calibration,
        read=read,
        measure=wish.measure,
        rule=wish.rule,
        parts=wish.parts,
        grouping=wish.grouping,
        say=say,
    )
    if wish.minutes > 0:
        say("self-distillation")
        teacher = load(wish.model)
        again = batches_of(passages(_text(wish), 2000, seed=1), tokenizer_of(wish.model), length=LENGTH, tokens=512)
        distil(model, teacher, again, read, epochs=10, seconds=60 * wish.minutes, say=say)
    written = _write(wish, model, head_dim)
    after, kept = size(model), tensor_bytes(model)
    rows = [
        _row("attention parameters", before.attention, after.attention),
        _row("parameters", before.parameters, after.parameters),
        _row("bytes of tensors", stored, kept),
    ]
    rows += _measured(wish, model, others, read, say)
    return {
        "plan": plan.rows(),
        "refused": [list(r) for r in plan.survey.refused],
        "removed": [list(r) for r in plan.removed],
        "shared_keys": [{"layer": g.layer, "heads": list(g.heads), "rank": g.rank} for g in plan.groupings],
        "saved": plan.saved,
        "error": plan.error,
        "floor": plan.floor,
        "table": rows,
        "written": [str(path) for path in written],
    }


def _check(wish: Wish) -> None:
    """Refuse before anything is loaded or written."""
    folder_of(wish.model)
    check_wish(wish.keep, wish.rule)
    if wish.text is not None and not wish.text.is_file():
        raise FileNotFoundError(f"no text file at {wish.text}")
    if wish.text is None and (wish.measure != "weights" or wish.minutes > 0):
        raise ValueError("planning by outputs or inputs, and self-distillation, read a text: give --text FILE")
    if wish.padded and wish.out is None:
        raise ValueError("--padded writes a checkpoint: give --out DIR")
    for name in ("compact", "padded") if wish.out else ():
        if wish.out is not None and (wish.out / name).exists():
            raise ValueError(f"{wish.out / name} exists already; give a new folder")


def _texts(wish: Wish, model: nn.Module) -> tuple[list[TextBatch], list[TextBatch]]:
    """Batches to calibrate on, and others to measure the gap on: pieces drawn with another seed."""
    if wish.text is None:
        return [], []
    tokenizer = tokenizer_of(wish.model)
    fit = tokens_that_fit(model, LENGTH)
    seen = batches_of(passages(wish.text, wish.passages), tokenizer, length=LENGTH, tokens=fit)
    return seen, batches_of(passages(wish.text, 32, seed=97), tokenizer, length=LENGTH, tokens=fit)


def _text(wish: Wish) -> Path:
    if wish.text is None:
        raise ValueError("self-distillation reads a text: give --text FILE")
    return wish.text


def _write(wish: Wish, model: nn.Module, head_dim: int) -> list[Path]:
    if wish.out is None:
        return []
    source = folder_of(wish.model)
    written = [save_compact(model, wish.out / "compact", source)]
    if wish.padded:
        written.append(save_padded(model, wish.out / "padded", head_dim, source))
    return written


def _measured(wish: Wish, model: nn.Module, others: Sequence[TextBatch], read: Any, say: Say) -> list[dict[str, Any]]:
    """Latency, and how far the outputs moved on text that was not calibrated on."""
    if not others:
        return []
    say("measuring latency and outputs")
    original = load(wish.model)
    whole = max(others, key=lambda b: b.present.numel())
    slow, fast = latencies([original, model], copy.copy(whole))
    moved = gap(model, original, others, read)
    return [
        _row("milliseconds a batch", 1000 * slow, 1000 * fast),
        {"": "outputs moved", "original": 0.0, "compact": moved},
    ]


def _row(what: str, before: float, after: float) -> dict[str, Any]:
    return {"": what, "original": before, "compact": after, "ratio": after / before if before else None}
