"""What is trained and measured: the run in stages, which lags are chosen, predictors side by side, other lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss

from headcount.papers.induction.bounds import Lags, information_set, subsets
from headcount.papers.induction.networks import matched_mean
from headcount.papers.induction.staged import GROUPS, ChainTables, Learnt, Stage, Staged, descend
from headcount.tasks.ngrams import ChainSample, NGram, dirichlet_posterior

TOGETHER = (Stage(GROUPS, 100),)
PARENTS: tuple[Lags, ...] = ((1, 2), (1, 3), (2, 3), (2,))
CONCENTRATIONS = (0.1, 0.3, 1.0)
WINDOW = 3  # lags among which training and the information set choose
LENGTHS = (10, 20, 50, 100, 200, 400)


class GroupsRow(TypedDict):
    """The three groups of parameters as numbers: the scale, own-lag weights, and the share of every set of lags."""

    scale: float
    own: list[float]
    shares: dict[str, float]


class StageRow(GroupsRow):
    """The model after a step."""

    step: int
    loss: float


class PathRow(StageRow):
    """The model after a step of one seed, with the state that a run goes on from."""

    seed: int
    state: dict[str, list[float]]


class SelectionRow(TypedDict):
    """A chain: the lags that training chose, beside those with the most information and by how much they lead."""

    parents: Lags
    concentration: float
    chosen: Lags
    share: float
    information_set: Lags
    runner_up: Lags
    agrees: bool
    decided: bool
    vocab: int
    margin: float
    margin_error: float


class PredictorScores(TypedDict):
    """How a predictor's law does on the letters that came; no `cross_entropy` where one had probability 0."""

    loss: float
    cross_entropy: float | None
    accuracy: float


class PredictorRow(PredictorScores):
    """A predictor on a set of lags."""

    predictor: str
    lags: Lags


class FullRow(TypedDict):
    """A start of the full model after some steps: the lags it chose and reads, and how it does."""

    randomness: float
    seed: int
    own: float
    steps: int
    chosen: Lags
    share: float
    share_of_parents: float
    loss: float
    accuracy: float
    lags_read: Lags


@dataclass(frozen=True)
class ChainRun:
    """One run of the simplified model: its chain, how many sequences, the seed of both, and the start."""

    task: NGram = field(default_factory=NGram)
    training: int = 9000
    validation: int = 2000
    seed: int = 0
    heads: int = 3
    degree: int = 2
    own: float = 3.0
    rate: float = 1.0
    dtype: torch.dtype = torch.float32

    def start(self) -> Staged:
        """The model before the first step."""
        return Staged.start(self.heads, self.degree, own=self.own, dtype=self.dtype)

    def data(self) -> tuple[ChainTables, ChainTables]:
        """Training and validation sequences as the model sees them."""
        training, validation = chain_samples(self.task, (self.training, self.validation), self.seed)
        return ChainTables.of(training, self.heads), ChainTables.of(validation, self.heads)

    def trained(self, stages: Sequence[Stage] = TOGETHER) -> Staged:
        """The model after the stages."""
        return descend(self.start(), self.data()[0], stages, rate=self.rate)


def chain_samples(task: NGram, sizes: Sequence[int], seed: int) -> list[ChainSample]:
    """Samples of these sizes, one after the other from one seed."""
    generator = torch.Generator().manual_seed(seed)
    return [task.sample(size, generator=generator) for size in sizes]


def stage_rows(
    run: ChainRun, stages: Sequence[Stage], *, at: Sequence[int] | None = None
) -> tuple[Staged, list[StageRow]]:
    """The trained model, and a row for every step in `at` (all where none is given): the three groups and the loss."""
    training, validation = run.data()
    rows: list[StageRow] = []

    def visit(step: int, model: Staged) -> None:
        if at is None or step in at:
            rows.append({"step": step, "loss": float(model.loss(validation)), **groups_row(model)})

    return descend(run.start(), training, stages, rate=run.rate, visit=visit), rows


def path_rows(run: ChainRun, at: Sequence[int], *, after: PathRow | None = None) -> Iterator[PathRow]:
    """A row for every step in `at`, all groups together, with the model's state; after the row `after` it goes on.

    The state is a few numbers and the data come from the seed, so a run that was cut goes on bit for bit.
    """
    training, validation = run.data()
    model, done = (run.start(), 0) if after is None else (_moved_to(run.start(), after["state"]), after["step"])
    for step in sorted(step for step in at if after is None or step > done):
        model = descend(model, training, (Stage(GROUPS, step - done),), rate=run.rate)
        done, state = step, {name: getattr(model, name).tolist() for name in GROUPS}
        yield {
            "seed": run.seed,
            "step": step,
            "loss": float(model.loss(validation)),
            **groups_row(model),
            "state": state,
        }


def _moved_to(model: Staged, state: Mapping[str, float | list[float] | list[list[float]]]) -> Staged:
    return replace(model, **{name: torch.tensor(state[name], dtype=model.copier.dtype) for name in GROUPS})


def groups_row(model: Staged) -> GroupsRow:
    """The three groups as fields: shares of the sets, own-lag weights, scale."""
    weights = {",".join(map(str, lags)): weight for lags, weight in model.shares.items()}
    return {"scale": float(model.classifier), "own": model.copier[:, 0].tolist(), "shares": weights}


