"""auto_LiRPA's bounds of the same error on the same boxes, where that library can be imported.

The wheel on PyPI is 0.3, made for torch below 1.13. With a newer torch it wants four lines changed: numpy's `isin` from
numpy itself, the opset set in torch.onnx._globals, attributes of a traced node by `getattr(n, n.kindOf(k))(k)`, and an
argument `remove_duplicate` of `_named_members`. It knows no erf, which is given here as one more S-shaped function.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headcount.certificates.worst_case.folded import Folded
from headcount.certificates.worst_case.sloped_targets import LookedUp

METHODS = {"IBP": "IBP", "CROWN-IBP": "CROWN-IBP", "CROWN": "CROWN"}


class PlainError(nn.Module):
    """Network minus a sum of minima in operations that every verifier knows: (batch, length * token_dim) to (batch, 1).

    Minima are written by ReLU, min(a, b) = a - relu(a - b), softmax weights by differences of scores,
    1 / (1 + sum of exp(s_k - s_t)), which range analysis bounds exactly, and GELU by erf.
    """

    def __init__(self, net: Folded, target: LookedUp) -> None:
        super().__init__()
        if len(net) != 1 or net.units != "relu" or not net.same_places or any(rank != 1 for rank in target.ranks):
            raise ValueError("one network with ReLU units and no positions, and a target of minima")
        T, d, (H, M) = net.length, net.token_dim, net.a0.shape[1:]
        identity = torch.eye(T * d, dtype=torch.float64).view(T, d, T * d)
        self.units = nn.ModuleList(_affine(net.W[0] @ identity[t], net.b[0, 0]) for t in range(T))
        # A weight for every hidden unit, all alike: the library spreads no column over others.
        self.scores = nn.ModuleList(_affine(net.S[0, h].expand(M, -1), net.s0[0, h].expand(M)) for h in range(H))
        shift = net.c[0] / H  # weights sum to one, so that a constant may be added to all values
        self.values = nn.ModuleList(_affine(net.A[0, h], net.a0[0, h] + shift) for h in range(H))
        self.read = _affine(net.w, net.w0)
        self.away = nn.ModuleList(_affine(identity[t], -centre) for centre in target.vertex[0] for t in range(T))
        self.curve = nn.ModuleList(_affine(k.expand(1, d), k.new_zeros(1)) for k in target.curve[0])
        self.factor = target.outer.gradient((0.0,) * len(target.ranks))

    def forward(self, x: Tensor) -> Tensor:
        units = [torch.relu(unit(x)) for unit in self.units]
        hidden = []
        for score, value in zip(self.scores, self.values, strict=True):
            scores = [score(z) for z in units]
            for t, z in enumerate(units):
                others = [torch.exp(other - scores[t]) for k, other in enumerate(scores) if k != t]
                hidden.append(value(z) / (1 + _added(others)))
        pre = _added(hidden)
        out = self.read(0.5 * pre * (1 + torch.erf(pre * math.sqrt(0.5))))
        for i, (factor, curve) in enumerate(zip(self.factor, self.curve, strict=True)):
            depths = [curve(self.away[i * len(units) + t](x) ** 2.0) for t in range(len(units))]
            least = depths[0]
            for depth in depths[1:]:
                least = least - torch.relu(least - depth)
            out = out - factor * least
        return out


def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _affine(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    linear.weight.data, linear.bias.data = weight.clone(), bias.clone()
    return linear


def lirpa_roads(net: Folded, target: LookedUp) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """A bound of |error| on boxes (1, boxes, length, token_dim) by every method of the library; none without it."""
    warnings.simplefilter("ignore")
    try:
        from auto_LiRPA import BoundedModule, BoundedTensor  # type: ignore[import-not-found]
        from auto_LiRPA.operators import BoundTanh  # type: ignore[import-not-found]
        from auto_LiRPA.perturbations import PerturbationLpNorm  # type: ignore[import-not-found]
    except ImportError:
        return {}

    class BoundErf(BoundTanh):
        def __init__(self, attr: Any, inputs: Any, output_index: Any, options: Any) -> None:
            super(BoundTanh, self).__init__(attr, inputs, output_index, options)
            self.precompute_relaxation("erf", torch.erf, _erf_slope)
            self.alpha_batch_dim = 3

        def forward(self, x: Tensor) -> Tensor:
            return torch.erf(x)

        def bound_relax(self, x: Any) -> None:
            self.bound_relax_impl(x, torch.erf, _erf_slope)

    def bound_by(method: str) -> Callable[[Tensor, Tensor], Tensor]:
        def bound(lo: Tensor, hi: Tensor) -> Tensor:
            low, high = (end[0].flatten(1) for end in (lo, hi))
            middle, before = (low + high) / 2, torch.get_default_dtype()
            try:
                torch.set_default_dtype(torch.float64)
                with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                    bounded = BoundedModule(
                        PlainError(net, target),
                        middle,
                        bound_opts={"conv_mode": "matrix"},
                        custom_ops={"onnx::Erf": BoundErf},
                    )
                    box = BoundedTensor(middle, PerturbationLpNorm(norm=float("inf"), x_L=low, x_U=high))
                    least, most = bounded.compute_bounds(x=(box,), method=method)
            finally:
                torch.set_default_dtype(before)
            return torch.maximum(least.abs(), most.abs())[:, 0]

        return bound

    return {f"auto_LiRPA 0.3, {words}": bound_by(method) for words, method in METHODS.items()}


def _erf_slope(x: Tensor) -> Tensor:
    return 2 / math.sqrt(math.pi) * torch.exp(-x * x)
