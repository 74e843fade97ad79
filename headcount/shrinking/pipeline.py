"""The whole of `headcount compress`: from a name and a budget to a smaller model on disk, judged for its user."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from headcount.nets.pretrained.batches import Readout, TextBatch, batches_of, passages
from headcount.nets.pretrained.folders import folder_of, load, readout_for, tokenizer_of
from headcount.papers.allocation.moments import PARTS
from headcount.papers.allocation.units import Survey, survey
from headcount.shrinking.calibration import corrected
from headcount.shrinking.card import card_of
from headcount.shrinking.checkpoint import save_compact, save_padded
from headcount.shrinking.distillation import Lessons, distil
from headcount.shrinking.embedding_agreement import (
    EmbeddingAgreement,
    RankingChange,
    agreement,
    ranking_change,
    read_outs,
)
from headcount.shrinking.file_bytes import CASTS, FileBytes, file_bytes, rounded_to, tensor_bytes
from headcount.shrinking.language_model import CutModel, calibrated, cut_to, speaks
from headcount.shrinking.rank_plan import RankPlan, check_share, plan
from headcount.shrinking.ranking import Encoded, collection_of
from headcount.shrinking.rival_cuts import in_eight_bits
from headcount.shrinking.surgery import at_full_rank, reduce
from headcount.shrinking.text_windows import split_text
from headcount.shrinking.weight_and_time import gap, latencies, size, stock_head_dims, tokens_that_fit

__all__ = ["Compressed", "compress"]

Progress = Callable[[str], None]
LENGTH = 128  # tokens that a piece of text for an encoder is cut to
LOSS = 0.01  # the default bargain: at most this is lost, whatever it saves
UNMEASURED = 0.5  # kept where there is no text to measure a loss on
FIRST_KEEP, TRIALS, FEWEST = 0.8, 5, 0.1


@dataclass(frozen=True, eq=False)
class Compressed:
    """An encoder (or a model planned without text) made smaller, its plan, its figures and the folders written."""

    title: str
    model: nn.Module
    plan: RankPlan
    table: tuple[dict[str, Any], ...]
    bytes: FileBytes
    agreement: EmbeddingAgreement | None = None
    rankings: tuple[RankingChange, ...] = ()
    beside: tuple[dict[str, Any], ...] = ()
    written: tuple[Path, ...] = ()

    @property
    def headline(self) -> str:
        """Quality and bytes of the whole file, and whether the cast alone is the better bargain."""
        quality = [q.sentence for q in (self.agreement, *self.rankings) if q is not None]
        words = f"{self.title}: {'; '.join(quality) or 'not measured: no text was given'}; {self.bytes.sentence}"
        return words if self.bargain else f"{words}; as a file {self._rival} is the better bargain"

    @property
    def bargain(self) -> bool:
        """Whether enough of the whole file is saved, and nothing that was measured says that too much is lost."""
        lost = any(r.low < -LOSS for r in self.rankings)
        return self.bytes.worthwhile and not lost

    @property
    def _rival(self) -> str:
        if self.bytes.source is not None and self.bytes.compact >= self.bytes.source.bytes:
            return "the source"
        return "the original" if self.bytes.cast == "none" else "the cast alone"

    @property
    def sentence(self) -> str:
        """What it comes to."""
        share = next(row["ratio"] for row in self.table if row[""] == "attention parameters")
        words = (
            f"{share:.0%} of the attention parameters are left and {self.bytes.saved:.1%} of the whole file is saved"
        )
        return words if self.bargain else f"{words}; as a file {self._rival} is the better bargain"

    def rows(self) -> list[dict[str, Any]]:
        return list(self.table)

    def as_row(self) -> dict[str, Any]:
        """Everything but the model, ready for JSON."""
        return {
            "headline": self.headline,
            "plan": self.plan.rows(),
            "refused": [list(r) for r in self.plan.survey.refused],
            "removed": [list(r) for r in self.plan.removed],
            "shared_keys": [{"layer": g.layer, "heads": list(g.heads), "rank": g.rank} for g in self.plan.groupings],
            "saved": self.plan.saved,
            "error": self.plan.error,
            "floor": self.plan.floor,
            "bytes": self.bytes.as_row(),
            "agreement": None if self.agreement is None else self.agreement.as_row(),
            "rankings": [r.as_row() for r in self.rankings],
            "beside": list(self.beside),
            "table": list(self.table),
            "written": [str(path) for path in self.written],
        }


def compress(
    model: str | Path,
    keep: float | None = None,
    *,
    loss: float | None = None,
    text: str | Path | None = None,
    test: str | Path | None = None,
    length: int = 512,
    windows: tuple[int, int, int] = (16, 4, 8),
    parts: Sequence[str] = PARTS,
    measure: str = "outputs",
    rule: str = "allocated",
    pieces: int = 128,
    grouping: bool = False,
    distil_minutes: float = 0.0,
    cast: str = "bf16",
    rankings: Sequence[str | Path] = (),
    out: str | Path | None = None,
    padded: bool = False,
    onnx: bool = False,
    on_progress: Progress = lambda _: None,
) -> Compressed | CutModel:
    """Shrink the model in a folder to the share `keep` of its attention, or as far as the `loss` allows.

    Without either the loss is at most 1%: of perplexity for a language model, of the cosine to the original for an
    encoder. The share is of the stock model, also where `model` is a compact checkpoint that has lost some already.
    `text` is a file to calibrate on; a language model is judged on `test`, or on the last fifth of `text`, in windows
    of `length` tokens. Only planning by `measure="weights"` needs no text. `out` gets a folder `compact` that `load`,
    every command and `transformers` read, and where asked for `padded` for stock code and `model.onnx`.
    """
    name, text, out = str(model), _path(text), _path(out)
    _check(name, keep, loss, rule, text, measure, distil_minutes, cast, out, padded or onnx)
    net = load(name).float()
    if speaks(net) and measure == "outputs" and text is not None:
        split = split_text(text, tokenizer_of(name), length, windows, test)
        seen = calibrated(name, split, parts=parts, keep=keep, say=on_progress)
        chosen = seen.plan(keep) if keep is not None else seen.for_loss(loss or LOSS, on_progress)
        cut = cut_to(seen, chosen, cast=cast, say=on_progress)
        head_dim = stock_head_dims(net)[0] if padded else None
        return replace(cut, written=tuple(_write(cut, name, out, head_dim, onnx, CASTS[cast])))
    return _encoder(
        name,
        net,
        keep,
        loss,
        text,
        _Way(tuple(parts), measure, rule, pieces, grouping, distil_minutes),
        cast,
        [Path(p) for p in rankings],
        out,
        padded,
        onnx,
        on_progress,
    )


@dataclass(frozen=True)
class _Way:
    """How ranks are planned where there is no loss of next tokens to plan by."""

    parts: tuple[str, ...]
    measure: str
    rule: str
    pieces: int
    grouping: bool
    distil_minutes: float


def _encoder(
    name: str,
    net: nn.Module,
    keep: float | None,
    loss: float | None,
    text: Path | None,
    way: _Way,
    cast: str,
    rankings: Sequence[Path],
    out: Path | None,
    padded: bool,
    onnx: bool,
    say: Progress,
) -> Compressed:
    before, stored, head_dims = size(net), tensor_bytes(net), stock_head_dims(net)
    at_full_rank(net)
    calibration, others = _texts(name, net, text, way.pieces)
    read = readout_for(name)
    found = survey(net, way.measure, batches=calibration, read=read, parts=way.parts, say=say)
    if way.measure == "outputs" and way.rule == "allocated":
        first = plan(found, keep or FIRST_KEEP, rule=way.rule, grouping=way.grouping)
        found = corrected(net, first, calibration, read, say)
    if keep is None:
        keep = _share_for(net, found, way, loss or LOSS, others, read, say) if others else UNMEASURED
    chosen = plan(found, keep, rule=way.rule, grouping=way.grouping)
    reduce(net, chosen, say)
    if way.distil_minutes > 0 and text is not None:
        say("self-distillation")
        again = batches_of(passages(text, 2000, seed=1), tokenizer_of(name), length=LENGTH, tokens=512)
        lessons = Lessons(10 * len(again), seconds=60 * way.distil_minutes)
        distil(net, load(name).float(), again, read, lessons, say)
    after = size(net)
    if after.attention > before.attention:
        raise ValueError(
            f"{name} has {before.attention:,} attention parameters already, and keeping {keep:g} of the stock model's "
            f"would leave {after.attention:,}; keep less"
        )
    original = load(name).float()
    bytes_ = file_bytes(folder_of(name), original, net, cast)
    rows = [
        _row("bytes of the file", bytes_.found, bytes_.compact),
        _row("attention parameters", before.attention, after.attention),
        _row("parameters", before.parameters, after.parameters),
        _row("bytes of tensors", stored, tensor_bytes(net)),
        *_measured(original, net, others, read, say),
    ]
    agreed, ranked, beside = _beside(name, original, net, cast, others, read, rankings, say)
    title = Path(name).name
    made = Compressed(title, net, chosen, tuple(rows), bytes_, agreed, ranked, beside)
    return replace(made, written=tuple(_write(made, name, out, head_dims[0] if padded else None, onnx, CASTS[cast])))


def _share_for(
    net: nn.Module, found: Survey, way: _Way, most: float, others: Sequence[TextBatch], read: Readout, say: Progress
) -> float:
    """The smallest share whose read-outs stay within the loss of the original's, by halving."""
    wanted = read_outs(net, others, read)
    low, high = FEWEST, 1.0
    for trial in range(TRIALS):
        keep = (low + high) / 2
        tried = reduce(copy.deepcopy(net), plan(found, keep, rule=way.rule, grouping=way.grouping))
        lost = agreement(read_outs(tried, others, read), wanted).loss
        say(f"keeping {keep:.3f} loses {lost:.2%} of the cosine, trial {trial + 1} of {TRIALS}")
        low, high = (low, keep) if lost <= most else (keep, high)
    return high


