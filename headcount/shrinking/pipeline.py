"""The whole of `headcount compress`: from a name and a budget to a smaller model on disk, and its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headcount.nets.pretrained.batches import TextBatch, batches_of, passages
from headcount.nets.pretrained.folders import folder_of, load, readout_for, tokenizer_of
from headcount.papers.allocation.moments import PARTS
from headcount.shrinking.checkpoint import save_compact, save_padded, tensor_bytes
from headcount.shrinking.distillation import distil
from headcount.shrinking.rank_plan import RankPlan, check_share
from headcount.shrinking.surgery import at_full_rank, shrink_model
from headcount.shrinking.weight_and_time import gap, latencies, size, stock_head_dims, tokens_that_fit

__all__ = ["Compressed", "compress"]

Progress = Callable[[str], None]
LENGTH = 128  # tokens that a piece of text is cut to


@dataclass(frozen=True)
class Compressed:
    """A model made smaller, the plan it follows, its table of before and after, and the folders written."""

    model: nn.Module
    plan: RankPlan
    table: tuple[dict[str, Any], ...]
    written: tuple[Path, ...]

    def as_row(self) -> dict[str, Any]:
        """Everything but the model, ready for JSON."""
        return {
            "plan": self.plan.rows(),
            "refused": [list(r) for r in self.plan.survey.refused],
            "removed": [list(r) for r in self.plan.removed],
            "shared_keys": [{"layer": g.layer, "heads": list(g.heads), "rank": g.rank} for g in self.plan.groupings],
            "saved": self.plan.saved,
            "error": self.plan.error,
            "floor": self.plan.floor,
            "table": list(self.table),
            "written": [str(path) for path in self.written],
        }


def compress(
    model: str | Path,
    keep: float = 0.5,
    *,
    text: str | Path | None = None,
    parts: Sequence[str] = PARTS,
    measure: str = "outputs",
    rule: str = "allocated",
    pieces: int = 128,
    grouping: bool = False,
    distil_minutes: float = 0.0,
    out: str | Path | None = None,
    padded: bool = False,
    on_progress: Progress = lambda _: None,
) -> Compressed:
    """Shrink the model in a folder to the share `keep` of its query-key and value-output parameters.

    The share is of the stock model, also where `model` is a compact checkpoint that has lost some already.
    `text` is a file to calibrate on, in `pieces`; only planning by `measure="weights"` needs none. `out` gets a folder
    `compact` that `load` and every command read, and one `padded` that stock transformers load where that is asked for.
    """
    name, text, out = str(model), _path(text), _path(out)
    _check(name, keep, rule, text, measure, distil_minutes, out, padded)
    net = load(name)
    before, stored, head_dims = size(net), tensor_bytes(net), stock_head_dims(net)
    at_full_rank(net)
    calibration, others = _texts(name, net, text, pieces)
    read = readout_for(name)
    plan = shrink_model(
        net,
        keep,
        batches=calibration,
        read=read,
        measure=measure,
        rule=rule,
        parts=parts,
        grouping=grouping,
        on_progress=on_progress,
    )
    if distil_minutes > 0 and text is not None:
        on_progress("self-distillation")
        again = batches_of(passages(text, 2000, seed=1), tokenizer_of(name), length=LENGTH, tokens=512)
        distil(net, load(name), again, read, epochs=10, seconds=60 * distil_minutes, on_progress=on_progress)
    after = size(net)
    if after.attention > before.attention:
        raise ValueError(
            f"{name} has {before.attention:,} attention parameters already, and keeping {keep:g} of the stock model's "
            f"would leave {after.attention:,}; keep less"
        )
    written = _write(net, folder_of(name), out, head_dims[0] if padded else None)
    rows = [
        _row("attention parameters", before.attention, after.attention),
        _row("parameters", before.parameters, after.parameters),
        _row("bytes of tensors", stored, tensor_bytes(net)),
        *_measured(name, net, others, read, on_progress),
    ]
    return Compressed(net, plan, tuple(rows), tuple(written))


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _check(
    name: str,
    keep: float,
    rule: str,
    text: Path | None,
    measure: str,
    distil_minutes: float,
    out: Path | None,
    padded: bool,
) -> None:
    """Refuse before anything is loaded or written."""
    folder_of(name)
    check_share(keep, rule)
    if text is not None and not text.is_file():
        raise FileNotFoundError(f"no text file at {text}")
    if text is None and (measure != "weights" or distil_minutes > 0):
        raise ValueError("planning by outputs or inputs, and self-distillation, read a text, and none was given")
    if padded and out is None:
        raise ValueError("a padded checkpoint is a folder, and no folder to write into was given")
    for folder in (out / "compact", out / "padded") if out else ():
        if folder.exists():
            raise ValueError(f"{folder} exists already; give a new folder")


def _texts(name: str, net: nn.Module, text: Path | None, pieces: int) -> tuple[list[TextBatch], list[TextBatch]]:
    """Batches to calibrate on, and others to measure the gap on: pieces drawn with another seed."""
    if text is None:
        return [], []
    tokenizer, fit = tokenizer_of(name), tokens_that_fit(net, LENGTH)
    seen = batches_of(passages(text, pieces), tokenizer, length=LENGTH, tokens=fit)
    return seen, batches_of(passages(text, 32, seed=97), tokenizer, length=LENGTH, tokens=fit)


def _write(net: nn.Module, source: str, out: Path | None, head_dim: int | None) -> list[Path]:
    if out is None:
        return []
    written = [save_compact(net, out / "compact", source)]
    return written if head_dim is None else [*written, save_padded(net, out / "padded", head_dim, source)]


def _measured(
    name: str, net: nn.Module, others: Sequence[TextBatch], read: Any, on_progress: Progress
) -> list[dict[str, Any]]:
    """Latency, and how far the outputs moved on text that was not calibrated on."""
    if not others:
        return []
    on_progress("measuring latency and outputs")
    original = load(name)
    slow, fast = latencies([original, net], max(others, key=lambda b: b.present.numel()))
    return [
        _row("milliseconds per batch", 1000 * slow, 1000 * fast),
        {"": "outputs moved", "original": 0.0, "compact": gap(net, original, others, read)},
    ]


def _row(what: str, before: float, after: float) -> dict[str, Any]:
    return {"": what, "original": before, "compact": after, "ratio": after / before if before else None}
