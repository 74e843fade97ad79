"""K encoders of one shape trained together: the vision and the text network of the head-count paper.

Pre-norm blocks of softmax attention and a GELU feed-forward of four times the width, with residuals; parameters of
all members are rows of one matrix, so one optimiser step moves all of them, and on a GPU the step is recorded once.
The norms carry no scale and shift of their own: the linear map behind each has both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

from headcount.training.backends.choice import as_it_is, graph
from headcount.training.optimiser import AdamW
from headcount.training.shuffling import epoch_order, seed_of

__all__ = [
    "Encoders",
    "Examples",
    "EncoderRun",
    "EncoderPlan",
    "EncoderShape",
    "first_token",
    "other_tokens",
    "seconds_a_step",
    "train",
]

Named = dict[str, Tensor]
ReadOut = Callable[[Tensor, Tensor], Tensor]
EXPAND = 4
# Ways of attention that can be recorded and need no plan for each shape.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def first_token(states: Tensor, weight: Tensor) -> Float[Tensor, "models batch classes"]:
    """Scores of the classes, read at the class token."""
    return states[:, :, 0] @ weight.mT


def other_tokens(states: Tensor, weight: Tensor) -> Float[Tensor, "models batch candidates"]:
    """A score for every token but the first: which candidate answers the query that stands first."""
    return (states[:, :, 1:] @ weight[:, None].mT)[..., 0]


@dataclass(frozen=True)
class EncoderShape:
    """Sizes of one encoder. `marks` says which learned vector is added at each token: a position, or a kind.

    >>> EncoderShape(features=48, heads=2, head_dim=16, layers=4, marks=tuple(range(65)), outputs=10).embed_dim
    32
    """

    features: int
    heads: int
    head_dim: int
    layers: int
    marks: tuple[int, ...]
    outputs: int
    read_out: ReadOut = first_token
    class_token: bool = True

    @property
    def embed_dim(self) -> int:
        """The width of a token's state."""
        return self.heads * self.head_dim

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of everything trainable."""
        e, inner = self.embed_dim, EXPAND * self.embed_dim
        shapes: dict[str, tuple[int, ...]] = {"input": (e, self.features), "marks": (max(self.marks) + 1, e)}
        for n in range(self.layers):
            shapes |= {f"{n}.qkv": (3 * e, e), f"{n}.qkv+": (3 * e,), f"{n}.out": (e, e), f"{n}.out+": (e,)}
            shapes |= {f"{n}.up": (inner, e), f"{n}.up+": (inner,), f"{n}.down": (e, inner), f"{n}.down+": (e,)}
        return shapes | {"read_out": (self.outputs, e)}


@dataclass(frozen=True)
class EncoderRun:
    """One network: its seed and its learning rate."""

    seed: int
    lr: float = 1e-3


@dataclass(frozen=True)
class EncoderPlan:
    """How the members are trained: AdamW, linear warm-up, cosine decay to zero."""

    epochs: int
    batch: int = 128
    weight_decay: float = 1e-2
    warmup: float = 0.05


@runtime_checkable
class Examples(Protocol):
    """Labelled examples on a device, ready to be gathered for all members at once."""

    count: int

    def begin(self, epoch: int, seeds: Sequence[int]) -> None:
        """Draw what is random about this epoch, the same for a seed in any company."""
        ...

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Tensor, Tensor]:
        """Inputs (models, batch, tokens, features) and labels (models, batch) at these rows."""
        ...


class Encoders:
    """The parameters of K encoders as rows of one matrix, and what they compute.

    >>> shape = EncoderShape(features=3, heads=2, head_dim=4, layers=1, marks=(0, 1, 2), outputs=5)
    >>> bank = Encoders(shape, seeds=[0, 1])
    >>> bank(bank.theta, torch.zeros(2, 7, 2, 3)).shape
    torch.Size([2, 7, 5])
    """

    def __init__(self, shape: EncoderShape, seeds: Sequence[int], device: str = "cpu") -> None:
        self.shape = shape
        self.compute = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
        self.theta: Float[Tensor, "models parameters"] = torch.stack([_initial(shape, s) for s in seeds]).to(device)
        which = torch.nn.functional.one_hot(torch.tensor(shape.marks)).to(device, self.compute)
        self.marks: Float[Tensor, "tokens marks"] = which  # a product instead of an index, whose gradient sorts

    def named(self, theta: Float[Tensor, "models parameters"]) -> Named:
        """The stacked tensors by name, in the type that products are computed in."""
        shapes = self.shape.parameters
        sizes = [torch.Size(s).numel() for s in shapes.values()]
        parts = theta.to(self.compute).split(sizes, dim=1)
        return {name: part.view(-1, *s) for (name, s), part in zip(shapes.items(), parts, strict=True)}

    def __call__(
        self, theta: Float[Tensor, "models parameters"], x: Float[Tensor, "models batch tokens features"]
    ) -> Float[Tensor, "models batch outputs"]:
        p, shape = self.named(theta), self.shape
        state = _linear(x.to(self.compute), p["input"])
        if shape.class_token:
            state = torch.cat([torch.zeros_like(state[:, :, :1]), state], dim=2)
        state = state + (self.marks @ p["marks"])[:, None]
        for n in range(shape.layers):
            state = state + self._attend(p, n, _norm(state))
            inner = gelu(_linear(_norm(state), p[f"{n}.up"], p[f"{n}.up+"]))
            state = state + _linear(inner, p[f"{n}.down"], p[f"{n}.down+"])
        return shape.read_out(_norm(state), p["read_out"]).float()

    def _attend(self, p: Named, n: int, x: Tensor) -> Tensor:
        models, samples, tokens, _ = x.shape
        qkv = _linear(x, p[f"{n}.qkv"], p[f"{n}.qkv+"])
        split = qkv.view(models * samples, tokens, 3, self.shape.heads, self.shape.head_dim)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(BACKENDS):
            mixed = scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).reshape(models, samples, tokens, -1)
        return _linear(mixed, p[f"{n}.out"], p[f"{n}.out+"])


class _Run:
    def __init__(
        self, shape: EncoderShape, members: Sequence[EncoderRun], data: Examples, plan: EncoderPlan, device: str
    ) -> None:
        self.members, self.data, self.plan = members, data, plan
        self.bank = Encoders(shape, [m.seed for m in members], device)
        self.steps = max(1, data.count // plan.batch)
        rates = torch.tensor([m.lr for m in members], device=device)
        decay = torch.full_like(rates, plan.weight_decay)
        self.optimiser = AdamW(self.bank.theta, rates, decay, plan.epochs * self.steps, plan.warmup)
        self.active = torch.ones(len(members), dtype=torch.bool, device=device)
        self.streams = torch.tensor([seed_of("order", m.seed) for m in members], device=device)
        self.order = epoch_order(self.streams, 0, data.count)
        self.cursor = torch.zeros((), dtype=torch.int64, device=device)
        self.places = torch.arange(min(plan.batch, data.count), device=device)
        self.begin(0)

    def begin(self, epoch: int) -> None:
        self.data.begin(epoch, [m.seed for m in self.members])
        self.order.copy_(epoch_order(self.streams, epoch, self.data.count))
        self.cursor.zero_()

    def step(self) -> None:
        rows = self.order.index_select(1, self.cursor * self.plan.batch + self.places)
        x, labels = self.data.batch(rows)
        theta = self.bank.theta.detach().requires_grad_()
        with torch.enable_grad():
            scores = self.bank(theta, x)
            # The sum over members of mean losses: members share nothing, so each gets its own gradient.
            loss = cross_entropy(scores.flatten(0, 1), labels.flatten()) * len(self.members)
            (gradient,) = torch.autograd.grad(loss, theta)
        self.optimiser.update(self.bank.theta, gradient, self.active)
        self.cursor += 1

    def recorded(self, device: str) -> Callable[[], None]:
        adam = self.optimiser
        state = (self.bank.theta, adam.first, adam.second, adam.step, self.cursor)
        return (graph if torch.device(device).type == "cuda" else as_it_is)(self.step, state)


def train(
    shape: EncoderShape,
    members: Sequence[EncoderRun],
    data: Examples,
    held_out: Examples,
    plan: EncoderPlan,
    device: str = "cpu",
) -> tuple[list[float], list[float]]:
    """Train the members together; the accuracy of each on what it saw, and on what it did not."""
    run = _Run(shape, members, data, plan, device)
    step = run.recorded(device)
    for epoch in range(plan.epochs):
        run.begin(epoch)
        for _ in range(run.steps):
            step()
    return _accuracy(run.bank, data, run), _accuracy(run.bank, held_out, run)


def seconds_a_step(
    shape: EncoderShape, members: Sequence[EncoderRun], data: Examples, plan: EncoderPlan, device: str, repeats: int = 5
) -> float:
    """How long a step takes without recording, which is an upper estimate of one that is recorded."""
    run = _Run(shape, members, data, plan, device)
    times = []
    for _ in range(repeats):
        run.cursor.zero_()
        start = time.perf_counter()
        run.step()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


@torch.no_grad()
def _accuracy(bank: Encoders, data: Examples, run: _Run) -> list[float]:
    data.begin(-1, [m.seed for m in run.members])
    right = torch.zeros(len(run.members), device=bank.theta.device)
    rows = torch.arange(data.count, device=bank.theta.device).expand(len(run.members), -1)
    for part in rows.split(2 * run.plan.batch, dim=1):
        x, labels = data.batch(part)
        right += (bank(bank.theta, x).argmax(dim=-1) == labels).sum(dim=1)
    return (right / data.count).tolist()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    flat = x.flatten(1, 2)
    out = flat @ weight.mT if bias is None else torch.baddbmm(bias[:, None], flat, weight.mT)
    return out.view(*x.shape[:3], -1)


def _norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])


def _initial(shape: EncoderShape, seed: int) -> Float[Tensor, " parameters"]:
    """Weights uniform with the variance of one over three times their inputs, biases zero, marks small."""
    g = torch.Generator().manual_seed(seed_of("encoder", seed))
    parts = []
    for name, size in shape.parameters.items():
        bound = 0.0 if name.endswith("+") else 0.02 if name == "marks" else size[-1] ** -0.5
        parts.append((bound * (2 * torch.rand(size, generator=g) - 1)).flatten())
    return torch.cat(parts)
