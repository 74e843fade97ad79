"""The formulas themselves: a block transformer as a chain of frozen maps, pushed through or written out as a matrix.

The second road, independent of record and replay. Every map is affine: z -> linear(z) + constant, with the attention
weights A_h, norm scales s_t and activation ratios r_t of one input. Contributions start as delta_ij x_i and go through
the linear parts (memory length^2 embed_dim); the constant takes the rest. `dense` is the Kronecker form of the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headcount.nets import Transformer
from headcount.nets.transformer import position_features
from headcount.papers.tensor_lens.frozen_calls import ratio

__all__ = ["Blocks", "FrozenMap", "frozen_maps", "push", "pushed", "whole"]

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FrozenMap:
    """z -> linear(z) + constant, for states of all tokens; `dense()` is the matrix of the linear part, row-major."""

    linear: Linear
    constant: Float[Tensor, "length embed"]
    dense: Callable[[], Tensor]

    def __call__(self, z: Tensor) -> Tensor:
        return self.linear(z) + self.constant


class Blocks(nn.Module):
    """A plain transformer of blocks: pre- or post-norm, LayerNorm or RMSNorm, causal or not, gated or not."""

    def __init__(
        self,
        layers: int,
        embed_dim: int,
        heads: int,
        width: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        norm: type[nn.Module] = nn.LayerNorm,
        pre_norm: bool = True,
        causal: bool = False,
        gated: bool = False,
        seed: int = 0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.heads, self.activation, self.pre_norm, self.causal, self.gated = heads, activation, pre_norm, causal, gated
        E, N = embed_dim, width
        shapes = {"qkv": (E, 3 * E), "out": (E, E), "inner": (E, N), "outer": (N, E)} | (
            {"up": (E, N)} if gated else {}
        )
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            parts: dict[str, nn.Module] = {name: nn.Linear(*shape) for name, shape in shapes.items()}
            self.blocks.append(nn.ModuleDict(parts | {"norm1": norm(E), "norm2": norm(E)}))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                draw = torch.randn(p.shape, generator=generator, dtype=torch.float64)
                p.copy_(scale * draw / p.shape[1] ** 0.5 if p.dim() == 2 else 1 + draw / 4)
        self.double().eval()

    def weights(self, block: Any, z: Tensor) -> Float[Tensor, "*batch heads length length"]:
        """The attention weights of a block at its (normed) input."""
        q, k, _ = (self._split(t) for t in block["qkv"](z).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=z.device).triu(1)
        return torch.softmax(scores.masked_fill(unseen, -torch.inf) if self.causal else scores, dim=-1)

    def _split(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def attend(self, block: Any, z: Tensor) -> Tensor:
        v = self._split(block["qkv"](z).chunk(3, -1)[2])
        return block["out"]((self.weights(block, z) @ v).transpose(-3, -2).flatten(-2))

    def hidden(self, block: Any, z: Tensor) -> Tensor:
        active = self.activation(block["inner"](z))
        return block["outer"](active * block["up"](z) if self.gated else active)

    def forward(self, z: Float[Tensor, "*batch length embed"]) -> Float[Tensor, "*batch length embed"]:
        for block in self.blocks:
            b: Any = block
            if self.pre_norm:
                z = z + self.attend(b, b["norm1"](z))
                z = z + self.hidden(b, b["norm2"](z))
            else:
                z = b["norm1"](z + self.attend(b, z))
                z = b["norm2"](z + self.hidden(b, z))
        return z


@torch.no_grad()
def frozen_maps(net: Blocks, x: Float[Tensor, "length embed"], *, freeze: str = "gate") -> list[FrozenMap]:
    """The chain of affine maps that the network is at x, block by block: (I + A N1), (I + M N2), or N1 (I + A), ..."""
    chain: list[FrozenMap] = []

    def step(found: FrozenMap) -> None:
        nonlocal x
        chain.append(found)
        x = found(x)

    for block in net.blocks:
        b: Any = block
        for name, part in (("norm1", _attention_map), ("norm2", _hidden_map)):
            if net.pre_norm:
                n = _norm_map(b[name], x)
                step(_residual(_after(part(net, b, n(x), freeze), n)))
            else:
                step(_residual(part(net, b, x, freeze)))
                step(_norm_map(b[name], x))
    return chain


def _norm_map(norm: Any, x: Tensor) -> FrozenMap:
    """N = blockdiag_t(s_t diag(g) C), C = I - 11^T/E for LayerNorm and I for RMSNorm; the constant is the bias."""
    E = x.shape[-1]
    eye = torch.eye(E, dtype=x.dtype)
    layer = isinstance(norm, nn.LayerNorm)
    C = eye - 1 / E if layer else eye
    eps = norm.eps if norm.eps is not None else torch.finfo(x.dtype).eps
    s = ((x @ C).square().mean(-1, keepdim=True) + eps).rsqrt()
    bias = norm.bias if layer else torch.zeros(E, dtype=x.dtype)
    return FrozenMap(
        lambda z: s * (z @ C) * norm.weight,
        bias.expand_as(x),
        lambda: torch.block_diag(*(s_t * norm.weight[:, None] * C for s_t in s)),
    )


def _attention_map(net: Blocks, b: Any, z: Tensor, freeze: str) -> FrozenMap:
    """A = sum_h kron(A_h, W_O^h W_V^h); constant sum_h (A_h 1) W_O^h b_V^h + b_O."""
    A = net.weights(b, z)
    W_V, b_V = b["qkv"].weight.chunk(3)[2].unflatten(0, (net.heads, -1)), b["qkv"].bias.chunk(3)[2]
    W_O = b["out"].weight.unflatten(1, (net.heads, -1))
    through = torch.einsum("ohd,hde->hoe", W_O, W_V)
    moved = torch.einsum("ohd,hd->ho", W_O, b_V.unflatten(0, (net.heads, -1)))
    return FrozenMap(
        lambda z: torch.einsum("hij,hoe,...je->...io", A, through, z),
        torch.einsum("hi,ho->io", A.sum(-1), moved) + b["out"].bias,
        lambda: sum((torch.kron(a, w) for a, w in zip(A, through, strict=True)), torch.zeros(())),
    )


def _hidden_map(net: Blocks, b: Any, z: Tensor, freeze: str) -> FrozenMap:
    """M = blockdiag_t(W2 diag(r_t) W1), constant W2 (r_t b1) + b2; gated: one of the two factors is frozen whole."""
    W1, b1, W2, b2 = b["inner"].weight, b["inner"].bias, b["outer"].weight, b["outer"].bias
    inner = b["inner"](z)
    r, _ = ratio(net.activation, inner)
    if net.gated and freeze == "gate":
        r, W1, b1 = net.activation(inner), b["up"].weight, b["up"].bias
    elif net.gated:
        r = r * b["up"](z)
    return FrozenMap(
        lambda z: (z @ W1.mT * r) @ W2.mT,
        (r * b1) @ W2.mT + b2,
        lambda: torch.block_diag(*(W2 @ (r_t[:, None] * W1) for r_t in r)),
    )


def _residual(inner: FrozenMap) -> FrozenMap:
    return FrozenMap(
        lambda z: z + inner.linear(z),
        inner.constant,
        lambda: torch.eye(inner.constant.numel(), dtype=inner.constant.dtype) + inner.dense(),
    )


def _after(outer: FrozenMap, inner: FrozenMap) -> FrozenMap:
    return FrozenMap(
        lambda z: outer.linear(inner.linear(z)),
        outer(inner.constant),
        lambda: outer.dense() @ inner.dense(),
    )


@torch.no_grad()
def push(maps: list[FrozenMap], x: Float[Tensor, "length embed"]) -> tuple[Tensor, Tensor]:
    """Contributions (length, length, embed) and the constant (length, embed), pushed through a chain of maps."""
    rows = torch.diag_embed(x.mT, dim1=0, dim2=1)  # rows[j, i] = delta_ij x_i
    constant = torch.zeros_like(x)
    for frozen in maps:
        rows, constant = frozen.linear(rows), frozen(constant)
    return rows.transpose(0, 1), constant


@torch.no_grad()
def whole(maps: list[FrozenMap]) -> Float[Tensor, "numbers numbers"]:
    """T, the ordered product of the maps' matrices, by their Kronecker forms."""
    product = maps[0].dense()
    for frozen in maps[1:]:
        product = frozen.dense() @ product
    return product


