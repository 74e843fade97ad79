"""The whole of `headcount compress`: from a name and a budget to a smaller model on disk, judged for its user."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

import torch
from torch import nn

from headcount.nets.pretrained.batches import Readout, TextBatch, batches_of, passages, predicts_tokens
from headcount.nets.pretrained.folders import folder_of, load, readout_for, tokenizer_of
from headcount.notebook import html_answer
from headcount.papers.allocation.moments import PARTS
from headcount.papers.allocation.units import Survey
from headcount.shrinking.budget import least_share
from headcount.shrinking.distillation import Lessons, distil
from headcount.shrinking.embedding_agreement import (
    EmbeddingAgreement,
    RankingChange,
    agreement,
    ranking_change,
    read_outs,
)
from headcount.shrinking.file_bytes import CASTS, FileBytes, file_bytes, rounded_to, tensor_bytes
from headcount.shrinking.language_model import CutModel, calibrated, cut_to
from headcount.shrinking.rank_plan import RankPlan, check_share
from headcount.shrinking.ranking import Encoded, collection_of
from headcount.shrinking.report_rows import BeforeAfter, JsonRow, before_after
from headcount.shrinking.rival_cuts import in_eight_bits
from headcount.shrinking.smaller_files import Stock, write_smaller
from headcount.shrinking.surgery import ShrinkWay, at_full_rank, reduce
from headcount.shrinking.text_windows import split_text
from headcount.shrinking.weight_and_time import gap, latencies, size, stock_head_dims, tokens_that_fit

Progress = Callable[[str], None]
LENGTH = 128  # tokens that a piece of text for an encoder is cut to
WINDOWS = (16, 4, 8)  # of a language model: to calibrate on, to choose by, to judge on
LOSS = 0.01  # the default bargain: at most this is lost, whatever it saves
UNMEASURED = 0.5  # kept where there is no text to measure a loss on
FIRST_KEEP, TRIALS, FEWEST = 0.8, 5, 0.1


@dataclass(frozen=True, eq=False)
class Compressed:
    """An encoder (or a model planned without text) made smaller, its plan, its figures and the folders written."""

    title: str
    model: nn.Module
    plan: RankPlan
    attention: tuple[int, int]  # parameters before and after
    table: tuple[BeforeAfter, ...]
    bytes: FileBytes
    stock: Stock
    agreement: EmbeddingAgreement | None = None
    rankings: tuple[RankingChange, ...] = ()
    beside: tuple[dict[str, str | int | float], ...] = ()
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
        fraction = self.attention[1] / self.attention[0]
        words = (
            f"{fraction:.0%} of the attention parameters are left and {self.bytes.saved:.1%} of the whole file is saved"
        )
        return words if self.bargain else f"{words}; as a file {self._rival} is the better bargain"

    @property
    def rows(self) -> list[BeforeAfter]:
        """Sizes and quality, before and after."""
        return list(self.table)

    def files(self, out: Path, *, padded: bool = False, onnx: bool = False) -> list[Path]:
        """The folder `compact` that every command reads; `padded` for stock code and `model.onnx` where wanted."""
        return write_smaller(self, out, causal=False, padded=padded, onnx=onnx)

    def _repr_html_(self) -> str:
        return html_answer(self.headline, self.rows)

    def as_row(self) -> JsonRow:
        """Everything but the model, ready for JSON."""
        return {
            "headline": self.headline,
            "plan": self.plan.rows,
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
            "table": self.rows,
            "written": [str(path) for path in self.written],
        }


class CompressSettings(TypedDict, total=False):
    """What may be said besides a budget and a text; see `Order` for what each means where it is not said."""

    test: str | Path | None
    length: int
    windows: tuple[int, int, int]
    parts: Sequence[str]
    measure: str
    rule: str
    pieces: int
    grouping: bool
    distil_minutes: float
    cast: str
    rankings: Sequence[str | Path]
    padded: bool
    onnx: bool


@dataclass(frozen=True)
class Order:
    """Everything that was asked of `compress`; refused before anything is loaded or written where it cannot be done."""

    name: str
    keep: float | None = None
    loss: float | None = None
    text: Path | None = None
    out: Path | None = None
    say: Progress = lambda _: None
    test: str | Path | None = None  # to judge a language model on; otherwise the last fifth of the text
    length: int = 512  # tokens at which a language model will be used
    windows: tuple[int, int, int] = WINDOWS
    parts: Sequence[str] = PARTS
    measure: str = "outputs"  # this and the next five for encoders, and where there is no text
    rule: str = "allocated"
    pieces: int = 128
    grouping: bool = False
    distil_minutes: float = 0.0
    rankings: Sequence[str | Path] = ()
    cast: str = "bf16"
    padded: bool = False
    onnx: bool = False

    def __post_init__(self) -> None:
        folder_of(self.name)
        check_share(UNMEASURED if self.keep is None else self.keep, self.rule)
        if self.keep is not None and self.loss is not None:
            raise ValueError("a budget and a loss were given: one follows from the other, give one of them")
        if self.loss is not None and not 0 < self.loss < 1:
            raise ValueError(f"a loss must be a share above 0 and below 1, as in 0.03, got {self.loss:g}")
        if self.cast not in CASTS:
            raise ValueError(f"cast must be one of {', '.join(CASTS)}, got {self.cast!r}")
        if self.text is not None and not self.text.is_file():
            raise FileNotFoundError(f"no text file at {self.text}")
        if self.text is None and (self.measure != "weights" or self.distil_minutes > 0):
            raise ValueError("planning by outputs or inputs, and self-distillation, read a text, and none was given")
        if (self.padded or self.onnx) and self.out is None:
            raise ValueError("a padded checkpoint or a program is written, and no folder to write into was given")
        for folder in (self.out / "compact", self.out / "padded") if self.out else ():
            if folder.exists():
                raise ValueError(f"{folder} exists already; give a new folder")

    @property
    def dtype(self) -> torch.dtype | None:
        return CASTS[self.cast]

    def written(self, cut: Compressed | CutModel) -> tuple[Path, ...]:
        """The files of the smaller model; none where no folder was named."""
        return () if self.out is None else tuple(cut.files(self.out, padded=self.padded, onnx=self.onnx))

    @property
    def way(self) -> ShrinkWay:
        """How an encoder's ranks are found."""
        return ShrinkWay(self.measure, self.rule, self.parts, self.grouping)


