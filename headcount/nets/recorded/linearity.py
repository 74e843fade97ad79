"""What is left of a recorded pass once its frozen values are cut off: linear, operation by operation, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from headcount.nets.recorded.tape import NotAffine, Tape

__all__ = ["refuse_nonlinear"]

# Names of autograd's nodes: linear in their one live input whatever it is.
LINEAR_NODES = (
    "Add Sub Rsub Neg Sum Mean View UnsafeView ReshapeAlias Transpose T Permute Expand Squeeze Unsqueeze Slice Select "
    "Index IndexSelect Gather ScatterAdd IndexAdd IndexPut IndexCopy Cat Stack Split SplitWithSizes Chunk Unbind Clone "
    "ToCopy Alias CopySlices Copy MaskedFill MaskedScatter Where Repeat RepeatInterleave Roll Flip ConstantPadNd Pad "
    "Cumsum Tril Triu AsStrided Movedim Accumulate AccumulateGrad Diagonal Scatter Unfold UnfoldBackward Im2Col Col2Im "
    "Fold Set Detach Lift Fill NanToNum SelectScatter SliceScatter Take Squeeze Unsafe AvgPool1D AvgPool2D Identity "
    "FftC2C FftR2C FftC2R ViewAsReal ViewAsComplex Real Complex MkldnnReshape Trace Flatten "
    "UnsafeSplit Contiguous"
)
LINEAR = frozenset(LINEAR_NODES.split())
BILINEAR = ("Mul", "Mm", "Bmm", "Mv", "Dot", "Linear", "Convolution", "Vdot", "Ger")


def refuse_nonlinear(out: Tensor, tape: Tape) -> None:
    """Refuse a recorded pass in which something that still depends on the tokens is not linear in them, by name."""
    whole = [kind for kind in tape.frozen if kind.endswith("frozen whole")]
    if whole:
        name = whole[0].split(",")[0].replace("get", "an attribute such as .data")
        raise NotAffine(f"{name} cuts {tape.frozen[whole[0]]} branch(es) off the tokens: they would be frozen whole")
    if tape.added:
        raise NotAffine("a softmax is added to what depends on the tokens, not multiplied: it would be frozen whole")
    if out.grad_fn is None:
        raise NotAffine("the output does not depend on the tokens (is the forward pass under no_grad?)")
    nodes = reached(out)
    tape.dtypes.update(part.dtype for node in nodes for part in getattr(node, "_input_metadata", ()))
    tape.idle.update(i for i, node in enumerate(tape.products) if node is not None and node not in nodes)
    tape.products.clear()
    broken = nonlinear(nodes)
    if broken:
        raise NotAffine(f"not affine once frozen: {', '.join(broken)} of what depends on the tokens is not linear")


def reached(out: Tensor) -> dict[Any, None]:
    """Every operation between the output and the tokens, from the output on."""
    seen, stack = dict[Any, None](), [out.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen[node] = None
            stack.extend(part for part, _ in node.next_functions)
    return seen


def nonlinear(nodes: Iterable[Any]) -> list[str]:
    """The operations that are not linear, in the order of the forward pass."""
    found = list[str]()
    for node in nodes:
        kind = node.name().split("::")[-1].rstrip("0123456789").removesuffix("Backward").removesuffix("Backwards")
        if not _linear(kind, [part is not None for part, _ in node.next_functions]):
            found.append(_word(kind))
    return list(dict.fromkeys(reversed(found)))


def _linear(kind: str, live: list[bool]) -> bool:
    if kind in BILINEAR:
        return sum(live[:2]) <= 1
    if kind in ("Addmm", "Baddbmm", "Addbmm", "Addmv"):
        return sum(live[1:3]) <= 1
    if kind == "Div":
        return not any(live[1:])
    return kind in LINEAR


def _word(kind: str) -> str:
    """A node's name as people say it.

    >>> _word("Mul"), _word("LogSoftmax")
    ('the product (mul) of two tensors', 'log_softmax')
    """
    if kind == "WarnNotImplemented":
        return "a kernel without a derivative (quantised or custom)"
    word = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).strip("_")
    return f"the product ({word}) of two tensors" if kind in BILINEAR else word
