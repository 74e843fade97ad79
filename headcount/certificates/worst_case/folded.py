"""One-layer networks folded into what a proof needs: scores and values of a token, affine in its hidden units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets import Architecture, Transformer
from headcount.nets.target_units import TargetUnits
from headcount.nets.transformer import Attention, position_features

Units = Literal["relu", "gelu", "linear"]
U = 2.0**-53
STEEPEST = 1.13  # gelu' reaches 1.1289 at sqrt(2)


@dataclass(frozen=True, eq=False)
class Folded:
    """K networks of one shape as stacked tensors, in float64 and in the units of their targets.

    With z = act(W x_t + b_t): scores S z + s0, values A z + a0 (what the read-out's hidden layer sees of a token),
    output <w, gelu(c + sum over heads of the softmax means of the values)> + w0. Rounding may move a hidden unit by
    `edge`, the output by `slack` and its slopes, all tokens' together, by `drift`: for tokens of magnitude at most
    `reach`, the rounding of the folded numbers themselves included.
    """

    units: Units
    reach: float
    same_places: bool
    W: Float[Tensor, "models units token_dim"]
    b: Float[Tensor, "models length units"]
    S: Float[Tensor, "models heads units"]
    s0: Float[Tensor, "models heads"]
    A: Float[Tensor, "models heads hidden units"]
    a0: Float[Tensor, "models heads hidden"]
    c: Float[Tensor, "models hidden"]
    w: Float[Tensor, "models hidden"]
    w0: Float[Tensor, " models"]
    edge: Float[Tensor, "models units"]
    slack: Float[Tensor, " models"]
    drift: Float[Tensor, " models"]

    def __len__(self) -> int:
        return len(self.W)

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.b.shape[1]

    @property
    def token_dim(self) -> int:
        """Numbers of a token."""
        return self.W.shape[2]

    @property
    def width(self) -> int:
        """Hidden units of a token."""
        return self.W.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.W.device

    @property
    def numbers(self) -> int:
        """The numbers that a bound holds for one box: a slope for every token, head, hidden unit and coordinate."""
        return self.length * self.a0[0].numel() * self.token_dim

    def to(self, device: torch.device | str) -> Folded:
        """The same networks on another device."""
        return self.each(lambda t: t.to(device))

    def of(self, members: Tensor | slice) -> Folded:
        """Some of the members, in this order."""
        return self.each(lambda t: t[members])

    def each(self, change: Callable[[Tensor], Tensor]) -> Folded:
        """The same change made to every tensor."""
        return replace(self, **{name: change(getattr(self, name)) for name in _tensors(self)})

    @classmethod
    def stack(cls, parts: Sequence[Folded]) -> Folded:
        """Several banks of one shape as one."""
        return replace(parts[0], **{n: torch.cat([getattr(p, n) for p in parts]) for n in _tensors(parts[0])})

    def activate(self, pre: Tensor) -> Tensor:
        """The encoder's activation; tokens that enter by one matrix have none."""
        if self.units == "linear":
            return pre
        return torch.relu(pre) if self.units == "relu" else gelu(pre)

    def __call__(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]:
        """Every member's output on its own sequences."""
        z = self.activate(torch.einsum("kbtd,knd->kbtn", x, self.W) + self.b[:, None])
        s = torch.einsum("kbtn,khn->kbth", z, self.S) + self.s0[:, None, None]
        means = (s.softmax(2)[..., None] * z[..., None, :]).sum(2)
        pre = torch.einsum("kbhn,khmn->kbm", means, self.A) + (self.a0.sum(1) + self.c)[:, None]
        return self.read(pre)

    def read(self, hidden: Float[Tensor, "models batch hidden"]) -> Float[Tensor, "models batch"]:
        """The output of the read-out's hidden units before their activation."""
        return torch.einsum("kbm,km->kb", gelu(hidden), self.w) + self.w0[:, None]


def _tensors(net: Folded) -> list[str]:
    return [f.name for f in fields(net) if isinstance(getattr(net, f.name), Tensor)]


def gelu(x: Tensor) -> Tensor:
    """x Phi(x)."""
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def gelu_slope(x: Tensor) -> Tensor:
    """Phi(x) + x phi(x)."""
    return 0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def plain_net(net: nn.Module) -> tuple[Transformer, float, float]:
    """The network inside, and the mean and spread that its output is scaled by."""
    if isinstance(net, TargetUnits):
        return net.net, net.mean, net.spread
    if isinstance(net, Transformer):
        return net, 0.0, 1.0
    raise ValueError(f"worst errors are bounded for Transformer and TargetUnits networks, got {type(net).__name__}")


def fold(nets: Sequence[nn.Module], length: int, reach: float = 1.0) -> Folded:
    """Fold one-layer networks of one shape, for sequences of this length and tokens of at most this magnitude.

    >>> net = Transformer(Architecture(layers=((2, 3),), width=4), token_dim=1, seed=0).double()
    >>> x = torch.linspace(0, 1, 5, dtype=torch.float64)[None, :, None]
    >>> bool((fold([net], 5)(x[None]) - net(x)).abs().max() < 1e-12)
    True
    """
    plain = [plain_net(net) for net in nets]
    arch, token_dim = plain[0][0].arch, plain[0][0].token_dim
    if any((net.arch, net.token_dim) != (arch, token_dim) for net, _, _ in plain):
        raise ValueError(f"networks folded together have one architecture, here {arch.name} and another")
    if len(betas := {_beta(net) for net, _, _ in plain}) > 1:
        raise ValueError(f"networks folded together have one inverse temperature, got {sorted(betas)}")
    names = [name for name, _ in plain[0][0].named_parameters()]
    stacked = {name: torch.stack([net.get_parameter(name).detach() for net, _, _ in plain]) for name in names}
    scales = [(mean, spread) for _, mean, spread in plain]
    return fold_stacked(arch, token_dim, stacked, scales, length, reach=reach, beta=betas.pop())


def _beta(net: Transformer) -> float:
    """The inverse temperature of a softmax; other ways to weigh are refused."""
    attention = net.attention[0]
    assert isinstance(attention, Attention)
    beta = getattr(attention.weigh, "keywords", {}).get("beta")
    if beta is None:
        raise ValueError("worst errors are bounded for softmax attention; this network weighs in another way")
    return float(beta)


def fold_stacked(
    arch: Architecture,
    token_dim: int,
    stacked: Mapping[str, Tensor],
    scales: Sequence[tuple[float, float]],
    length: int,
    *,
    reach: float = 1.0,
    beta: float | None = None,
) -> Folded:
    """Fold a bank: parameters stacked along a model axis, by the names they have in `Transformer`.

    The products are made in extended precision, where the machine has it, and rounded once.
    """
    if arch.depth != 1 or arch.outputs != 1:
        raise ValueError(
            f"branch and bound is written for one layer and one output, got {arch.depth} layers, {arch.outputs} outputs"
        )
    if not all(bool(t.isfinite().all()) for t in stacked.values()):
        raise ValueError("a network has weights that are not finite: its worst error has no bound")
    parameters = {name: t.detach().double().cpu().numpy().astype(np.longdouble) for name, t in stacked.items()}
    beta = float(arch.layers[0][1] ** -0.5) if beta is None else beta
    mean, spread = (np.array([s[i] for s in scales], dtype=np.longdouble) for i in (0, 1))
    places = position_features(length, arch.positions, dtype=torch.float64).numpy().astype(np.longdouble)
    exact = _products(arch, token_dim, parameters, (mean, spread), places, beta)
    sizes = {name: abs(v) for name, v in parameters.items()}
    sizes = _products(arch, token_dim, sizes, (abs(mean), abs(spread)), abs(places), beta)
    terms = 4 * arch.embed_dim + arch.layers[0][1] + 16
    off = {k: 2 * U * abs(v) + terms * float(np.finfo(np.longdouble).eps) * sizes[k] for k, v in exact.items()}
    tensors = {name: _tensor(v) for name, v in exact.items()}
    units: Units = "linear" if arch.embedding == "linear" else arch.activation
    nothing = torch.zeros(len(mean), dtype=torch.float64)
    folded = Folded(
        units,
        reach,
        arch.positions == 0,
        **tensors,
        edge=torch.zeros_like(tensors["b"][:, 0]),
        slack=nothing,
        drift=nothing,
    )
    return with_rounding(folded, {name: _tensor(v) for name, v in off.items()})


def _products(
    arch: Architecture, d: int, parameters: Mapping[str, Any], scale: tuple[Any, Any], places: Any, beta: float
) -> dict[str, np.ndarray]:
    """The folded numbers of every member, in the precision of what is given."""
    mean, spread = scale
    first, outer = ("encoder", None) if arch.embedding == "linear" else ("encoder.inner", "encoder.outer")
    W = parameters[f"{first}.weight"]
    b = parameters[f"{first}.bias"][:, None] + places @ np.swapaxes(W[:, :, d:], 1, 2)
    query, key, value, output = (parameters[f"attention.0.{n}"] for n in ("query", "key", "value", "output"))
    cls = parameters["cls"]
    directions = np.matmul(np.swapaxes(key, 2, 3), np.matmul(query, cls[:, None, :, None]))[..., 0] * np.longdouble(
        beta
    )
    inner = parameters["read_out.inner.weight"]
    carried = np.matmul(np.matmul(inner[:, None], output), value)
    W2 = np.eye(W.shape[1], dtype=np.longdouble)[None] if outer is None else parameters[f"{outer}.weight"]
    b2 = np.zeros((1, W.shape[1]), dtype=np.longdouble) if outer is None else parameters[f"{outer}.bias"]
    return {
        "W": W[:, :, :d],
        "b": b,
        "S": np.matmul(directions, W2),
        "s0": (directions * b2[:, None]).sum(-1),
        "A": np.matmul(carried, W2[:, None]),
        "a0": (carried * b2[:, None, None]).sum(-1),
        "c": np.matmul(inner, cls[:, :, None])[..., 0] + parameters["read_out.inner.bias"],
        "w": spread[:, None] * parameters["read_out.outer.weight"][:, 0],
        "w0": spread * parameters["read_out.outer.bias"][:, 0] + mean,
    }


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))


