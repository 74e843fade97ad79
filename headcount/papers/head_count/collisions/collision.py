"""The lower bound made visible: two sequences that attention can hardly tell apart, with targets that differ."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor, nn

from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.papers.head_count.collisions.placement import Placement, place
from headcount.papers.head_count.collisions.sight import Sight, sight_of
from headcount.papers.head_count.networks.minima import minima_of
from headcount.papers.head_count.steepness import GELU_SLOPE, steepness_width
from headcount.results import Basis, Bound, Claim, Evidence, Predicate
from headcount.sources import Checked, Source, implements
from headcount.tasks import Task

SOURCE = Source("yu2025heads", "Theorem 2(2), Claim 2.1")
FLAT = 4  # up to so many dimensions of heads * head_dim, nearest neighbours are quickly found
EXHAUSTIVE, EXHAUSTIVE_DEEP = 12, 10  # free positions up to which every filling is looked at; the latter beyond FLAT
NEIGHBOURS, ROUNDS, KEPT = 6, 2, 8


@dataclass(frozen=True)
class Collision(AnswerInNotebook):
    """Two sequences, how far their targets and their attention outputs are apart, and what that costs."""

    first: Tensor  # length token_dim
    second: Tensor
    placement: Placement
    target_gap: float
    attention_distance: float
    heads: int
    head_dim: int
    embed_dim: int
    outer_slope: float  # a bound of |dF_0/dz|
    looked_at: int
    activation_slope: float = 1.0  # of the read-out: 1 for ReLU, 1.13 for GELU

    @property
    def steepness(self) -> float:
        """How much the read-out must rise per unit of its input."""
        return self.target_gap / self.attention_distance

    def collides(self, eps: float = 0.0) -> bool:
        """Whether a read-out within eps needs more hidden units than F_0 would if attention gave it the minima.

        Given the minima, states |z - z'| apart have targets at most |dF_0/dz| |z - z'| apart: attention that tells
        sequences apart as well as that leaves no collision.
        """
        return self.width(eps).value > max(1.0, self.outer_slope)

    def width(self, eps: float = 0.0) -> Bound:
        """The width below which no read-out with weights at most 1 on this attention is within eps of the target."""
        # Within eps of both targets, the outputs differ by at least target_gap - 2 eps.
        return steepness_width(
            max(0.0, self.target_gap - 2 * eps), self.attention_distance, self.embed_dim, self.activation_slope
        )

    def claim(self, eps: float = 0.0) -> Claim:
        """What the two sequences show of read-outs on this attention, with what Lemma 4 asks of them."""
        subject = f"a read-out that brings this attention within {eps:.3g} of the target"
        if not self.collides(eps):
            evidence = Evidence(planned=self.looked_at, entered=self.looked_at, rows=self.looked_at)
            one = f"the targets found are {self.target_gap:.3g} apart, and one constant lies within {eps:.3g} of both"
            none = f"of {self.looked_at:,} sequences looked at no two ask it for more hidden units than the target does"
            why = one if self.target_gap <= 2 * eps else none
            return Claim(subject, Predicate.NOTHING, basis=Basis("measured"), evidence=evidence, reason=why)
        width = self.width(eps)
        return Claim(subject, Predicate.CONFUSED, width, Basis("proved"), width.source, width.given)

    @property
    def sentence(self) -> str:
        """What the two sequences show, at no error."""
        return str(self.claim())

    @property
    def rows(self) -> list[dict[str, object]]:
        """The tokens in which the two sequences differ."""
        pairs = enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True), start=1)
        return [{"position": t, "first": a, "second": b} for t, (a, b) in pairs if a != b]

    def to_json(self, eps: float = 0.0) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {**self.as_row(eps), "first": self.first.tolist(), "second": self.second.tolist()}

    def files(self, out: Path) -> list[Path]:
        """All of it in `collision.json`."""
        return [write_json(out / "collision.json", self.to_json())]

    def as_row(self, eps: float = 0.0) -> dict[str, object]:
        """The numbers as one flat machine-readable row."""
        return {
            "heads": self.heads,
            "head_dim": self.head_dim,
            "length": len(self.first),
            "free": len(self.placement.free),
            "levels": self.placement.levels,
            "retrieval": self.placement.retrieval,
            "target_gap": self.target_gap,
            "attention_distance": self.attention_distance,
            "steepness": self.steepness,
            "eps": eps,
            "width": self.width(eps).value,
            "collides": self.collides(eps),
            "looked_at": self.looked_at,
            "claim": self.claim(eps).to_json(),
        }


@implements(
    SOURCE,
    test="tests/test_head_count_collide.py::test_steepness_grows_exponentially_with_free_positions",
    status="proved in the paper",
    hypotheses=(
        Checked("one layer of softmax attention"),
        Checked("distinct minimisers on the box"),
        Checked("free positions left beside the favourites"),
        "fewer heads than retrievals",
    ),
)
def collide(
    task: Task, net: nn.Module, *, free: int = 12, levels: int = 3, radius: float | None = None, seed: int = 0
) -> Collision:
    """The steepest pair of sequences for a one-layer attention: almost the same attention output, different targets.

    Up to 12 free positions all levels^free fillings are compared; beyond, fillings whose output is close to one of
    a few chosen points are found by meeting in the middle, and compared with each other.
    Source: Yu et al. 2025 (heads), Theorem 2(2).
    """
    minima = minima_of(task, radius)
    placement = place(minima, net, free=free, levels=levels)
    net = copy.deepcopy(net).double().cpu()
    tables = _tables(placement, net)
    pairs, looked_at = [], 0
    for fillings in _batches(tables, free, seed):
        pairs += _closest(tables, fillings)
        looked_at += len(fillings)
    best = max((_measured(task, net, placement, a, b) for a, b in pairs), key=lambda pair: pair[0] / pair[1])
    gap, distance, first, second = best
    sight, slope = tables.sight, math.hypot(*minima.outer.partial_bounds())
    sizes = sight.heads, sight.head_dim, sight.embed_dim
    return Collision(first, second, placement, gap, distance, *sizes, slope, looked_at, _slope(net))


def _slope(net: nn.Module) -> float:
    """The largest slope of the read-out's activation; of a network without a read-out of its own, that of ReLU."""
    read_out = getattr(net, "read_out", None)
    smooth = isinstance(read_out, nn.Module) and any(isinstance(part, nn.GELU) for part in read_out.modules())
    return GELU_SLOPE if smooth else 1.0


