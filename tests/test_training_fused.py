"""The fused bank computes what the plain one computes: in Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import headcount.training.backends
from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Bank, Member, Recipe, train
from headcount.training.backends.choice import choose, eager, graph, proved, recorded, rounding, where_it_compiles
from headcount.training.backends.plain import Batch
from headcount.training.memory import bank_bytes
from tests.kernel_answers import asked, needs_triton, on_each_device

EPS32, EPS16 = torch.finfo(torch.float32).eps, torch.finfo(torch.float16).eps
# A sum of n products rounds to about sqrt(n) eps; the longest chain here is five products of up to 150 terms deep,
# of numbers whose scores reach 20: 64 eps in all. Weights of large scores feel the rounding of the score itself.
TOLERANCE = {"ieee": 64 * EPS32, "half": 16 * EPS16, "fine": 16 * EPS16}
pytestmark = pytest.mark.xdist_group("fused")  # one worker asks for the answers, once


@cache
def answers(device: str) -> dict[str, Any]:
    return asked("tests.fused_cases", device)


@on_each_device
def test_pooled_activations_and_their_gradients_are_those_of_the_plain_pool(device):
    for name, gaps in answers(device)["pooling"].items():
        kind = name.rsplit(", ", 1)[1]
        for what, gap in gaps.items():
            assert gap < TOLERANCE[kind], (name, what)


@on_each_device
def test_the_fine_pool_is_as_exact_as_float32(device):
    fine = {name: gaps["value"] for name, gaps in answers(device)["pooling"].items() if name.endswith("fine")}
    assert fine
    assert max(fine.values()) < TOLERANCE["ieee"]


@on_each_device
def test_a_step_has_the_gradient_of_the_plain_bank_in_float64(device):
    for name, gap in answers(device)["gradients"].items():
        assert gap < TOLERANCE[name.rsplit(", ", 1)[1]], name


@on_each_device
def test_layers_in_kernels_have_the_gradient_of_the_plain_bank_in_float64(device):
    found = answers(device)["deep"]
    assert len(found) == 20
    assert answers(device)["fine"] < TOLERANCE["half"]
    assert max(answers(device)["fed"].values()) < TOLERANCE["half"]
    for name, gap in found.items():
        assert gap < TOLERANCE[name.rsplit(", ", 1)[1]], name


@needs_triton
def test_no_kernel_touches_an_address_outside_of_its_tensors():
    found = answers("cpu")["guarding"]
    assert found["launches"] > 0 and found["outside"] == 0
    assert found["caught"] > 0  # and a tensor that is too short is noticed


def test_of_the_ways_that_prove_themselves_a_wrong_one_is_left_out_with_one_line(capsys):
    def wrong(*given: Any) -> torch.Tensor:
        return 2 * eager.gradient(*given)

    bank = Bank([Architecture(layers=((2, 4), (1, 4)), width=8)], 3, [0])
    batch = Batch(torch.randn(1, 5, 4, 3), torch.zeros(1, dtype=torch.int64), torch.arange(5)[None])
    right = replace(eager, name="by parts", tolerance=rounding(2), failed=[])
    path = replace(right, name="at once", gradient=wrong, rivals=(right,), failed=[])
    assert proved(path, bank, batch, torch.ones(1, 5)) is right
    said = capsys.readouterr().err
    assert said.startswith("headcount: at once: the gradient of 2x4+1x4 is off by 1.0e+00")
    assert "by parts instead" in said
    assert proved(replace(path, gradient=right.gradient), bank, batch, torch.ones(1, 5)).name == "at once"


@on_each_device
def test_in_a_causal_layer_no_token_hears_a_later_one(device):
    for kind, gaps in answers(device)["causal"].items():
        assert max(gaps.values()) < TOLERANCE[kind], kind


@on_each_device
def test_half_precision_rounds_and_ieee_does_not(device):
    """Both sides: the tolerances are not so loose that one precision would pass for the other."""
    found = answers(device)["gradients"]
    assert all(gap > TOLERANCE["ieee"] for name, gap in found.items() if name.endswith("half"))


@on_each_device
def test_gradients_far_below_the_smallest_float16_keep_their_digits(device):
    assert answers(device)["tiny"] == 0.0


@on_each_device
def test_the_same_call_gives_the_same_numbers_and_a_lost_member_spoils_no_other(device):
    assert answers(device)["company"] == {"restored": True, "repeats": True, "neighbour": True, "lost": True}


@on_each_device
def test_the_fused_update_is_adamw_and_leaves_frozen_members_alone(device):
    found = answers(device)["update"]
    assert found["moved"] < 32 * EPS32
    assert found["frozen"] == 0.0


@on_each_device
@pytest.mark.parametrize(("bank", "layers"), [("steps", 1), ("deep steps", 2)])
def test_after_six_steps_the_parameters_are_where_the_plain_bank_takes_them(device, bank, layers):
    # AdamW divides by the gradient's own size, so where a gradient is nearly zero its rounding moves the parameter.
    # Every layer rounds as many products again.
    found = answers(device)[bank]
    assert found["ieee"] < 1e3 * EPS32
    assert found["half"] < layers * 16 * EPS16


def test_the_path_is_chosen_by_device_depth_and_precision():
    shallow = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))]
    deep = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4), (1, 4)), width=8))]
    assert choose(shallow, "cpu") is eager
    assert choose(deep, "cuda").name.startswith("warps")
    assert choose(deep, "cuda", "float64") is recorded
    assert choose(shallow, "cuda", "float64") is recorded


def test_without_triton_the_recorded_bank_is_taken_and_a_line_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [
        n
        for n in sys.modules
        if n.startswith(
            (
                "headcount.training.backends.fused",
                "headcount.training.backends.layered",
                "headcount.training.backends.kernels",
            )
        )
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("fused", "layered"):
        monkeypatch.delattr(headcount.training.backends, name, raising=False)
    shallow = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))]
    deep = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4), (1, 4)), width=8))]
    assert choose(shallow, "cuda") is recorded
    assert choose(deep, "cuda") is recorded
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 2
    assert "Triton" in said.err


@needs_triton
def test_a_kernel_that_the_device_cannot_hold_gives_way_to_the_recorded_bank_with_one_line(capsys):
    from triton.runtime.errors import OutOfResources

    def too_large(*_: Any) -> torch.Tensor:
        raise OutOfResources(300_000, 232_448, "shared memory")

    bank = Bank([Architecture(layers=((1, 4), (1, 4)), width=8)], 3, [0])
    batch = Batch(torch.randn(1, 5, 4, 3), torch.zeros(1, dtype=torch.int64), torch.arange(5)[None])
    path = where_it_compiles(replace(recorded, name="kernels", gradient=too_large))
    found = [path.gradient(bank, batch, torch.zeros(1, 5)) for _ in range(2)]
    assert torch.equal(found[0], recorded.gradient(bank, batch, torch.zeros(1, 5))) and torch.equal(*found)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "kernels cannot run here (out of resource: shared memory" in said

    def given_up(*_: Any) -> torch.Tensor:
        raise RuntimeError("PassManager::run failed")

    path = where_it_compiles(replace(recorded, name="kernels", gradient=given_up))
    assert torch.equal(path.gradient(bank, batch, torch.zeros(1, 5)), found[0])
    assert "kernels cannot run here (PassManager::run failed)" in capsys.readouterr().err

    def wrong(*_: Any) -> torch.Tensor:
        raise ValueError("a mistake is not a missing device")

    with pytest.raises(ValueError, match="a mistake"):
        where_it_compiles(replace(recorded, gradient=wrong)).gradient(bank, batch, torch.zeros(1, 5))


@pytest.mark.parametrize(("factor", "stays"), [(1.01, True), (1.2, False), (float("nan"), False)])
def test_a_path_proves_itself_on_the_first_batch_or_gives_way_with_one_line(factor, stays, capsys):
    def scaled(*given: Any) -> torch.Tensor:
        out = eager.gradient(*given)
        out[1] *= factor
        return out

    archs = [Architecture(layers=((h, 4), (1, 4)), width=8) for h in (1, 3)]
    bank = Bank(archs, 3, [0, 1])
    rows = torch.arange(5).expand(2, -1)
    batch = Batch(torch.randn(1, 5, 4, 3), torch.zeros(2, dtype=torch.int64), rows)
    path = replace(eager, name="kernels", gradient=scaled, tolerance=rounding(2), failed=[])
    found = proved(path, bank, batch, torch.ones(2, 5))
    said = capsys.readouterr().err
    assert (found is path) == stays and (found is eager) != stays  # on a GPU, the recorded one
    assert found.backend == ("kernels" if stays else eager.name)
    assert said.count("\n") == (not stays)
    assert stays or ("kernels: the gradient of 3x4+1x4 is off by" in said and f"; {eager.name} instead" in said)


def test_a_trained_bank_says_which_path_made_it():
    members = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))]
    outcome = train(members, Recipe(samples=32, validation=8, epochs=1, batch=16))
    assert outcome.backend == outcome.rows[0]["backend"] == eager.name


def test_the_memory_of_a_bank_is_linear_in_its_members_and_grows_with_length_by_the_data_alone():
    def bytes_of(members: int, length: int) -> int:
        arch = Architecture(layers=((4, 8),), width=32)
        return bank_bytes([Member(KthLargest(rank=1, length=length), arch)] * members, Recipe(), "cuda")

    features = KthLargest(rank=1, length=8).token_dim

    assert bytes_of(300, 8) - bytes_of(200, 8) == bytes_of(200, 8) - bytes_of(100, 8)
    tokens = (8000 + 2000) * (16 - 8)
    assert bytes_of(100, 16) - bytes_of(100, 8) == tokens * (4 * features + 2 * 16)


@needs_triton
@pytest.mark.parametrize("token", [1e5, float("nan")])
def test_tokens_that_float16_cannot_hold_are_refused_in_one_sentence(token):
    from headcount.training.backends.choice import fused, layered

    for path in (fused(), layered()):
        with pytest.raises(ValueError, match="reads tokens up to 65504"):
            path.pack(torch.full((1, 2, 3, 4), token))


def test_a_recording_keeps_the_tensors_it_reads_alive(monkeypatch):
    """A CUDA graph holds addresses, not tensors: without the step, its memory would be given to others."""

    class Stand:
        """Stands in for a stream, a context or a graph where there is no GPU."""

        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def wait_stream(self, other: object) -> None: ...
        def replay(self) -> None: ...

    for name in ("Stream", "current_stream", "stream", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, Stand)

    def recorded_step():
        read = torch.zeros(3)

        def step() -> None:
            read.add_(1)

        return graph(step, ()), weakref.ref(read)

    again, read = recorded_step()
    gc.collect()
    again()
    assert read() is not None
