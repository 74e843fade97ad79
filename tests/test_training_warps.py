"""Programs of warps compute what autograd computes: emulated by a C++ compiler, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
import torch

from headcount.training.backends.native_library import native_compiler
from headcount.training.backends.warp_programs import MOST_SHARED
from headcount.training.backends.warp_sublayers import FED, KEPT, feed_cut, heads_cut

EPS16 = torch.finfo(torch.float16).eps
emulated = pytest.mark.skipif(
    native_compiler() is None or not importlib.util.find_spec("triton"), reason="needs a C++ compiler and Triton"
)
DEVICES = [
    pytest.param("cpu", marks=emulated),
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]
on_each_device = pytest.mark.parametrize("device", DEVICES)
pytestmark = pytest.mark.xdist_group("warps")  # one worker asks for the answers, once


@cache
def answers(device: str, every: bool = False) -> dict[str, Any]:
    chosen = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    command = [sys.executable, "-W", "ignore", "-m", "tests.warp_cases", device, *["all"] * every]
    done = subprocess.run(command, env={**os.environ, **chosen}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@on_each_device
@pytest.mark.parametrize("what", ["attention", "feeding"])
def test_a_sublayer_has_the_outputs_and_gradients_of_autograd_in_float64(device, what):
    for case, found in answers(device)[what].items():
        assert found.pop("elsewhere") == 0.0
        for name, gap in found.items():
            assert gap < 4 * EPS16, (case, name)


@on_each_device
@pytest.mark.parametrize("what", ["attention", "feeding"])
def test_factors_are_rounded_to_float16(device, what):
    """The other side: were they not, the tolerance would be too loose."""
    assert all(found["slopes"] > EPS16 / 16 for case, found in answers(device)[what].items() if case != "one token")


@on_each_device
@pytest.mark.parametrize("what", ["deep", "decoders"])
def test_a_bank_has_the_plain_gradient(device, what):
    found = answers(device)[what]
    assert len(found) >= 2 and all(EPS16 / 16 < gap < 16 * EPS16 for gap in found.values())


@pytest.mark.slow
@on_each_device
def test_every_deep_bank_has_the_plain_gradient(device):
    found = answers(device, every=True)["deep"]
    assert len(found) == 6 and all(gap < 16 * EPS16 for gap in found.values())


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"repeats": True, "neighbour": True, "lost": True}


@pytest.mark.parametrize("embed", [1, 8, 17, 48, 64])
@pytest.mark.parametrize("heads", [1, 3, 16])
@pytest.mark.parametrize("dim", [1, 8, 9, 16])
@pytest.mark.parametrize("longest", [1, 16, 33, 64])
def test_a_cut_of_heads_fits_registers_and_shared_memory(embed, heads, dim, longest):
    cut, wide, deep = heads_cut(embed, heads, dim, longest), -(-embed // 16) * 16, 8 if dim <= 8 else 16
    columns = -(-cut.group * deep // 16) * 16
    assert 1 <= cut.group <= heads and cut.warps % -(-longest // 16) == 0
    assert 4 * columns * wide <= 32 * cut.warps * KEPT or cut.group == 1
    rows = 16 * cut.warps
    stored = 2 * (3 * columns * (wide + 8) + wide * (columns + 8) + 2 * rows * (wide + 8) + 6 * rows * (columns + 8))
    assert stored + 8 * cut.group * rows <= MOST_SHARED


@pytest.mark.parametrize("sizes", [(1, 2, 1), (5, 128, 48), (64, 256, 64), (64, 33, 64)])
def test_a_cut_of_hidden_units_fits_registers(sizes):
    inputs, hidden, outputs = sizes
    cut = feed_cut(*sizes)
    units = -(-cut.group // 16) * 16
    assert 1 <= cut.group <= hidden
    assert units * (-(-inputs // 16) * 16 - -(-outputs // 16) * -16) <= 32 * cut.warps * FED
