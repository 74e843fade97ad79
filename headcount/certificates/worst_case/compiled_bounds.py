"""Bounds of many boxes by compiled code, where it agrees with the batched products on boxes of its own shape."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.certificates.worst_case.error_bounds import ErrorBounds, error_bounds
from headcount.certificates.worst_case.folded import Folded
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from headcount.kernels.backend import NotCompiledError
from headcount.kernels.box_program import KINDS, BoxShape, BoxTarget, bound_boxes, boxes_compiled

TRIED = 64  # boxes on which both ways are compared
AGREE = 1e-9  # relative to the bound, beside what rounding may add


class CompiledBounds:
    """A bank's parameters in one row a member, and the program that bounds its boxes."""

    def __init__(self, net: Folded) -> None:
        self.net, self.shape = net, box_shape(net)
        A, a0 = net.A.transpose(1, 2), net.a0.transpose(1, 2)  # hidden unit by hidden unit
        parts = (net.W, net.b, net.edge, net.S, net.s0, A, a0, net.c, net.w, net.w0, net.slack, net.drift)
        self.parameters = torch.cat([p.reshape(len(net), -1) for p in parts], 1)

    @classmethod
    def of(cls, net: object, target: SlopedTarget, low: float, high: float) -> CompiledBounds | None:
        """For networks of one layer where there is a program that agrees with the batched products; else none."""
        if not isinstance(net, Folded) or not boxes_compiled(box_shape(net), net.device):
            return None
        compiled = cls(net)
        try:
            return compiled if compiled.agrees(target, low, high) else None
        except NotCompiledError:  # it was made, and the device does not take it
            return None

    def agrees(self, target: SlopedTarget, low: float, high: float) -> bool:
        """Whether bounds are those of the batched products on some boxes of all sizes, up to rounding."""
        net = self.net
        generator = torch.Generator().manual_seed(0)
        shape = (TRIED, net.length, net.token_dim)
        ends = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
        middle, half = ends[0], 0.5 * 10 ** (-4 * ends[1, :, :1, :1]) * ends[1].clamp_min(1e-3)
        lo, hi = ((low + (high - low) * (middle + s * half).clamp(0, 1)).to(net.device) for s in (-1, 1))
        member = torch.arange(TRIED, device=net.device).remainder(len(net)).sort().values
        compiled = self.bounds(target, member, lo, hi)
        plain = error_bounds(net.of(member), target.of(member), lo[:, None], hi[:, None])
        slack = net.slack[member]
        for name in ("upper", "middle"):
            one, other = getattr(compiled, name)[0], getattr(plain, name)[:, 0]
            same = (one - other).abs() <= AGREE * other.abs() + 16 * slack
            if not bool((same | (one == other)).all()):
                return False
        return True

    def bounds(self, target: SlopedTarget, member: Int[Tensor, " boxes"], lo: Tensor, hi: Tensor) -> ErrorBounds:
        """Bounds of boxes of any members, in their order."""
        if len(self.net) == 1:
            return ErrorBounds(*(part[None] for part in self._sorted(target, member, lo, hi)))
        order = member.argsort(stable=True)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        bounds = self._sorted(target, member[order], lo[order], hi[order])
        return ErrorBounds(*(part[back][None] for part in bounds))

    def _sorted(self, target: SlopedTarget, member: Tensor, lo: Tensor, hi: Tensor) -> tuple[Tensor, ...]:
        """Bounds of boxes that follow each other member by member."""
        y, dy, values = target.of(member).slopes(lo[:, None], hi[:, None])
        flat: list[Float[Tensor, "boxes ..."]] = [t[:, 0] for t in (y, dy.mid, dy.rad, values.mid, values.rad)]
        return bound_boxes(self.shape, self.parameters, member, lo, hi, BoxTarget(*flat))


def box_shape(net: Folded) -> BoxShape:
    """The sizes of a bank."""
    H, M = net.a0.shape[1:]
    return BoxShape(net.length, net.token_dim, H, M, net.width, KINDS.index(net.units))
