"""What a tape would hold, counted on a plain pass that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from headcount.nets.recorded.frozen_calls import HANDLERS
from headcount.nets.recorded.marks import plain_name, tensors

NOTHING = ("matmul", "bmm", "einsum", "exp")  # looked at, not kept
BY_TOKEN = ("layer_norm", "rms_norm", "normalize")  # one scale a token


class TapeSize(TorchFunctionMode):
    """Watch a pass, and add up the bytes that recording it would keep; `largest` is the largest tensor on the way.

    >>> import torch
    >>> with TapeSize() as size:
    ...     _ = torch.relu(torch.ones(3, 5))
    >>> size.bytes
    60
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.largest = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **dict(kwargs or {}))
        name = plain_name(func)
        if name != "__get__":
            stored = _stored_bytes(name, args, out) if name in HANDLERS else 0
            self.bytes += stored
            self.largest = max(self.largest, stored, *(t.numel() * t.element_size() for t in tensors(out)), 0)
        return out


def _stored_bytes(name: str, args: Sequence[Any], out: Any) -> int:
    first = next(tensors(out), None)
    if first is None or name in NOTHING:
        return 0
    if name == "scaled_dot_product_attention":
        q, k = args[:2]
        return q.numel() // q.shape[-1] * k.shape[-2] * q.element_size()
    if name == "multi_head_attention_forward":  # (length, batch, embed), and the number of heads
        q, k, heads = args[0], args[1], args[4]
        return q.numel() // q.shape[-1] * heads * len(k) * q.element_size()
    if name in ("mul", "div") and not _alike(args):  # a gate has the size of what it multiplies
        return 0
    size = first.numel() * first.element_size()
    return size // first.shape[-1] if name in BY_TOKEN else size


def _alike(args: Sequence[Any]) -> bool:
    one, other = [*args, None, None][:2]
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape
