"""Record and replay: one forward pass whose softmax weights, norm scales, gates and choices are kept, and used again.

Around an eager forward pass a `Recording` watches every call. What is not linear in the tokens is written to the tape
where it passes by; a `Replay` on any other input takes it from the tape. A tensor is live while autograd can trace it
to the input: what is frozen is detached, so the traced graph holds what is left to be linear, operation by operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.nets.recorded.frozen_calls import HANDLERS, SHAPES_ONLY
from headcount.nets.recorded.marks import mark, mark_of, pass_on, plain_name, tensors

__all__ = ["NotAffine", "Recording", "Replay", "Site", "Tape", "own_backwards_opened", "parameters_still"]

CHOICES = (
    "gt lt ge le eq ne greater less greater_equal less_equal equal not_equal argmax argmin argsort nonzero isnan isinf "
    "isfinite sign round floor ceil trunc max min any all bool int long detach kthvalue searchsorted bucketize "
    "logical_not logical_and logical_or msort mode median __get__"
)
COUNTED = frozenset(HANDLERS) | frozenset(CHOICES.split())
PRODUCTS = ("linear", "addmm")  # by a matrix of weights: most of a pass, and left out where nothing reads the result
LIKE = ("to", "type_as", "expand_as", "view_as", "reshape_as")  # the second tensor lends its shape or kind only


class NotAffine(ValueError):
    """A network that is not one affine map once it is frozen, and the operation that broke it."""


@dataclass(frozen=True)
class Site:
    """A place where something is moved: the values an attention layer takes from tokens, or hidden units."""

    kind: str
    value: Tensor


@dataclass
class Tape:
    """What one recorded pass froze: every call by name, the frozen values by call, and what became of them.

    `products` are the nodes of products with weights, `idle` the numbers of those that only frozen values were made of
    (queries, keys, gates): a replay need not compute them.
    """

    branch: str = "gate"
    calls: list[str] = field(default_factory=list)
    values: dict[int, list[Any]] = field(default_factory=dict)
    handled: set[int] = field(default_factory=set)
    frozen: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    dtypes: set[torch.dtype] = field(default_factory=set)
    products: list[Any] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)
    largest: int = 0

    @property
    def bytes(self) -> int:
        """The size of all frozen values."""
        return sum(t.numel() * t.element_size() for values in self.values.values() for t in tensors(values))


class Frozen(TorchFunctionMode):
    """What recording and replaying share: the number of the call, and the handlers of what is not linear."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape, self.branch, self.call, self.sites = tape, tape.branch, -1, list[Site]()
        self.product = -1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, kwargs = plain_name(func), dict(kwargs or {})
        if name in SHAPES_ONLY:
            return func(*args, **kwargs)
        if name == "__get__":  # an attribute: a shape is no call, a transpose is
            found = func(*args, **kwargs)
            if not isinstance(found, Tensor):
                return found
        if name in PRODUCTS:
            self.product += 1
            return self.weighed(func, name, args, kwargs)
        if name not in COUNTED:  # what prepares masks may differ with the number of rows
            return self.uncounted(func(*args, **kwargs), name, args, kwargs)
        self.call += 1
        if self.enter(name, args, kwargs):
            return HANDLERS[name].do(self, func, args, kwargs)
        return self.leave(func(*args, **kwargs), name, args, kwargs)

    def enter(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether this call is computed in another way, with something frozen."""
        raise NotImplementedError

    def leave(self, out: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call that was left as it is."""
        raise NotImplementedError

    def uncounted(self, out: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call that freezes nothing."""
        return out

    def weighed(self, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The product with a matrix of weights."""
        raise NotImplementedError

    def take(self, make: Callable[[], Any], kind: str = "") -> Any:
        """The next value of this call: made and kept while recording, read while replaying."""
        raise NotImplementedError

    def site(self, kind: str, value: Tensor) -> None:
        """Remember a live tensor through which something is moved."""
        raise NotImplementedError


class Recording(Frozen):
    """Watch one forward pass, and write the tape."""

    def enter(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        self.tape.calls.append(name)
        handled = name in HANDLERS and HANDLERS[name].when(args, kwargs)
        if handled:
            self.tape.handled.add(self.call)
        return handled

    def take(self, make: Callable[[], Any], kind: str = "") -> Any:
        value = make()
        if isinstance(value, Tensor):
            value = mark(value.detach().clone(), kind)
            self._size(value)
        if kind:
            self.tape.frozen[kind] += 1
        self.tape.values.setdefault(self.call, []).append(value)
        return value

    def site(self, kind: str, value: Tensor) -> None:
        self._size(value)

    def leave(self, out: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        inputs, outputs = list(tensors([args[:1] if name in LIKE else args, kwargs])), list(tensors(out))
        live = any(t.requires_grad for t in inputs)
        for t in outputs:
            self._size(t)
        if live and name in ("add", "sub", "cat", "stack"):
            self.tape.added.update(m for t in inputs if (m := mark_of(t)) == "softmax" and not t.requires_grad)
        pass_on(inputs, outputs, name)
        lost = live and not all(t.requires_grad for t in outputs)
        if lost and name not in COUNTED:
            self.tape.frozen[f"{name}, frozen whole"] += 1
            return out
        return self._choices(out, name) if lost else out

    def uncounted(self, out: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.leave(out, name, args, kwargs)

    def weighed(self, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = self.leave(func(*args, **kwargs), name, args, kwargs)
        self.tape.products.append(out.grad_fn)
        return out

    def _size(self, t: Tensor) -> None:
        self.tape.largest = max(self.tape.largest, t.numel() * t.element_size())

    def _choices(self, out: Any, name: str) -> Any:
        """An operation that autograd does not follow (a comparison, the indices of top-k): its result is kept."""
        if isinstance(out, Tensor):
            return self.take(lambda: out, f"{name}, frozen whole" if out.is_floating_point() else "choices")
        return _rebuilt(out, [self.take(lambda p=p: p, "choices") if _is_choice(p) else p for p in out])


class Replay(Frozen):
    """Run the same pass on other inputs with everything frozen taken from the tape."""

    def enter(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        self._next: Iterator[Any] = iter(self.tape.values.get(self.call, ()))
        was = self.tape.calls[self.call] if self.call < len(self.tape.calls) else "the end"
        if was != name:
            raise NotAffine(f"the forward pass takes another path on another input: {name} where {was} was recorded")
        return self.call in self.tape.handled

    def weighed(self, func: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.product not in self.tape.idle or len(args) < 2:
            return func(*args, **kwargs)
        x, width = (args[0], len(args[1])) if name == "linear" else (args[1], args[2].shape[1])
        return x.new_zeros(*x.shape[:-1], width)

    def take(self, make: Callable[[], Any], kind: str = "") -> Any:
        return next(self._next)

    def site(self, kind: str, value: Tensor) -> None:
        if value.requires_grad:
            self.sites.append(Site(kind, value))

    def leave(self, out: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.call not in self.tape.values:
            return out
        if isinstance(out, Tensor):
            return next(self._next)
        return _rebuilt(out, [next(self._next) if _is_choice(p) else p for p in out])


def _is_choice(part: Any) -> bool:
    return isinstance(part, Tensor) and not part.is_floating_point()


def _rebuilt(out: Any, parts: list[Any]) -> Any:
    return type(out)(parts) if "return_types" in type(out).__module__ else tuple(parts)


@contextmanager
def own_backwards_opened() -> Iterator[None]:
    """Functions that bring their own backward pass run as the forward they state, so that what is in them is seen."""
    kept = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        new_style = cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
        return cls.forward(*args, **kwargs) if new_style else cls.forward(_Context(), *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.autograd.Function.apply = kept  # pyright: ignore[reportAttributeAccessIssue]


class _Context:
    """Where a forward keeps what its backward would need; nothing is read from it."""

    def save_for_backward(self, *kept: Tensor) -> None:
        self.saved_tensors = kept

    def mark_non_differentiable(self, *which: Tensor) -> None: ...
    def mark_dirty(self, *which: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


@contextmanager
def parameters_still(model: nn.Module) -> Iterator[None]:
    """Parameters that ask for no gradient, so that what autograd follows is the tokens; as they were afterwards."""
    asked = [p for p in model.parameters() if p.requires_grad]
    for p in asked:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in asked:
            p.requires_grad_(True)
