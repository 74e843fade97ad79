"""Deep banks and decoders written out in kernels compute what the plain ones do: interpreted, and on a GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from headcount.nets.causal import DecoderShape
from headcount.training.backends.tiles import spread
from headcount.training.decoder_bank import DecoderBank
from headcount.training.decoder_paths import DecoderBatch, DecoderPath, by_products, choose_decoder, proved_decoder
from tests.kernel_answers import asked, needs_triton, on_each_device

EPS32, EPS16 = torch.finfo(torch.float32).eps, torch.finfo(torch.float16).eps
TOLERANCE = {"ieee": 64 * EPS32, "half": 16 * EPS16}  # as in test_training_fused
pytestmark = pytest.mark.xdist_group("sublayers")  # one worker asks for the answers, once
SHAPE = DecoderShape(((1, 4),), embed_dim=8, width=8, vocab=5, context=9)


@cache
def answers(device: str) -> dict[str, Any]:
    return asked("tests.sublayer_cases", device)


@on_each_device
@pytest.mark.parametrize("what", ["deep", "decoders"])
def test_a_pass_written_out_has_the_plain_gradient_in_float64(device, what):
    found = answers(device)[what]
    assert len(found) >= 6
    for name, gap in found.items():
        assert gap < TOLERANCE[name.rsplit(", ", 1)[1]], name


@on_each_device
@pytest.mark.parametrize("what", ["deep", "decoders"])
def test_half_precision_rounds_and_ieee_does_not(device, what):
    """Both sides: the tolerances are not so loose that one precision would pass for the other."""
    assert all(gap > TOLERANCE["ieee"] for name, gap in answers(device)[what].items() if name.endswith("half"))


@on_each_device
def test_sums_of_rows_and_small_products_are_those_of_float64(device):
    found = answers(device)["small"]
    assert len(found) == 6 and all(gap < 16 * EPS32 for gap in found.values()), found


@on_each_device
def test_slopes_far_below_the_smallest_float16_keep_their_digits(device):
    assert answers(device)["tiny"] == 0.0


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"restored": True, "repeats": True, "neighbour": True, "lost": True}


@needs_triton
def test_no_sublayer_touches_an_address_outside_of_its_tensors():
    found = answers("cpu")["guarding"]
    assert found["launches"] > 10 and found["outside"] == 0


@on_each_device
def test_after_a_stretch_of_steps_decoders_are_where_the_plain_bank_takes_them(device):
    assert answers(device)["run"] < 1e3 * EPS32


def test_decoders_on_a_cpu_in_float64_or_with_turned_places_go_by_products():
    assert choose_decoder(SHAPE, 8, "cpu", "float32", "full").name == "batched products"
    assert choose_decoder(SHAPE, 8, "cuda", "float64", "full").name == "batched products"
    assert choose_decoder(SHAPE, 8, "cuda", "float32", "bfloat16").name == "batched products (bfloat16)"
    turned = DecoderShape(((1, 4),), embed_dim=8, width=8, vocab=5, context=9, positions="rotary")
    assert choose_decoder(turned, 8, "cuda", "float32", "full").name == "batched products"
    assert choose_decoder(SHAPE, 100, "cuda", "float32", "full").name == "batched products"


@needs_triton
@pytest.mark.parametrize(("factor", "stays"), [(1.0, True), (1.001, True), (1.5, False), (float("nan"), False)])
def test_decoders_prove_themselves_on_the_first_strings_or_give_way_with_one_line(factor, stays, capsys):
    plain, bank = by_products(), DecoderBank(SHAPE, [0, 1])
    ids = torch.randint(5, (2, 3, 6), generator=torch.Generator().manual_seed(0))
    judged = torch.ones(2, 3, 6, dtype=torch.bool)
    batch = DecoderBatch(ids, ids.roll(-1, 2), judged, ids[..., 0] * 0, judged.sum(dim=(1, 2)))
    path = DecoderPath("in kernels", lambda *given: factor * plain.gradient(*given), tolerance=1.0)
    taken = proved_decoder(path, bank, batch)
    said = capsys.readouterr().err
    assert (taken is path) == stays
    assert (said == "") == stays
    assert stays or (said.count("\n") == 1 and "batched products instead" in said)


def test_programs_are_spread_so_that_few_multiprocessors_wait():
    for models in (1, 7, 48, 128, 512):
        for tiles in (1, 5, 64, 256):
            parts = spread(models, tiles, warps=4)
            rounds = -(-models * parts // 264) * -(-tiles // parts)
            assert 1 <= parts <= tiles
            assert rounds <= 4 + max(-(-models // 264) * tiles, 1)
            assert rounds >= models * tiles / 264 / 1.0 - 1e-9
