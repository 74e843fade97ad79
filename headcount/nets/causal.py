"""Causal networks over letters: embedding, L layers that look back, logits of the next letter at every place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from headcount.nets.architecture import NormedShape
from headcount.refusals import at_least_one

Places = Literal["absolute", "rotary", "none"]
EPS = 1e-5  # of the layer norms


@dataclass(frozen=True)
class DecoderShape(NormedShape):
    """A causal network: (heads, head_dim) for each layer, its widths, its letters and how it knows places.

    `context` is how many absolute positions there are; the other kinds of places know no end.

    >>> DecoderShape(layers=((4, 16), (4, 16)), embed_dim=64, width=256, vocab=8, context=64).name
    '4x16+4x16'
    """

    layers: tuple[tuple[int, int], ...]
    embed_dim: int
    width: int
    vocab: int
    context: int
    positions: Places = "absolute"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple((int(h), int(n)) for h, n in self.layers))
        if not self.layers:
            raise ValueError("layers is empty: a decoder has at least one")
        at_least_one(embed_dim=self.embed_dim, width=self.width, vocab=self.vocab, context=self.context)
        for heads, head_dim in self.layers:
            at_least_one(heads=heads, head_dim=head_dim)
        if self.positions not in ("absolute", "rotary", "none"):
            raise ValueError(f"positions must be absolute, rotary or none, got {self.positions!r}")
        if self.positions == "rotary" and any(n % 2 for _, n in self.layers):
            raise ValueError("rotary positions turn pairs of coordinates, so head_dim must be even")

    def module(self, seed: int | None = None) -> CausalTransformer:
        """The plain network, its weights drawn from the seed."""
        return CausalTransformer(self, seed=seed)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter tensor of the network by name, with its size."""
        E, N, V = self.embed_dim, self.width, self.vocab
        sizes: dict[str, tuple[int, ...]] = {"token": (V, E)}
        if self.positions == "absolute":
            sizes["place"] = (self.context, E)
        for i, (h, n) in enumerate(self.layers):
            sizes |= {f"layer{i}.norm.weight": (E,), f"layer{i}.norm.bias": (E,), f"layer{i}.read": (3 * h * n, E)}
            sizes |= {f"layer{i}.write": (E, h * n), f"layer{i}.before.weight": (E,), f"layer{i}.before.bias": (E,)}
            sizes |= {f"layer{i}.inner.weight": (N, E), f"layer{i}.inner.bias": (N,)}
            sizes |= {f"layer{i}.outer.weight": (E, N), f"layer{i}.outer.bias": (E,)}
        return sizes | {"last.weight": (E,), "last.bias": (E,), "logits": (V, E)}


def rotated(x: Float[Tensor, "... length head_dim"]) -> Float[Tensor, "... length head_dim"]:
    """Rotary positions: pair (j, j + n/2) of the vector at place t turned by t / 10000^(2j/n).

    Inner products then depend on the distance of two places alone.
    """
    length, n = x.shape[-2:]
    rate = 10_000.0 ** (-torch.arange(0, n, 2, device=x.device, dtype=torch.float64) / n)
    angle = torch.arange(length, device=x.device, dtype=torch.float64)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class CausalTransformer(nn.Module):
    """x + attention(norm x), then + feed-forward(norm x), layer by layer; nobody looks ahead.

    The plain network that a `DecoderShape` describes: the reference for decoders trained as a bank.

    >>> net = CausalTransformer(DecoderShape(((1, 4),), embed_dim=8, width=16, vocab=5, context=10), seed=0)
    >>> net(torch.tensor([[0, 1, 2]])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, shape: DecoderShape, *, seed: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed) if seed is not None else None
        for name, size in shape.tensors().items():
            start = _drawn(name, size, shape.depth, generator).to(torch.get_default_dtype())
            self.register_parameter(_attribute(name), nn.Parameter(start))

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `DecoderShape.tensors`."""
        return {name: self.get_parameter(_attribute(name)) for name in self.shape.tensors()}

    def forward(
        self, ids: Int[Tensor, "batch length"], offset: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of the next letter at every place; absolute positions start at `offset`, 0 where none is given."""
        p, length = self.named(), ids.shape[1]
        x = p["token"][ids]
        if self.shape.positions == "absolute":
            places = torch.arange(length, device=ids.device)
            x = x + p["place"][places if offset is None else offset[:, None] + places]
        for i, (heads, _) in enumerate(self.shape.layers):
            x = x + self.added(self._attend(p, i, heads, _normed(p, f"layer{i}.norm", x)))
            hidden = gelu(_normed(p, f"layer{i}.before", x) @ p[f"layer{i}.inner.weight"].T + p[f"layer{i}.inner.bias"])
            x = x + self.added(hidden @ p[f"layer{i}.outer.weight"].T + p[f"layer{i}.outer.bias"])
        return _normed(p, "last", x) @ p["logits"].T

    def added(self, branch: Tensor) -> Tensor:
        """What of a branch goes to the residual stream: all of it, unless a kind of network says otherwise."""
        return branch

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Every place's mean of the values before it, weighed by softmax."""
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    def _attend(self, p: dict[str, Tensor], i: int, heads: int, x: Tensor) -> Tensor:
        q, k, v = (x @ p[f"layer{i}.read"].T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        if self.shape.positions == "rotary":
            q, k = rotated(q), rotated(k)
        return self.mixed(q, k, v).transpose(1, 2).flatten(2) @ p[f"layer{i}.write"].T


def _attribute(name: str) -> str:
    return name.replace(".", "_")  # a module's parameter may not have a dot in its name


def _normed(p: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], EPS)


def _drawn(name: str, size: tuple[int, ...], depth: int, generator: torch.Generator | None) -> Tensor:
    """Gaussian matrices of variance 1 / inputs, smaller by sqrt(2 L) where they end in the residual; norms at one."""
    if len(size) == 1:
        return torch.full(size, 1.0 if name.endswith("weight") else 0.0, dtype=torch.float64)
    deviation = 0.02 if name in ("token", "place") else size[1] ** -0.5
    if name.endswith(("write", "outer.weight")):
        deviation /= math.sqrt(2 * depth)
    return deviation * torch.randn(size, generator=generator, dtype=torch.float64)
