"""Wide one-layer banks, whose heads stay two thin maps, have the gradient of the plain bank."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.kernel_answers import asked, needs_triton, on_each_device
from tests.test_training_fused import TOLERANCE

pytestmark = [pytest.mark.kernels, pytest.mark.xdist_group("wide")]  # one worker asks for the answers, once


@cache
def answers(device: str) -> dict[str, Any]:
    return asked("tests.wide_cases", device)


@on_each_device
def test_heads_as_two_maps_have_the_gradient_of_the_plain_bank_in_float64(device):
    found = answers(device)["gradients"]
    assert len(found) == 23
    assert answers(device)["fine"] < TOLERANCE["half"]
    for name, gap in found.items():
        assert gap < TOLERANCE[name.rsplit(", ", 1)[1]], name


@on_each_device
def test_half_precision_rounds_and_ieee_does_not(device):
    found = answers(device)["gradients"]
    rounded = [gap for name, gap in found.items() if name.endswith("half")]
    exact = [gap for name, gap in found.items() if name.endswith("ieee")]
    assert min(rounded) > max(exact)


@on_each_device
def test_what_pads_a_narrow_member_has_no_gradient(device):
    assert answers(device)["narrow"] == [0.0, 0.0]


@on_each_device
def test_slopes_far_below_the_smallest_float16_keep_their_digits(device):
    assert answers(device)["tiny"] == 0.0


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"restored": True, "repeats": True, "neighbour": True, "lost": True}


@needs_triton
def test_no_kernel_touches_an_address_outside_of_its_tensors_or_reads_what_nobody_wrote():
    found = answers("cpu")["guarding"]
    assert found["launches"] > 0 and found["outside"] == 0 and found["lost"] == 0


@needs_triton
@pytest.mark.parametrize(("heads", "width"), [(4, 64), (12, 48), (1, 33), (16, 128), (1, 17)])
def test_a_step_of_a_wide_bank_is_eight_launches_and_nothing_else(heads, width):
    from benchmarks.kernel_launches import recorded_step
    from benchmarks.problem import Size
    from headcount.kernels import fused

    steps = recorded_step(fused.backend, Size(2, 8, batch=16, heads=heads, width=width))
    assert [launch.name for launch in steps.launches] == [
        "maps_forward", "pool_forward", "tail_by_heads", "pool_backward", "maps_backward", "states_backward",
        "tick", "adamw",
    ]  # fmt: skip
    assert not steps.others


def test_heads_are_two_maps_from_width_17_to_128_and_up_to_head_dim_32():
    pytest.importorskip("triton")
    from headcount.kernels import Bank
    from headcount.kernels.split_heads import splits
    from headcount.kernels.tiles import Tile
    from headcount.nets import Architecture

    def split(head_dim: int, width: int, tile: Tile = Tile()) -> bool:  # noqa: B008
        return splits(Bank([Architecture(layers=((1, head_dim),), width=width).reading(3)], [0]), tile)

    assert [split(8, width) for width in (16, 17, 128, 129)] == [False, True, True, False]
    assert [split(head_dim, 64) for head_dim in (1, 32, 33)] == [True, True, False]
    assert split(8, 2, Tile(split=16))
