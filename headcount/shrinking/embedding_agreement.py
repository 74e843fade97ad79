"""What became of a sentence encoder: how like its embeddings are to the original's, and how well it still ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.fits.student import half_width
from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.shrinking.ranking import Encoded, interval
from headcount.shrinking.report_rows import JsonRow


@dataclass(frozen=True)
class EmbeddingAgreement:
    """Mean cosine of a model's read-outs to the original's, text by text, with a 95% interval of the mean."""

    cosine: float
    low: float
    high: float
    texts: int

    @property
    def loss(self) -> float:
        return 1 - self.cosine

    @property
    def sentence(self) -> str:
        """The figure with its interval.

        >>> EmbeddingAgreement(0.9912, 0.99, 0.9925, 32).sentence
        'cosine to the original 0.991 [0.990, 0.993] over 32 texts'
        """
        return f"cosine to the original {self.cosine:.3f} [{self.low:.3f}, {self.high:.3f}] over {self.texts} texts"

    def as_row(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class RankingChange:
    """nDCG@10 of a set of queries, and its change from the original with a 95% interval over queries, paired."""

    collection: str
    original: float
    ndcg: float
    low: float
    high: float
    queries: int

    @property
    def change(self) -> float:
        return self.ndcg - self.original

    @property
    def sentence(self) -> str:
        """The figure with its interval.

        >>> RankingChange("Cranfield", 0.436, 0.431, -0.009, -0.001, 225).sentence
        'nDCG@10 0.431, -0.005 [-0.009, -0.001] on Cranfield'
        """
        return f"nDCG@10 {self.short} on {self.collection}"

    @property
    def short(self) -> str:
        """The level, and its change with the interval."""
        return f"{self.ndcg:.3f}, {self.change:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"

    def as_row(self) -> JsonRow:
        return {**asdict(self), "change": self.change}


@torch.no_grad()
def read_outs(model: nn.Module, batches: Sequence[TextBatch], read: Readout) -> list[Float[Tensor, "batch numbers"]]:
    """What is read out of a model, one row per text."""
    return [read(model, batch).flatten(1) for batch in batches]


def agreement(found: Sequence[Tensor], originals: Sequence[Tensor]) -> EmbeddingAgreement:
    """Compare read-outs with the original's.

    >>> one = torch.tensor([[3.0, 4.0]])
    >>> agreement([one], [2 * one]).cosine
    1.0
    """
    pairs = zip(found, originals, strict=True)
    cosines = torch.cat([nn.functional.cosine_similarity(a.double(), b.double(), dim=1) for a, b in pairs])
    mean, count = float(cosines.mean()), len(cosines)
    wide = half_width(float(cosines.std()), count) if count > 1 else 0.0
    return EmbeddingAgreement(mean, mean - wide, min(1.0, mean + wide), count)


def ranking_change(texts: Encoded, model: nn.Module | dict[str, float], originals: dict[str, float]) -> RankingChange:
    """How well a model, or what it was seen to do query by query, ranks a collection beside the original."""
    quality = texts.quality(model) if isinstance(model, nn.Module) else model
    low, high = interval([quality[q] - originals[q] for q in quality])
    before, after = (sum(x.values()) / len(x) for x in (originals, quality))
    return RankingChange(texts.collection.name, before, after, low, high, len(quality))