def selection_rows(
    *,
    steps: int = 60,
    seed: int = 0,
    training: int = 2000,
    parents: Sequence[Lags] = PARENTS,
    concentrations: Sequence[float] = CONCENTRATIONS,
    kernels: int = 400,
) -> list[SelectionRow]:
    """For every chain: the lags training chose beside the information set, its margin and the margin's error.

    A set whose lead is within two standard errors is not `decided`: there agreement says little. At two letters and
    concentration 0.1 training chooses {1, 2} where the information set is {1}: selection follows what the heads copy,
    and they copy sharply only where they start so.
    """
    rows = []
    for lags in parents:
        for alpha in concentrations:
            task = NGram(parents=lags, concentration=alpha)
            run = ChainRun(task, training, validation=2, seed=seed, heads=WINDOW)
            model = run.trained((Stage(GROUPS, steps),))
            best = information_set(alpha, task.vocab, lags, WINDOW, kernels=kernels)
            row: SelectionRow = {
                "parents": lags,
                "concentration": alpha,
                "chosen": model.chosen,
                "share": model.share(model.chosen),
                "information_set": best.lags,
                "runner_up": best.runner_up,
                "agrees": model.chosen == best.lags,
                "decided": best.decided,
                "vocab": task.vocab,
                "margin": best.margin,
                "margin_error": best.margin_error,
            }
            rows.append(row)
    return rows


def predictor_rows(task: NGram, *, samples: int = 4000, seed: int = 0, window: int = 3) -> list[PredictorRow]:
    """The matched mean and the posterior on every set of lags, and the true kernel, on the same sequences.

    `loss` takes a predictor's law as logits, as the runs do; `cross_entropy` is its own, None where a letter that came
    had probability 0.
    """
    (sample,) = chain_samples(task, (samples,), seed)
    sample = ChainSample(sample.x.double(), sample.following, sample.row.double())
    rows: list[PredictorRow] = [
        {"predictor": "true kernel", "lags": task.parents, **_scored(sample.row, sample.following)}
    ]
    for lags in subsets(window):
        mean, posterior = matched_mean(sample.x, lags), dirichlet_posterior(sample.x, lags, task.concentration)
        rows.append({"predictor": "matched mean", "lags": lags, **_scored(mean, sample.following)})
        rows.append({"predictor": "posterior", "lags": lags, **_scored(posterior, sample.following)})
    return rows


def length_rows(
    model: Staged,
    task: NGram,
    *,
    lengths: Sequence[int] = LENGTHS,
    concentrations: Sequence[float] = CONCENTRATIONS,
    samples: int = 2000,
    seed: int = 1,
) -> list[dict[str, float | None]]:
    """A trained model on other lengths and concentrations, beside the matched mean, the posterior and the kernel."""
    rows = []
    for alpha in concentrations:
        for length in lengths:
            chain = replace(task, length=length, concentration=alpha)
            (sample,) = chain_samples(chain, (samples,), seed)
            laws = {
                "model": model(ChainTables.of(sample, model.heads)),
                "matched": matched_mean(sample.x, task.parents),
                "posterior": chain(sample.x),
                "kernel": sample.row,
            }
            row: dict[str, float | None] = {"concentration": alpha, "length": length}
            for name, law in laws.items():
                scores = _scored(law, sample.following)
                row |= {f"{name}_loss": scores["loss"], f"{name}_accuracy": scores["accuracy"]}
            rows.append(row)
    return rows


def full_rows(
    *,
    seeds: Sequence[int] = (0, 1, 2),
    randomness: Sequence[float] = (0.0, 0.3, 1.0),
    own: float = 3.0,
    steps: int = 300,
    training: int = 2000,
    validation: int = 2000,
    rate: float = 1.0,
) -> list[FullRow]:
    """The full model, with query, key and value learnt too: which lags every start ends on, and the loss there.

    A hypothesis is asked, no theorem repeated. The data are the same for every seed, only the start differs: maps from
    those of the simplified model (randomness 0, where all seeds are one) to random ones (1).
    """
    base = ChainRun(training=training, validation=validation, own=own, rate=rate)
    starts = [(t, seed) for t in randomness for seed in (seeds if t > 0 else seeds[:1])]
    return [row for mixed, seed in starts for row in full_path(base, mixed, seed, (steps,))]


def full_path(base: ChainRun, randomness: float, seed: int, at: Sequence[int]) -> Iterator[FullRow]:
    """One start of the full model: a row at every step in `at`, with the lags each head reads by more than a tenth."""
    data, held_out = base.data()
    learnt = Learnt.between(base.heads, base.task.vocab, randomness, generator=torch.Generator().manual_seed(seed))
    model, done = replace(base.start(), learnt=learnt), 0
    for step in sorted(at):
        model, done = descend(model, data, (Stage((*GROUPS, "learnt"), step - done),), rate=base.rate), step
        yield {
            "randomness": randomness,
            "seed": seed,
            "own": base.own,
            "steps": step,
            "chosen": model.chosen,
            "share": model.share(model.chosen),
            "share_of_parents": model.share(base.task.parents),
            "loss": float(model.loss(held_out)),
            "accuracy": float((model(held_out).argmax(dim=1) == held_out.following).double().mean()),
            "lags_read": lags_read(model),
        }


def lags_read(model: Staged, least: float = 0.1) -> Lags:
    """The lags that the heads of the chosen set give more than `least` of their attention.

    >>> lags_read(Staged.start(own=3.0)), lags_read(Staged.start(own=0.1))  # the empty set is chosen at the start
    ((), ())
    """
    weights = model.copier.softmax(dim=1)
    return tuple(sorted({h + i for h in model.chosen for i in range(model.heads) if weights[h - 1, i] > least}))


def _scored(law: Tensor, following: Tensor) -> PredictorScores:
    chances = law.gather(1, following[:, None])
    entropy = float(nll_loss(law.log(), following)) if bool((chances > 0).all()) else None
    right = float((law.argmax(dim=1) == following).double().mean())
    return {"loss": float(cross_entropy(law, following)), "cross_entropy": entropy, "accuracy": right}
