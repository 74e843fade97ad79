"""Theorem 2(3) as a program: one head that keeps the whole sequence, and a read-out of five ReLU layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.certificates.arithmetic import fewest, up
from headcount.certificates.attempts import in_box
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.network import ClassTokenNet, refuse_too_large
from headcount.certificates.relu import interpolant
from headcount.certificates.replanning import with_rounding
from headcount.certificates.rounding import rounding_error
from headcount.nets.transformer import Attention
from headcount.numerals import counted
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.head_count.networks.interpolants import Interpolants, Layer
from headcount.papers.head_count.networks.minima import Minima, minima_of
from headcount.refusals import positive
from headcount.sources import Checked, Source, implements
from headcount.tasks import Task

SOURCE = Source("yu2025heads", "Theorem 2(3)")
MAXIMUM = Source("yu2025heads", "Lemma 9")


@implements(
    MAXIMUM,
    test="tests/test_head_count_memorise.py::test_the_maximum_network_keeps_and_attains_half_a_step",
    status="proved here",
    hypotheses=("values in [0, 1]",),
)
def steps_of_maximum(levels: int) -> Callable[[Tensor], Tensor]:
    """max_t v_t for v in [0,1] by two hidden ReLU layers, within half a step 1/(2 levels).

    S_j = sum_t relu(v_t - j/n); sum_j relu(S_j) - relu(S_j - 1/n) lies in [max, max + 1/n], and half a step less
    is the middle. If the maximum is in (m/n, (m+1)/n], the first m summands are 1/n, the next is between
    max - m/n and 1/n, the rest are 0.
    Source: Yu et al. 2025 (heads), Lemma 9.
    Departs: the shift by half a step halves the error.

    >>> steps_of_maximum(4)(torch.tensor([[0.5, 0.25]]))
    tensor([0.3750])
    """

    def maximum(v: Tensor) -> Tensor:
        j = torch.arange(levels, dtype=v.dtype) / levels
        S = torch.relu(v[..., None] - j).sum(dim=-2)
        return (torch.relu(S) - torch.relu(S - 1 / levels)).sum(dim=-1) - 0.5 / levels

    return maximum


@dataclass(frozen=True)
class Memory(Interpolants):
    """All choices of the construction: pieces of the square and of each ridge, levels of the maximum."""

    levels: int

    @property
    def missed(self) -> float:
        """Half a step of the maximum network."""
        return max(self.spreads) / (2 * self.levels)

    def maximum_term(self) -> float:
        """sum_i |dF_0/dz_i| spread_i/(2 levels)."""
        return math.fsum(s * w for s, w in zip(self.slopes, self.spreads, strict=True)) / (2 * self.levels)

    def proved(self) -> float:
        """All terms but rounding."""
        return self.features_term() + self.maximum_term() + self.outer_term()


@implements(
    SOURCE,
    test="tests/test_head_count_memorise.py::test_the_worst_gap_is_below_and_near_the_certificate",
    status="proved here",
    hypotheses=(
        Checked("a task of wells or of linear maxima"),
        "tokens in the box of the certificate",
    ),
)
def memorise(task: Task, eps: float = 1e-2, *, radius: float | None = None) -> Built:
    """One head of dimension T d attends uniformly, keeps every token, and the read-out does all the work.

    The encoder puts token t into its own block, so the average holds the whole sequence; the read-out's four hidden
    layers are the features of every token, two for the maximum of Lemma 9, and the outer function.
    Source: Yu et al. 2025 (heads), Theorem 2(3).
    """
    positive(eps=eps)
    minima = minima_of(task, radius)

    def planned(budget: float) -> tuple[ClassTokenNet, Certificate]:
        memory = _memory(minima, eps, budget)
        net = _assemble(memory)
        return net, Certificate(_terms(memory, net), SOURCE, _hypotheses(minima))

    net, certificate = with_rounding(eps, planned, first=0.01)
    return Built(net, task, certificate, minima.box, in_box())


def _terms(memory: Memory, net: ClassTokenNet) -> tuple[Term, ...]:
    box = memory.minima.box
    rounding = rounding_error(net, max(abs(box.low), abs(box.high)), box.length, encoded=1.0, spread=1.0)
    return (
        Term("features", up(memory.features_term()), f"squares on {memory.pieces} pieces"),
        Term("maximum", up(memory.maximum_term()), f"half a step of {memory.levels} levels per retrieval"),
        Term("outer function", up(memory.outer_term()), f"ridges on {sum(memory.ridge_pieces)} pieces: |g''| h^2/8"),
        Term("rounding", rounding, "float64"),
    )


def _hypotheses(minima: Minima) -> tuple[str, ...]:
    box, D = minima.box, minima.count
    return (
        str(box),
        f"length {box.length}",
        f"{counted(D, 'retrieval')}, one head of dimension T d",
        "float64 arithmetic",
    )


def _memory(minima: Minima, eps: float, budget: float) -> Memory:
    box = minima.box
    pieces, ridge_pieces = Memory(minima, 1, (1,) * len(minima.outer.profiles), 1).pieces_within(budget)
    levels = fewest(lambda n: Memory(minima, pieces, ridge_pieces, n).proved() <= budget)
    tokens = sum(len(w) for w in minima.windows)
    parameters = box.length * box.token_dim * pieces * tokens * levels
    refuse_too_large(parameters, f"one head that memorises within {eps:g}", eps=eps, rate=1.5)
    return Memory(minima, pieces, ridge_pieces, levels)


def _assemble(memory: Memory) -> ClassTokenNet:
    box = memory.minima.box
    E = box.length * box.token_dim
    encoder = _encoder(box.length, box.token_dim, box.low, box.high)
    net = assembled(encoder, ((1, E),), (1.0,), _read_out(memory))
    (attention,) = net.attention
    assert isinstance(attention, Attention)
    for p in (attention.value, attention.output):  # queries and keys stay zero: uniform attention
        p[0] = torch.eye(E, dtype=torch.float64)
    return net


def _encoder(T: int, d: int, low: float, high: float) -> tuple[Layer, Layer]:
    """e_t (x) y with y = (x - low)/(high - low) in [0,1], exact at whole positions.

    With k = position - t: relu(y + k) - relu(y + k - 1) - relu(k) + relu(k - 1) is y at k = 0 and 0 elsewhere.
    Hidden unit (t, j) is relu(y_j + position - t), then one unit relu(position - t) for every t.
    """
    hidden = T * (d + 1)
    inner, bias = torch.zeros(hidden, d + 1, dtype=torch.float64), torch.zeros(hidden, dtype=torch.float64)
    outer = torch.zeros(T * d, hidden, dtype=torch.float64)
    place = torch.arange(1, T + 1, dtype=torch.float64)
    inner[:, d] = 1.0
    for j in range(d):
        units = torch.arange(T) * d + j
        inner[units, j], bias[units] = 1 / (high - low), -place - low / (high - low)
        outer[units, units], outer[units, T * d + torch.arange(T)] = 1.0, -1.0
        outer[units[:-1], units[1:]], outer[units[:-1], T * d + torch.arange(1, T)] = -1.0, 1.0
    bias[T * d :] = -place
    return (inner, bias), (outer, torch.zeros(T * d, dtype=torch.float64))


def _read_out(memory: Memory) -> list[Layer]:
    """Five layers: hinges of every coordinate; v_ti - k/n; the two hinges of S_ik; hinges of every ridge; their sum."""
    hinges, (psi, psi_bias) = _hinges(memory), _features(memory)
    levels = torch.arange(memory.levels, dtype=torch.float64) / memory.levels
    owners = [(i, t) for i, w in enumerate(memory.minima.windows) for t in w]
    rows = [t * memory.minima.count + i for i, t in owners]
    v, v_bias = torch.stack([psi[r] for r in rows]), torch.stack([psi_bias[r] for r in rows])
    second = v.repeat_interleave(memory.levels, 0), (v_bias[:, None] - levels).flatten()
    gather = _gather(owners, memory)
    third = torch.cat([gather, gather]), torch.zeros(2 * len(gather), dtype=torch.float64)
    third[1][len(gather) :] = -1 / memory.levels
    fourth, fifth = _outer(memory, len(gather))
    return [hinges, second, third, fourth, fifth]


def _hinges(memory: Memory) -> Layer:
    """relu(x_tj - knot_k), from the average y_tj/T."""
    box = memory.minima.box
    knots = interpolant(torch.square, box.low, box.high, memory.pieces).knots
    E = box.length * box.token_dim
    weight = torch.eye(E, dtype=torch.float64).repeat_interleave(memory.pieces, 0) * (box.length * (box.high - box.low))
    return weight, (box.low - knots).repeat(E)


def _features(memory: Memory) -> Layer:
    """v_ti = (top_i - Psi_i(x_t))/spread_i in [0,1], for every token t and retrieval i."""
    minima = memory.minima
    _, weights, offset = memory.features()
    spread = torch.tensor(memory.spreads, dtype=torch.float64)
    top = torch.tensor(minima.tops, dtype=torch.float64) + memory.feature_error
    one_token = torch.eye(minima.length, dtype=torch.float64)
    return torch.kron(one_token, -weights / spread[:, None]), ((top - offset) / spread).repeat(minima.length)


def _gather(owners: list[tuple[int, int]], memory: Memory) -> Tensor:
    """S_ik = sum over t in S_i of unit (i, t, k)."""
    sums = torch.zeros(memory.minima.count, len(owners), dtype=torch.float64)
    sums[[i for i, _ in owners], range(len(owners))] = 1.0
    return torch.kron(sums, torch.eye(memory.levels, dtype=torch.float64))


def _outer(memory: Memory, sums: int) -> tuple[Layer, Layer]:
    """z_i = top_i - spread_i (sum_k of the two hinges' difference - half a step), then every ridge's interpolant."""
    minima = memory.minima
    D, spread = minima.count, torch.tensor(memory.spreads, dtype=torch.float64)
    ones = torch.eye(D, dtype=torch.float64).repeat_interleave(memory.levels, 1)
    z = -spread[:, None] * torch.cat([ones, -ones], dim=1)
    z_bias = torch.tensor(minima.tops, dtype=torch.float64) + memory.feature_error + spread / (2 * memory.levels)
    assert z.shape[1] == 2 * sums
    return memory.read_out(z, z_bias)
