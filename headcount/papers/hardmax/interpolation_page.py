"""An interpolation as rows and as a page: how many layers, what is promised, how far the keys are apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headcount.certificates.built import Built
from headcount.drawing.panels import Panel, figure_of, frames, log_panel, plain_panel
from headcount.drawing.svg import Figure
from headcount.files import write_text
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted, short
from headcount.papers.hardmax.bounds import interpolation_blocks, interpolation_layers, our_interpolation_blocks
from headcount.papers.hardmax.narrow import Hats, NarrowNet
from headcount.papers.hardmax.sequence_pairs import SequencePairs, hausdorff
from headcount.report import Exhibit, Passage, article

WIDE, NARROW, HEIGHT = 860, 380, 320
GAPS = "Sorted gaps, and the promise above them; no gap at all is drawn at 1e-17."
KEYS_APART = (
    "Each hat moves one point, found by its key. A point may stray by a quarter of the smallest distance and is still "
    "moved as before."
)


@dataclass(frozen=True, eq=False)
class InterpolationReport(AnswerInNotebook):
    """What was built, and what it does on every given sequence, as it stands and backwards.

    `promised_for`: of how many of the sequences the certificate speaks; `seconds` that the construction took.
    """

    built: Built
    facts: dict[str, Any]

    @classmethod
    def of(cls, built: Built, *, promised_for: int | None = None, seconds: float | None = None) -> InterpolationReport:
        """The network tried on its pairs; all of them are promised where nothing else is said."""
        net, pairs = built.net, built.task
        assert isinstance(net, NarrowNet) and isinstance(pairs, SequencePairs)
        counts = [len(y) for y in pairs.outputs]
        check = built.check()
        facts = {
            "sequences": len(counts),
            "outputs": sum(counts),
            "token_dim": pairs.token_dim,
            "longest": pairs.length,
            "layers": net.shape.layers,
            "blocks": net.shape.blocks,
            "parameters": net.shape.parameters,
            "layers_at_most": int(interpolation_layers(counts).value),
            "blocks_at_most": int(our_interpolation_blocks(counts).value),
            "published_blocks": int(interpolation_blocks(counts).value),
            "smallest_gap": getattr(built, "smallest_gap", None),
            "tie_margin": getattr(built, "tie_margin", None),
            "gap": check.gap,
            "error": built.certificate.error,
            "holds": check.holds,
            "seconds": seconds,
            "promised_for": len(counts) if promised_for is None else promised_for,
        }
        return cls(built, facts)

    @property
    def rows(self) -> list[dict[str, object]]:
        """Layers and blocks beside what is at most needed."""
        known = self.facts
        layers = {"count": "layers", "built": known["layers"], "at most": known["layers_at_most"], "published": None}
        blocks = {"count": "blocks", "built": known["blocks"], "at most": known["blocks_at_most"]}
        return [layers, blocks | {"published": known["published_blocks"]}]

    @property
    def terms(self) -> list[dict[str, object]]:
        """The terms of the certificate."""
        return self.built.certificate.rows

    @property
    def sentence(self) -> str:
        """The answer."""
        known = self.facts
        if not known["holds"]:
            return f"this network does not give these outputs: off by {known['gap']:.3g}"
        sizes = f"{counted(known['layers'], 'layer')} and {known['parameters']:,} numbers give"
        gaps = f"worst gap {short(known['gap'], 2)}, promised {short(known['error'], 2)}"
        one = known["sequences"] == 1
        return f"{sizes} {counted(known['sequences'], 'sequence')} {'its' if one else 'their'} outputs, {gaps}"

    def files(self, out: Path, *, onnx: bool = False) -> list[Path]:
        """The network, the page, and the network for other runtimes where that is wanted."""
        net = self.built.save(out / "net.safetensors")
        page = write_text(out / "interpolation.html", interpolation_page(self))
        return [net, page, *([self.built.export(out / "net.onnx")] if onnx else [])]


def interpolation_page(found: InterpolationReport) -> str:
    """The page: counts beside the published ones, the certificate, and how the error and the keys are spread."""
    built, facts = found.built, found.facts
    gaps, keys = _gaps(built), _key_gaps(built)
    sections = [
        Passage(
            "How deep",
            ("A block is an attention and the feed-forward layer after it; the length of a sequence does not enter.",),
            rows=tuple(found.rows),
            columns=COUNTED,
            note="Published: 2 sum m + 2N + 1 blocks of hardmax attention.",
        ),
        Passage("What is promised", (f"On {built.task.domain}.",), rows=tuple(found.terms)),
        Passage(
            "What was measured",
            ("Every sequence as given and backwards: the distance of what is found from what is wanted, either way.",),
            (Exhibit(_spread(gaps, facts["error"], WIDE), GAPS, _spread(gaps, facts["error"], NARROW)),),
        ),
        Passage(
            "How far the keys are apart",
            (KEYS_APART,),
            (Exhibit(_ladder(keys, WIDE), "The distance of each key from the next.", _ladder(keys, NARROW)),),
        ),
    ]  # fmt: skip
    shown = {k.replace("_", " "): v for k, v in facts.items() if k in SHOWN and v is not None}
    holds = "interpolated exactly" if facts["holds"] else "not interpolated"
    headline = f"{counted(facts['sequences'], 'sequence')}, {holds}"
    lead = f"{found.sentence[:1].upper()}{found.sentence[1:]}."
    return article(headline, lead, sections, subject="interpolation", facts=shown, command=COMMAND)


COUNTED = {"count": "count", "built": "built", "at most": "ours, at most", "published": "published"}
SHOWN = (
    "sequences",
    "outputs",
    "token_dim",
    "longest",
    "layers",
    "parameters",
    "smallest_gap",
    "tie_margin",
    "seconds",
)
COMMAND = "headcount theory interpolate data.npz --out DIR"


def _gaps(built: Built) -> list[float]:
    pairs = built.task
    assert isinstance(pairs, SequencePairs)
    with torch.no_grad():
        there, back = (hausdorff(built.net(x), pairs.targets) for x in (pairs.batch, pairs.batch.flip(1)))
    return sorted(torch.maximum(there, back).clamp(min=1e-17).tolist())


def _key_gaps(built: Built) -> list[float]:
    """The distances of neighbouring keys of the stage whose keys are closest, sorted."""
    gaps = []
    for stage in built.net.modules():
        if isinstance(stage, Hats) and len(stage.keys) > 1:
            slope = stage.keys.norm(dim=1)  # 1/q
            sign = torch.where(stage.keys @ stage.keys[0] < 0, -1.0, 1.0)
            keys = np.sort((sign * (stage.thresholds[:, 1] + stage.thresholds[:, 2]) / 2 / slope).numpy())
            gaps.append(sorted(np.diff(keys).tolist()))
    return min(gaps, key=lambda g: g[0], default=[1.0])


def _curve(panel: Panel, values: list[float]) -> str:
    """Sorted values: a mark each, or a line where they are many."""
    points = [(float(i), v) for i, v in enumerate(values, 1)]
    return panel.line(points, "line ks0") if len(points) > 60 else panel.marks(points, 0, "ring", 4)


def _spread(gaps: list[float], error: float, width: int) -> Figure:
    (frame,) = frames(1, width=width, height=HEIGHT)
    panel = log_panel(frame, [1, max(2, len(gaps))], [*gaps, error])
    body = panel.axes + _curve(panel, gaps) + panel.level(error, "thin dots ks1")
    body += panel.below([(1, "1"), (len(gaps), str(len(gaps)))] if len(gaps) > 1 else [(1, "1")], "sequences, sorted")
    return figure_of(
        [body + panel.title("Gap (dotted: promise)")], width=width, height=HEIGHT, title="Gaps", words="Sorted gaps."
    )


def _ladder(keys: list[float], width: int) -> Figure:
    (frame,) = frames(1, width=width, height=HEIGHT)
    panel_of = log_panel if min(keys) > 0 else plain_panel
    panel = panel_of(frame, [1, max(2, len(keys))], keys)
    body = panel.axes + _curve(panel, keys)
    body += panel.below(
        [(1, "1"), (len(keys), str(len(keys)))] if len(keys) > 1 else [(1, "1")], "neighbouring keys, sorted"
    )
    return figure_of(
        [body + panel.title("Distance of keys")], width=width, height=HEIGHT, title="Keys", words="Sorted distances."
    )
