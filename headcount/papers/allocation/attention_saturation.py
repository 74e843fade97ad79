"""Saturation of a trained model on a text: per layer, head and length, and what a smaller head would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from headcount.files import text_in, write_json
from headcount.nets.pretrained.batches import TextBatch, states
from headcount.nets.pretrained.families import Family
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted
from headcount.papers.allocation.jacobian import half_range, jacobian_norm, row_bound
from headcount.papers.allocation.lowrank import Factors
from headcount.papers.allocation.moments import probing
from headcount.papers.allocation.units import rewrite, survey
from headcount.results.gathering import grouped

Say = Callable[[str], None]
ROWS = 32  # query rows looked at in each sequence


class HeadSaturation(TypedDict):
    """A head at one length: medians over rows, and the bound of its own half range."""

    layer: int
    head: int
    length: int
    norm: float
    largest_weight: float
    half_range: float
    largest_half_range: float
    bound: float


class LayerSaturation(TypedDict):
    """A layer at the greatest length; `slope` is None where one length was measured."""

    layer: int
    length: int
    norm: float
    slope: float | None
    Lambda: float
    growth: float
    bound: float
    bounded: bool
    informs: bool


class HeadCut(TypedDict):
    """What a head of smaller rank changes, relative to the size of logits and outputs; rows absolute."""

    logits: float
    row_l1: float
    row_l2: float
    output: float


class RankCost(HeadCut):
    """A head of a layer cut to `rank` of its full one; `head` is "mean" where heads are averaged."""

    layer: int
    head: int | str
    rank: int
    of: int


class _Rows:
    """Keeps what the last rows of a sequence attend with: logits over all keys, and values."""

    def __init__(self, scale: float, causal: bool) -> None:
        self.scale, self.causal = scale, causal

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # A causal row sees all keys only at the end of the sequence; elsewhere rows are drawn evenly.
        length = q.shape[2]
        rows = torch.tensor([length - 1]) if self.causal else torch.linspace(0, length - 1, min(ROWS, length)).long()
        self.asked, self.keys, self.values = q.detach()[:, :, rows], k.detach(), v.detach()
        self.logits = self.asked @ self.keys.mT * self.scale
        return q

    def outputs(self, u: Tensor) -> Tensor:
        return u


def chunks(path: str | Path, tokenizer: Any, length: int, count: int) -> TextBatch:
    """`count` pieces of exactly `length` tokens, spread evenly over the text."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}")
    if length < 2:
        raise ValueError(f"a length must be at least 2 tokens, got {length}")
    text = text_in(path, errors="replace")
    need = 12 * length * count  # characters: ample for most tokenizers, far less than a book
    ids: list[int] = tokenizer(" ".join(text[: max(need, 4000)].split()), truncation=False, verbose=False)["input_ids"]
    if len(ids) < length:
        raise ValueError(f"{path} gives {len(ids)} tokens, fewer than the length {length}")
    first = np.linspace(0, len(ids) - length, count).astype(int)
    rows = torch.tensor([ids[i : i + length] for i in first])
    return TextBatch({"input_ids": rows, "attention_mask": torch.ones_like(rows)}, torch.ones_like(rows).bool())


@torch.no_grad()
def saturation(model: nn.Module, batches: Sequence[TextBatch], say: Say = lambda _: None) -> list[HeadSaturation]:
    """One row per layer, head and length: the norm of the Jacobian, the largest weight, the logits' half range.

    Medians over rows; `half_range` also as its largest value, which is what the bound needs.
    """
    family = rewrite(model)
    rows = []
    for batch in batches:
        length = batch.present.shape[1]
        for number, layer_rows in enumerate(_look(model, family, batch)):
            p = layer_rows.logits.softmax(-1)
            norm, half = jacobian_norm(p), half_range(layer_rows.logits)
            for head in range(p.shape[1]):
                rows.append(
                    {
                        "layer": number,
                        "head": head,
                        "length": length,
                        "norm": float(norm[:, head].median()),
                        "largest_weight": float(p[:, head].amax(-1).median()),
                        "half_range": float(half[:, head].median()),
                        "largest_half_range": float(half[:, head].max()),
                        "bound": row_bound(float(half[:, head].median()), length).value,
                    }
                )
        say(f"length {length} measured")
    return rows


def verdicts(rows: Sequence[HeadSaturation]) -> list[LayerSaturation]:
    """One row per layer: how the Jacobian falls with length, and whether the theorem's hypothesis holds on this text.

    `slope` is the exponent of norm ~ length^slope (the theorem: -1). The logits count as bounded when their half range
    grows by less than a tenth from the second shortest to the greatest length; the bound informs below 1/2.
    """
    layers = []
    for layer in sorted({r["layer"] for r in rows}):
        of_layer = [r for r in rows if r["layer"] == layer]
        lengths = sorted({r["length"] for r in of_layer})
        norms = [float(np.median([r["norm"] for r in of_layer if r["length"] == n])) for n in lengths]
        halves = [float(np.median([r["half_range"] for r in of_layer if r["length"] == n])) for n in lengths]
        slope = float(np.polyfit(np.log(lengths), np.log(np.maximum(norms, 1e-30)), 1)[0]) if len(lengths) > 1 else None
        growth = halves[-1] / max(halves[min(1, len(halves) - 1)], 1e-30)
        bound = row_bound(halves[-1], lengths[-1])
        layers.append(
            {
                "layer": layer,
                "length": lengths[-1],
                "norm": norms[-1],
                "slope": slope,
                "Lambda": halves[-1],
                "growth": growth,
                "bound": bound.value,
                "bounded": growth < 1.1,
                "informs": not bound.vacuous,
            }
        )
    return layers


