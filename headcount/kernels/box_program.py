"""Bounds of errors over many boxes of tokens in compiled code: C++ on a CPU, a CUDA program on a GPU, one arithmetic.

`cpp/box_bounds.h` is written once; on a CPU a lane of a vector has a box, on a GPU a thread. What it computes and why
it holds is said where the same is done by batched products, `certificates/worst_case/error_bounds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.kernels.backend import NotCompiledError
from headcount.kernels.cpp.compiled import address_of, whole_numbers
from headcount.kernels.cpp.native_library import native_library
from headcount.kernels.cuda.programs import Program, compile_ahead, cuda_program

KINDS = ("relu", "gelu", "linear")  # activations of the encoder, by their number
WARPS = 4
MOST_LOCAL = 64_000  # bytes of a thread's own memory, beyond which boxes go through batched products


class BoxShape(NamedTuple):
    """Sizes of a one-layer network as its bounds see it, and the kind of its encoder's units."""

    length: int
    token_dim: int
    heads: int
    hidden: int
    units: int
    kind: int

    @property
    def local(self) -> int:
        """Bytes that a thread keeps of a box (`SCRATCH`)."""
        T, d, H, _, N, _ = self
        return 8 * (12 * T * d + 3 * T * N + 11 * H * T + 6 * H * T * d + H * N)


class BoxTarget(NamedTuple):
    """The target over boxes: at the middle, its slopes and all its values, each as middle and radius."""

    middle: Float[Tensor, " boxes"]
    slope: Float[Tensor, "boxes length token_dim"]
    slope_rad: Float[Tensor, "boxes length token_dim"]
    values: Float[Tensor, " boxes"]
    values_rad: Float[Tensor, " boxes"]


def boxes_compiled(shape: BoxShape, device: torch.device) -> bool:
    """Whether there is a program for networks of this shape on this kind of device."""
    if device.type == "cpu":
        return native_library("float64", "boxes") is not None
    if device.type != "cuda" or shape.local > MOST_LOCAL:
        return False
    try:
        _program(shape)
    except (NotCompiledError, OSError):
        return False
    return True


def bound_boxes(
    shape: BoxShape,
    parameters: Float[Tensor, "models numbers"],
    member: Int[Tensor, " boxes"],
    lo: Float[Tensor, "boxes length token_dim"],
    hi: Float[Tensor, "boxes length token_dim"],
    target: BoxTarget,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Upper and lower bounds of |error|, |error| in the middle and guilt of every side, (boxes,) and those of `lo`.

    Boxes of one member must follow each other: then a group of them reads the same parameters.
    """
    boxes = len(member)
    inputs = [t.contiguous() for t in (parameters, member, lo, hi, *target)]
    out = [torch.empty_like(inputs[4]) for _ in range(3)] + [torch.empty_like(inputs[2])]
    if lo.device.type == "cpu":
        sizes = whole_numbers([*shape, parameters.shape[1], boxes, torch.get_num_threads()])
        library = native_library("float64", "boxes")
        assert library is not None
        library.bound_boxes(sizes, *map(address_of, (*inputs, *out)))
    elif boxes:
        first, *rest = inputs
        blocks = min(-(-boxes // (32 * WARPS)), 1 << 20)
        _program(shape).launch((blocks, 1), first, (parameters.shape[1],), *rest, *out, (boxes,))
    return out[0], out[1], out[2], out[3]


def compile_boxes(shapes: Sequence[BoxShape]) -> None:
    """Make the CUDA programs of several shapes side by side, before they are asked for one after the other."""
    compile_ahead("bound_boxes", [_sizes(shape) for shape in dict.fromkeys(shapes)])


def _program(shape: BoxShape) -> Program:
    return cuda_program("bound_boxes", "cuda", WARPS, 0, **_sizes(shape))


def _sizes(shape: BoxShape) -> dict[str, int]:
    names = ("LENGTH", "TOKEN_DIM", "HEADS", "HIDDEN", "UNITS", "KIND")
    return {"WARPS": WARPS, **dict(zip(names, shape, strict=True))}
