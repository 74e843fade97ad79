"""The tests' own checks: wrong types and shapes are seen in functions, closures, generators and dataclasses."""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import AnnotationError, Float, Int
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo
from torch import Tensor

from headcount.fits.projection import fit_law
from headcount.numerals import counted
from headcount.results import Study
from tests.typechecker import agrees, check, checked, thorough

if TYPE_CHECKING:
    from nowhere import Absent

Rows = list[Float[Tensor, "row dim"]]


@checked(typechecker=check)
def joined(x: Float[Tensor, "row dim"], y: Float[Tensor, "row dim"], *, wide: bool = True) -> Float[Tensor, "row both"]:
    """A part before the other; below it where that is wanted, against what is stated."""
    return torch.cat([x, y], dim=1 if wide else 0)


@checked(typechecker=check)
def first(rows: Rows, y: Float[Tensor, "row dim"]) -> float:
    return joined(y, y.new_zeros(len(y), 1) if len(y) == 7 else y)[0, 0].item()


@checked(typechecker=check)
def counter(start: float, of: Absent | None = None) -> int:
    def up(by: int) -> int:
        return by if by < 3 else "many"  # type: ignore[return-value]

    return checked(up, typechecker=check)(int(start))


@checked(typechecker=check)
@dataclass
class Pair:
    left: int
    right: Float[Tensor, " dim"]


def test_shapes_agree_between_arguments_and_with_what_is_returned():
    x = torch.zeros(2, 3)
    assert joined(x, x).shape == (2, 6)
    for wrong in (lambda: joined(x, torch.zeros(2, 4)), lambda: joined(x, x, wide=False), lambda: joined(x, x.int())):
        with pytest.raises(BeartypeCallHintViolation):
            wrong()


def test_axis_names_are_of_one_call_and_shapes_are_seen_behind_another_name():
    assert first([torch.zeros(5, 9)], torch.zeros(5, 9)) == 0.0
    with pytest.raises(BeartypeCallHintViolation):
        first([torch.zeros(5, 9)], torch.zeros(5, 8))
    with pytest.raises(BeartypeCallHintViolation):
        first([torch.zeros(7, 2)], torch.zeros(7, 2))  # the call within is wrong


def test_a_closure_is_checked_at_every_call_of_the_outer_function():
    assert [counter(1), counter(2)] == [1, 2]  # an int is a float, and a name for type checkers alone is any type
    for _ in range(2):
        with pytest.raises(BeartypeCallHintViolation):
            counter(3)
    assert counter(2) == 2


def test_a_dataclass_is_checked_when_it_is_made():
    assert Pair(1, torch.zeros(2)).left == 1
    for wrong in (("one", torch.zeros(2)), (1, torch.zeros(2, 2))):
        with pytest.raises(BeartypeCallHintViolation):
            Pair(*wrong)


def test_the_package_is_checked_and_keeps_its_signatures():
    for wrong in (lambda: counted("two", "head"), lambda: fit_law([1.0], [2.0]), lambda: Study(rows=3)):
        with pytest.raises(BeartypeCallHintViolation):
            wrong()
    assert list(inspect.signature(fit_law).parameters) == ["levels", "sizes", "weights"]
    assert inspect.unwrap(fit_law).__annotations__ == fit_law.__annotations__


AXES = ["", "a", "a b", "b a", "a a", "a 3", "2", "_ a", "*c", "*c a", "a *c b", "... a", "a ...", "#a b", "*#c a"]
AXES += ["a+1 a"]
HINTS = [kind[of, axes] for kind in (Float, Int) for of in (Tensor, np.ndarray) for axes in AXES]


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_look_at_arrays_says_what_jaxtyping_says(seed):
    """Of any arrays of one call in turn: the same verdict, and the same sizes are known of its axes afterwards."""
    draw, verdicts = random.Random(seed), set()
    for _ in range(200):
        asked = draw.choices(HINTS, k=4)
        shapes = [tuple(draw.choice((2, 3)) for _ in range(draw.randrange(4))) for _ in asked]
        arrays = [draw.choice((torch.zeros, np.zeros, torch.ones))(shape) for shape in shapes]
        found = {look: _looked(look, asked, arrays) for look in (agrees, thorough)}
        assert found[agrees] == found[thorough], (asked, shapes)
        verdicts |= {said for said, _ in found[agrees]}
    assert verdicts >= {True, False}


def _looked(look, asked, arrays):
    """What is said of each array, and which sizes are known after it."""
    push_shape_memo({})
    try:
        return [(_said(look, hint, x), _sizes()) for hint, x in zip(asked, arrays, strict=True)]
    finally:
        pop_shape_memo()


def _said(look, hint, array):
    try:
        return look(hint, array)
    except AnnotationError:  # a computed size of an axis that is not known yet
        return "unknown"


def _sizes():
    single, several, _, _ = get_shape_memo()
    return dict(single), {name: (broadcast, tuple(shape)) for name, (broadcast, shape) in several.items()}