@torch.no_grad()
def rank_costs(
    model: nn.Module, batches: Sequence[TextBatch], shares: Sequence[float] = (0.5, 0.25), say: Say = lambda _: None
) -> list[RankCost]:
    """What a head of smaller query-key rank changes: its logits, its rows (l1 and l2) and its outputs, per head.

    Ranks are cut data-aware on the same text; logits and outputs are relative to their own size, rows absolute.
    Layers whose products cannot be cut give no rows.
    """
    surveyed = survey(model, "inputs", batches=batches, read=states, parts=("query-key",), say=say)
    family = rewrite(model)
    rows = []
    for batch in batches:
        for number, layer_rows in enumerate(_look(model, family, batch)):
            for unit in (u for u in surveyed.units if u.layer == number):
                for fraction in shares:
                    rank = int(fraction * unit.full)
                    for place, head in enumerate(unit.heads):
                        cost = _cost(layer_rows, unit.factors, place, head, rank)
                        rows.append({"layer": number, "head": head, "rank": rank, "of": unit.full, **cost})
    return rows


@dataclass(frozen=True)
class SaturationReport(AnswerInNotebook):
    """A model on a text: a verdict for each layer, the rows behind them, and what smaller ranks would change."""

    layers: list[LayerSaturation]
    rows: list[HeadSaturation]
    rank_costs: list[RankCost]

    @property
    def longest(self) -> list[HeadSaturation]:
        """The rows of the greatest length, head by head."""
        length = max(row["length"] for row in self.rows)
        return [row for row in self.rows if row["length"] == length]

    @property
    def costs_by_layer(self) -> list[RankCost]:
        """What smaller ranks would change: the mean over the heads of a layer."""
        groups = grouped(((cost["layer"], -cost["rank"]), cost) for cost in self.rank_costs)
        return [
            RankCost(
                layer=layer,
                head="mean",
                rank=-rank,
                of=of[0]["of"],
                logits=fmean(cost["logits"] for cost in of),
                row_l1=fmean(cost["row_l1"] for cost in of),
                row_l2=fmean(cost["row_l2"] for cost in of),
                output=fmean(cost["output"] for cost in of),
            )
            for (layer, rank), of in sorted(groups.items())
        ]

    @property
    def sentence(self) -> str:
        """How many layers fulfil the theorem's hypothesis."""
        bounded = sum(bool(row["bounded"]) for row in self.layers)
        return f"{bounded} of {counted(len(self.layers), 'layer')} keep their logits bounded as sequences grow"

    def files(self, out: Path) -> list[Path]:
        """All of it in `saturation.json`."""
        return [write_json(out / "saturation.json", self.to_json())]

    def to_json(self) -> dict[str, list[LayerSaturation] | list[HeadSaturation] | list[RankCost]]:
        """A JSON-ready dictionary."""
        return {"layers": self.layers, "rows": self.rows, "rank_costs": self.rank_costs}


def saturation_report(
    model: nn.Module,
    tokenizer: Any,
    text: str | Path,
    lengths: Sequence[int],
    samples: int = 8,
    say: Say = lambda _: None,
) -> SaturationReport:
    """The saturation of a model on a text, at those of the lengths that it takes."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", max(lengths))
    taken = sorted({n for n in lengths if n <= most})
    if not taken:
        raise ValueError(f"every length exceeds the {most} positions of this model")
    batches = [chunks(text, tokenizer, n, samples) for n in taken]
    rows = saturation(model, batches, say)
    return SaturationReport(verdicts(rows), rows, rank_costs(model, batches[-1:], say=say))


def _cost(layer_rows: _Rows, factors: Factors, place: int, head: int, rank: int) -> HeadCut:
    dim = len(factors.right)
    left = factors.left[place * dim : (place + 1) * dim, :rank]
    product = (left @ factors.right[:, :rank].mT).to(layer_rows.asked.dtype)
    z = layer_rows.logits[:, head]
    moved = layer_rows.asked[:, head] @ product @ layer_rows.keys[:, head].mT * layer_rows.scale
    gap = moved - z
    gap = gap - gap.mean(-1, keepdim=True)  # softmax does not see what is constant over keys
    p, new = z.softmax(-1), moved.softmax(-1)
    before, after = p @ layer_rows.values[:, head], new @ layer_rows.values[:, head]
    return {
        "logits": float(gap.norm() / (z - z.mean(-1, keepdim=True)).norm()),
        "row_l1": float((new - p).abs().sum(-1).mean()),
        "row_l2": float((new - p).norm(dim=-1).mean()),
        "output": float((after - before).norm() / before.norm()),
    }


def _look(model: nn.Module, family: Family, batch: TextBatch) -> list[_Rows]:
    layers = family.layers(model)
    probes = [_Rows(family.read(layer).scale, family.causal) for layer in layers]
    with probing(family, layers, probes):
        getattr(model, "base_model", model)(**batch.inputs)
    return probes
