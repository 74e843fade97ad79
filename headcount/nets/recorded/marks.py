"""Notes on tensors while a pass is recorded: which are live, which are a gate, which came out of a softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

ALIASES = {"multiply": "mul", "true_divide": "div", "truediv": "div", "divide": "div", "radd": "add", "rmul": "mul"}
ALIASES |= {"imul": "mul", "iadd": "add", "itruediv": "div", "isub": "sub", "special_softmax": "softmax"}
ALIASES |= {"matmul": "matmul", "rmatmul": "matmul", "concat": "cat", "concatenate": "cat", "expit": "sigmoid"}
MIXING = (
    "linear",
    "matmul",
    "bmm",
    "mm",
    "einsum",
    "baddbmm",
    "addmm",
    "conv1d",
    "layer_norm",
    "rms_norm",
    "embedding",
)


def plain_name(func: Callable[..., Any]) -> str:
    """One name for every spelling of an operation.

    >>> import torch
    >>> plain_name(torch.Tensor.__mul__), plain_name(torch.Tensor.mul_), plain_name(torch.multiply)
    ('mul', 'mul', 'mul')
    """
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        return name
    short = name.split(".")[0].strip("_")
    return ALIASES.get(short, short)


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors(value)


def is_live(value: Any) -> bool:
    """Whether a tensor still depends on the input."""
    return isinstance(value, Tensor) and value.requires_grad


def mark(value: Tensor, kind: str) -> Tensor:
    """Note on a tensor what it is: softmax weights, a gate, an exponential."""
    value._lens = kind  # pyright: ignore[reportAttributeAccessIssue]
    return value


def mark_of(value: Any) -> str:
    """What a tensor was noted to be."""
    return getattr(value, "_lens", "") if isinstance(value, Tensor) else ""


def freeze_mark(value: Tensor, origin: str = "") -> Tensor:
    """Note on a tensor that the tokens are in it, though it is kept as it is, and which call froze it."""
    value._frozen = origin or "a call"  # pyright: ignore[reportAttributeAccessIssue]
    return value


def frozen_by(value: Any) -> str:
    """The call that froze a tensor in which the tokens are; empty where it is live, or where they are not."""
    return getattr(value, "_frozen", "") if isinstance(value, Tensor) and not value.requires_grad else ""


def pass_on(inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str) -> None:
    """A view, a copy or an affine change of a marked tensor is still what it was; a mixture with another is not."""
    labels = {mark_of(t) for t in inputs if t.is_floating_point() and (t.requires_grad or mark_of(t))}
    if len(labels) == 1 and "" not in labels and (name not in MIXING or labels == {"softmax"}):
        for out in outputs:
            mark(out, next(iter(labels)))
