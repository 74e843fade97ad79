"""Standard encoders: embedding, learnt places, pre-norm attention and feed-forward, pooling, a linear read-out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, relu

from headcount.nets.architecture import NormedShape
from headcount.refusals import at_least, at_least_one

SMALL = 0.02  # deviation of places and class token at the start, as BERT and ViT have it


@dataclass(frozen=True)
class EncoderShape(NormedShape):
    """An encoder as textbooks draw it: (heads, head_dim) for each layer, widths, how tokens enter and answers leave.

    Tokens are vectors of `token_dim` numbers that enter by one matrix, or ids below `vocab` that choose a row of a
    table. `positions` is how many learnt places there are, so the longest sequence (0: none, and any length). `width`
    is the hidden size of the feed-forwards. The read-out sees the mean state of the tokens that exist, or that of a
    class token which attends like the others. Heads need not divide `embed_dim` among them.

    >>> shape = EncoderShape(layers=((4, 12),), embed_dim=48, width=96, token_dim=4, positions=12)
    >>> shape.name, shape.parameters
    ('4x12', 19921)
    >>> EncoderShape(layers=((4, 12),), embed_dim=48, width=96)
    Traceback (most recent call last):
    ...
    ValueError: tokens are vectors (token_dim) or ids (vocab), one of the two; got token_dim=0, vocab=0
    """

    layers: tuple[tuple[int, int], ...]
    embed_dim: int
    width: int
    token_dim: int = 0
    vocab: int = 0
    positions: int = 0
    outputs: int = 1
    dropout: float = 0.0
    activation: Literal["relu", "gelu"] = "gelu"
    pooling: Literal["mean", "class token"] = "mean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple((int(h), int(n)) for h, n in self.layers))
        if not self.layers:
            raise ValueError("layers is empty: an encoder has at least one")
        for heads, head_dim in self.layers:
            at_least_one(heads=heads, head_dim=head_dim)
        at_least_one(embed_dim=self.embed_dim, width=self.width, outputs=self.outputs)
        at_least(0, token_dim=self.token_dim, vocab=self.vocab, positions=self.positions)
        if (self.token_dim > 0) == (self.vocab > 0):
            sizes = f"token_dim={self.token_dim}, vocab={self.vocab}"
            raise ValueError(f"tokens are vectors (token_dim) or ids (vocab), one of the two; got {sizes}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.activation not in ("relu", "gelu"):
            raise ValueError(f'activation must be "relu" or "gelu", got {self.activation!r}')
        if self.pooling not in ("mean", "class token"):
            raise ValueError(f'pooling must be "mean" or "class token", got {self.pooling!r}')

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter tensor of the network by name, with its size."""
        E, N = self.embed_dim, self.width
        sizes: dict[str, tuple[int, ...]] = {"embed": (self.vocab, E)} if self.vocab else {}
        if self.token_dim:
            sizes |= {"embed.weight": (E, self.token_dim), "embed.bias": (E,)}
        sizes |= {"places": (self.positions, E)} if self.positions else {}
        sizes |= {"cls": (E,)} if self.pooling == "class token" else {}
        for i, (h, n) in enumerate(self.layers):
            sizes |= {f"layer{i}.norm.weight": (E,), f"layer{i}.norm.bias": (E,)}
            sizes |= {f"layer{i}.read.weight": (3 * h * n, E), f"layer{i}.read.bias": (3 * h * n,)}
            sizes |= {f"layer{i}.write.weight": (E, h * n), f"layer{i}.write.bias": (E,)}
            sizes |= {f"layer{i}.before.weight": (E,), f"layer{i}.before.bias": (E,)}
            sizes |= {f"layer{i}.inner.weight": (N, E), f"layer{i}.inner.bias": (N,)}
            sizes |= {f"layer{i}.outer.weight": (E, N), f"layer{i}.outer.bias": (E,)}
        sizes |= {"last.weight": (E,), "last.bias": (E,)}
        return sizes | {"read_out.weight": (self.outputs, E), "read_out.bias": (self.outputs,)}

    def module(self, seed: int | None = None) -> Encoder:
        """The plain network, started from its own stream."""
        return Encoder(self, seed=seed)

    def refuse_longer(self, length: int) -> None:
        """Refuse sequences for whose ends no places were learnt."""
        if self.positions and length > self.positions:
            raise ValueError(f"sequences have {length} tokens and the encoder {self.positions} positions")


