"""The fuzz of banks: what it takes for rounding, that it tells a fault from it, and that it goes on after a stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks import fuzz
from benchmarks.half_rounding import RoundedFactors, rounded, rounded_gaps
from headcount.kernels.backend import eager, reference
from headcount.kernels.class_token import ClassToken

EPS16 = torch.finfo(torch.float16).eps


def case(number: int = 41, members: int = 3) -> fuzz.Drawn:
    """A few members of a bank, few samples."""
    made = fuzz.drawn(number)
    return made._replace(archs=made.archs[:members], lengths=made.lengths[:members], batch=min(3, made.batch))


def test_a_family_is_padded_to_the_same_sizes_and_banks_that_were_off_stay_as_they_were():
    for draw in (fuzz.drawn_inside, fuzz.drawn):
        family = [fuzz.bank_of(draw(n), torch.float32, "cpu").shapes for n in range(200, 205)]
        assert all(shapes == family[0] for shapes in family)
    assert len({max(a.width for a in fuzz.drawn(n).archs) for n in range(200, 300, 5)}) > 3
    assert [a.name for a in fuzz.drawn(33).archs][:1] and "1x15+1x11" in [a.name for a in fuzz.drawn(33).archs]
    assert "1x5+1x4+1x3" in [a.name for a in fuzz.drawn(44).archs]


def test_rounding_is_to_eleven_digits_and_right_on_the_mean():
    x = torch.full((4000,), 1 + 0.3 * EPS16, dtype=torch.float64)
    made = rounded(x, torch.Generator().manual_seed(0))
    assert set(made.tolist()) == {1.0, 1.0 + EPS16}
    assert abs(made.mean().item() - x[0].item()) < 0.05 * EPS16


def test_every_product_of_the_plain_gradient_is_rounded_forwards_and_backwards():
    bank, batch = (make(case(), torch.float64, "cpu") for make in (fuzz.bank_of, fuzz.batch_of))
    with RoundedFactors(torch.Generator().manual_seed(0)) as forwards, torch.no_grad():
        reference.forward(ClassToken(), bank, bank.named(), batch)
    with RoundedFactors(torch.Generator().manual_seed(0)) as both:
        reference.gradient(ClassToken(), bank, batch)
    assert forwards.products > 5 and both.products > 2 * forwards.products
    true = reference.gradient(ClassToken(), bank, batch)
    assert 1e-5 < float(next(rounded_gaps(ClassToken(), bank, batch, true)).median()) < 0.1


@pytest.mark.parametrize(
    ("factor", "beyond"), [(1.0, False), pytest.param(1.05, True, marks=pytest.mark.kernels), (float("nan"), True)]
)
def test_a_fault_is_told_from_rounding(factor, beyond):
    """A gradient of float32 passes; one member five per cent too long does not, though 0.047 was rounding before."""

    def off(*given: Any) -> torch.Tensor:
        gradient = eager.gradient(*given)
        gradient[1] *= factor
        return gradient

    found = fuzz.examined_members(case(), replace(eager, gradient=off), "cpu")
    assert [member.beyond for member in found] == [False, beyond, False]
    assert found[1].draws == (fuzz.MANY if factor == 1.05 else fuzz.FEW)


def test_a_fuzz_goes_on_where_it_stopped(tmp_path, monkeypatch):
    rows, asked = tmp_path / "rows.jsonl", []

    def quick(kind: str, number: int, device: str) -> dict[str, Any]:
        asked.append((kind, number))
        if number == 3:
            raise RuntimeError("it cannot run")
        return {"kind": kind, "bank": number, "gaps": [0.1], "beyond": [], "backend": "cuda", "seconds": 1.0}

    monkeypatch.setattr(fuzz, "examined", quick)
    fuzz.examine_family("all", range(3), "cpu", float("inf"), rows)
    left = fuzz.families({"all": 6, "inside": 0}, fuzz.read(rows))
    assert left == [("all", [3, 4]), ("all", [5])]
    for kind, numbers in left:
        fuzz.examine_family(kind, numbers, "cpu", float("inf"), rows)
    assert asked == [("all", n) for n in range(6)] and not fuzz.families({"all": 6, "inside": 0}, fuzz.read(rows))
    assert fuzz.read(rows)[3]["error"] == "RuntimeError: it cannot run"
    fuzz.examine_family("all", [6], "cpu", 0.0, rows)  # no time left
    assert len(fuzz.read(rows)) == 6