@dataclass(frozen=True)
class _Tables:
    """Weights and weighted values of the fixed tokens together, and of every level at every free position."""

    sight: Sight
    fixed_weight: np.ndarray  # heads
    fixed_value: np.ndarray  # heads head_dim
    weight: np.ndarray  # free levels heads
    value: np.ndarray  # free levels heads head_dim

    def sums(self, positions: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(choices, weights, values) of all fillings of some free positions, without the fixed tokens."""
        choices = np.zeros((1, 0), dtype=np.int8)
        weight, value = np.zeros((1, *self.fixed_weight.shape)), np.zeros((1, *self.fixed_value.shape))
        for w, v in zip(self.weight[positions], self.value[positions], strict=True):
            m = len(w)
            choices = np.concatenate(
                [np.repeat(choices, m, axis=0), np.tile(np.arange(m, dtype=np.int8), len(choices))[:, None]], axis=1
            )
            weight = (weight[:, None] + w).reshape(-1, *w.shape[1:])
            value = (value[:, None] + v).reshape(-1, *v.shape[1:])
        return choices, weight, value

    def states(self, choices: np.ndarray) -> np.ndarray:
        """The attention output of every filling."""
        weight = np.broadcast_to(self.fixed_weight, (len(choices), *self.fixed_weight.shape)).copy()
        value = np.broadcast_to(self.fixed_value, (len(choices), *self.fixed_value.shape)).copy()
        for p in range(choices.shape[1]):
            weight += self.weight[p][choices[:, p]]
            value += self.value[p][choices[:, p]]
        return self.sight.state(value / weight[..., None])


def _tables(placement: Placement, net: nn.Module) -> _Tables:
    length = len(placement.fixed)
    free = list(placement.free)
    fixed_places = [t for t in range(length) if t not in set(free)]
    distinct, which = torch.unique(placement.fixed, dim=0, return_inverse=True)
    sight = sight_of(net, torch.cat([distinct, placement.tokens.flatten(0, 1)]), length)
    entries = len(distinct) + np.arange(placement.tokens.shape[0] * placement.levels).reshape(-1, placement.levels)
    at = np.asarray(free)[:, None]
    fixed_log, free_log = sight.log_weights[which.numpy()[fixed_places], fixed_places], sight.log_weights[entries, at]
    top = np.maximum(fixed_log.max(axis=0), free_log.max(axis=(0, 1)))
    fixed_weight, weight = np.exp(fixed_log - top), np.exp(free_log - top)
    fixed_value = (fixed_weight[..., None] * sight.values[which.numpy()[fixed_places], fixed_places]).sum(axis=0)
    return _Tables(sight, fixed_weight.sum(axis=0), fixed_value, weight, weight[..., None] * sight.values[entries, at])


def _batches(tables: _Tables, free: int, seed: int) -> Iterator[np.ndarray]:
    """All fillings at once where they are few, else those near a few points."""
    flat = tables.fixed_value.size <= FLAT
    if free <= (EXHAUSTIVE if flat else EXHAUSTIVE_DEEP):
        yield tables.sums(slice(None))[0]
    else:
        yield from _near_points(tables, seed)


def _near_points(tables: _Tables, seed: int) -> Iterator[np.ndarray]:
    """Fillings whose head averages are near a point o, for a few o: sum_t w_t (v_t - o) = 0, half by half.

    For every filling of the right half, the nearest fillings of the left half are looked up, once for each level of
    the first position, so that fillings with different targets are found in equal numbers.
    """
    rng = np.random.default_rng(seed)
    half = len(tables.weight) // 2
    left, right = tables.sums(slice(0, half)), tables.sums(slice(half, None))
    for _ in range(ROUNDS):
        o, total = _typical(tables, rng)
        scale = 1 / total[:, None]
        wanted = -scale * (tables.fixed_value - tables.fixed_weight[:, None] * o + _pull(right, o))
        have = scale * _pull(left, o)
        yield np.concatenate([_met(left[0], have, right[0], wanted, level) for level in range(tables.weight.shape[1])])


def _met(left: np.ndarray, have: np.ndarray, right: np.ndarray, wanted: np.ndarray, level: int) -> np.ndarray:
    candidates = np.flatnonzero(left[:, 0] == level)
    points, targets = have[candidates].reshape(len(candidates), -1), wanted.reshape(len(wanted), -1)
    count = NEIGHBOURS if points.shape[1] <= FLAT else 1
    _, near = _tree(points).query(targets, k=count, workers=2)
    near = np.asarray(near)
    return np.concatenate([left[candidates[near.reshape(-1)]], np.repeat(right, count, axis=0)], axis=1)


def _tree(points: np.ndarray) -> KDTree:
    return KDTree(points, balanced_tree=False, compact_nodes=False)


def _pull(half: tuple[np.ndarray, np.ndarray, np.ndarray], o: np.ndarray) -> np.ndarray:
    """sum_t w_t (v_t - o) over one half."""
    return half[2] - half[1][..., None] * o


def _typical(tables: _Tables, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The head averages and total weights of a random filling."""
    choice = rng.integers(tables.weight.shape[1], size=len(tables.weight))
    at = np.arange(len(choice)), choice
    weight = tables.fixed_weight + tables.weight[at].sum(axis=0)
    return (tables.fixed_value + tables.value[at].sum(axis=0)) / weight[:, None], weight


def _closest(tables: _Tables, fillings: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of fillings that differ at the first free position and are nearest in attention output."""
    states = tables.states(fillings)
    groups = [_distinct(states, np.flatnonzero(fillings[:, 0] == k)) for k in range(tables.weight.shape[1])]
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for a in range(len(groups) - 1):
        tree = _tree(states[groups[a]])
        for b in range(a + 1, len(groups)):
            distance, near = (np.asarray(a) for a in tree.query(states[groups[b]], workers=2))
            order = np.argpartition(distance, min(KEPT, len(distance) - 1))[:KEPT]
            pairs += [(fillings[groups[a][near[k]]], fillings[groups[b][k]]) for k in order]
    return pairs


def _distinct(states: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """One row for each distinct state: a tree full of equal points is no tree."""
    return rows[np.unique(states[rows], axis=0, return_index=True)[1]]


def _measured(
    task: Task, net: nn.Module, placement: Placement, a: np.ndarray, b: np.ndarray
) -> tuple[float, float, Tensor, Tensor]:
    """(target gap, attention distance, both sequences), with dummies where they agree if that is steeper."""
    agree = a == b
    plain = _gap_and_distance(task, net, placement.filled(a), placement.filled(b))
    dummies = [placement.filled(np.where(agree, -1, choice)) for choice in (a, b)]
    return max(plain, _gap_and_distance(task, net, *dummies), key=lambda pair: pair[0] / pair[1])


@torch.no_grad()
def _gap_and_distance(task: Task, net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float, Tensor, Tensor]:
    """Measured on the network itself, not on the tables: the second road."""
    both = torch.stack([x, y])
    states, targets = _attended(net, both), task(both)
    distance = float((states[0] - states[1]).norm())
    return abs(float(targets[0] - targets[1])), max(distance, 1e-300), x, y


def _attended(net: nn.Module, x: Tensor) -> Tensor:
    cls = net.get_parameter("cls").expand(len(x), 1, -1)
    return (cls + net.get_submodule("attention.0")(cls, getattr(net, "encode")(x)))[:, 0]  # noqa: B009
