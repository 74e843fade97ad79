"""D maxima by two layers of one head with positions: the network, disturbed, and trained on from there.

Descent from random weights does not find this network in the time we gave it (docs/log.md). Near it, training shows
what the prediction says: with positions the error falls back, and without them, from the same weights, it does not.

`python -m studies.infoflow.routed` adds the table "routed" to docs/data/infoflow_tables.json; 15 minutes on two cores.
`--tiny` runs the same lines.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets import Architecture, Transformer
from headcount.nets.transformer import Attention, FeedForward, position_features
from headcount.numerals import today
from headcount.papers.infoflow.experiments import position_rows
from headcount.papers.infoflow.trained_cells import Entry, Trained
from headcount.tasks import LinearMax
from headcount.training import Member, Recipe, train
from headcount.training.data import Resident
from studies.stored import DATA, of_steps, stored, written

SPARE = 8  # hidden units that do nothing at first
BETA = (8.0, 8.0)  # of the retrievals, and of the class token's look at the first D positions
NOISES = (0.05, 0.1, None)
BOUND = 6.0  # of a retrieved score: N(0, 1) stays within


class Placeless(Resident):
    """The same samples with every position feature zero."""

    def _place(self, drawn: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        x, y = super()._place(drawn)
        x[..., drawn[0][0].shape[-1] :] = 0
        return x, y


def routed(task: LinearMax, mean: float = 0.0, spread: float = 1.0, beta: tuple[float, float] = BETA) -> Transformer:
    """The network of `constructions.retrievals_by_position` as one that banks train; its output is (y - mean) / spread.

    The token at position i <= D asks for the i-th maximum; a feed-forward keeps it there alone; the class token reads
    positions 1 to D. T position features are a Fourier basis of T places, so each place is linear in them.

    >>> task = LinearMax.random(3, 2, 8)
    >>> x, y = task.sample(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> (routed(task, beta=(200.0, 20.0))(x) - y).abs().max().item() < 0.05
    True
    """
    D = len(task.directions)
    arch = Architecture(((1, D), (1, D)), width=4 * D + SPARE, positions=task.length, embed_dim=max(16, 4 * D + 2))
    net = Transformer(arch, task.token_dim).double()
    tokens, cls, between = net.attention[0], net.attention[1], net.between[0]
    assert isinstance(tokens, Attention) and isinstance(cls, Attention) and isinstance(between, FeedForward)
    at = _Layout(D)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        assert isinstance(net.encoder, FeedForward)
        _encode(net.encoder, task, at)
        net.cls[at.one] = 1
        tokens.query[0, :, at.own] = beta[0] * math.sqrt(D) * at.eye
        tokens.key[0, :, at.f], tokens.value[0, :, at.f], tokens.output[0, at.r] = at.eye, at.eye, at.eye
        _keep_own(between, at)
        cls.query[0, 0, at.one], cls.key[0, 0, at.first] = beta[1] * math.sqrt(D), 1
        cls.value[0, :, at.r], cls.output[0, at.found] = at.eye, at.eye
        # gelu(z) - gelu(-z) = z
        net.read_out.inner.weight[0, at.found], net.read_out.inner.weight[1, at.found] = D, -D
        net.read_out.outer.weight[0, :2] = torch.tensor([1.0, -1.0], dtype=torch.float64) / spread
        net.read_out.outer.bias[0] = -mean / spread
    return net


class _Layout:
    """Where a state keeps its D scores, its own place, what was retrieved, what the class token found."""

    def __init__(self, D: int) -> None:
        self.f, self.own, self.r, self.found = self.parts = [slice(k * D, (k + 1) * D) for k in range(4)]
        self.first, self.one = 4 * D, 4 * D + 1
        self.eye = torch.eye(D, dtype=torch.float64)


def _encode(encoder: FeedForward, task: LinearMax, at: _Layout) -> None:
    """Scores by pairs of units, places by one unit each; `parts` of the hidden units are cut as those of a state."""
    D, d = len(task.directions), task.token_dim
    plus, minus, place, _ = at.parts
    a = torch.tensor(task.directions, dtype=torch.float64)
    weights, constants = _places(task.length)
    _fill(encoder.inner, [(plus, slice(0, d), a), (minus, slice(0, d), -a), (place, slice(d, None), weights[:D])])
    encoder.inner.bias[place] = constants[:D]
    _fill(encoder.outer, [(at.f, plus, at.eye), (at.f, minus, -at.eye), (at.own, place, at.eye)])
    encoder.outer.weight[at.first, place] = 1


def _places(length: int) -> tuple[Float[Tensor, "length length"], Float[Tensor, " length"]]:
    """Weights and constants that turn T position features into [t = 1], ..., [t = T]."""
    basis = torch.cat([position_features(length, length, dtype=torch.float64), torch.ones(length, 1)], dim=1)
    solution = torch.linalg.lstsq(basis, torch.eye(length, dtype=torch.float64), driver="gelsd").solution
    return solution[:-1].T, solution[-1]


def _keep_own(between: FeedForward, at: _Layout) -> None:
    """r_i becomes r_i [own_i = 1]: relu(r + B (2 own - 1)) - B own - r, and the residual adds r."""
    gate, place, plus, minus = at.parts
    _fill(between.inner, [(gate, at.r, at.eye), (gate, at.own, 2 * BOUND * at.eye), (place, at.own, at.eye)])
    _fill(between.inner, [(plus, at.r, at.eye), (minus, at.r, -at.eye)])
    between.inner.bias[gate] = -BOUND
    _fill(between.outer, [(at.r, gate, at.eye), (at.r, place, -BOUND * at.eye)])
    _fill(between.outer, [(at.r, plus, -at.eye), (at.r, minus, at.eye)])


def _fill(linear: nn.Linear, blocks: list[tuple[slice, slice, Tensor]]) -> None:
    for rows, columns, block in blocks:
        linear.weight[rows, columns] = block


def disturbed(net: Transformer, noise: float, generator: torch.Generator) -> Transformer:
    """Every weight off by a relative `noise`, and by a tenth of it absolutely, so that zeros move too."""
    with torch.no_grad():
        for p in net.parameters():
            relative, absolute = (torch.randn(p.shape, generator=generator, dtype=p.dtype) for _ in range(2))
            p.mul_(1 + noise * relative).add_(0.1 * noise * absolute)
    return net


def trained_from(
    task: LinearMax, noise: float | None, seeds: Sequence[int], recipe: Recipe, *, lr: float, places: bool
) -> dict[str, Any]:
    """The best and the median NMSE over seeds, from the network disturbed by `noise`, or from random weights (None)."""
    _, y = task.sample(recipe.samples, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    arch = routed(task).arch
    members = [Member(task, arch, seed=seed, data_seed=0, lr=lr) for seed in seeds]
    start = None
    if noise is not None:
        scaled = (float(y.mean()), float(y.std()))
        start = [disturbed(routed(task, *scaled), noise, torch.Generator().manual_seed(seed)) for seed in seeds]
    rows = train(members, recipe, data=Resident if places else Placeless, start=start).rows
    begun = "from random weights" if noise is None else f"from the network within {noise:.0%}"
    with_or_without = "with positions" if places else "without positions"
    name = f"{len(task.directions)} maxima {arch.name} {with_or_without}, {begun}"
    cell = Entry(name, task, arch if places else replace(arch, positions=0))
    (row,) = position_rows([Trained.of(cell, rows)])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA / "infoflow_tables.json")
    parser.add_argument("--steps", type=int, default=7680)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    samples, validation, batch = (64, 32, 16) if options.tiny else (16384, 4096, 128)
    recipe = of_steps(4 if options.tiny else options.steps, samples, batch, validation)
    cases = [(noise, places) for noise in NOISES for places in (True, False)]
    seeds = range(1 if options.tiny else options.seeds)
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(partial(learned, recipe=recipe, seeds=seeds), *zip(*cases, strict=True)))
    for row in rows:
        print(f"{row['cell']:<70} {row['nmse']:.1e} ({row['median']:.1e})  {row['predicted']}")
    setup = {"samples": samples, "steps": recipe.steps, "batch": batch, "seeds": len(seeds)}
    about = {"device": "CPU, one thread", "torch": torch.__version__, "date": today()}
    written(options.out, stored(options.out) | {"routed": {"rows": rows, **setup, **about}})


def learned(noise: float | None, places: bool, recipe: Recipe, seeds: range) -> dict[str, Any]:
    """One start, with or without positions."""
    torch.set_num_threads(1)
    return trained_from(LinearMax.random(6, 4, 16), noise, seeds, recipe, lr=2e-3, places=places)


if __name__ == "__main__":
    main()
