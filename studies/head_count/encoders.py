"""The vision and the text network of the head-count paper, and banks of them as a problem.

Pre-norm blocks of softmax attention and a GELU feed-forward of four times the width, with residuals. The norms carry no
scale and shift of their own: the linear map behind each has both. On a GPU products are in bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, gelu, layer_norm, one_hot, scaled_dot_product_attention

from headcount.kernels.backend import Pack, eager
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.optimiser import AdamW
from headcount.training.data import Curve, Means, longest_chunk
from headcount.training.loop import train
from headcount.training.member import Given, Member, Recipe
from headcount.training.shuffling import Orders, seed_of

EXPAND, DECAY = 4, 1e-2
# Ways of attention that can be recorded and need no plan for each shape.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class MarkedShape:
    """Sizes of one encoder. `marks` says which learned vector is added at each token: a position, or a kind.

    Read at its first token, a class token or what stands there, it scores classes; at the other tokens, each of them.

    >>> MarkedShape(features=48, heads=2, head_dim=16, depth=4, marks=tuple(range(65)), outputs=10).embed_dim
    32
    """

    features: int
    heads: int
    head_dim: int
    depth: int
    marks: tuple[int, ...]
    outputs: int
    read_at: Literal["first token", "other tokens"] = "first token"
    class_token: bool = True

    @property
    def embed_dim(self) -> int:
        """The width of a token's state."""
        return self.heads * self.head_dim

    @property
    def width(self) -> int:
        """Hidden units of a feed-forward."""
        return EXPAND * self.embed_dim

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The same heads in every layer."""
        return ((self.heads, self.head_dim),) * self.depth

    @property
    def name(self) -> str:
        """The layers in short."""
        return "+".join(f"{h}x{n}" for h, n in self.layers)

    @property
    def shared(self) -> dict[str, MarkedShape]:
        """Everything: a layer norm would see what is padded."""
        return {"shape": self}

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of everything trainable."""
        e, inner = self.embed_dim, self.width
        shapes: dict[str, tuple[int, ...]] = {"input": (e, self.features), "marks": (max(self.marks) + 1, e)}
        for n in range(self.depth):
            shapes |= {f"{n}.qkv": (3 * e, e), f"{n}.qkv+": (3 * e,), f"{n}.out": (e, e), f"{n}.out+": (e,)}
            shapes |= {f"{n}.up": (inner, e), f"{n}.up+": (inner,), f"{n}.down": (e, inner), f"{n}.down+": (e,)}
        return shapes | {"read_out": (self.outputs, e)}

    def module(self, seed: int | None = None) -> MarkedEncoder:
        """The plain network, its weights drawn from the seed."""
        return MarkedEncoder(self, seed=seed)


