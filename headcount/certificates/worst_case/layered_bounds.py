"""Networks of several layers, bounded by intervals alone: sound, and loose, because tokens forget that they are one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.worst_case.error_bounds import ErrorBounds, Scores, error_bounds, gelu_range
from headcount.certificates.worst_case.folded import plain_net
from headcount.certificates.worst_case.intervals import Interval, hull
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from headcount.nets import Transformer
from headcount.nets.transformer import Attention, FeedForward, position_features

WIDER = 1e-12  # on every number that is computed, relative to the magnitudes in its sum: some thousand roundings


@dataclass(frozen=True, eq=False)
class Layered:
    """One network of any depth in float64, in the units of its target."""

    net: Transformer
    mean: float
    spread: float
    length: int
    place: torch.device

    @classmethod
    def of_net(cls, net: nn.Module, length: int) -> Layered:
        """A network as it was trained."""
        plain, mean, spread = plain_net(net)
        if plain.arch.outputs != 1:
            raise ValueError(f"worst errors are bounded for one output, got {plain.arch.outputs}")
        if not all("beta" in getattr(attention.weigh, "keywords", {}) for attention in plain.attention):
            raise ValueError("worst errors are bounded for softmax attention; this network weighs in another way")
        return cls(deepcopy(plain).double().requires_grad_(False), mean, spread, length, torch.device("cpu"))

    def __len__(self) -> int:
        return 1

    @property
    def token_dim(self) -> int:
        return self.net.token_dim

    @property
    def width(self) -> int:
        return max(self.net.arch.width, self.net.arch.embed_dim)

    @property
    def device(self) -> torch.device:
        return self.place

    @property
    def numbers(self) -> int:
        heads = max(h * k for h, k in self.net.arch.layers)
        return self.length * max(self.width, (self.length + 1) * heads)

    @property
    def same_places(self) -> bool:
        return self.net.arch.positions == 0

    @property
    def slack(self) -> Float[Tensor, " models"]:
        """Rounding is part of the ranges; of a point, what a thousand roundings of numbers of its size can be."""
        return torch.full((1,), 1e-9 * (abs(self.spread) + abs(self.mean) + 1), dtype=torch.float64)

    def of(self, members: Tensor | slice) -> Layered:
        return self

    def to(self, device: torch.device | str) -> Layered:
        """The same network on another device."""
        return replace(self, net=deepcopy(self.net).to(device), place=torch.device(device))

    def __call__(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]:
        return self.spread * self.net(x[0])[None] + self.mean

    def surely(self, x: Float[Tensor, "length token_dim"], y: float) -> float:
        """How far from `y` the output at one sequence is at least, rounding counted in."""
        out = self.outputs(Interval(x[None], torch.zeros_like(x[None])))
        return max(0.0, float((out.mid - y).abs() - out.rad))

    def outputs(self, tokens: Interval) -> Interval:
        """The range of the output over boxes of tokens, (boxes, length, token_dim)."""
        net, arch = self.net, self.net.arch
        state = _encoded(net, tokens)
        cls = Interval(net.cls.expand(len(tokens.mid), 1, -1), torch.zeros_like(net.cls.expand(len(tokens.mid), 1, -1)))
        for attend, forward in zip(net.attention, net.between, strict=False):
            both = _joined(state, cls) if arch.class_token == "every" else state
            attended = _attended(attend, both, state)
            both = both + attended if arch.residual else attended
            fed = _fed(forward, both)
            both = both + fed if arch.residual else fed
            state, cls = (both[:, :-1], both[:, -1:]) if arch.class_token == "every" else (both, cls)
        cls = cls + _attended(net.attention[-1], cls, state)
        out = _fed(net.read_out, cls)[:, 0, 0]
        scaled = Interval(self.spread * out.mid + self.mean, abs(self.spread) * out.rad)
        return _wider(scaled, scaled.magnitude + abs(self.mean))


@error_bounds.register
def layered_bounds(net: Layered, target: SlopedTarget, lo: Tensor, hi: Tensor) -> ErrorBounds:
    """Bounds by the ranges of output and target; the longest side is cut."""
    out = net.outputs(hull(lo[0], hi[0]))
    middle, _, values = target.slopes(lo, hi)
    apart = Interval(out.mid[None], out.rad[None]) - values
    error = (net((lo + hi) / 2) - middle).abs()
    upper = (apart.magnitude * (1 + 1e-9) + net.slack[:, None]).nan_to_num(torch.inf, torch.inf, torch.inf)
    return ErrorBounds(upper, (apart.mid.abs() - apart.rad).nan_to_num(0.0) - net.slack[:, None], error, hi - lo)


def _wider(known: Interval, size: Tensor) -> Interval:
    return Interval(known.mid, known.rad + WIDER * size)


def _joined(state: Interval, cls: Interval) -> Interval:
    return Interval(torch.cat([state.mid, cls.mid], 1), torch.cat([state.rad, cls.rad], 1))


def _affine(known: Interval, weight: Tensor, bias: Tensor | None = None) -> Interval:
    size = known.magnitude @ weight.abs().T
    mid = known.mid @ weight.T
    if bias is not None:
        mid, size = mid + bias, size + bias.abs()
    return _wider(Interval(mid, known.rad @ weight.abs().T), size)


def _activated(known: Interval, activation: nn.Module) -> Interval:
    low, high = known.mid - known.rad, known.mid + known.rad
    if isinstance(activation, nn.ReLU):
        return hull(low.clamp_min(0), high.clamp_min(0))
    return _wider(hull(*gelu_range(low, high)), high.abs() + low.abs())


def _fed(net: nn.Module, known: Interval) -> Interval:
    assert isinstance(net, FeedForward)
    hidden = _activated(_affine(known, net.inner.weight, net.inner.bias), net.activation)
    return _affine(hidden, net.outer.weight, net.outer.bias)


def _encoded(net: Transformer, tokens: Interval) -> Interval:
    count, length = tokens.mid.shape[:2]
    places = position_features(length, net.arch.positions, dtype=torch.float64, device=tokens.mid.device)
    places = places.expand(count, -1, -1)
    inputs = Interval(torch.cat([tokens.mid, places], -1), torch.cat([tokens.rad, torch.zeros_like(places)], -1))
    if isinstance(net.encoder, FeedForward):
        return _fed(net.encoder, inputs)
    assert isinstance(net.encoder, nn.Linear)
    return _affine(inputs, net.encoder.weight, net.encoder.bias)


def _attended(attend: nn.Module, queries: Interval, state: Interval) -> Interval:
    """What attention adds: scores as products of intervals, then the exact range of every softmax mean."""
    assert isinstance(attend, Attention)
    beta = attend.weigh.keywords["beta"]  # type: ignore[attr-defined]
    total: Interval | None = None
    for query, key, value, output in zip(attend.query, attend.key, attend.value, attend.output, strict=True):
        q, k = _affine(queries, query), _affine(state, key)
        v = _affine(state, value)
        mid = q.mid @ k.mid.mT
        rad = q.mid.abs() @ k.rad.mT + q.rad @ k.magnitude.mT
        s = _wider(Interval(beta * mid, beta * rad), beta * (q.magnitude @ k.magnitude.mT))  # boxes, queries, length
        scores = Scores.of(s.mid.mT[None], s.rad.mT[None])  # 1, boxes, length, queries
        shape = (1, *v.mid.shape[:2], s.mid.shape[1], v.mid.shape[2])
        low, high = scores.means(Interval(*(t[None, :, :, None].expand(shape) for t in (v.mid, v.rad))))
        part = _affine(hull(low[0], high[0]), output)
        total = part if total is None else total + part
    assert total is not None
    return total
