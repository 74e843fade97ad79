"""A language model made smaller: calibrated once, cut to a budget or to a loss, and judged on text it has not seen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets.pretrained.batches import predicts_tokens
from headcount.nets.pretrained.folders import folder_of, load
from headcount.nets.pretrained.gguf_files import origin_of
from headcount.notebook import html_answer
from headcount.papers.allocation.moments import PARTS
from headcount.papers.allocation.slopes import LayerSlopes, loss_slopes
from headcount.papers.allocation.units import rewrite
from headcount.shrinking.budget import least_share
from headcount.shrinking.file_bytes import CASTS, FileBytes, file_bytes, rounded_to
from headcount.shrinking.loss_plan import LossPlan, carried_means, carried_out, held_against_truth, loss_plan, putting
from headcount.shrinking.loss_units import LossUnit, loss_units
from headcount.shrinking.perplexity import PairedLoss, compared, losses_of
from headcount.shrinking.report_rows import BeforeAfter, JsonRow, before_after
from headcount.shrinking.running_costs import RunningCosts, running_costs
from headcount.shrinking.smaller_files import Stock, write_smaller
from headcount.shrinking.surgery import at_full_rank
from headcount.shrinking.text_windows import TextSplit
from headcount.shrinking.weight_and_time import ModelSize, size, stock_head_dims

Progress = Callable[[str], None]
FIRST_KEEP = 0.8  # where the curves are held against the truth when no budget is given
TRIALS = 6  # budgets looked at to find the one of a given loss
FEWEST = 0.05


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A model of full rank with everything that one calibration found: any budget can be planned from it."""

    name: str
    model: nn.Module
    split: TextSplit
    slopes: tuple[LayerSlopes, ...]
    units: tuple[LossUnit, ...]
    means: tuple[Tensor, ...]
    given: ModelSize  # as it was read, which for a compact checkpoint is less than at full rank
    chosen_by: Float[Tensor, " choosing"]  # the original's losses on the windows for choosing
    judged_by: Float[Tensor, " judging"]  # and on those for judging

    @property
    def length(self) -> int:
        return self.split.judging.shape[1]

    @property
    def title(self) -> str:
        """What the model is: its name, and for a converted one what it was converted from."""
        origin = origin_of(folder_of(self.name))
        return Path(self.name).name if origin is None else origin.sentence

    def plan(self, keep: float) -> LossPlan:
        return loss_plan(self.units, keep, self.means)

    def on_choosing(self, plan: LossPlan) -> PairedLoss:
        """What a plan costs on the windows kept for choosing."""
        with putting(self.model, plan.products(), self.means):
            return compared(losses_of(self.model, self.split.choosing), self.chosen_by, self.length)

    def for_loss(self, most: float, say: Progress = lambda _: None) -> LossPlan:
        """The smallest plan that loses at most this share of perplexity on the windows kept for choosing."""
        if not 0 < most < 10:
            raise ValueError(f"a loss must be a share of perplexity above 0, as in 3%, got {most:g}")
        return self.plan(least_share(lambda keep: self.on_choosing(self.plan(keep)).loss, most, FEWEST, TRIALS, say))


@dataclass(frozen=True, eq=False)
class CutModel:
    """A language model cut and judged: quality, bytes of the whole file, what it costs to run, before and after."""

    title: str
    model: nn.Module
    plan: LossPlan
    quality: PairedLoss
    cast_alone: PairedLoss
    bytes: FileBytes
    sizes: tuple[ModelSize, ModelSize]
    costs: tuple[RunningCosts, RunningCosts]
    stock: Stock
    written: tuple[Path, ...] = ()
    asked: float | None = None  # the loss that the budget was found for, on the windows kept for choosing

    @property
    def headline(self) -> str:
        """Quality and bytes of the whole file, and whether the cast alone, or the source, is the better bargain."""
        words = f"{self.title}: {self.quality.sentence}; {self.bytes.sentence}"
        return words if self.bytes.worthwhile else f"{words}; {self.better}"

    @property
    def better(self) -> str:
        if self.bytes.source is not None and self.bytes.compact >= self.bytes.source.bytes:
            return "as a file the source is the better bargain"
        return (
            "as a file the cast alone is the better bargain"
            if self.bytes.cast != "none"
            else "as a file it saves little"
        )

    @property
    def sentence(self) -> str:
        """What it comes to."""
        before, after = self.costs
        less = 1 - after.cache_per_token / before.cache_per_token
        fraction = self.sizes[1].attention / self.sizes[0].attention
        words = f"{fraction:.0%} of the attention parameters and {1 - less:.0%} of the cache are left for"
        over = f" (at most {self.asked:.1%} asked)" if self.asked is not None and self.quality.loss > self.asked else ""
        words += f" {self.quality.loss:+.1%} of perplexity{over}, and {self.bytes.saved:.1%} of the whole file is saved"
        return words if self.bytes.worthwhile else f"{words}; {self.better}"

    @property
    def rows(self) -> list[BeforeAfter]:
        """Quality, bytes and costs, before and after."""
        (a, b), (before, after) = self.sizes, self.costs
        first = self.quality.original
        rows = [
            before_after("perplexity", first, first * self.quality.ratio),
            before_after("perplexity, same cast alone", first, first * self.cast_alone.ratio),
            before_after("bytes of the file", self.bytes.found, self.bytes.compact),
            before_after("bytes, same cast alone", self.bytes.cast_alone, self.bytes.compact),
            before_after("parameters", a.parameters, b.parameters),
            before_after("attention parameters", a.attention, b.attention),
            before_after(f"cache bytes at {before.tokens:,} tokens", before.cache_bytes, after.cache_bytes),
            before_after("ms to read the prompt", 1000 * before.prefill, 1000 * after.prefill),
            before_after("ms to write a token", 1000 * before.decode, 1000 * after.decode),
        ]
        if self.bytes.source is not None:
            rows.insert(3, before_after("bytes, source file", self.bytes.source.bytes, self.bytes.compact))
        return rows if self.bytes.cast != "none" else [r for r in rows if "cast" not in str(r[""])]

    def files(self, out: Path, *, padded: bool = False, onnx: bool = False) -> list[Path]:
        """The folder `compact` that every command reads; `padded` for stock code and `model.onnx` where wanted."""
        return write_smaller(self, out, causal=True, padded=padded, onnx=onnx)

    def _repr_html_(self) -> str:
        return html_answer(self.headline, self.rows)

    def as_row(self) -> JsonRow:
        """Everything but the model, ready for JSON."""
        return {
            "headline": self.headline,
            "quality": self.quality.as_row(),
            "cast_alone": self.cast_alone.as_row(),
            "bytes": self.bytes.as_row(),
            "plan": self.plan.rows,
            "keep": self.plan.share,
            "asked": self.asked,
            "predicted": self.plan.error,
            "floor": self.plan.floor,
            "table": self.rows,
            "costs": [c.as_row() for c in self.costs],
            "written": [str(path) for path in self.written],
        }


