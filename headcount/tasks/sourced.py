"""A plain Python function as a value: known by its name and its source, so that rows of an edited one are its own."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any


@dataclass(frozen=True)
class SourcedFunction:
    """A function with the hash of its compiled body and of the values it closes over.

    >>> double = SourcedFunction.of(lambda z: 2 * z)
    >>> double(3), double == SourcedFunction.of(lambda z: 2 * z), double == SourcedFunction.of(lambda z: 3 * z)
    (6, True, False)
    """

    name: str
    source: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> SourcedFunction:
        """The function as a value; one that is a value already stays."""
        if isinstance(function, SourcedFunction):
            return function
        if not callable(function):
            raise ValueError(f"a function is needed, got {function!r}")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        sourced = cls(f"{function.__module__}:{name}", _source(function))
        object.__setattr__(sourced, "function", function)  # no field: what is written down is name and source
        return sourced

    def __call__(self, *values: Any) -> Any:
        function = getattr(self, "function", None)
        if function is None:
            raise ValueError(f"of {self.name} a file holds the name and no code; give the task itself, as task=...")
        return function(*values)

    def __str__(self) -> str:
        return self.name.rpartition(":")[2]


def _source(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:  # built in, as torch.amax
        return hashlib.sha256(repr(function).encode()).hexdigest()[:16]
    closed = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else vars(function)
    texts = (repr(sorted(closed.items(), key=str)), repr(getattr(function, "__defaults__", None)))
    return hashlib.sha256(b"\0".join([compiled_bytes(code), *(text.encode() for text in texts)])).hexdigest()[:16]


def compiled_bytes(code: CodeType) -> bytes:
    """What a function does: its instructions, the names they use and its constants, other functions among them."""
    inner = [compiled_bytes(c) if isinstance(c, CodeType) else repr(c).encode() for c in code.co_consts]
    return b"\0".join([code.co_code, *(name.encode() for name in code.co_names), *inner])
