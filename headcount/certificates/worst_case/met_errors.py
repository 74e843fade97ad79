"""Where a bank is wrong: sequences that are tried first, and ascent from the worst of them, for all members at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.error_bounds import Provable
from headcount.certificates.worst_case.sloped_targets import SlopedTarget

AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}  # numbers of hidden units in one evaluation
MOST, STEPS = 4096, 40  # sequences that are tried before any proof, and steps of ascent from the worst of them


@dataclass(frozen=True, eq=False)
class Met:
    """For every member some sequences, worst first, and |error| there."""

    x: Float[Tensor, "models few length token_dim"]
    error: Float[Tensor, "models few"]

    def merged(self, other: Met, keep: int) -> Met:
        """The worst of both."""
        x, error = torch.cat([self.x, other.x], 1), torch.cat([self.error, other.error], 1)
        return _first(x, error, keep)


def _first(x: Tensor, error: Tensor, keep: int) -> Met:
    best, rows = error.topk(min(keep, error.shape[1]), dim=1)
    return Met(x.gather(1, rows[:, :, None, None].expand(-1, -1, *x.shape[2:])), best)


def errors_at(
    net: Provable, target: SlopedTarget, x: Float[Tensor, "models batch length token_dim"]
) -> Float[Tensor, "models batch"]:
    """|network - target|; what is not finite counts as infinite."""
    return (net(x) - target.value(x)).abs().nan_to_num(torch.inf, torch.inf, torch.inf)


def few_valued(
    length: int, token_dim: int, low: float, high: float, *, most: int = 4096, generator: torch.Generator
) -> Float[Tensor, "batch length token_dim"]:
    """Sequences of one or two different tokens from a grid that holds the corners, in every proportion.

    >>> x = few_valued(3, 1, 0.0, 1.0, most=100, generator=torch.Generator().manual_seed(0))
    >>> x.shape[1:], sorted({len(set(row)) for row in x[..., 0].tolist()})
    (torch.Size([3, 1]), [1, 2])
    """
    per_side = max(2, int((most / length) ** (0.5 / token_dim)))
    side = torch.linspace(low, high, per_side, dtype=torch.float64)
    grid = torch.cartesian_prod(*[side] * token_dim).view(-1, token_dim)
    one, two = (i.flatten() for i in torch.meshgrid(*[torch.arange(len(grid))] * 2, indexing="ij"))
    many = torch.arange(1, length + 1)
    parts = [
        torch.where((torch.arange(length) < n)[None, :, None], grid[one][:, None], grid[two][:, None]) for n in many
    ]
    x = torch.cat(parts)
    return x[torch.randperm(len(x), generator=generator)[:most]] if len(x) > most else x


def largest_of(net: Provable, target: SlopedTarget, x: Float[Tensor, "batch length token_dim"], keep: int) -> Met:
    """For every member the worst of sequences that all are asked, some members at a time."""
    parts = []
    for error in _errors_in_parts(net, target, x):
        best, rows = error.topk(min(keep, len(x)), dim=1)
        parts.append(Met(x[rows], best))
    return Met(torch.cat([p.x for p in parts]), torch.cat([p.error for p in parts]))


def sampled_errors(
    net: Provable, target: SlopedTarget, x: Float[Tensor, "batch length token_dim"]
) -> tuple[Float[Tensor, " models"], Float[Tensor, " models"]]:
    """The root mean square and the largest of |error| over sequences that all members are asked."""
    errors = _errors_in_parts(net, target, x)
    rms, largest = torch.cat([torch.stack([e.square().mean(1).sqrt(), e.amax(1)]) for e in errors], 1)
    return rms, largest


def _errors_in_parts(net: Provable, target: SlopedTarget, x: Tensor) -> Iterator[Tensor]:
    """|error| of some members after others on sequences that all are asked: as many as memory has room for."""
    some = max(1, AT_ONCE[x.device.type] // (len(x) * net.length * net.width))
    for at in torch.arange(len(net), device=x.device).split(some):
        yield errors_at(net.of(at), target.of(at), x.expand(len(at), -1, -1, -1))


def ascend(
    net: Provable,
    target: SlopedTarget,
    x: Float[Tensor, "models few length token_dim"],
    low: float,
    high: float,
    steps: int,
) -> Met:
    """Gradient ascent on |error| inside the box: a step that does not widen it is taken back and halved."""
    error = errors_at(net, target, x)
    step = torch.full_like(error, 0.05 * (high - low))[..., None, None]
    for _ in range(steps):
        moved = (x + step * _direction(net, target, x)).clamp(low, high)
        moved_error = errors_at(net, target, moved)
        better = (moved_error > error)[..., None, None]
        x, error = torch.where(better, moved, x), torch.maximum(moved_error, error)
        step = torch.where(better, 1.5 * step, 0.4 * step)
    return _first(x, error, x.shape[1])


def _direction(net: Provable, target: SlopedTarget, x: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad((net(x) - target.value(x)).abs().sum(), x)
    return (slope / slope.abs().amax((2, 3), keepdim=True).clamp_min(1e-300)).nan_to_num()


def meet(net: Provable, target: SlopedTarget, low: float, high: float, *, keep: int = 8, seed: int = 0) -> Met:
    """The worst sequences found before any proof: random ones, few-valued ones, and ascent from the worst of both."""
    generator = torch.Generator().manual_seed(seed)
    shape = (MOST // 2, net.length, net.token_dim)
    drawn = low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)
    planned = few_valued(net.length, net.token_dim, low, high, most=MOST, generator=generator)
    first = largest_of(net, target, torch.cat([drawn, planned]).to(net.device), keep)
    return ascend(net, target, first.x, low, high, STEPS)
