"""Transformers that read examples and answer queries, and a bank of them as a problem.

Layers are untied. Only the examples are keys, so that queries of one context do not see each other. One head of the
full width, a feed-forward of four times the width: about 12 L d^2 parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from headcount.kernels.bank import Bank, Stacked
from headcount.refusals import at_least_one, nearest
from headcount.training.shuffling import seed_of

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def linear(
    q: Float[Tensor, "rows tokens width"], k: Float[Tensor, "rows examples width"], v: Float[Tensor, "rows examples w"]
) -> Float[Tensor, "rows tokens w"]:
    """The mean over the examples of <q, k> v / sqrt(width): no softmax, so the products over tokens come first."""
    return q @ (k.mT @ v) / (k.shape[1] * math.sqrt(q.shape[-1]))


def softmax(
    q: Float[Tensor, "rows tokens width"], k: Float[Tensor, "rows examples width"], v: Float[Tensor, "rows examples w"]
) -> Float[Tensor, "rows tokens w"]:
    """Softmax attention of every token over the examples."""
    return scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]


ATTENTIONS: dict[str, Attend] = {"linear": linear, "softmax": softmax}


@dataclass(frozen=True)
class ReaderShape:
    """Depth, width and attention of a network that reads tokens of dimension `token_dim`.

    >>> ReaderShape(depth=4, embed_dim=32, token_dim=6).parameters // (12 * 4 * 32**2)
    1
    """

    depth: int
    embed_dim: int
    token_dim: int
    attention: str = "linear"

    def __post_init__(self) -> None:
        at_least_one(depth=self.depth, embed_dim=self.embed_dim, token_dim=self.token_dim)
        if self.attention not in ATTENTIONS:
            raise ValueError(f"unknown attention {self.attention!r}; {nearest(self.attention, ATTENTIONS)}")

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """One head of the full width in every layer."""
        return ((1, self.embed_dim),) * self.depth

    @property
    def name(self) -> str:
        """The layers in short."""
        return "+".join(f"{h}x{n}" for h, n in self.layers)

    @property
    def width(self) -> int:
        """Hidden units of a feed-forward."""
        return 4 * self.embed_dim

    @property
    def shared(self) -> dict[str, ReaderShape]:
        """Everything: a layer norm would see what is padded."""
        return {"shape": self}

    def starts(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Every parameter by name: its shape, and the deviation of its first values (0: zeros, -1: ones)."""
        w, d = self.embed_dim, self.token_dim
        out = 1 / math.sqrt(2 * self.depth)  # what a layer adds to the stream, so that the whole keeps its size
        parameters: dict[str, tuple[tuple[int, ...], float]] = {"embed": ((d, w), d**-0.5), "start": ((w,), 0.0)}
        for i in range(self.depth):
            parameters |= {
                f"{i}.read": ((w, 3 * w), w**-0.5),
                f"{i}.write": ((w, w), out * w**-0.5),
                f"{i}.norm": ((w,), -1.0),
                f"{i}.inner": ((w, 4 * w), w**-0.5),
                f"{i}.bias": ((4 * w,), 0.0),
                f"{i}.outer": ((4 * w, w), out * (4 * w) ** -0.5),
            }
        return {**parameters, "answer": ((w, 1), 0.1 * w**-0.5)}

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter by name, with its size."""
        return {name: size for name, (size, _) in self.starts().items()}

    def module(self, seed: int | None = None) -> Reader:
        """The plain network, its weights drawn from the seed."""
        return Reader(self, seed=seed)

    @property
    def parameters(self) -> int:
        """All trainable numbers of one member."""
        return sum(math.prod(size) for size in self.tensors().values())


class Reader(nn.Module):
    """The plain network of a `ReaderShape`: answers to the queries that follow the examples of a context.

    >>> net = Reader(ReaderShape(2, 8, token_dim=4), seed=0)
    >>> net(torch.zeros(3, 7, 4), examples=5).shape
    torch.Size([3, 2])
    """

    def __init__(self, shape: ReaderShape, *, seed: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed_of("reader", 0 if seed is None else seed))
        for name, (size, deviation) in shape.starts().items():
            drawn = torch.randn(math.prod(size), generator=generator, dtype=torch.float64)
            start = torch.ones_like(drawn) if deviation < 0 else deviation * drawn
            self.register_parameter(
                name.replace(".", "_"), nn.Parameter(start.view(size).to(torch.get_default_dtype()))
            )

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `ReaderShape.tensors`."""
        return {name: self.get_parameter(name.replace(".", "_")) for name in self.shape.tensors()}

    def forward(self, tokens: Float[Tensor, "batch all token_dim"], examples: int) -> Float[Tensor, "batch queries"]:
        p = {name: value[None] for name, value in self.named().items()}
        return answers(self.shape, p, tokens[None], examples)[0]


@dataclass(frozen=True, eq=False)
class ContextBatch:
    """Contexts of every member: so many examples, then queries, and the queries' true answers."""

    tokens: Float[Tensor, "models batch all token_dim"]
    truth: Float[Tensor, "models batch queries"]
    examples: int

    def few(self, bank: Bank) -> ContextBatch:
        """All of it."""
        return self


@dataclass(frozen=True)
class Answering:
    """The squared gap of every answer; scored by it and by the size of the truth."""

    def output(self, bank: Bank[ReaderShape], p: Stacked, batch: ContextBatch) -> Tensor:
        """Every member's answers to its queries."""
        return answers(bank.net, p, batch.tokens, batch.examples)

    reference = output

    def losses(self, output: Tensor, batch: ContextBatch) -> Float[Tensor, "models 1"]:
        """Each member's mean squared gap."""
        return (output - batch.truth).square().mean(dim=(1, 2))[:, None]

    def score(self, output: Tensor, batch: ContextBatch) -> dict[str, Float[Tensor, "models 1"]]:
        """Squared gap and squared truth, in float64."""
        gap = (output - batch.truth).double().square().mean(dim=(1, 2))
        return {"loss": gap[:, None], "size": batch.truth.double().square().mean(dim=(1, 2))[:, None]}


def answers(
    shape: ReaderShape, p: Stacked, tokens: Float[Tensor, "models batch all token_dim"], examples: int
) -> Float[Tensor, "models batch queries"]:
    """Every member's answers to the queries that follow the examples of its own contexts."""
    models, batch, length, _ = tokens.shape
    x = torch.baddbmm(p["start"][:, None], tokens.flatten(1, 2), p["embed"])
    for i in range(shape.depth):
        x = x + _attended(shape, p, i, x, batch, examples)
        hidden = torch.baddbmm(p[f"{i}.bias"][:, None], _normed(x) * p[f"{i}.norm"][:, None], p[f"{i}.inner"])
        x = x + gelu(hidden) @ p[f"{i}.outer"]
    queries = x.view(models, batch, length, -1)[:, :, examples:].flatten(1, 2)
    return (queries @ p["answer"]).view(models, batch, length - examples)


def _attended(shape: ReaderShape, p: Stacked, i: int, x: Tensor, batch: int, examples: int) -> Tensor:
    models, rows, width = x.shape
    # Linear attention reads the stream as it is, for a step of descent knows the scale; softmax reads it normed.
    inputs = x if shape.attention == "linear" else _normed(x)
    three = (inputs @ p[f"{i}.read"]).view(models * batch, rows // batch, 3, width)
    q, k, v = three.unbind(2)
    mixed = ATTENTIONS[shape.attention](q, k[:, :examples], v[:, :examples])
    return mixed.reshape(models, rows, width) @ p[f"{i}.write"]


def _normed(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])