def with_rounding(f: Folded, off: Mapping[str, Tensor]) -> Folded:
    """The networks with what rounding can add to their bounds.

    A sum of n products is off by at most n u/(1 - n u) times the sum of their magnitudes, in any order (Higham 2002,
    Section 3.1); g grants twice that of the longest chain, and 8 ulp to every exp and erf. Scores off by a move softmax
    weights by factors within e^(+-2a); `off` is how far the folded numbers are from those of the network.
    """
    n = f.W.shape[1] + f.W.shape[2] + f.length + f.w.shape[1] + 64
    g = 2 * n * U / (1 - 2 * n * U)
    unit = f.W.abs().sum(2) * f.reach + f.b.abs().amax(1)
    edge = g * unit + off["W"].sum(2) * f.reach + off["b"].amax(1)
    steep = f.W.abs().amax(2)  # of a unit, in every coordinate
    score, score_off = _reached(f.S, f.s0, unit), _reached(off["S"], off["s0"], unit) + _reached(f.S, 0, edge)
    worth, worth_off = _reached(f.A, f.a0, unit), _reached(off["A"], off["a0"], unit) + _reached(f.A, 0, edge)
    perturbation = 2 * (g * score + score_off) + g  # of a softmax weight, relatively
    pre = worth.sum(1) + f.c.abs()
    moved = (worth_off + worth * (g + 2 * perturbation[..., None])).sum(1) + off["c"] + g * pre
    w = f.w.abs()
    slack = (w * (STEEPEST * moved + g * (pre + 1)) + off["w"] * pre).sum(1) + g * f.w0.abs() + off["w0"] + g
    score_steep, worth_steep = STEEPEST * _reached(f.S, 0, steep), STEEPEST * _reached(f.A, 0, steep)
    slope = worth_steep + 2 * score_steep[..., None] * worth  # of a value, by a token of weight 1
    part = 8 * g + 2 * perturbation[..., None] + 2 * moved[:, None] + 4 * U
    drift = (w[:, None] * STEEPEST * slope * part).sum((1, 2)) + (off["w"][:, None] * slope).sum((1, 2))
    lost = torch.where(perturbation.amax(1) < 1e-2, 0.0, torch.inf)
    return replace(f, edge=edge, slack=slack + lost, drift=4 * drift)


def _reached(rows: Tensor, offsets: Tensor | int, units: Tensor) -> Tensor:
    """|rows| units + |offsets|, rows over one or two axes."""
    inner = units.view(len(units), *(1,) * (rows.ndim - 2), -1)
    return (rows.abs() * inner).sum(-1) + (offsets.abs() if isinstance(offsets, Tensor) else offsets)
