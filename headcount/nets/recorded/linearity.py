"""What is left of a recorded pass once its frozen values are cut off: linear, operation by operation, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from headcount.nets.recorded.frozen_calls import TorchCall
from headcount.nets.recorded.node_kinds import is_linear, kind_of, spoken_kind
from headcount.nets.recorded.tape import NotAffine, Tape
from headcount.nets.recorded.trials import is_affine


def refuse_nonlinear(out: Tensor, tape: Tape) -> None:
    """Refuse a recorded pass in which something that still depends on the tokens is not linear in them, by name."""
    frozen_branches = [kind for kind in tape.frozen if kind.endswith("frozen whole")]
    if frozen_branches:
        name = frozen_branches[0].split(",")[0]
        raise NotAffine(
            f"{name} cuts {tape.frozen[frozen_branches[0]]} branch(es) off the tokens: they would be frozen whole"
        )
    if tape.added:
        name = next(iter(tape.added))
        raise NotAffine(f"a {name} is added to what depends on the tokens, not multiplied: it would be frozen whole")
    if out.grad_fn is None:
        raise NotAffine("the output does not depend on the tokens: nothing on its way can be followed")
    nodes = reached(out)
    tape.dtypes.update(part.dtype for node in nodes for part in getattr(node, "_input_metadata", ()))
    tape.idle.update(i for i, node in enumerate(tape.products) if node is not None and node not in nodes)
    broken = nonlinear(nodes, tape.unknown)
    tape.products.clear()
    tape.unknown.clear()
    if broken:
        raise NotAffine(f"not affine once frozen: {', '.join(broken)} of what depends on the tokens is not linear")


def reached(out: Tensor) -> dict[Any, None]:
    """Every operation between the output and the tokens, from the output on."""
    visited, stack = dict[Any, None](), [out.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in visited:
            visited[node] = None
            stack.extend(part for part, _ in node.next_functions)
    return visited


def nonlinear(nodes: Iterable[Any], calls: Mapping[Any, TorchCall]) -> list[str]:
    """The operations that are not linear, in the order of the forward pass: by name, or tried.

    A call that is not known is made again on other numbers, and is linear if its answers are.
    """
    tried, kinds = dict[int, bool](), list[str]()
    for node in nodes:
        if is_linear(node):
            continue
        call = calls.get(node)
        if call is not None and id(call) not in tried:
            tried[id(call)] = is_affine(call.func, call.args, call.kwargs)
        if call is None or not tried[id(call)]:
            kinds.append(spoken_kind(kind_of(node)))
    return list(dict.fromkeys(reversed(kinds)))
