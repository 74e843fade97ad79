"""Probes: does a state contain the winner, and who is attended (the InfoFlow paper's); which form does a head ask."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.files import write_json
from headcount.nets import Transformer
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted
from headcount.sources import Source, implements
from headcount.tasks import PairMax, Task

RIDGE = 1e-6  # relative to the mean square of the states: keeps the fit defined when states are degenerate


@dataclass(frozen=True)
class Contains:
    """How well the state after a layer's attention gives the token of the `rank`-th largest weight of one head.

    `gap` and `gap_untrained`: mean squared error of the best linear map over the variance of the token, on samples the
    map was not fitted to, for the network and for the same architecture with fresh weights. `ratio` is their quotient:
    well below 1 means the state has learnt to contain that token.
    """

    layer: int
    head: int
    rank: int
    gap: float
    gap_untrained: float

    @property
    def ratio(self) -> float:
        return self.gap / self.gap_untrained

    def as_row(self) -> dict[str, object]:
        """Ready for a table or JSON."""
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True)
class Attends:
    """How much the class token's head in a layer attends to each position: mean and spread over samples."""

    layer: int
    head: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    def __str__(self) -> str:
        """The four positions of largest weight."""
        order = sorted(range(len(self.mean)), key=lambda i: -self.mean[i])[:4]
        return f"head {self.head}  " + ", ".join(f"{i}: {self.mean[i]:.3f} +- {self.spread[i]:.3f}" for i in order)

    def as_row(self) -> dict[str, object]:
        """Ready for a table or JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Asks:
    """What a head of the first layer asks of pairs of tokens: the look-up whose form is nearest to its own.

    `cosine` is that between the head's form and `sharpness` times A of the `look_up`, or A^T where it is `turned`: then
    the right token of a pair asks for the left one.
    """

    head: int
    look_up: int
    turned: bool
    cosine: float
    sharpness: float

    def as_row(self) -> dict[str, Any]:
        """Ready for a table or JSON."""
        return asdict(self)


@implements(
    Source("yu2026infoflow", "the probe of max-position retrieval"),
    test="tests/test_infoflow_probes.py::test_a_retrieving_layer_contains_the_winner_and_not_the_runner_up",
    status="measured",
)
def contained(
    net: Transformer, task: Task, *, layer: int = 1, samples: int = 512, seed: int = 0, untrained_seed: int = 10_000
) -> tuple[Contains, ...]:
    """Whether the state after a layer's attention linearly contains the token each head attends to most, or second.

    A linear map with a constant is fitted from x_t + attention(x)_t to the raw token x_s, s the position of the largest
    (second largest) weight of the head at t, on half of the samples and judged on the other half.
    Source: Yu et al. 2026 (InfoFlow): error ratios 0.08 to 0.84 for the winner, about 1 for the runner-up.
    """
    if not 1 <= layer < net.arch.depth:
        raise ValueError(f"layer must lie in 1..{net.arch.depth - 1}: only there do tokens attend; got {layer}")
    if task.length < 2:
        raise ValueError(f"a runner-up needs at least 2 tokens, got length {task.length}")
    fresh = Transformer(net.arch, net.token_dim, seed=untrained_seed).to(next(net.parameters()).dtype)
    gaps, untrained = (_gaps(n, task, layer, samples, seed) for n in (net, fresh))
    heads = net.arch.layers[layer - 1][0]
    return tuple(
        Contains(layer, head + 1, rank + 1, gaps[head][rank], untrained[head][rank])
        for head in range(heads)
        for rank in range(2)
    )


@torch.no_grad()
def _gaps(net: Transformer, task: Task, layer: int, samples: int, seed: int) -> list[list[float]]:
    x, tokens, _ = _before(net, task, layer, samples, seed)
    attend = net.attention[layer - 1]
    state = tokens + attend(tokens, tokens)
    weights = attend.weights(tokens, tokens)  # pyright: ignore[reportCallIssue]
    best = weights.topk(2, dim=-1).indices  # (batch, heads, to, 2)
    return [
        [_unexplained(state, x.gather(1, best[:, head, :, rank, None].expand_as(x))) for rank in range(2)]
        for head in range(best.shape[1])
    ]


def _before(net: Transformer, task: Task, layer: int, samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Samples, and the states of tokens and class token that a layer sees."""
    dtype = next(net.parameters()).dtype
    x, _ = task.sample(samples, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    tokens, cls = net.states(x)[layer - 1]
    return x, tokens, cls


def _unexplained(state: Float[Tensor, "batch length embed"], wanted: Float[Tensor, "batch length token_dim"]) -> float:
    """Mean squared error over variance of the best linear map, fitted on the first half and judged on the second."""
    half = len(state) // 2
    states, tokens = state.double(), wanted.double()
    constant = torch.ones(*states.shape[:2], 1, dtype=torch.float64)
    states = torch.cat([states, constant], dim=-1)
    a, b = states[:half].flatten(0, 1), tokens[:half].flatten(0, 1)
    gram = a.T @ a
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    fitted = torch.linalg.solve(gram, a.T @ b)
    left, true = states[half:].flatten(0, 1) @ fitted, tokens[half:].flatten(0, 1)
    return float((left - true).square().mean() / true.var(dim=0, unbiased=False).mean())


@implements(
    Source("yu2026infoflow", "the probe of specific-position aggregation"),
    test="tests/test_infoflow_probes.py::test_class_attention_is_a_distribution_over_positions",
    status="measured",
)
@torch.no_grad()
def class_attention(
    net: Transformer, task: Task, *, layer: int | None = None, samples: int = 512, seed: int = 0
) -> tuple[Attends, ...]:
    """How the class token's attention in a layer (None: the last) spreads over positions, head by head.

    Source: Yu et al. 2026 (InfoFlow): on the sum of the first three tokens, one third each on positions 1, 2, 3.
    """
    layer = net.arch.depth if layer is None else layer
    if not 1 <= layer <= net.arch.depth:
        raise ValueError(f"layer must lie in 1..{net.arch.depth}, got {layer}")
    _, tokens, cls = _before(net, task, layer, samples, seed)
    weights = net.attention[layer - 1].weights(cls, tokens)[:, :, 0]  # pyright: ignore[reportCallIssue]
    mean, spread = weights.mean(dim=0), weights.std(dim=0)
    return tuple(
        Attends(layer, head + 1, tuple(mean[head].tolist()), tuple(spread[head].tolist())) for head in range(len(mean))
    )


@torch.no_grad()
def asked_forms(net: Transformer, task: PairMax) -> tuple[Asks, ...]:
    """Which look-up each head of the first layer serves, read off its matrices, where tokens enter by one matrix.

    There a head scores the pair (x, z) by x^T M z and terms in one token alone, M = W^T W_Q^T W_K W / sqrt(head_dim). A
    head that serves look-up i perfectly has M = sharpness * A_i, or its transpose.
    Source: derived here.
    """
    if net.arch.embedding != "linear":
        raise ValueError("a head's score is one form of two tokens only where they enter by one matrix (embedding)")
    if net.token_dim != task.token_dim:
        raise ValueError(f"the network's tokens have {net.token_dim} numbers, the task's {task.token_dim}")
    weight = net.encoder.get_parameter("weight")[:, : task.token_dim].double()
    first = net.attention[0]
    queries, keys = (first.get_parameter(name).double() @ weight for name in ("query", "key"))
    forms = queries.mT @ keys / net.arch.layers[0][1] ** 0.5
    A = torch.tensor(task.matrices, dtype=torch.float64)
    known = torch.cat([A, A.mT])
    inner = torch.einsum("hij,kij->hk", forms, known)
    sizes = known.square().sum(dim=(1, 2)).clamp(min=1e-300)
    cosines = inner / (forms.square().sum(dim=(1, 2))[:, None] * sizes).sqrt().clamp(min=1e-300)
    served = []
    for head, row in enumerate(cosines):
        best = int(row.argmax())
        look_up, transposed = best % len(A) + 1, best >= len(A)
        served.append(Asks(head + 1, look_up, transposed, float(row[best]), float(inner[head, best] / sizes[best])))
    return tuple(served)


@dataclass(frozen=True)
class NetworkProbes(AnswerInNotebook):
    """All probes of one network: who is attended, what states contain (depth 2 and more), which forms heads ask.

    `asks` is None where forms cannot be read: of tasks without pairs, and where tokens enter by hidden units.
    """

    task: str
    layers: str
    nmse: float | None
    attends: tuple[Attends, ...]
    contains: tuple[Contains, ...] = ()
    asks: tuple[Asks, ...] | None = None

    @property
    def rows(self) -> list[dict[str, object]]:
        """Where each head looks."""
        return [row.as_row() for row in self.attends]

    @property
    def sentence(self) -> str:
        """How sharply the heads look: the weight of the position each attends to most, averaged over inputs."""
        peaks = [max(row.mean) for row in self.attends]
        even, heads = 1 / len(self.attends[0].mean), counted(len(peaks), "head")
        if max(peaks) < 2 * even:
            return f"no position is favoured by any of the {heads}; where they look depends on the input, not the place"
        sharp = f"{sum(peak >= 2 * even for peak in peaks)} of {heads} favour a position"
        return f"{sharp}: the largest mean weight is {max(peaks):.2f}, even would be {even:.2f}"

    def files(self, out: Path) -> list[Path]:
        """All of it in `probe.json`."""
        return [write_json(out / "probe.json", self.to_json())]

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        known: dict[str, object] = {"task": self.task, "layers": self.layers, "nmse": self.nmse, "attends": self.rows}
        known["contains"] = [row.as_row() for row in self.contains]
        return known if self.asks is None else known | {"asks": [row.as_row() for row in self.asks]}


def probe_network(net: Transformer, task: Task, *, name: str = "", nmse: float | None = None) -> NetworkProbes:
    """Every probe that this network and this task allow; `name` is how the task is called.

    >>> from headcount.nets import Architecture
    >>> from headcount.tasks import PositionSum
    >>> task = PositionSum((0,), length=4)
    >>> net = Transformer(Architecture(((1, 4),), width=8, positions=2), task.token_dim, seed=0)
    >>> probes = probe_network(net, task)
    >>> len(probes.attends), probes.contains, probes.asks
    (1, (), None)
    """
    return NetworkProbes(
        name or type(task).__name__,
        net.arch.name,
        nmse,
        class_attention(net, task),
        contained(net, task) if net.arch.depth > 1 else (),
        asked_forms(net, task) if isinstance(task, PairMax) and net.arch.embedding == "linear" else None,
    )
