"""The names that autograd gives to operations, and which of them are linear in what they are given."""

from __future__ import annotations

from typing import Any

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
BILINEAR = ("Mul", "Mm", "Bmm", "Mv", "Dot", "Linear", "Convolution", "Vdot", "Ger", "GroupedMm")


def kind_of(node: Any) -> str:
    """A node's name without its number."""
    return node.name().split("::")[-1].rstrip("0123456789").removesuffix("Backward").removesuffix("Backwards")


def is_linear(node: Any) -> bool:
    """Whether an operation is linear in what depends on the tokens, by its name and by which of its inputs do."""
    kind, live = kind_of(node), [part is not None for part, _ in node.next_functions]
    if kind in BILINEAR:
        return sum(live[:2]) <= 1
    if kind in ("Addmm", "Baddbmm", "Addbmm", "Addmv"):
        return sum(live[1:3]) <= 1
    if kind == "Div":
        return not any(live[1:])
    return kind in LINEAR


def spoken_kind(kind: str) -> str:
    """A node's name as people say it.

    >>> spoken_kind("Mul"), spoken_kind("LogSoftmax")
    ('the product (mul) of two tensors', 'log_softmax')
    """
    if kind == "WarnNotImplemented":
        return "a kernel without a derivative (quantised or custom)"
    word = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).strip("_")
    return f"the product ({word}) of two tensors" if kind in BILINEAR else word
