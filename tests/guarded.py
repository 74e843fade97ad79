"""Every address that a kernel touches in Triton's interpreter, checked against the tensors it was given.

On a GPU an address just beyond a tensor mostly lies in another tensor, and is found only where it lies in none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class Touched:
    """How often kernels were launched and which addresses outside of their tensors they touched."""

    def __init__(self) -> None:
        self.launches, self.outside, self.spans = 0, 0, []

    def given(self, tensors: tuple[Any, ...]) -> None:
        self.launches += 1
        self.spans = [_span(x) for x in tensors if isinstance(x, torch.Tensor)]

    def see(self, pointers: Any, mask: Any) -> None:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        at = pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)].astype(np.int64)
        if at.size and not any(low <= at.min() and at.max() + size <= high for low, high in self.spans):
            self.outside += 1


def _span(x: torch.Tensor) -> tuple[int, int]:
    """From the first byte of a tensor to behind its last: a member's row in a longer one belongs to it."""
    count = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True)) + 1 if x.numel() else 0
    return x.data_ptr(), x.data_ptr() + count * x.element_size()


@contextmanager
def guarded() -> Iterator[Touched]:
    """Watch what the interpreter loads and stores; every load and store must lie in one of the kernel's tensors."""
    from triton.runtime import interpreter

    touched, builder, executor = Touched(), interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, launch = builder.create_masked_load, builder.create_masked_store, executor.__call__

    def loads(self: Any, pointers: Any, mask: Any, *more: Any) -> Any:
        touched.see(pointers, mask)
        return load(self, pointers, mask, *more)

    def stores(self: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        touched.see(pointers, mask)
        return store(self, pointers, value, mask, *more)

    def launches(self: Any, *given: Any, **options: Any) -> Any:
        touched.given((*given, *options.values()))
        return launch(self, *given, **options)

    builder.create_masked_load, builder.create_masked_store, executor.__call__ = loads, stores, launches
    try:
        yield touched
    finally:
        builder.create_masked_load, builder.create_masked_store, executor.__call__ = load, store, launch
