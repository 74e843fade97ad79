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

from headcount.nets.recorded.frozen_calls import HANDLERS, SHAPES_ONLY, TorchCall
from headcount.nets.recorded.marks import freeze_mark, frozen_by, is_live, mark, pass_on, plain_name, tensors
from headcount.nets.recorded.node_kinds import is_linear
from headcount.nets.recorded.recurrent_cells import WRITTEN_OUT
from headcount.nets.recorded.trials import adds_frozen

CHOICES = (
    "gt lt ge le eq ne greater less greater_equal less_equal equal not_equal argmax argmin argsort nonzero isnan isinf "
    "isfinite sign round floor ceil trunc max min any all bool int long kthvalue searchsorted bucketize "
    "logical_not logical_and logical_or msort mode median"
)
COUNTED = frozenset(HANDLERS) | frozenset(CHOICES.split())
PRODUCTS = ("linear", "addmm")  # by a matrix of weights: most of a pass, and left out where nothing reads the result
PYTHON = ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "__complex__")
SAME = ("detach", "data")  # the same numbers: what a gradient would do there does not concern a forward pass
SUMS = frozenset(["add", "sub", "rsub", "cat", "stack", "where"])  # here an integer is a number, elsewhere an index
FACTORS = frozenset(["mul", "matmul", "mm", "bmm", "mv", "einsum"])  # what is frozen is multiplied, never added
BOUNDS = frozenset(
    ["clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "max", "min"]
)  # handled, and may be given numbers
LOOKED_UP = ("getitem", "index_select", "gather", "embedding", "take", "repeat_interleave")  # by a place
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

    `added` are the calls that add a frozen value to what depends on the tokens, `unknown` the nodes of calls whose name
    does not say whether they are linear, with the call. `products` are the nodes of products with weights, `idle` the
    numbers of those that only frozen values were made of (queries, keys, gates): a replay need not compute them.
    """

    branch: str = "gate"
    calls: list[str] = field(default_factory=list)
    values: dict[int, list[Any]] = field(default_factory=dict)
    handled: set[int] = field(default_factory=set)
    frozen: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    unknown: dict[Any, TorchCall] = field(default_factory=dict)
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
        self.product, self.followed = -1, torch.is_grad_enabled()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call as it is or with something frozen; `no_grad` inside a model does not change what it computes."""
        with torch.set_grad_enabled(self.followed):
            return self.called(TorchCall(plain_name(func), func, args, kwargs or {}))

    def called(self, call: TorchCall) -> Any:
        """One call, by its name."""
        if call.name in SHAPES_ONLY:
            return call.made()
        if call.name in WRITTEN_OUT:
            with self:
                return WRITTEN_OUT[call.name](*call.args, **call.kwargs)
        if call.name == "__get__":  # an attribute: a shape is no call, a transpose is
            call = call._replace(name=getattr(getattr(call.func, "__self__", None), "__name__", call.name))
            attribute = call.made()
            if not isinstance(attribute, Tensor):
                return attribute
        if call.name in SAME and is_live(call.args[0]):
            return call.args[0].view_as(call.args[0])
        if getattr(call.func, "__name__", "") in PYTHON:
            self.read_by_python(call)
        self.name = call.name
        if call.name in PRODUCTS:
            self.product += 1
            self.look(call)
            return self.weighed(call)
        if call.name not in COUNTED:  # what prepares masks may differ with the number of rows
            self.look(call)
            return self.uncounted(call.made(), call)
        self.call += 1
        self.look(call)
        if self.enter(call):
            return HANDLERS[call.name].do(self, call)
        return self.leave(call.made(), call)

    def look(self, call: TorchCall) -> None:
        """A call before it is made."""

    def enter(self, call: TorchCall) -> bool:
        """Whether this call is computed in another way, with something frozen."""
        raise NotImplementedError

    def leave(self, out: Any, call: TorchCall) -> Any:
        """The result of a call that was left as it is."""
        raise NotImplementedError

    def uncounted(self, out: Any, call: TorchCall) -> Any:
        """The result of a call that freezes nothing."""
        return out

    def read_by_python(self, call: TorchCall) -> None:
        """A number that leaves torch cannot be followed."""

    def weighed(self, call: TorchCall) -> Any:
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

    def enter(self, call: TorchCall) -> bool:
        self.tape.calls.append(call.name)
        handled = call.name in HANDLERS and HANDLERS[call.name].when(call)
        if handled:
            self.tape.handled.add(self.call)
        return handled

    def read_by_python(self, call: TorchCall) -> None:
        t = call.args[0]
        if is_live(t) or (frozen_by(t) and t.is_floating_point()):
            words = "hands a number that depends on the tokens to Python, where it is not followed"
            raise NotAffine(f"{call.name}() {words}")

    def look(self, call: TorchCall) -> None:
        name, inputs = call.name, _inputs(call)
        self.before = {t.grad_fn for t in inputs if t.requires_grad}
        by = next((origin for t in inputs if (origin := frozen_by(t))), "")
        if not (by and self.before) or name in FACTORS or (name in HANDLERS and name not in BOUNDS):
            return
        if adds_frozen(call.func, call.args, call.kwargs, integers=name in SUMS):
            self.tape.added[by] += 1

    def take(self, make: Callable[[], Any], kind: str = "") -> Any:
        value = make()
        if isinstance(value, Tensor):
            value = freeze_mark(mark(value.detach().clone(), kind), self.name)
            self._size(value)
        if kind:
            self.tape.frozen[kind] += 1
        self.tape.values.setdefault(self.call, []).append(value)
        return value

    def site(self, kind: str, value: Tensor) -> None:
        self._size(value)

    def leave(self, out: Any, call: TorchCall) -> Any:
        name, inputs, outputs = call.name, _inputs(call), list(tensors(out))
        live = any(t.requires_grad for t in inputs)
        for t in outputs:
            self._size(t)
        pass_on(inputs, outputs, name)
        lost = live and not all(t.requires_grad for t in outputs)
        by = name if lost else next((origin for t in inputs if (origin := frozen_by(t))), "")
        if by and not lost and self._chosen_constant(name, inputs, outputs):
            self.tape.frozen["chosen constant"] += 1  # an expert's bias: the choice is frozen, the bias is a bias
            by = ""
        for t in (outputs or inputs[:1]) if by else ():  # a tensor that is written into is frozen as well
            freeze_mark(t, by)
        self._unknown(outputs, call)
        if lost and name not in COUNTED:
            self.tape.frozen[f"{name}, frozen whole"] += 1
            return out
        return self._choices(out, name) if lost else out

    def uncounted(self, out: Any, call: TorchCall) -> Any:
        return self.leave(out, call)

    def weighed(self, call: TorchCall) -> Any:
        out = self.leave(call.made(), call)
        self.tape.products.append(out.grad_fn)
        return out

    def _chosen_constant(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
        """Whether a given tensor is read at frozen places."""
        read = name in LOOKED_UP and bool(outputs) and outputs[0].is_floating_point()
        return read and not any(frozen_by(t) and t.is_floating_point() for t in inputs)

    def _unknown(self, outputs: Sequence[Tensor], call: TorchCall) -> None:
        """Keep a call in which there is a node that is not known to be linear."""
        stack = [t.grad_fn for t in outputs if t.requires_grad]
        visited = set(self.before)
        while stack:
            node = stack.pop()
            if node is not None and node not in visited:
                visited.add(node)
                stack.extend(part for part, _ in node.next_functions)
                if not is_linear(node):
                    self.tape.unknown[node] = call

    def _size(self, t: Tensor) -> None:
        self.tape.largest = max(self.tape.largest, t.numel() * t.element_size())

    def _choices(self, out: Any, name: str) -> Any:
        """An operation that autograd does not follow (a comparison, the indices of top-k): its result is kept."""
        if isinstance(out, Tensor):
            return self.take(lambda: out, "choices")
        return _rebuilt(out, [self.take(lambda p=p: p, "choices") if _is_choice(p) else p for p in out])


class Replay(Frozen):
    """Run the same pass on other inputs with everything frozen taken from the tape."""

    def enter(self, call: TorchCall) -> bool:
        self._next: Iterator[Any] = iter(self.tape.values.get(self.call, ()))
        was = self.tape.calls[self.call] if self.call < len(self.tape.calls) else "the end"
        if was != call.name:
            other = f"{call.name} where {was} was recorded"
            raise NotAffine(f"the forward pass takes another path on another input: {other}")
        return self.call in self.tape.handled

    def weighed(self, call: TorchCall) -> Any:
        args = call.args
        if self.product not in self.tape.idle or len(args) < 2:
            return call.made()
        x, width = (args[0], len(args[1])) if call.name == "linear" else (args[1], args[2].shape[1])
        return x.new_zeros(*x.shape[:-1], width)

    def take(self, make: Callable[[], Any], kind: str = "") -> Any:
        return next(self._next)

    def site(self, kind: str, value: Tensor) -> None:
        if value.requires_grad:
            self.sites.append(Site(kind, value))

    def leave(self, out: Any, call: TorchCall) -> Any:
        if self.call not in self.tape.values:
            return out
        if isinstance(out, Tensor):
            return next(self._next)
        return _rebuilt(out, [next(self._next) if _is_choice(p) else p for p in out])


def _inputs(call: TorchCall) -> list[Tensor]:
    """The tensors that a call reads."""
    return list(tensors([call.args[:1] if call.name in LIKE else call.args, call.kwargs]))


def _is_choice(part: Any) -> bool:
    return isinstance(part, Tensor) and not part.is_floating_point()


def _rebuilt(out: Any, parts: list[Any]) -> Any:
    return type(out)(parts) if "return_types" in type(out).__module__ else tuple(parts)


@contextmanager
def own_backwards_opened() -> Iterator[None]:
    """Functions that bring their own backward pass run as the forward they state, so that what is in them is seen."""
    original = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        new_style = cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
        return cls.forward(*args, **kwargs) if new_style else cls.forward(_Context(), *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.autograd.Function.apply = original  # pyright: ignore[reportAttributeAccessIssue]


class _Context:
    """Where a forward keeps what its backward would need; nothing is read from it."""

    def save_for_backward(self, *saved: Tensor) -> None:
        self.saved_tensors = saved

    def mark_non_differentiable(self, *which: Tensor) -> None: ...
    def mark_dirty(self, *which: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


@contextmanager
def parameters_still(model: nn.Module) -> Iterator[None]:
    """Parameters that ask for no gradient, so that what autograd follows is the tokens; as they were afterwards."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    for p in trainable:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trainable:
            p.requires_grad_(True)
