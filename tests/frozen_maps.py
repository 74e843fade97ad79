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

from headcount.nets import Transformer
from headcount.nets.recorded.frozen_calls import ratio
from headcount.nets.transformer import position_features
from tests.plain_blocks import Blocks

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FrozenMap:
    """z -> linear(z) + constant, for states of all tokens; `dense()` is the matrix of the linear part, row-major."""

    linear: Linear
    constant: Float[Tensor, "length embed"]
    dense: Callable[[], Tensor]

    def __call__(self, z: Tensor) -> Tensor:
        return self.linear(z) + self.constant


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
    tokens = _two_layers(net.encoder, rows) if net.arch.embedding == "feed-forward" else _affine(net.encoder, rows)
    cls = torch.zeros(length + 1, 1, net.arch.embed_dim, dtype=x.dtype)
    cls[length] = net.cls
    for attend, forward in zip(net.attention, net.between, strict=False):
        both = torch.cat([tokens, cls], 1) if net.arch.class_token == "every" else tokens
        heard = _heard(attend, both, tokens)
        both = both + heard if net.arch.residual else heard
        both = both + _two_layers(forward, both) if net.arch.residual else _two_layers(forward, both)
        tokens, cls = (both[:, :-1], both[:, -1:]) if net.arch.class_token == "every" else (both, cls)
    out = _two_layers(net.read_out, cls + _heard(net.attention[-1], cls, tokens))[:, 0]
    return out[:length], out[length]


def _heard(attend: Any, asking: Tensor, tokens: Tensor) -> Tensor:
    """What rows of tokens give to those who ask, the weights frozen at the sums."""
    weights = attend.weights(asking.sum(0, keepdim=True), tokens.sum(0, keepdim=True))[0]
    return torch.einsum("hij,hen,hnf,rjf->rie", weights, attend.output, attend.value, tokens)


def _two_layers(part: Any, rows: Tensor) -> Tensor:
    """A feed-forward on rows that add up to its input, its ratios frozen at the sum; the last row takes the biases."""
    inner = _affine(part.inner, rows)
    r, _ = ratio(part.activation, inner.sum(0))
    return _affine(part.outer, inner * r)


def _affine(part: Any, rows: Tensor) -> Tensor:
    """A linear map on rows, the last of which takes the bias."""
    only_last = torch.zeros(len(rows), 1, 1, dtype=rows.dtype)
    only_last[-1] = 1.0
    return rows @ part.weight.mT + only_last * part.bias