def calibrated(
    name: str,
    split: TextSplit,
    *,
    parts: Sequence[str] = PARTS,
    keep: float | None = None,
    rounds: int = 1,
    device: str = "cpu",
    say: Progress = lambda _: None,
) -> Calibrated:
    """Read a language model, find the price of all its parts on a text, and hold the prices against the truth.

    The windows have the length that the model will be used at: what a low frequency does shows only there.
    """
    length = split.judging.shape[1]
    model = load(name).float()
    original_size = size(model)
    at_full_rank(model)
    if not predicts_tokens(type(model).__name__):
        raise ValueError(f"{name} is a {type(model).__name__}, which gives no next token")
    model.requires_grad_(False)
    family = rewrite(model)
    layers = family.layers(model)
    most = getattr(getattr(model, "config", None), "max_position_embeddings", length)
    if length > most:
        raise ValueError(f"windows of {length} tokens exceed the {most} positions of {name}")
    model.to(device)
    slopes = loss_slopes(model, split.calibration, say)
    means = carried_means(family, layers, slopes)
    units = tuple(loss_units(family, layers, slopes, parts))
    for _ in range(rounds):
        some = split.choosing[:1, : max(2, length // 2)]  # a layer's share shows there, and half as long takes half
        units = held_against_truth(model, loss_plan(units, keep or FIRST_KEEP, means), some, say)
    say("the original on the text to judge on")
    losses = losses_of(model, split.choosing), losses_of(model, split.judging)
    return Calibrated(name, model, split, tuple(slopes), units, tuple(means), original_size, *losses)


def cut_to(
    seen: Calibrated, plan: LossPlan, *, cast: str = "bf16", generated: int = 32, say: Progress = lambda _: None
) -> CutModel:
    """Carry a plan out on a copy of the model, and judge it: the first look at the windows kept for that."""
    say("cutting and judging")
    dtype, length = CASTS[cast], seen.length
    with rounded_to(seen.model, dtype):
        alone = compared(losses_of(seen.model, seen.split.judging), seen.judged_by, length)
    there: Any = seen.model
    smaller = carried_out(copy.deepcopy(seen.model).cpu(), plan).eval().to(there.device)
    with rounded_to(smaller, dtype):
        quality = compared(losses_of(smaller, seen.split.judging), seen.judged_by, length)
    say("measuring what it costs to run")
    prompt = seen.split.judging[0][: max(2, length - generated)]
    original = seen.model if size(seen.model) == seen.given else load(seen.name).float().to(there.device)
    costs = running_costs([original, smaller], prompt, generated)
    sizes = seen.given, size(smaller)
    if sizes[1].attention > sizes[0].attention:
        raise ValueError(
            f"{seen.name} has {sizes[0].attention:,} attention parameters already, and keeping {plan.share:.3g} of the "
            f"stock model's would leave {sizes[1].attention:,}; keep less"
        )
    stock = Stock(folder_of(seen.name), stock_head_dims(original)[0])
    bytes_ = file_bytes(stock.folder, original, smaller, cast)
    return CutModel(seen.title, smaller, plan, quality, alone, bytes_, sizes, (costs[0], costs[1]), stock)
