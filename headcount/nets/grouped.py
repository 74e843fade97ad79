"""Decoders with grouped queries: rotary places, norms without parameters, a feed-forward of two matrices, tied logits.

Nothing is left out of such a decoder but what the sizes of its heads do not decide, so that two shapes differ in them
alone. Weights lie with their inputs first.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from headcount.nets.causal import rotated
from headcount.refusals import at_least_one


@dataclass(frozen=True)
class GroupedShape:
    """(heads, head_dim, kv_heads, width) for each layer: heads share keys and values evenly.

    >>> shape = GroupedShape(((4, 8, 2, 40), (3, 6, 1, 24)), embed_dim=16, vocab=11)
    >>> shape.name, shape.tensors()["layer0.read"]
    ('4/2x8+3/1x6', (16, 64))
    """

    blocks: tuple[tuple[int, int, int, int], ...]
    embed_dim: int
    vocab: int

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("blocks is empty: a decoder has at least one layer")
        at_least_one(embed_dim=self.embed_dim, vocab=self.vocab)
        for heads, head_dim, kv_heads, width in self.blocks:
            at_least_one(heads=heads, head_dim=head_dim, kv_heads=kv_heads, width=width)
            if heads % kv_heads:
                raise ValueError(f"{heads} heads cannot share {kv_heads} key-value heads evenly")
            if head_dim % 2:
                raise ValueError(f"rotary positions turn pairs of coordinates: head_dim must be even, got {head_dim}")

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Heads and head_dim of each layer."""
        return tuple((heads, head_dim) for heads, head_dim, _, _ in self.blocks)

    @property
    def name(self) -> str:
        """The layers in short: heads / key-value heads x head_dim."""
        return "+".join(f"{h}/{g}x{n}" for h, n, g, _ in self.blocks)

    @property
    def width(self) -> int:
        """Hidden units of the widest feed-forward."""
        return max(width for *_, width in self.blocks)

    @property
    def shared(self) -> dict[str, GroupedShape]:
        """Everything: a layer norm would see what is padded."""
        return {"shape": self}

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every matrix by name, inputs first."""
        sizes: dict[str, tuple[int, ...]] = {"token": (self.vocab, self.embed_dim)}
        for i, (heads, head_dim, kv_heads, width) in enumerate(self.blocks):
            sizes[f"layer{i}.read"] = (self.embed_dim, head_dim * (heads + 2 * kv_heads))
            sizes[f"layer{i}.write"] = (head_dim * heads, self.embed_dim)
            sizes |= {f"layer{i}.inner": (self.embed_dim, width), f"layer{i}.outer": (width, self.embed_dim)}
        return sizes

    def module(self, seed: int | None = None) -> GroupedTransformer:
        """The plain network, its weights drawn from the seed."""
        return GroupedTransformer(self, seed=seed)


def grouped_logits(
    shape: GroupedShape, p: Mapping[str, Tensor], ids: Int[Tensor, "models batch length"]
) -> Float[Tensor, "models batch length vocab"]:
    """Logits of the next token at every place, the first axis of every matrix being the model.

    Tokens are read from the table in its own precision, so that its gradient is summed in that one too; everything else
    is in the precision of the other matrices.
    """
    (models, batch, length), size, kind = ids.shape, shape.embed_dim, p["layer0.read"].dtype
    x = p["token"].gather(1, ids.flatten(1)[..., None].expand(-1, -1, size)).to(kind)
    for i, block in enumerate(shape.blocks):
        three = torch.bmm(layer_norm(x, (size,)), p[f"layer{i}.read"]).view(models * batch, length, -1)
        x = x + torch.bmm(_attended(block, three).view(models, batch * length, -1), p[f"layer{i}.write"])
        hidden = torch.bmm(layer_norm(x, (size,)), p[f"layer{i}.inner"])
        x = x + torch.bmm(gelu(hidden, approximate="tanh"), p[f"layer{i}.outer"])
    return torch.bmm(layer_norm(x, (size,)), p["token"].to(kind).mT).view(models, batch, length, -1)


def _attended(
    block: tuple[int, int, int, int], three: Float[Tensor, "rows length dim"]
) -> Float[Tensor, "rows length out"]:
    """Causal attention of one layer from its queries, keys and values side by side."""
    heads, n, groups, _ = block
    parts = three.split([n * heads, n * groups, n * groups], -1)
    q, k, v = (t.unflatten(-1, (-1, n)).transpose(1, 2) for t in parts)
    q, k = rotated(q), rotated(k)
    if groups < heads:
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class GroupedTransformer(nn.Module):
    """The plain network that a `GroupedShape` describes.

    >>> net = GroupedTransformer(GroupedShape(((2, 4, 1, 8),), embed_dim=8, vocab=5), seed=0)
    >>> net(torch.tensor([[0, 1, 2]])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, shape: GroupedShape, *, seed: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        for name, size in shape.tensors().items():
            start = _drawn(name, size, len(shape.blocks), seed).to(torch.get_default_dtype())
            self.register_parameter(name.replace(".", "_"), nn.Parameter(start))

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `GroupedShape.tensors`."""
        return {name: self.get_parameter(name.replace(".", "_")) for name in self.shape.tensors()}

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of the next token at every place."""
        return grouped_logits(self.shape, {name: p[None] for name, p in self.named().items()}, ids[None])[0]


def _drawn(name: str, size: tuple[int, ...], depth: int, seed: int | None) -> Tensor:
    """Variance 1 / inputs, smaller by sqrt(2 L) where a matrix ends in the residual.

    A tensor's numbers depend on its name, its size and the seed, so that shapes share what they have in common.
    """
    generator = None
    if seed is not None:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name} {size}".encode()))
    deviation = 0.02 if name == "token" else size[0] ** -0.5
    if name.endswith(("write", "outer")):
        deviation /= math.sqrt(2 * depth)
    return deviation * torch.randn(size, generator=generator)