class Encoder(nn.Module):
    """x + attention(norm x), then + feed-forward(norm x), layer by layer; the pooled state normed, and read out.

    The plain network that a `EncoderShape` describes: the reference for encoders trained as a bank. What leaves out
    units in training mode is torch's own dropout, where `nn.TransformerEncoderLayer` has it: on the attention weights,
    on what was heard, on the hidden units and on what they say.

    >>> net = EncoderShape(layers=((2, 3),), embed_dim=8, width=16, vocab=5, outputs=3).module(seed=0)
    >>> net(torch.tensor([[0, 1, 2, 4]])).shape
    torch.Size([1, 3])
    """

    def __init__(self, shape: EncoderShape, *, seed: int | None = None) -> None:
        super().__init__()
        self.shape, E, N = shape, shape.embed_dim, shape.width
        if shape.vocab:
            self.embed = nn.Parameter(torch.empty(shape.vocab, E))
        else:
            self.embed = nn.Linear(shape.token_dim, E)
        if shape.positions:
            self.places = nn.Parameter(torch.empty(shape.positions, E))
        if shape.pooling == "class token":
            self.cls = nn.Parameter(torch.empty(E))
        for i, (h, n) in enumerate(shape.layers):
            parts = {"norm": nn.LayerNorm(E), "read": nn.Linear(E, 3 * h * n), "write": nn.Linear(h * n, E)}
            parts |= {"before": nn.LayerNorm(E), "inner": nn.Linear(E, N), "outer": nn.Linear(N, E)}
            self.add_module(f"layer{i}", nn.ModuleDict(parts))
        self.last, self.read_out = nn.LayerNorm(E), nn.Linear(E, shape.outputs)
        self.reset(torch.Generator().manual_seed(seed) if seed is not None else None)

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `EncoderShape.tensors`."""
        return {name: self.get_parameter(name) for name in self.shape.tensors()}

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight anew as torch does: see `_drawn`."""
        for name, size in self.shape.tensors().items():
            self.get_parameter(name).copy_(_drawn(name, size, self.shape, generator))

    def forward(
        self,
        x: Float[Tensor, "batch length token_dim"] | Int[Tensor, "batch length"],
        present: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch ..."]:
        """The outputs (one: without an axis of its own); `present` marks the tokens that exist, None: all do."""
        self.shape.refuse_longer(x.shape[1])
        state = self.embed[x] if isinstance(self.embed, nn.Parameter) else self.embed(x)
        if self.shape.positions:
            state = state + self.places[: x.shape[1]]
        present = present if present is not None else torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if self.shape.pooling == "class token":
            state = torch.cat([self.cls.expand(x.shape[0], 1, -1), state], dim=1)
            present = torch.cat([present.new_ones(x.shape[0], 1), present], dim=1)
        for i, (heads, _) in enumerate(self.shape.layers):
            layer = self.get_submodule(f"layer{i}")
            state = state + self._drop(self._attended(layer, heads, state, present))
            state = state + self._drop(self._fed(layer, state))
        pooled = state[:, 0] if self.shape.pooling == "class token" else _mean(state, present)
        out = self.read_out(self.last(pooled))
        return out[:, 0] if self.shape.outputs == 1 else out

    def _attended(self, layer: nn.Module, heads: int, x: Tensor, present: Tensor) -> Tensor:
        part = layer.get_submodule
        q, k, v = part("read")(part("norm")(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~present[:, None, None], -torch.inf)
        return part("write")((self._drop(scores.softmax(dim=-1)) @ v).transpose(1, 2).flatten(2))

    def _fed(self, layer: nn.Module, x: Tensor) -> Tensor:
        part, activation = layer.get_submodule, gelu if self.shape.activation == "gelu" else relu
        return part("outer")(self._drop(activation(part("inner")(part("before")(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.shape.dropout, self.training)


def _mean(state: Float[Tensor, "batch length embed"], present: Bool[Tensor, "batch length"]) -> Tensor:
    there = present.to(state.dtype)[..., None]
    return (state * there).sum(dim=1) / there.sum(dim=1)


def _drawn(
    name: str, size: tuple[int, ...], shape: EncoderShape, generator: torch.Generator | None
) -> Float[Tensor, ...]:
    """As `nn.TransformerEncoderLayer`, `nn.Linear` and `nn.Embedding` start, in float64 whatever is wanted.

    Queries, keys and values uniform within sqrt(6 / (inputs + outputs)), attention's biases 0, norms 1 and 0; every
    other matrix and its bias uniform within 1 / sqrt(inputs); tables of ids normal. Places and class token are small.
    """
    if name in ("embed", "places", "cls"):
        deviation = 1.0 if name == "embed" else SMALL
        return deviation * torch.randn(size, generator=generator, dtype=torch.float64)
    part, kind = name.split(".")[-2:]
    if part in ("norm", "before", "last") or (part in ("read", "write") and kind == "bias"):
        return torch.full(size, 0.0 if kind == "bias" else 1.0, dtype=torch.float64)
    inputs = shape.tensors()[name.removesuffix(kind) + "weight"][1]
    bound = math.sqrt(6 / sum(size)) if part == "read" else inputs**-0.5
    return bound * (2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1)