def compress(
    model: str | Path,
    keep: float | None = None,
    *,
    loss: float | None = None,
    text: str | Path | None = None,
    out: str | Path | None = None,
    on_progress: Progress = lambda _: None,
    **settings: Unpack[CompressSettings],
) -> Compressed | CutModel:
    """Shrink the model in a folder to the share `keep` of its attention, or as far as the `loss` allows.

    Without either the loss is at most 1%: of perplexity for a language model, of the cosine to the original for an
    encoder. The share is of the stock model, also where `model` is a compact checkpoint that has lost some already.
    `text` is a file to calibrate on; a language model is judged on `test`, or on the last fifth of `text`, in windows
    of `length` tokens. Only planning by `measure="weights"` needs no text. `out` gets a folder `compact` that `load`,
    every command and `transformers` read, and where asked for `padded` for stock code and `model.onnx`.
    """
    order = Order(str(model), keep, loss, _path(text), _path(out), on_progress, **settings)
    net = load(order.name).float()
    if not (predicts_tokens(type(net).__name__) and order.measure == "outputs" and order.text is not None):
        return _encoder(order, net)
    split = split_text(order.text, tokenizer_of(order.name), order.length, order.windows, order.test)
    calibration = calibrated(order.name, split, parts=order.parts, keep=keep, say=on_progress)
    chosen = calibration.plan(keep) if keep is not None else calibration.for_loss(loss or LOSS, on_progress)
    cut = cut_to(calibration, chosen, cast=order.cast, say=on_progress)
    cut = replace(cut, asked=(loss or LOSS) if keep is None else None)
    return replace(cut, written=order.written(cut))


def _encoder(order: Order, net: nn.Module) -> Compressed:
    before, stored, stock = size(net), tensor_bytes(net), Stock(folder_of(order.name), stock_head_dims(net)[0])
    chosen, others = _cut(order, net)
    after = size(net)
    if after.attention > before.attention:
        ratio = chosen.parameters / chosen.stock if order.keep is None else order.keep
        raise ValueError(
            f"{order.name} has {before.attention:,} attention parameters already, and keeping {ratio:g} of the stock "
            f"model's would leave {after.attention:,}; keep less"
        )
    original = load(order.name).float()
    bytes_ = file_bytes(stock.folder, original, net, order.cast)
    read = readout_for(order.name)
    rows = [
        before_after("bytes of the file", bytes_.found, bytes_.compact),
        before_after("attention parameters", before.attention, after.attention),
        before_after("parameters", before.parameters, after.parameters),
        before_after("bytes of tensors", stored, tensor_bytes(net)),
        *_measured(original, net, others, read, order.say),
    ]
    compressed = Compressed(
        Path(order.name).name, net, chosen, (before.attention, after.attention), tuple(rows), bytes_, stock
    )
    if others:
        compressed = _judged(order, compressed, original, others)
    return replace(compressed, written=order.written(compressed))


