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

from headcount.papers.tensor_lens.masking import MAPS, masking_curve
from headcount.training import Member, Recipe, train

Curve = Sequence[float]  # the change of the output at each fraction
Interval = tuple[float, float, float]  # the mean and its ends


@dataclass(frozen=True)
class MapScore:
    """One map: the change of the output over the masking curve, at each fraction, and the operator's lead over it."""

    name: str
    score: Interval
    lead: Interval
    curve: tuple[Interval, ...]

    @property
    def verdict(self) -> str:
        """Who finds the tokens that matter faster, as far as the interval can tell."""
        if self.name == "operator":
            return ""
        _, low, high = self.lead
        return "operator" if low > 0 else self.name if high < 0 else "undecided"

    def as_row(self) -> dict[str, object]:
        """The fields for a table."""
        return {**asdict(self), "verdict": self.verdict}


def masking_by_map(model: nn.Module, inputs: Sequence[Tensor], blank: Tensor | None = None) -> dict[str, Curve]:
    """For each map the change at every fraction, averaged over the inputs."""
    curves = {}
    for name, order in MAPS.items():
        each = [[row.change for row in masking_curve(model, x, order, blank=blank)] for x in inputs]
        curves[name] = [mean(changes) for changes in zip(*each, strict=True)]
    return curves


def compared(curves: Sequence[Mapping[str, Curve]]) -> tuple[MapScore, ...]:
    """Each map over seeds (or texts) with 95 % intervals by Student's t, and the operator's paired lead.

    The score is the mean over the fractions at which something is masked.

    >>> few = [{"operator": [0.0, 2.0], "random": [0.0, 1.0]}, {"operator": [0.0, 2.1], "random": [0.0, 1.1]}]
    >>> [(s.name, s.verdict) for s in compared(few)]
    [('operator', ''), ('random', 'operator')]
    """
    map_scores = []
    for name in curves[0]:
        scores = [_score(row[name]) for row in curves]
        leads = [_score(row["operator"]) - score for row, score in zip(curves, scores, strict=True)]
        points = zip(*(row[name] for row in curves), strict=True)
        map_scores.append(
            MapScore(name, interval(scores), interval(leads), tuple(interval(values) for values in points))
        )
    return tuple(map_scores)


def _score(curve: Curve) -> float:
    moved = [change for change in curve if change]
    return mean(moved) if moved else 0.0


def interval(values: Sequence[float]) -> Interval:
    """The mean and its 95 % interval by Student's t; without ends for a single value."""
    from scipy.stats import t

    n = len(values)
    half = float(t.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return mean(values), mean(values) - half, mean(values) + half


def trained_curves(
    members: Sequence[Member], recipe: Recipe, inputs: int = 20
) -> tuple[list[dict[str, Curve]], list[float]]:
    """Networks trained on a task: the curves of every map on fresh samples, network by network, and each one's NMSE."""
    outcome = train(members, recipe)
    x, _ = members[0].drawn.sample(inputs, generator=torch.Generator().manual_seed(10_000), dtype=torch.float64)
    nets = [outcome.net(number).double().eval() for number in range(len(members))]
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


def sentence_curves(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Curve]]:
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