class MarkedEncoder(nn.Module):
    """The plain network of a `MarkedShape`: weights uniform of variance 1 / (3 inputs), biases zero, marks small.

    >>> shape = MarkedShape(features=3, heads=2, head_dim=4, depth=1, marks=(0, 1, 2), outputs=5)
    >>> MarkedEncoder(shape, seed=0)(torch.zeros(7, 2, 3)).shape
    torch.Size([7, 5])
    """

    def __init__(self, shape: MarkedShape, *, seed: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        g = torch.Generator().manual_seed(seed_of("encoder", 0 if seed is None else seed))
        self.weights = nn.ParameterDict()
        for name, size in shape.tensors().items():
            bound = 0.0 if name.endswith("+") else 0.02 if name == "marks" else size[-1] ** -0.5
            self.weights[name.replace(".", "_")] = nn.Parameter(bound * (2 * torch.rand(size, generator=g) - 1))

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `MarkedShape.tensors`."""
        return {name: self.weights[name.replace(".", "_")] for name in self.shape.tensors()}

    def forward(self, x: Float[Tensor, "batch tokens features"]) -> Float[Tensor, "batch outputs"]:
        return scores(self.shape, {name: p[None] for name, p in self.named().items()}, x[None])[0]


@runtime_checkable
class Examples(Protocol):
    """Labelled examples on a device, ready to be gathered for all members at once."""

    count: int

    def begin(self, epoch: int, seeds: Sequence[int]) -> None:
        """Draw what is random about this epoch, the same for a seed in any bank."""
        ...

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Tensor, Tensor]:
        """Inputs (models, batch, tokens, features) and labels (models, batch) at these rows."""
        ...


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Examples of every member with their labels."""

    x: Float[Tensor, "models batch tokens features"]
    labels: Int[Tensor, "models batch"]

    def few(self, bank: Bank) -> LabelledBatch:
        """All of it."""
        return self


@dataclass(frozen=True)
class Labelling:
    """The cross-entropy of the right label; scored by the share of labels that are right."""

    def output(self, bank: Bank[MarkedShape], p: Stacked, batch: LabelledBatch) -> Tensor:
        """Every member's scores of the labels."""
        return scores(bank.net, p, batch.x)

    reference = output

    def losses(self, output: Tensor, batch: LabelledBatch) -> Float[Tensor, "models batch"]:
        """The loss of every example."""
        return cross_entropy(output.flatten(0, 1), batch.labels.flatten(), reduction="none").view(batch.labels.shape)

    def score(self, output: Tensor, batch: LabelledBatch) -> dict[str, Float[Tensor, "models batch"]]:
        """Whether each example is labelled right."""
        return {"accuracy": (output.argmax(dim=-1) == batch.labels).float()}


def scores(
    shape: MarkedShape, p: Stacked, x: Float[Tensor, "models batch tokens features"]
) -> Float[Tensor, "models batch outputs"]:
    """Every member's scores, products in bfloat16 on a GPU."""
    compute = torch.bfloat16 if x.is_cuda else torch.float32
    p = {name: value.to(compute) for name, value in p.items()}
    state = _linear(x.to(compute), p["input"])
    if shape.class_token:
        state = torch.cat([torch.zeros_like(state[:, :, :1]), state], dim=2)
    state = state + (_marks(shape.marks, x.device, compute) @ p["marks"])[:, None]
    for n in range(shape.depth):
        state = state + _attended(shape, p, n, _norm(state))
        inner = gelu(_linear(_norm(state), p[f"{n}.up"], p[f"{n}.up+"]))
        state = state + _linear(inner, p[f"{n}.down"], p[f"{n}.down+"])
    state, weight = _norm(state), p["read_out"]
    if shape.read_at == "first token":
        return (state[:, :, 0] @ weight.mT).float()
    return (state[:, :, 1:] @ weight[:, None].mT)[..., 0].float()


@lru_cache(64)
def _marks(marks: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Float[Tensor, "tokens marks"]:
    """Which mark is added at each token, for a product: an index has a gradient that sorts. Made once, not recorded."""
    return one_hot(torch.tensor(marks)).to(device, dtype)


def _attended(shape: MarkedShape, p: Stacked, n: int, x: Tensor) -> Tensor:
    models, samples, tokens, _ = x.shape
    qkv = _linear(x, p[f"{n}.qkv"], p[f"{n}.qkv+"])
    q, k, v = qkv.view(models * samples, tokens, 3, shape.heads, shape.head_dim).permute(2, 0, 3, 1, 4)
    with sdpa_kernel(BACKENDS):
        mixed = scaled_dot_product_attention(q, k, v)
    mixed = mixed.transpose(1, 2).reshape(models, samples, tokens, -1)
    return _linear(mixed, p[f"{n}.out"], p[f"{n}.out+"])


class LabelledExamples:
    """Examples visited in every member's own order, and those on which it is judged."""

    def __init__(
        self,
        data: Examples,
        unseen: Examples,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.data, self.unseen, self.recipe, self.problem = data, unseen, recipe, Labelling()
        self.seeds = [member.seed for member in members]
        self.rounds, self.chunk = recipe.epochs, longest_chunk(recipe.steps_per_epoch, 1)
        self.chunks = recipe.steps_per_epoch // self.chunk
        streams = torch.tensor([seed_of("order", seed) for seed in self.seeds], device=device)
        self.orders = Orders(streams, data.count, recipe.epochs)
        self.rows: Int[Tensor, "models batch"] = torch.zeros(
            (len(members), recipe.batch), dtype=torch.int64, device=device
        )

    def first(self, pack: Pack) -> LabelledBatch:
        """The first examples."""
        self.begin(0, 0)
        return self.step(0)

    def begin(self, number: int, chunk: int) -> None:
        """Every member's next examples."""
        if chunk == 0:
            self.data.begin(number, self.seeds)
        batch = self.recipe.batch
        self.rows.copy_(self.orders[number][:, chunk * batch : (chunk + 1) * batch])

    def step(self, number: int) -> LabelledBatch:
        """The examples of a step, gathered."""
        return LabelledBatch(*self.data.batch(self.rows))

    def held_out(self, part: str) -> Iterator[LabelledBatch]:
        """All examples, those trained on or those not, as they are."""
        data = self.data if part == "training" else self.unseen
        data.begin(-1, self.seeds)
        rows = torch.arange(data.count, device=self.rows.device).expand(len(self.seeds), -1)
        for some in rows.split(2 * self.recipe.batch, dim=1):
            yield LabelledBatch(*data.batch(some))

    def levels(self, means: Means) -> dict[str, Tensor]:
        """The share of unseen examples that is labelled wrong."""
        return {"level": 1 - means("validation")["accuracy"]}

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """The accuracy on what was trained on, and on what was not."""
        both = zip(*(means(part)["accuracy"].tolist() for part in ("training", "validation")), strict=True)
        return [{"train_accuracy": trained, "accuracy": held_out} for trained, held_out in both]


def encoder_members(shape: MarkedShape, rates: Sequence[tuple[int, float]]) -> list[Member]:
    """A network for every (seed, learning rate)."""
    task = Given("labelled examples", len(shape.marks), shape.features)
    return [Member(task, shape, seed=seed, lr=lr, weight_decay=DECAY) for seed, lr in rates]


def accuracies(
    members: Sequence[Member], data: Examples, unseen: Examples, epochs: int, batch: int, device: str = "cpu"
) -> tuple[list[float], list[float]]:
    """Train the members together; the accuracy of each on what it saw, and on what it did not."""
    outcome = train(members, _recipe(data, epochs, batch), device=device, data=partial(LabelledExamples, data, unseen))
    trained, held_out = ([row.get(name, 0.0) for row in outcome.rows] for name in ("train_accuracy", "accuracy"))
    return trained, held_out


def _recipe(data: Examples, epochs: int, batch: int) -> Recipe:
    batch = min(batch, data.count)
    return Recipe(data.count, epochs=epochs, batch=batch, evaluations=1, stop="never", keep="last")


def seconds_a_step(members: Sequence[Member], data: Examples, batch: int, device: str, repeats: int = 5) -> float:
    """How long a step takes without recording, which is an upper estimate of one that is recorded."""
    recipe = _recipe(data, 1, batch)
    source = LabelledExamples(data, data, members, recipe, torch.float32, device)
    bank = Bank([m.shape for m in members], [m.seed for m in members], device=device)
    rates = torch.tensor([m.lr for m in members], device=device)
    adam, active = AdamW(bank.theta, rates, 0 * rates, recipe.steps, recipe.warmup), rates > 0
    source.first(eager.pack)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        adam.update(bank.theta, eager.gradient(source.problem, bank, source.step(0)), active)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    flat = x.flatten(1, 2)
    out = flat @ weight.mT if bias is None else torch.baddbmm(bias[:, None], flat, weight.mT)
    return out.view(*x.shape[:3], -1)


def _norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])
