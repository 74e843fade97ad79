"""A network of the contest: settings searched on the inner part, the finalists trained to the end, the better kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float

from headcount.measuring.baselines import Predicted
from headcount.measuring.contestants import Contestant
from headcount.measuring.planning import FINALISTS, SHORT, Fitting, StudyPlan, TrainingSetting
from headcount.measuring.preparing import Fold
from headcount.nets.standard import Encoder, EncoderShape
from headcount.training import Given, Member, train
from headcount.training.given import Part

AT_ONCE = 500  # sequences that a plain network reads together


@dataclass(frozen=True, eq=False)
class Searched:
    """A network with its setting, its losses on the inner and on the training part, and how many diverged beside it."""

    net: Encoder
    setting: TrainingSetting
    inner: float
    training: float
    diverged: int = 0


def shape_of(contestant: Contestant, fold: Fold, plan: StudyPlan, letters: int = 0) -> EncoderShape:
    """The standard block of a contestant on these data: linear embedding or a table of ids, learnt positions."""
    x, y = fold.training.x, fold.training.y
    return EncoderShape(
        layers=tuple(plan.shape(h) for h in contestant.heads),
        embed_dim=plan.embed_dim,
        width=plan.width,
        token_dim=0 if letters else x.shape[2],
        vocab=letters + 1 if letters else 0,
        positions=x.shape[1],
        outputs=1 if y.ndim == 1 else y.shape[1],
        pooling="mean" if plan.pooling == "mean" else "class token",
    )


@torch.no_grad()
def evened(net: Encoder, heads: Sequence[int]) -> Encoder:
    """The network with even weights in every layer that has 0 heads: its queries and keys are 0, and stay so.

    A score is the product of query and key, so where both are 0 the gradient of each is 0 as well, and neither Adam
    nor weight decay moves it.

    >>> net = evened(EncoderShape(((1, 4),), embed_dim=4, width=4, token_dim=2).module(seed=0), [0])
    >>> float(net.get_parameter("layer0.read.weight").detach()[:8].abs().max())
    0.0
    """
    for layer, count in enumerate(heads):
        if count == 0:
            for kind in ("weight", "bias"):
                read = net.get_parameter(f"layer{layer}.read.{kind}")
                read[: 2 * len(read) // 3] = 0.0
    return net


def fit_network(contestant: Contestant, fold: Fold, way: Fitting) -> tuple[Predicted, Searched]:
    """Train every setting for a quarter of the steps and the best two to the end; the inner part chooses each time."""
    rule = _Rule(contestant, fold, way, shape_of(contestant, fold, way.plan, way.letters))
    settings, steps = way.plan.settings, way.steps
    tried = rule.trained(settings, max(10, steps // SHORT)) if len(settings) > 1 else []
    best = sorted(tried, key=lambda one: one.inner)[:FINALISTS]
    finals = rule.trained([one.setting for one in best] or settings, steps)
    chosen = min((*finals, *best), key=lambda one: one.inner)
    outer, short = (outputs_on(one.net, fold.outer) for one in (chosen, best[0] if best else chosen))
    lost = sum(not np.isfinite(one.inner) for one in (*tried, *finals))
    return Predicted(outer, outputs_on(chosen.net, fold.inner), short), replace(chosen, diverged=lost)


@dataclass(frozen=True, eq=False)
class _Rule:
    contestant: Contestant
    fold: Fold
    way: Fitting
    shape: EncoderShape

    def trained(self, settings: Sequence[TrainingSetting], steps: int) -> list[Searched]:
        """A bank for every dropout."""
        searched: list[Searched] = []
        for dropout, some in groupby(sorted(settings, key=lambda s: s.dropout), key=lambda s: s.dropout):
            searched += self._bank(replace(self.shape, dropout=dropout), list(some), steps)
        return searched

    def _bank(self, shape: EncoderShape, settings: list[TrainingSetting], steps: int) -> list[Searched]:
        fold, fitting = self.fold, self.way
        task = Given(fitting.digest, shape.positions, shape.token_dim)
        members = [Member(task, shape, seed=fitting.seed, lr=one.lr, weight_decay=one.weight_decay) for one in settings]
        recipe = fitting.plan.recipe(len(fold.training), len(fold.inner), steps)
        start = [evened(shape.module(fitting.seed), self.contestant.heads) for _ in members]

        def look(steps: int) -> None:
            fitting.look()

        data = fold.parts.resident
        outcome = train(
            members, recipe, device=fitting.device, data=data, start=start, on_progress=look, compiled=True
        )  # fmt: skip
        inner = [np.inf if row["nmse"] is None or row["nmse"] != row["nmse"] else row["nmse"] for row in outcome.rows]
        nets = [outcome.net(k).float().cpu().eval() for k in range(len(members))]
        return [
            Searched(net, one, level, float(row["train_nmse"] or 0.0))
            for net, one, level, row in zip(nets, settings, inner, outcome.rows, strict=True)
        ]


@torch.no_grad()
def outputs_on(net: Encoder, part: Part) -> Float[np.ndarray, "samples outputs"]:
    """What a plain network says of every sequence, in float64 numbers."""
    parameter = next(net.parameters())
    some = []
    for rows in np.array_split(np.arange(len(part)), -(-len(part) // AT_ONCE)):
        x = torch.as_tensor(part.x[rows])
        x = x if part.x.ndim == 2 else x.to(parameter.dtype)
        present = torch.arange(x.shape[1]) < torch.as_tensor(part.lengths[rows])[:, None]
        some.append(net(x, present).reshape(len(rows), -1).double().numpy())
    return np.concatenate(some)
