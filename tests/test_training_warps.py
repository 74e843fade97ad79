"""Programs of warps compute what autograd computes: emulated by a C++ compiler, and on a GPU where there is one."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from headcount.kernels import Bank, best
from headcount.kernels.backend import eager, recorded, rounding
from headcount.kernels.cpp.native_library import native_compiler
from headcount.kernels.cuda.cuts import FED, HOPPER, KEPT, AttentionSize, FeedSize
from headcount.kernels.cuda.programs import SOURCES, cuda_program
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.kernels.tiles import spread
from headcount.nets.causal import DecoderShape
from tests.kernel_answers import asked, needs_triton, on_devices
from tests.test_training_fused import best_of, first_on_a_gpu  # noqa: F401  (a fixture)

EPS32, EPS16 = torch.finfo(torch.float32).eps, torch.finfo(torch.float16).eps
SHAPE = DecoderShape(((1, 4),), embed_dim=8, width=8, vocab=5, context=9)
emulated = pytest.mark.skipif(
    native_compiler() is None or not importlib.util.find_spec("triton"), reason="needs a C++ compiler and Triton"
)
on_each_device = on_devices(emulated)
pytestmark = [pytest.mark.kernels, pytest.mark.xdist_group("warps")]  # one worker asks for the answers, once


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
@pytest.mark.parametrize("back", [0, 1])
def test_a_device_compiler_takes_every_source(case, back, tmp_path):
    """The emulation is another language: what a device would refuse must not wait for one."""
    source, *shape = (*case.split(), f"BACKWARD={back}")
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", *(f"-D{one}" for one in shape), str(SOURCES / source)]
    done = subprocess.run([*command, "-o", str(tmp_path / "a")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"restored": True, "repeats": True, "neighbour": True, "lost": True}


@on_each_device
def test_slopes_far_below_the_smallest_float16_keep_their_digits(device):
    assert answers(device)["tiny"] == 0.0


@on_each_device
def test_sums_of_rows_and_small_products_are_those_of_float64(device):
    found = answers(device)["small"]
    assert len(found) == 6
    for name, gap in found.items():  # products are in TF32, of which the interpreter knows nothing
        assert gap < (EPS16 if device == "cuda" and "product" in name else 16 * EPS32), name


@emulated
def test_no_kernel_touches_an_address_outside_of_its_tensors():
    found = answers("cpu")["guarding"]
    assert found["launches"] > 10 and found["outside"] == 0


@on_each_device
def test_after_a_stretch_of_steps_decoders_are_where_the_plain_bank_takes_them(device):
    assert answers(device)["run"] < 2 * 16 * EPS16  # what `rounding` allows one layer and the logits


def strings(length: int = 6, dtype: torch.dtype = torch.float32, **shape: Any) -> tuple[Bank, StringBatch]:
    """Two decoders and three strings of each."""
    bank = Bank([replace(SHAPE, **shape)] * 2, [0, 1], dtype=dtype)
    ids = torch.randint(5, (2, 3, length), generator=torch.Generator().manual_seed(0))
    judged = torch.ones_like(ids, dtype=torch.bool)
    return bank, StringBatch(ids, ids.roll(-1, 2), judged, ids[..., 0] * 0, judged.sum(dim=(1, 2)))


@needs_triton
def test_decoders_on_a_cpu_in_float64_or_with_rotary_places_go_by_products():
    bank, batch = strings()
    assert best(NextLetter(), bank, lambda pack: batch, steps=8) is eager
    assert first_on_a_gpu(NextLetter(), bank, batch).name == "cuda"
    assert first_on_a_gpu(NextLetter(), *strings(dtype=torch.float64)) is recorded
    assert first_on_a_gpu(NextLetter("bfloat16"), *strings()) is recorded
    assert first_on_a_gpu(NextLetter(), *strings(positions="rotary")) is recorded
    assert first_on_a_gpu(NextLetter(), *strings(length=100)) is recorded


@pytest.mark.parametrize(("factor", "stays"), [(1.0, True), (1.001, True), (1.5, False), (float("nan"), False)])
def test_decoders_are_verified_on_the_first_strings_or_give_way_with_one_line(factor, stays, best_of, capsys):  # noqa: F811
    def scaled(*given: Any) -> torch.Tensor:
        return factor * eager.gradient(*given)

    kernels = replace(eager, name="in kernels", gradient=scaled, tolerance=rounding)
    taken = best_of([kernels, eager], *strings(), NextLetter())
    said = capsys.readouterr().err
    assert (taken is kernels) == stays
    assert (said == "") == stays
    assert stays or (said.count("\n") == 1 and f"{eager.name} instead" in said)


def test_programs_are_spread_so_that_few_multiprocessors_wait():
    for models in (1, 7, 48, 128, 512):
        for tiles in (1, 5, 64, 256):
            parts = spread(models, tiles, warps=4)
            rounds = -(-models * parts // 264) * -(-tiles // parts)
            assert 1 <= parts <= tiles
            assert rounds <= 4 + max(-(-models // 264) * tiles, 1)
            assert rounds >= models * tiles / 264 / 1.0 - 1e-9


@pytest.mark.parametrize("embed", [1, 8, 17, 48, 64])
@pytest.mark.parametrize("heads", [1, 3, 12, 16])
@pytest.mark.parametrize("dim", [1, 8, 9, 16])
@pytest.mark.parametrize("longest", [1, 16, 33, 64])
@pytest.mark.parametrize("kind", [(False, False), (True, False), (False, True)])
def test_a_cut_of_heads_fits_registers_and_shared_memory(embed, heads, dim, longest, kind):
    size = AttentionSize(longest, embed, heads, dim, *kind)
    cut, forwards = size.backwards(), size.forwards()
    assert cut is not None and 1 <= cut.group <= heads and cut.warps % -(-longest // 16) == 0
    columns = -(-cut.group * (8 if dim <= 8 else 16) // 16) * 16
    assert 4 * columns * -(-embed // 16) * 16 <= 32 * cut.warps * KEPT
    assert all(made.shared <= HOPPER for made in (cut, forwards) if made)
    assert forwards is not None or heads * dim > 128  # only the widest have no room for all heads at once


@pytest.mark.parametrize("sizes", [(1, 2, 1), (5, 128, 48), (64, 256, 64), (64, 33, 64), (48, 256, 48)])
@pytest.mark.parametrize("kind", [(False, False, False), (True, True, True), (True, True, False)])
def test_a_cut_of_hidden_units_fits_registers_and_shared_memory(sizes, kind):
    inputs, hidden, outputs = sizes
    cut, forwards = FeedSize(*sizes, *kind).backwards(), FeedSize(*sizes, *kind).forwards()
    assert cut is not None and forwards is not None and 1 <= cut.group <= hidden
    units = -(-cut.group // 16) * 16
    assert units * (-(-inputs // 16) * 16 - -(-outputs // 16) * -16) <= 32 * cut.warps * FED
    assert max(cut.shared, forwards.shared) <= HOPPER


def test_on_a_device_with_less_memory_programs_are_cut_further_or_refused():
    """Eight warps with all units of 48, 256, 48 would take 249,312 bytes, more than Hopper has."""
    size = FeedSize(48, 256, 48)
    assert size._backward_bytes(256, 8) == 249_312 and size.backwards() == (4, 128, size._backward_bytes(128, 4))
    smaller = size.backwards(99 * 1024)
    assert smaller is not None and smaller.group < 256 and smaller.shared <= 99 * 1024
    attention = AttentionSize(64, 64, 4, 16)
    fitting = attention.backwards(48 * 1024)
    assert fitting is not None and fitting.shared <= 48 * 1024
    assert size.backwards(10_000) is None and attention.backwards(fitting.shared - 1) is None


@emulated
def test_a_program_that_takes_more_than_it_says_is_caught():
    """The other side of counting bytes in one place: the emulation watches what lies behind them."""
    shape = {"INPUTS": 16, "HIDDEN": 16, "OUTPUTS": 16, "WARPS": 4, "GROUP": 16, "RESIDUAL": 0, "DEEPER": 1}
    cut = FeedSize(16, 16, 16).forwards()
    assert cut is not None
    x, theta = torch.ones(1, 16, 16), torch.ones(1, 16 * 16 * 2 + 32)
    given = (x, x, x, theta, torch.empty_like(x), (theta.shape[1],), 0, 256, 272, 528, 0, 0, 16, 0)
    cuda_program("feed_forward", "cpu", 4, cut.shared, **shape).launch((1, 1), *given)
    with pytest.raises(AssertionError, match="beyond its"):
        cuda_program("feed_forward", "cpu", 4, cut.shared - 16, **shape).launch((1, 1), *given)
