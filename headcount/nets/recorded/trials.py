"""What one call of torch does to what it is given, found by trying: is it affine, does it add what was frozen?

Names say little: a pooling is linear and a root is not, whatever they are called. So a call that is not known is made
again on other numbers, and its answers decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headcount.nets.recorded.marks import frozen_by, is_live, tensors

SCALES = (1.0, 30.0)  # of the other input, in units of the first: a kink far out is met as well
MIX = -0.61  # beyond the segment between both inputs
ROUNDING = 2e3  # units of it, for a sum over a few thousand numbers
CHANGED = 1.37


def is_affine(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is affine in all its live inputs together: f(a x + (1 - a) y) = a f(x) + (1 - a) f(y).

    >>> x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> is_affine(torch.nn.functional.avg_pool1d, (x, 2), {}), is_affine(torch.relu, (x,), {})
    (True, False)
    """
    generator = torch.Generator().manual_seed(31_07)
    return all(_on_a_line(func, args, kwargs, scale, generator) for scale in SCALES)


def _on_a_line(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], scale: float, generator: torch.Generator
) -> bool:
    def other(t: Tensor) -> Tensor:
        x = t.detach().double()
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64, device="cpu").to(x)
        noise -= (noise * x).sum() / x.square().sum().clamp_min(1e-300) * x  # lest x was drawn from the same seed
        return (scale * noise * x.square().mean().sqrt()).to(t)

    far = {id(t): other(t) for t in tensors([args, kwargs]) if is_live(t)}
    start = _called(func, args, kwargs, lambda t: t.detach().clone())
    end = _called(func, args, kwargs, lambda t: far[id(t)].clone())
    between = _called(func, args, kwargs, lambda t: MIX * t.detach() + (1 - MIX) * far[id(t)])
    if start is None or end is None or between is None:
        return False
    return all(_close(c, MIX * a + (1 - MIX) * b, a, b) for a, b, c in zip(start, end, between, strict=True))


def _close(value: Tensor, expected: Tensor, *sizes: Tensor) -> bool:
    if not value.is_floating_point():
        return bool((value == expected).all())
    size = max(1e-300, *(float(t.abs().max()) if t.numel() else 0.0 for t in sizes))
    return not value.numel() or float((value - expected).abs().max()) <= ROUNDING * torch.finfo(value.dtype).eps * size


def adds_frozen(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], integers: bool = False
) -> bool:
    """Whether a frozen value reaches the result with all live inputs at 0: it is added, not multiplied.

    A product with what is frozen is 0 there, a sum is not, nor is a choice between the two. Frozen `integers` are
    numbers where a call computes with them, and indices elsewhere.

    >>> from headcount.nets.recorded.marks import freeze_mark
    >>> x, w = torch.ones(3).requires_grad_(), freeze_mark(torch.ones(3))
    >>> adds_frozen(torch.mul, (x, w), {}), adds_frozen(torch.add, (x, w), {})
    (False, True)
    """
    if not any(frozen_by(t) for t in tensors([args, kwargs])):
        return False
    plain = _called(func, args, kwargs, torch.zeros_like)
    changed = _called(func, args, kwargs, torch.zeros_like, _other_integers if integers else _other)
    if plain is None or changed is None:
        return True
    return not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(plain, changed, strict=True))


def _other(t: Tensor) -> Tensor:
    return CHANGED * t + 0.1 if t.is_floating_point() else t.clone()


def _other_integers(t: Tensor) -> Tensor:
    return t + 1 if not t.is_floating_point() and t.dtype != torch.bool else _other(t)


def _called(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    live: Callable[[Tensor], Tensor],
    frozen: Callable[[Tensor], Tensor] = torch.clone,
) -> list[Tensor] | None:
    """All tensors of the call's result, and its first argument where that is changed in place; None where it fails."""

    def put(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return (live(tree) if is_live(tree) else frozen(tree) if frozen_by(tree) else tree.clone()).detach()
        if isinstance(tree, Mapping):
            return {key: put(value) for key, value in tree.items()}
        return type(tree)(put(part) for part in tree) if type(tree) in (list, tuple) else tree

    try:
        with torch.no_grad():
            arguments = put(tuple(args))
            outputs = list(tensors(func(*arguments, **put(dict(kwargs)))))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    return outputs or list(tensors(arguments[:1]))