def _beside(
    name: str,
    original: nn.Module,
    net: nn.Module,
    cast: str,
    others: Sequence[TextBatch],
    read: Readout,
    files: Sequence[Path],
    say: Progress,
) -> tuple[EmbeddingAgreement | None, tuple[RankingChange, ...], tuple[dict[str, Any], ...]]:
    """The original and ours, each as it is, in 8 bits and cast: bytes, agreement, ranking. The last is written."""
    if not others:
        return None, (), ()
    texts = [Encoded(collection_of(path), tokenizer_of(name), LENGTH) for path in files]
    wanted = read_outs(original, others, read)
    firsts = [t.quality(original) for t in texts]
    dtype, rows = CASTS[cast], []
    kept: tuple[EmbeddingAgreement, tuple[RankingChange, ...]] | None = None
    for title, model in (("original", original), ("ours", net)):
        ways = (("", tensor_bytes(model), rounded_to(model, None)), ("int8", _eight(model), in_eight_bits(model)))
        for kind, bytes_, way in (*ways, (cast, tensor_bytes(model, dtype), rounded_to(model, dtype))):
            say(f"{title} {kind}: agreement and ranking")
            with way:
                agreed = agreement(read_outs(model, others, read), wanted)
                ranked = tuple(ranking_change(t, model, f) for t, f in zip(texts, firsts, strict=True))
            row = {"": f"{title} {kind}".strip(), "bytes": bytes_, "cosine": agreed.cosine}
            rows.append(row | {f"nDCG {r.collection}": r.sentence.removeprefix("nDCG@10 ") for r in ranked})
            kept = agreed, ranked
    assert kept is not None
    return kept[0], kept[1], tuple(rows)