def _cut(order: Order, net: nn.Module) -> tuple[RankPlan, list[TextBatch]]:
    """Carry the plan out on the model itself; the plan, and texts that it has not seen."""
    at_full_rank(net)
    calibration, others = _texts(order, net)
    read = readout_for(order.name)
    surveyed = order.way.survey(net, order.keep or FIRST_KEEP, calibration, read, order.say)
    keep = order.keep
    if keep is None:
        keep = _share_for(order, net, surveyed, others) if others else UNMEASURED
    chosen = order.way.plan(surveyed, keep)
    reduce(net, chosen, order.say)
    if order.distil_minutes > 0 and order.text is not None:
        order.say("self-distillation")
        again = batches_of(passages(order.text, 2000, seed=1), tokenizer_of(order.name), length=LENGTH, tokens=512)
        lessons = Lessons(10 * len(again), seconds=60 * order.distil_minutes)
        distil(net, load(order.name).float(), again, read, lessons, order.say)
    return chosen, others


def _share_for(order: Order, net: nn.Module, surveyed: Survey, others: Sequence[TextBatch]) -> float:
    """The smallest share whose read-outs stay within the loss of the original's, by halving."""
    read, most = readout_for(order.name), order.loss or LOSS
    wanted = read_outs(net, others, read)

    def lost_at(keep: float) -> float:
        tried = reduce(copy.deepcopy(net), order.way.plan(surveyed, keep))
        return agreement(read_outs(tried, others, read), wanted).loss

    return least_share(lost_at, most, FEWEST, TRIALS, order.say, " of the cosine")


def _judged(order: Order, compressed: Compressed, original: nn.Module, others: Sequence[TextBatch]) -> Compressed:
    """The original and ours, each as it is, in 8 bits and cast: bytes, agreement, ranking. The last is written."""
    read = readout_for(order.name)
    texts = [Encoded(collection_of(Path(path)), tokenizer_of(order.name), LENGTH) for path in order.rankings]
    wanted = read_outs(original, others, read)
    order.say("original: ranking")
    firsts = [t.quality(original) for t in texts]
    rows: list[dict[str, str | int | float]] = []
    for title, model in (("original", original), ("ours", compressed.model)):
        contexts = (("", tensor_bytes(model), rounded_to(model, None)), ("int8", _eight(model), in_eight_bits(model)))
        for kind, bytes_, context in (
            *contexts,
            (order.cast, tensor_bytes(model, order.dtype), rounded_to(model, order.dtype)),
        ):
            order.say(f"{title} {kind}: agreement and ranking")
            with context:
                agreed = agreement(read_outs(model, others, read), wanted)
                again = model is not original or kind != ""  # the original as it is has been ranked already
                ranked = tuple(ranking_change(t, model if again else f, f) for t, f in zip(texts, firsts, strict=True))
            nouns = {f"nDCG {r.collection}": r.short for r in ranked}
            rows.append({"": f"{title} {kind}".strip(), "bytes": bytes_, "cosine": agreed.cosine, **nouns})
            compressed = replace(compressed, agreement=agreed, rankings=ranked)
    return replace(compressed, beside=tuple(rows))


def _eight(model: nn.Module) -> int:
    """Bytes with every matrix at one byte a weight and a float32 scale a row, the rest as it is."""
    once = {p.data_ptr(): p for p in model.parameters() if p.numel()}.values()
    return sum(p.numel() + 4 * p.shape[0] if p.dim() == 2 else p.numel() * p.element_size() for p in once)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _texts(order: Order, net: nn.Module) -> tuple[list[TextBatch], list[TextBatch]]:
    """Batches to calibrate on, and others to measure on: pieces drawn with another seed."""
    if order.text is None:
        return [], []
    tokenizer, fit = tokenizer_of(order.name), tokens_that_fit(net, LENGTH)
    calibration = batches_of(passages(order.text, order.pieces), tokenizer, length=LENGTH, tokens=fit)
    return calibration, batches_of(passages(order.text, 32, seed=97), tokenizer, length=LENGTH, tokens=fit)


def _measured(
    original: nn.Module, net: nn.Module, others: Sequence[TextBatch], read: Readout, say: Progress
) -> list[BeforeAfter]:
    """Latency, and how far the outputs moved on text that was not calibrated on."""
    if not others:
        return []
    say("measuring latency and outputs")
    slow, fast = latencies([original, net], max(others, key=lambda b: b.present.numel()))
    return [
        before_after("milliseconds per batch", 1000 * slow, 1000 * fast),
        {"": "outputs moved", "original": 0.0, "compact": gap(net, original, others, read)},
    ]
