"""A certified one-layer network as the plain network that is trained: the same function, but for float32 and GELU."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.network import ClassTokenNet
from headcount.certificates.parallel_parts import SideBySide
from headcount.nets import Architecture, Transformer
from headcount.nets.transformer import Attention, FeedForward

SHARP = 1000.0  # gelu(SHARP s) / SHARP is relu(s) up to 0.17 / SHARP
AFFINE = 1e-9  # of its range: what a read-out may differ from an affine map to count as one


def as_transformer(
    net: nn.Module, arch: Architecture, x: Float[Tensor, "batch length token_dim"]
) -> Transformer | None:
    """The network in the architecture's shape, all that it does not need at zero; None where that is too small.

    A read-out of ReLUs becomes one of GELUs seen from far away. Networks side by side can be one where each of them
    gives an affine map of what its heads found, on the sequences `x`, and the outer function has one hidden layer.
    """
    parts = _parts(net)
    if parts is None or arch.depth != 1 or any(len(part.shape.layers) > 1 for part in parts):
        return None
    read = _read_out(net, parts, x)
    if read is None or not _fits(parts, read, arch):
        return None
    transformer = Transformer(arch, x.shape[2]).double()
    with torch.no_grad():
        for p in transformer.parameters():
            p.zero_()
        hidden = state = head = 0
        for part in parts:
            _put(transformer, part, hidden, state, head, x.shape[1])
            hidden, state = hidden + part.shape.encoder[1], state + part.shape.embed_dim
            head += part.shape.layers[0][0]
        (inner, bias), (outer, constant) = read
        _fill(transformer.read_out, SHARP * inner, SHARP * bias, outer / SHARP, constant)
    return transformer.float()


def _parts(net: nn.Module) -> list[ClassTokenNet] | None:
    if isinstance(net, ClassTokenNet):
        return [net]
    return [part for part in net.parts if isinstance(part, ClassTokenNet)] if isinstance(net, SideBySide) else None


Maps = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


def _read_out(net: nn.Module, parts: list[ClassTokenNet], x: Tensor) -> Maps | None:
    """Both maps of the read-out, on the states of all parts side by side."""
    if isinstance(net, ClassTokenNet):
        maps = net.read_out.weights
        return (maps[0], maps[1]) if len(maps) == 2 else None
    assert isinstance(net, SideBySide)
    affine = [_affine(part, x) for part in parts]
    if any(one is None for one in affine) or len(net.outer.weights) != 2:
        return None
    gives = torch.block_diag(*(one[0][None] for one in affine if one is not None))
    shift = torch.stack([one[1] for one in affine if one is not None])
    (weight, bias), last = net.outer.weights
    return (weight @ gives, weight @ shift + bias), last


def _affine(part: ClassTokenNet, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """The read-out as <a, state> + b, where it is that on these sequences."""
    states = part.attended(x.double())
    known = torch.cat([states, torch.ones(len(states), 1, dtype=torch.float64)], dim=1)
    outputs = part.read_out(states)[:, 0]
    fitted = torch.linalg.lstsq(known, outputs[:, None], driver="gelsd").solution[:, 0]
    off = (known @ fitted - outputs).abs().max()
    return (fitted[:-1], fitted[-1]) if off <= AFFINE * (1 + outputs.abs().max()) else None


def _fits(parts: list[ClassTokenNet], read: Maps, arch: Architecture) -> bool:
    heads, head_dim = arch.layers[0]
    sizes = [part.shape for part in parts]
    placed = any(bool((part.encoder.weights[0][0][:, -1] != 0).any()) for part in parts)
    return (
        arch.relu_encoder
        and sum(shape.layers[0][0] for shape in sizes) <= heads
        and max(shape.layers[0][1] for shape in sizes) <= head_dim
        and sum(shape.embed_dim for shape in sizes) <= arch.embed_dim
        and sum(shape.encoder[1] for shape in sizes) <= arch.width
        and all(len(shape.encoder) == 3 for shape in sizes)
        and len(read[0][1]) <= arch.width
        and (arch.positions > 0 or not placed)
    )


def _put(transformer: Transformer, part: ClassTokenNet, hidden: int, state: int, head: int, length: int) -> None:
    """One part into its own units, coordinates and heads."""
    (w1, b1), (w2, b2) = part.encoder.weights
    d, units = part.shape.token_dim, slice(hidden, hidden + len(b1))
    coordinates = slice(state, state + part.shape.embed_dim)
    enter = transformer.encoder
    assert isinstance(enter, FeedForward)
    enter.inner.weight[units, :d] = w1[:, :d]
    if transformer.arch.positions:
        enter.inner.weight[units, d] = length * w1[:, d]  # the first position feature is t / T
    enter.inner.bias[units] = b1
    enter.outer.weight[coordinates, units], enter.outer.bias[coordinates] = w2, b2
    transformer.cls[coordinates] = part.cls
    (target,), (source,) = transformer.attention, part.attention
    assert isinstance(target, Attention) and isinstance(source, Attention)
    heads, n = part.shape.layers[0]
    rows = slice(head, head + heads)
    scale = part.shape.betas[0] * transformer.arch.layers[0][1] ** 0.5  # the plain network divides by sqrt(head_dim)
    target.query[rows, :n, coordinates] = scale * source.query
    target.key[rows, :n, coordinates], target.value[rows, :n, coordinates] = source.key, source.value
    target.output[rows, coordinates, :n] = source.output


def _fill(net: FeedForward, inner: Tensor, bias: Tensor, outer: Tensor, constant: Tensor) -> None:
    units, inputs = inner.shape
    net.inner.weight[:units, :inputs], net.inner.bias[:units] = inner, bias
    net.outer.weight[:1, :units], net.outer.bias[:1] = outer, constant