def _eight(model: nn.Module) -> int:
    """Bytes with every matrix at one byte a weight and a float32 scale a row, the rest as it is."""
    once = {p.data_ptr(): p for p in model.parameters() if p.numel()}.values()
    return sum(p.numel() + 4 * p.shape[0] if p.dim() == 2 else p.numel() * p.element_size() for p in once)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _check(
    name: str,
    keep: float | None,
    loss: float | None,
    rule: str,
    text: Path | None,
    measure: str,
    distil_minutes: float,
    cast: str,
    out: Path | None,
    more: bool,
) -> None:
    """Refuse before anything is loaded or written."""
    folder_of(name)
    check_share(UNMEASURED if keep is None else keep, rule)
    if keep is not None and loss is not None:
        raise ValueError("a budget and a loss were given: one follows from the other, give one of them")
    if loss is not None and not 0 < loss < 1:
        raise ValueError(f"a loss must be a share above 0 and below 1, as in 0.03, got {loss:g}")
    if cast not in CASTS:
        raise ValueError(f"cast must be one of {', '.join(CASTS)}, got {cast!r}")
    if text is not None and not text.is_file():
        raise FileNotFoundError(f"no text file at {text}")
    if text is None and (measure != "weights" or distil_minutes > 0):
        raise ValueError("planning by outputs or inputs, and self-distillation, read a text, and none was given")
    if more and out is None:
        raise ValueError("a padded checkpoint or a program is written, and no folder to write into was given")
    for folder in (out / "compact", out / "padded") if out else ():
        if folder.exists():
            raise ValueError(f"{folder} exists already; give a new folder")


def _texts(name: str, net: nn.Module, text: Path | None, pieces: int) -> tuple[list[TextBatch], list[TextBatch]]:
    """Batches to calibrate on, and others to measure on: pieces drawn with another seed."""
    if text is None:
        return [], []
    tokenizer, fit = tokenizer_of(name), tokens_that_fit(net, LENGTH)
    seen = batches_of(passages(text, pieces), tokenizer, length=LENGTH, tokens=fit)
    return seen, batches_of(passages(text, 32, seed=97), tokenizer, length=LENGTH, tokens=fit)


def _write(
    made: Compressed | CutModel, name: str, out: Path | None, head_dim: int | None, onnx: bool, dtype: Any
) -> list[Path]:
    if out is None:
        return []
    source, causal = folder_of(name), isinstance(made, CutModel)
    card = card_of(made.title, made.headline, made.sentence, made.rows(), causal)
    written = [save_compact(made.model, out / "compact", source, dtype=dtype, card=card)]
    if head_dim is not None:
        written.append(save_padded(made.model, out / "padded", head_dim, source, dtype=dtype, card=card))
    if onnx:
        from headcount.shrinking.program import write_onnx

        written.append(write_onnx(made.model, out / "model.onnx", {"headline": made.headline}))
    return written


def _measured(
    original: nn.Module, net: nn.Module, others: Sequence[TextBatch], read: Readout, say: Progress
) -> list[dict[str, Any]]:
    """Latency, and how far the outputs moved on text that was not calibrated on."""
    if not others:
        return []
    say("measuring latency and outputs")
    slow, fast = latencies([original, net], max(others, key=lambda b: b.present.numel()))
    return [
        _row("milliseconds per batch", 1000 * slow, 1000 * fast),
        {"": "outputs moved", "original": 0.0, "compact": gap(net, original, others, read)},
    ]


def _row(what: str, before: float, after: float) -> dict[str, Any]:
    return {"": what, "original": before, "compact": after, "ratio": after / before if before else None}
