"""K transformers that read examples and answer queries, as one: parameters stacked along a model axis.

All members share depth, width and kind of attention; layers are untied. Only the examples are keys, so that queries of
one context do not see each other. One head of the full width, a feed-forward of four times the width: about 12 L d^2
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from headcount.refusals import at_least_one, nearest
from headcount.training.shuffling import seed_of

__all__ = ["ATTENTIONS", "ReaderBank", "ReaderShape"]

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

    >>> ReaderShape(depth=4, width=32, token_dim=6).parameters // (12 * 4 * 32**2)
    1
    """

    depth: int
    width: int
    token_dim: int
    attention: str = "linear"

    def __post_init__(self) -> None:
        at_least_one(depth=self.depth, width=self.width, token_dim=self.token_dim)
        if self.attention not in ATTENTIONS:
            raise ValueError(f"unknown attention {self.attention!r}; {nearest(self.attention, ATTENTIONS)}")

    def tensors(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Every parameter by name: its shape, and the deviation of its first values (0: zeros, -1: ones)."""
        w, d = self.width, self.token_dim
        out = 1 / math.sqrt(2 * self.depth)  # what a layer adds to the stream, so that the whole keeps its size
        made: dict[str, tuple[tuple[int, ...], float]] = {"embed": ((d, w), d**-0.5), "start": ((w,), 0.0)}
        for i in range(self.depth):
            made |= {
                f"{i}.read": ((w, 3 * w), w**-0.5),
                f"{i}.write": ((w, w), out * w**-0.5),
                f"{i}.norm": ((w,), -1.0),
                f"{i}.inner": ((w, 4 * w), w**-0.5),
                f"{i}.bias": ((4 * w,), 0.0),
                f"{i}.outer": ((4 * w, w), out * (4 * w) ** -0.5),
            }
        return {**made, "answer": ((w, 1), 0.1 * w**-0.5)}

    @property
    def parameters(self) -> int:
        """All trainable numbers of one member."""
        return sum(math.prod(shape) for shape, _ in self.tensors().values())


class ReaderBank:
    """The parameters of K networks of one shape as rows of one matrix.

    >>> bank = ReaderBank(ReaderShape(2, 8, token_dim=4), seeds=[0, 1])
    >>> bank.answers(bank.named(), torch.zeros(2, 3, 7, 4), examples=5).shape
    torch.Size([2, 3, 2])
    """

    def __init__(
        self,
        shape: ReaderShape,
        seeds: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if not seeds:
            raise ValueError("a bank needs at least one member")
        self.shape = shape
        rows = {seed: _first(shape, seed) for seed in set(seeds)}
        self.theta: Float[Tensor, "models parameters"] = torch.stack([rows[s] for s in seeds]).to(device, dtype)

    def __len__(self) -> int:
        return len(self.theta)

    def named(self, theta: Float[Tensor, "models parameters"] | None = None) -> dict[str, Tensor]:
        """The stacked tensors by name; views of `theta`, so gradients reach it."""
        theta = self.theta if theta is None else theta
        sizes = {name: shape for name, (shape, _) in self.shape.tensors().items()}
        parts = theta.split([math.prod(size) for size in sizes.values()], dim=1)
        return {n: part.view(len(theta), *size) for (n, size), part in zip(sizes.items(), parts, strict=True)}

    def answers(
        self, p: dict[str, Tensor], tokens: Float[Tensor, "models batch all token_dim"], examples: int
    ) -> Float[Tensor, "models batch queries"]:
        """Every member's answers to the queries that follow the examples of its own contexts."""
        models, batch, length, _ = tokens.shape
        x = torch.baddbmm(p["start"][:, None], tokens.flatten(1, 2), p["embed"])
        for i in range(self.shape.depth):
            x = x + self._attend(p, i, x, batch, examples)
            hidden = torch.baddbmm(p[f"{i}.bias"][:, None], _normed(x) * p[f"{i}.norm"][:, None], p[f"{i}.inner"])
            x = x + gelu(hidden) @ p[f"{i}.outer"]
        asked = x.view(models, batch, length, -1)[:, :, examples:].flatten(1, 2)
        return (asked @ p["answer"]).view(models, batch, length - examples)

    def _attend(self, p: dict[str, Tensor], i: int, x: Tensor, batch: int, examples: int) -> Tensor:
        models, rows, width = x.shape
        # Linear attention reads the stream as it is, for a step of descent knows the scale; softmax reads it normed.
        seen = x if self.shape.attention == "linear" else _normed(x)
        three = (seen @ p[f"{i}.read"]).view(models * batch, rows // batch, 3, width)
        q, k, v = three.unbind(2)
        mixed = ATTENTIONS[self.shape.attention](q, k[:, :examples], v[:, :examples])
        return mixed.reshape(models, rows, width) @ p[f"{i}.write"]


def _normed(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])


def _first(shape: ReaderShape, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed_of("reader", seed))
    parts = []
    for size, deviation in shape.tensors().values():
        drawn = torch.randn(math.prod(size), generator=generator, dtype=torch.float64)
        parts.append(torch.ones_like(drawn) if deviation < 0 else deviation * drawn)
    return torch.cat(parts)
