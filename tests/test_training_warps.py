"""Programs of warps compute what autograd computes: emulated by a C++ compiler, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest
import torch

from headcount.training.backends.native_library import native_compiler
from headcount.training.backends.warp_programs import MOST_SHARED, SOURCES
from headcount.training.backends.warp_sublayers import FED, KEPT, feed_cut, heads_cut
from tests.kernel_answers import asked, on_devices

EPS16 = torch.finfo(torch.float16).eps
emulated = pytest.mark.skipif(
    native_compiler() is None or not importlib.util.find_spec("triton"), reason="needs a C++ compiler and Triton"
)
on_each_device = on_devices(emulated)
pytestmark = pytest.mark.xdist_group("warps")  # one worker asks for the answers, once


SHAPES = (
    "attention.cu EMBED=32 HEADS=4 DIM=8 LONGEST=32 SAMPLES=2 RAGGED=0 ASK=1",
    "attention.cu EMBED=31 HEADS=5 DIM=9 LONGEST=30 SAMPLES=2 RAGGED=1 ASK=0 GROUP=2 RESIDUAL=0",
    "attention.cu EMBED=64 HEADS=4 DIM=16 LONGEST=52 SAMPLES=2 RAGGED=0 ASK=0 CAUSAL=1 NORM=1 HEAD_STEP=16 ROW_STEP=64",
    "feed.cu INPUTS=5 HIDDEN=33 OUTPUTS=31 WARPS=4 RESIDUAL=0 DEEPER=0 GATHERED=1 LONGEST=7",
    "feed.cu INPUTS=64 HIDDEN=256 OUTPUTS=64 WARPS=8 RESIDUAL=1 DEEPER=1 NORM=1 GELU=1 GROUP=128",
    "question.cu EMBED=48 HEADS=6 LONGEST=64 RAGGED=0 WARPS=4",
    "question.cu EMBED=47 HEADS=12 LONGEST=60 RAGGED=1 WARPS=4",
)


@cache
def answers(device: str, every: bool = False) -> dict[str, Any]:
    return asked("tests.warp_cases", device, *["all"] * every)


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
    assert len(found) == 8 and all(gap < 16 * EPS16 for gap in found.values())


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs NVIDIA's compiler")
@pytest.mark.parametrize("case", SHAPES)
def test_a_device_compiler_takes_every_source(case, tmp_path):
    """The emulation is another language: what a device would refuse must not wait for one."""
    source, *shape = case.split()
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", *(f"-D{one}" for one in shape), str(SOURCES / source)]
    done = subprocess.run([*command, "-o", str(tmp_path / "a")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"restored": True, "repeats": True, "neighbour": True, "lost": True}


@pytest.mark.parametrize("embed", [1, 8, 17, 48, 64])
@pytest.mark.parametrize("heads", [1, 3, 12, 16])
@pytest.mark.parametrize("dim", [1, 8, 9, 16])
@pytest.mark.parametrize("longest", [1, 16, 33, 64])
@pytest.mark.parametrize("norm", [False, True])
def test_a_cut_of_heads_fits_registers_and_shared_memory(embed, heads, dim, longest, norm):
    cut, wide, deep = heads_cut(embed, heads, dim, longest, norm), -(-embed // 16) * 16, 8 if dim <= 8 else 16
    columns = -(-cut.group * deep // 16) * 16
    assert 1 <= cut.group <= heads and cut.warps % -(-longest // 16) == 0
    assert 4 * columns * wide <= 32 * cut.warps * KEPT or cut.group == 1
    rows = 16 * cut.warps
    stored = 2 * (3 * columns * (wide + 8) + wide * (columns + 8) + 2 * rows * (wide + 8) + 6 * rows * (columns + 8))
    tokens = -(-longest // 16) * 16
    answers = rows // tokens * 2 * (2 * 16 * (tokens + 8) + 2 * 16 * (wide + 8) + 8)
    normed = 8 * wide * (1 + cut.warps) + 4 * rows * wide + 32  # weight, bias and sums, states on their way, scratch
    assert stored + 8 * cut.group * rows + (normed if norm else answers) <= MOST_SHARED


@pytest.mark.parametrize("sizes", [(1, 2, 1), (5, 128, 48), (64, 256, 64), (64, 33, 64)])
def test_a_cut_of_hidden_units_fits_registers(sizes):
    inputs, hidden, outputs = sizes
    cut = feed_cut(*sizes)
    units = -(-cut.group // 16) * 16
    assert 1 <= cut.group <= hidden
    assert units * (-(-inputs // 16) * 16 - -(-outputs // 16) * -16) <= 32 * cut.warps * FED
