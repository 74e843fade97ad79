"""Does the operator find the tokens that matter? Masking curves on networks trained here, and on a real encoder.

Published: masking 0 to 30 percent of the tokens on DeiT, BERT, RoBERTa and decoders. Here: two-layer networks on tasks
whose answer is known, five seeds, and the sentence embeddings of a small encoder; a verdict with an interval, whoever
wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets import Architecture
from headcount.papers.tensor_lens.masking import MAPS, masking_curve
from headcount.tasks import Task

__all__ = ["MapScore", "SentenceEmbedding", "compared", "masking_by_map", "sentence_scores", "trained_scores"]

T_975 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


@dataclass(frozen=True)
class MapScore:
    """The mean change of the output over the masking curve by one map, and the operator's lead over it."""

    name: str
    score: float
    low: float
    high: float
    lead: float
    lead_low: float
    lead_high: float

    @property
    def verdict(self) -> str:
        """Who finds the tokens that matter faster, as far as the interval can tell."""
        if self.name == "operator":
            return ""
        return "operator" if self.lead_low > 0 else self.name if self.lead_high < 0 else "undecided"

    def as_row(self) -> dict[str, Any]:
        """The fields for a table."""
        return {**asdict(self), "verdict": self.verdict}


def masking_by_map(model: nn.Module, inputs: Sequence[Tensor], blank: Tensor | None = None) -> dict[str, float]:
    """For each map, the change averaged over the masked fractions and the inputs."""
    scores = dict[str, float]()
    for name, order in MAPS.items():
        curves = [masking_curve(model, x, order, blank=blank) for x in inputs]
        scores[name] = mean(row.change for curve in curves for row in curve if row.masked)
    return scores


def compared(scores: Sequence[Mapping[str, float]]) -> tuple[MapScore, ...]:
    """Scores of each map over seeds (or texts) with 95 % intervals by Student's t, and the operator's paired lead.

    >>> [(s.name, s.verdict) for s in compared([{"operator": 2.0, "random": 1.0}, {"operator": 2.1, "random": 1.1}])]
    [('operator', ''), ('random', 'operator')]
    """
    found = []
    for name in scores[0]:
        values = [row[name] for row in scores]
        leads = [row["operator"] - row[name] for row in scores]
        found.append(MapScore(name, *_interval(values), *_interval(leads)))
    return tuple(found)


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    middle, n = mean(values), len(values)
    half = T_975.get(n, 1.96 + 2.4 / n) * (stdev(values) if n > 1 else math.inf) / math.sqrt(n)
    return middle, middle - half, middle + half


def trained_scores(
    task: Task, arch: Architecture, *, seeds: int = 5, inputs: int = 20, epochs: int = 100, samples: int = 4000
) -> tuple[list[dict[str, float]], list[float]]:
    """Networks trained on a task, one for each seed: the score of every map on fresh samples, and each one's NMSE."""
    from headcount.training import Member, Recipe, train

    recipe = Recipe(samples=samples, validation=500, epochs=epochs, batch=100, evaluations=min(epochs, 20))
    outcome = train([Member(task, arch, seed=s, data_seed=s) for s in range(seeds)], recipe)
    x, _ = task.sample(inputs, generator=torch.Generator().manual_seed(10_000), dtype=torch.float64)
    nets = [outcome.net(seed).double().eval() for seed in range(seeds)]
    return [masking_by_map(net, list(x)) for net in nets], [row["nmse"] for row in outcome.rows]


class SentenceEmbedding(nn.Module):
    """An encoder's mean last state, scaled to length one, as a function of embedded tokens."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.eval()

    def forward(self, x: Float[Tensor, "rows length embed"]) -> Float[Tensor, "rows embed"]:
        states = self.encoder(inputs_embeds=x).last_hidden_state
        return nn.functional.normalize(states.mean(1), dim=-1)


class SentenceSimilarity(SentenceEmbedding):
    """The cosine of a sentence's embedding with another's."""

    def __init__(self, encoder: Any, other: Tensor) -> None:
        super().__init__(encoder)
        self.other = other

    def forward(self, x: Float[Tensor, "rows length embed"]) -> Float[Tensor, " rows"]:
        return super().forward(x) @ self.other


def sentence_scores(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
    """For pairs of sentences: how fast masking the first one's tokens moves their cosine, by every map."""
    table = model.get_input_embeddings()
    rows = []
    with torch.no_grad():
        blank = table(torch.tensor(tokenizer.mask_token_id))
        for one, other in pairs:
            x, y = (table(torch.tensor(tokenizer(text)["input_ids"])) for text in (one, other))
            similar = SentenceSimilarity(model, SentenceEmbedding(model)(y[None])[0])
            rows.append(masking_by_map(similar, [x], blank))
    return rows
