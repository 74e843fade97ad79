"""Which checks the tests lay on the package: every type by beartype, every shape by jaxtyping.

`jaxtyping.jaxtyped` binds the arguments and checks them twice, some 100 microseconds a call, in functions without a
shape too. Here beartype checks a call once, and axis names are kept only where a shape is stated: the same checks, at
an eighth of the time. Of arrays, `agrees` says in a third of the time what jaxtyping says of them.
"""

import dataclasses
import functools
import inspect
import types
import typing

import jaxtyping
import jaxtyping._array_types as hints
from beartype import BeartypeConf, beartype
from jaxtyping._storage import _shape_storage, pop_shape_memo, push_shape_memo

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is an acceptable float, as the type checkers agree
_jaxtyped = jaxtyping.jaxtyped


def checked(of=None, *, typechecker):
    """In place of `jaxtyping.jaxtyped`: a function whose calls are checked, or a dataclass whose making is."""
    if of is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(of):
        made = of.__dict__.get("__init__")
        if dataclasses.is_dataclass(of) and isinstance(made, types.FunctionType) and not hasattr(made, "__wrapped__"):
            of.__init__ = checked(made, typechecker=typechecker)
        return of
    if not isinstance(of, types.FunctionType):
        return _jaxtyped(of, typechecker=typechecker)
    if of.__code__ in INNER:
        return _laid_on(of, *INNER[of.__code__])
    hints = {name: _resolved(hint, of.__globals__) for name, hint in of.__annotations__.items()}
    if any("{" in str(hint) for hint in hints.values()):  # axes that are computed from the arguments
        return _jaxtyped(of, typechecker=typechecker)
    twin = types.FunctionType(of.__code__, of.__globals__, of.__name__, of.__defaults__, of.__closure__)
    functools.update_wrapper(twin, of, assigned=("__module__", "__qualname__", "__doc__"))
    twin.__kwdefaults__, twin.__annotations__ = of.__kwdefaults__, hints
    once, shaped = typechecker(twin), any(map(_shaped, hints.values()))
    if once is twin:
        return of
    if "<locals>" in of.__qualname__ and "__beartype_func" in (once.__kwdefaults__ or {}):
        INNER[of.__code__] = once, shaped
    return _unless_switched_off(of, _with_axes(once) if shaped else once)


def _unless_switched_off(of, checked_call):
    """The checked function, or the plain one while `jaxtyping_disable` is set, as in a user's run."""

    @functools.wraps(of)
    def call(*arguments, **keywords):
        return (of if jaxtyping.config.jaxtyping_disable else checked_call)(*arguments, **keywords)

    return call


INNER = {}  # by their code: functions within functions, which are made anew at every call of the outer one


def _laid_on(of, once, shaped):
    """The check as it was compiled for an earlier closure of the same code, on this one."""
    again = types.FunctionType(once.__code__, once.__globals__, once.__name__, once.__defaults__, once.__closure__)
    again.__kwdefaults__ = {**once.__kwdefaults__, "__beartype_func": of}
    return _unless_switched_off(of, _with_axes(again) if shaped else again)


def _with_axes(function):
    def call(*arguments, **keywords):
        push_shape_memo({})  # the axis names of this call alone
        try:
            return function(*arguments, **keywords)
        finally:
            pop_shape_memo()

    return call


HINT = hints._MetaAbstractArray
thorough = HINT.__instancecheck__
AXES = {}  # by hint: names and sizes of single axes; what stands for several, and where
KNOWN = set()  # hints with the types of arrays and of numbers that were found right


@functools.cache
def plain():
    """Arrays whose sizes are numbers, as those of traced ones are not; whoever hands out the tests needs no torch."""
    import numpy as np
    import torch

    return {torch.Tensor, torch.nn.Parameter, np.ndarray}


def agrees(hint, array):
    """Whether an array is what a hint says, in its type, in its numbers, and in the sizes of this call's axes."""
    kind = type(array)
    if kind not in plain() or not getattr(_shape_storage, "memo_stack", None):
        return thorough(hint, array)
    if (hint, kind, array.dtype) not in KNOWN:
        right = thorough(hint, array)
        if right and hint.array_type in plain():
            KNOWN.add((hint, kind, array.dtype))
        return right
    if hint not in AXES:
        AXES[hint] = _axes(hint)
    if AXES[hint] is None:
        return thorough(hint, array)
    (single, several, _, _), shape, (axes, rest, at) = _shape_storage.memo_stack[-1], array.shape, AXES[hint]
    if rest is not None:
        more = len(shape) - len(axes)
        if more < 0:
            return False
        shape, middle = shape[:at] + shape[at + more :], shape[at : at + more]
        if several.get(rest, (False, middle)) != (False, middle):
            return thorough(hint, array)
    if len(shape) != len(axes):
        return False
    new = {}
    for axis, size in zip(axes, shape, strict=True):
        if type(axis) is str:
            if (single[axis] if axis in single else new.setdefault(axis, size)) != size:
                return False
        elif axis is not None and axis != size:
            return False
    single.update(new)
    if rest:
        several[rest] = (False, middle)
    return True


def _axes(hint):
    """The axes of a hint, None for any size; None where some size is computed, broadcast or of a tree."""
    at, axes, rest = hint.index_variadic, [], None
    for place, dim in enumerate(hint.dims):
        if dim is hints._anonymous_dim or dim is hints._anonymous_variadic_dim:
            name = "" if place == at else None
        elif isinstance(dim, hints._SymbolicDim) or dim.broadcastable or getattr(dim, "treepath", False):
            return None
        else:
            name = dim.size if isinstance(dim, hints._FixedDim) else dim.name
        if place == at:
            rest = name
        else:
            axes.append(name)
    return tuple(axes), rest, at


HINT.__instancecheck__ = agrees


def _resolved(hint, known):
    """A hint as an object; `Any` where it names what is imported for type checkers alone, as jaxtyping has it."""
    holder = types.SimpleNamespace(__annotations__={"value": hint})
    try:
        return typing.get_type_hints(holder, known, include_extras=True)["value"]
    except Exception:
        return typing.Any


def _shaped(hint):
    """Whether a hint holds a shape, anywhere within."""
    if inspect.isclass(hint) and hint.__module__.startswith("jaxtyping"):
        return True
    parts = hint if isinstance(hint, list) else typing.get_args(hint)
    return any(map(_shaped, parts))