@torch.no_grad()
def pushed(net: Transformer, x: Float[Tensor, "length token_dim"]) -> tuple[Tensor, Tensor]:
    """Contributions (length, outputs) and constant (outputs) of our class-token network, pushed by its formulas.

    The class token, every bias and the position features belong to the constant; row `length` carries it.
    """
    length = len(x)
    rows = torch.zeros(length + 1, length, net.arch.positions + x.shape[1], dtype=x.dtype)
    rows[range(length), range(length), : x.shape[1]] = x
    features = position_features(length, net.arch.positions, dtype=x.dtype)
    rows[length, :, x.shape[1] :] = features
    tokens = _two_layers(net.encoder, rows)
    cls = torch.zeros(length + 1, 1, net.arch.embed_dim, dtype=x.dtype)
    cls[length] = net.cls
    both = torch.cat([tokens, cls], 1)
    for layer, attend in enumerate(net.attention):
        last = layer == net.arch.depth - 1
        states, a = both.sum(0, keepdim=True), attend
        asking, seen = (both[:, -1:] if last else both), both[:, :-1]
        weights = a.weights(states[:, -1:] if last else states, states[:, :-1])[0]  # pyright: ignore
        both = asking + torch.einsum("hij,hen,hnf,rjf->rie", weights, a.output, a.value, seen)
        if not last:
            both = both + _two_layers(net.between[layer], both)
    out = _two_layers(net.read_out, both)[:, 0]
    return out[:length], out[length]


def _two_layers(part: Any, rows: Tensor) -> Tensor:
    """A feed-forward on rows that add up to its input, its ratios frozen at the sum; the last row takes the biases."""
    only_last = torch.zeros(len(rows), 1, 1, dtype=rows.dtype)
    only_last[-1] = 1.0
    inner = rows @ part.inner.weight.mT + only_last * part.inner.bias
    r, _ = ratio(part.activation, inner.sum(0))
    return (inner * r) @ part.outer.weight.mT + only_last * part.outer.bias
