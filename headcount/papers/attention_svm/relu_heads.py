"""The published study of mixtures: a ReLU head, normalised descent on W, and which tokens it ends up attending to.

    f(X_i) = sum_k relu(V^T m_i)_k,   m_i = X_i^T softmax(X_i W z_i),   loss = mean log(1 + exp(-Y_i f(X_i)))

A sum of ReLUs is convex, so that a sequence labelled 1 wants one token and one labelled -1 wants the mixture where the
head is least: only draws with a label -1 can mix, and the published study keeps no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.papers.attention_svm.descent import TINY, logits
from headcount.papers.attention_svm.direction import direction_gap
from headcount.papers.attention_svm.margins import separating
from headcount.papers.attention_svm.nonlinear import CHOSEN, UNDECIDED, decompose
from headcount.papers.attention_svm.selection import Instances, Selection
from headcount.refusals import at_least_one, positive
from headcount.sources import Checked, Source, implements

Matrices = Float[Tensor, "instances d e"]


@dataclass(frozen=True)
class MixingRun:
    """One run that decided: 1 - cosine of W with W_dir, with both parts, with one token each; and how many attend.

    `rest` is that of W - W_fin with W_dir: what the statement predicts and training could fail.
    """

    instance: int
    mixes: bool
    direction: float
    both: float
    single: float | None
    rest: float


def relu_instances(
    sequences: int, length: int, token_dim: int, instances: int, generator: torch.Generator
) -> tuple[Instances, Matrices, Matrices]:
    """Instances with a label -1 each, V of Frobenius norm 1, and W at its published start, uniform in 1/sqrt(d)."""
    data = Selection(sequences, length, token_dim).sample(instances, generator=generator)
    labels = data.labels.clone()
    while (none := (labels > 0).all(dim=1)).any():
        labels[none] = 2 * torch.randint(2, (int(none.sum()), sequences), generator=generator).double() - 1
    size = (instances, token_dim, token_dim)
    values = torch.randn(size, generator=generator, dtype=torch.float64)
    start = (2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1) / token_dim**0.5
    drawn = Instances(data.tokens, data.queries, labels, data.read_out)
    return drawn, values / values.flatten(1).norm(dim=1)[:, None, None], start


def descend(data: Instances, values: Matrices, start: Matrices, steps: int = 2000, rate: float = 0.1) -> Matrices:
    """W after so many steps of normalised descent, all instances at once."""
    at_least_one(steps=steps)
    positive(rate=rate)
    w = start
    for _ in range(steps):
        g = relu_gradient(data, values, w)
        w = w - rate * g / (g.flatten(1).norm(dim=1)[:, None, None] + TINY)
    return w


def relu_gradient(data: Instances, values: Matrices, w: Matrices) -> Matrices:
    """dL/dW by hand: d f / d logit_t = p_t (x_t - m).s, s = V [V^T m > 0]."""
    p = attention(data, w)
    before = torch.einsum("ist,istd,ide->ise", p, data.tokens, values)
    slope = (before > 0).double() @ values.mT
    pulled = torch.einsum("istd,isd->ist", data.tokens, slope)
    pull = p * (pulled - (p * pulled).sum(dim=-1, keepdim=True))
    outer = -data.labels * torch.sigmoid(-data.labels * before.relu().sum(dim=-1)) / p.shape[1]
    return torch.einsum(
        "isd,ise->ide", torch.einsum("ist,istd->isd", outer[..., None] * pull, data.tokens), data.queries
    )


def attention(data: Instances, w: Matrices) -> Float[Tensor, "instances sequences length"]:
    """softmax(X_i W z_i)."""
    return logits(data, w).softmax(dim=-1)


@implements(
    Source("tarzanagh2023svm", "nonlinear heads: the published study with a ReLU head"),
    test="tests/test_attention_svm_mixtures.py::test_the_published_relu_head_mixes_tokens_and_goes_like_both_parts",
    status="measured",
    hypotheses=(Checked("no final weight lies between 1e-6 and 1e-3, and some token is left out"),),
)
def mixing_runs(data: Instances, w: Matrices) -> tuple[list[MixingRun], dict[str, int]]:
    """Every run that decided, beside its W_dir, both parts and the solution for its strongest tokens; and the rest.

    Set aside, as published: a weight between 1e-6 and 1e-3, or every token attended to, or no separating matrix.
    """
    p = attention(data, w)
    undecided: Bool[Tensor, " instances"] = ((p > UNDECIDED) & (p < CHOSEN)).flatten(1).any(dim=1)
    everywhere = (p > UNDECIDED).flatten(1).all(dim=1) & ~undecided
    decided = torch.nonzero(~undecided & ~everywhere)[:, 0].tolist()
    runs = [run for i in decided if (run := _run(data, w, p, i)) is not None]
    excluded = {
        "undecided": int(undecided.sum()),
        "all attended": int(everywhere.sum()),
        "infeasible": len(decided) - len(runs),
    }
    return runs, excluded


def _run(data: Instances, w: Matrices, p: Tensor, i: int) -> MixingRun | None:
    x, z = data.arrays(i)
    final = w[i].numpy()
    parts = decompose(x, z, final)
    if parts is None:
        return None
    one = separating(x, z, p[i].argmax(dim=-1).numpy())
    single = None if one is None else float(direction_gap(final[None], one.weights)[0])
    mixes = bool(((p[i] >= CHOSEN).sum(dim=-1) > 1).any())
    return MixingRun(i, mixes, parts.gap_direction, parts.gap_both, single, parts.gap_rest)


def mixing_rows(
    dims: tuple[int, ...] = (4, 6, 8, 10), instances: int = 300, *, steps: int = 2000, length: int = 4, seed: int = 0
) -> list[dict[str, Any]]:
    """The published study, n = 3 and T = 4, by token dimension: counts, mean cosines and medians of what is left.

    Departs: so many draws for each dimension instead of 500 runs kept.
    """
    rows = []
    for d in dims:
        g = torch.Generator().manual_seed(1000 * seed + d)
        data, values, start = relu_instances(3, length, d, instances, g)
        runs, excluded = mixing_runs(data, descend(data, values, start, steps))
        mixed = [run for run in runs if run.mixes]
        rows.append({"token_dim": d, "drawn": instances, **excluded, "one token each": len(runs) - len(mixed),
                     "mixing tokens": len(mixed), **_cosines(mixed)})  # fmt: skip
    return rows


def _cosines(mixed: list[MixingRun]) -> dict[str, float | int | None]:
    alone = [run.single for run in mixed if run.single is not None]
    return {
        "cosine to both": _mean([1 - run.both for run in mixed]),
        "cosine to W_dir": _mean([1 - run.direction for run in mixed]),
        "cosine to one token each": _mean([1 - s for s in alone]),
        "cosine of the rest": _mean([1 - run.rest for run in mixed]),
        "median of the rest": float(np.median([1 - run.rest for run in mixed])) if mixed else None,
        "W_dir nearer than one token each": sum(run.single is None or run.direction < run.single for run in mixed),
        "one token each infeasible": len(mixed) - len(alone),
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
