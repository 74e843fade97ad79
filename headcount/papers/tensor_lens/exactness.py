"""The certificate that a frozen network is one affine map: what is left to compute is linear, and the numbers agree."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from headcount.papers.tensor_lens.tape import NotAffine, Tape

__all__ = ["AffineCertificate", "refuse_nonlinear"]

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
TOLERANCE = 500  # units of rounding


@dataclass(frozen=True)
class AffineCertificate:
    """Four relative gaps of the frozen network f at x, each against the largest entry of f(x), and what was frozen.

    `plain`: the model as it is against the recorded pass. `replay`: the tape replayed at x against the recorded pass.
    `affine`: f(a x + (1 - a) x') - a f(x) - (1 - a) f(x'), where x' is as large as x and independent of it.
    `dependence`: how far f(x') is from f(x); a network frozen whole would have 0. Every operation that still depends
    on the tokens was checked to be linear in them.
    """

    plain: float
    replay: float
    affine: float
    dependence: float
    tolerance: float
    dtype: str
    frozen: tuple[tuple[str, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**asdict(self), "frozen": dict(self.frozen)}

    @property
    def sentence(self) -> str:
        """The certificate in words."""
        frozen = ", ".join(f"{count} {kind}" for kind, count in self.frozen)
        return (
            f"replay gap {self.replay:.1e}, affine gap {self.affine:.1e}, dependence {self.dependence:.2g} "
            f"(tolerance {self.tolerance:.0e} from {self.dtype}); frozen: {frozen or 'nothing'}"
        )

    def check(self) -> AffineCertificate:
        """The certificate itself, or a refusal that says which of its numbers is too large."""
        if not self.plain <= self.tolerance:
            raise NotAffine(f"the recorded pass is off the model's own by {self.plain:.1e}; is the model random?")
        if not self.replay <= self.tolerance:
            raise NotAffine(f"the replayed pass is off the recorded one by {self.replay:.1e}: something was not taped")
        if not self.affine <= self.tolerance:
            raise NotAffine(
                f"the frozen network is not affine: gap {self.affine:.1e}, tolerance {self.tolerance:.0e}; "
                "an operation below Python was not seen (a compiled kernel?)"
            )
        if not self.dependence > self.tolerance:
            raise NotAffine(f"the frozen network no longer depends on its tokens: dependence {self.dependence:.1e}")
        return self


def certify(
    tape: Tape, recorded: Tensor, plain: Tensor, rows: tuple[Tensor, Tensor, Tensor], a: float
) -> AffineCertificate:
    """The four gaps from the recorded output, the model's own, and the replays at x, x' and a x + (1 - a) x'."""
    here, far, between = rows
    size = float(recorded.abs().max()) or 1.0
    larger = max(size, float(far.abs().max()))
    coarsest = max(tape.dtypes, key=lambda d: torch.finfo(d).eps, default=recorded.dtype)
    return AffineCertificate(
        plain=float((plain - recorded).abs().max()) / size,
        replay=float((here - recorded).abs().max()) / size,
        affine=float((between - a * here - (1 - a) * far).abs().max()) / larger,
        dependence=float((far - here).abs().max()) / size,
        tolerance=TOLERANCE * torch.finfo(coarsest).eps,
        dtype=str(coarsest)[6:],
        frozen=tuple(sorted((k, n) for k, n in tape.frozen.items())),
    )


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
    broken = nonlinear(out, tape.dtypes)
    if broken:
        raise NotAffine(f"not affine once frozen: {', '.join(broken)} of what depends on the tokens is not linear")


def nonlinear(out: Tensor, dtypes: set[torch.dtype]) -> list[str]:
    """The operations between the tokens and the output that are not linear, in the order of the forward pass.

    The dtypes on the way are collected: the coarsest says how exact the numbers can be.
    """
    seen, stack, found = set[Any](), [out.grad_fn], list[str]()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        dtypes.update(part.dtype for part in getattr(node, "_input_metadata", ()))
        kind = node.name().split("::")[-1].rstrip("0123456789").removesuffix("Backward").removesuffix("Backwards")
        if not _linear(kind, [part is not None for part, _ in node.next_functions]):
            found.append(_word(kind))
        stack.extend(part for part, _ in node.next_functions)
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
    word = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).strip("_")
    return f"the product ({word}) of two tensors" if kind in BILINEAR else word
