"""The fused bank computes what the plain one computes: in Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import headcount.kernels
from headcount.kernels import Backend, Bank, best, preference
from headcount.kernels.backend import eager, graph, recorded, rounding
from headcount.kernels.class_token import ClassToken
from headcount.kernels.plain import Batch
from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe, train
from headcount.training.memory import bank_memory
from tests.kernel_answers import asked, needs_triton, on_each_device

EPS32, EPS16 = torch.finfo(torch.float32).eps, torch.finfo(torch.float16).eps
# A sum of n products rounds to about sqrt(n) eps; the longest chain here is five products of up to 150 terms deep,
# of numbers whose scores reach 20: 64 eps in all. Weights of large scores feel the rounding of the score itself.
TOLERANCE = {"ieee": 64 * EPS32, "half": 16 * EPS16, "fine": 16 * EPS16}
pytestmark = [pytest.mark.kernels, pytest.mark.xdist_group("fused")]  # one worker asks for the answers, once


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
    for name, gap in found.items():
        assert gap < TOLERANCE[name.rsplit(", ", 1)[1]], name


@needs_triton
def test_no_kernel_touches_an_address_outside_of_its_tensors():
    found = answers("cpu")["guarding"]
    assert found["launches"] > 0 and found["outside"] == 0
    assert found["caught"] > 0  # and a tensor that is too short is noticed


def two_layers(*heads: int, dtype: torch.dtype = torch.float32) -> tuple[Bank, Batch]:
    """A bank of two layers with so many heads in the first, and a batch of five samples."""
    nets = [Architecture(layers=((h, 4), (1, 4)), width=8).reading(3) for h in heads]
    which, rows = torch.zeros(len(nets), dtype=torch.int64), torch.arange(5).repeat(len(nets), 1)
    batch = Batch(torch.randn(1, 5, 4, 3, dtype=dtype), which, rows, torch.ones(len(nets), 5, dtype=dtype))
    return Bank(nets, list(range(len(nets))), dtype=dtype), batch


@pytest.fixture
def best_of(monkeypatch):
    """The backend that is taken of these, as if they were all that there is."""

    def taken(some: Iterable[Backend], bank: Bank, batch: Any, problem: Any = ClassToken()) -> Backend:  # noqa: B008
        monkeypatch.setattr(preference, "backends", lambda device: iter(some))
        return best(problem, bank, lambda pack: batch)

    return taken


def test_of_the_backends_that_are_verified_a_wrong_one_is_left_out_with_one_line(best_of, capsys):
    def wrong(*given: Any) -> torch.Tensor:
        return 2 * eager.gradient(*given)

    right = replace(eager, name="by parts", tolerance=rounding)
    other = replace(right, name="at once", gradient=wrong)
    assert best_of([other, right, eager], *two_layers(2)) is right
    said = capsys.readouterr().err
    assert said.startswith("headcount: at once: the gradient of 2x4+1x4 is off by 1.0e+00")
    assert said.count("\n") == 1 and "by parts instead" in said
    assert best_of([replace(right, name="at once"), right, eager], *two_layers(2)).name == "at once"


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
@pytest.mark.parametrize(("bank", "layers"), [("steps", 1), ("steps with one matrix a head", 1), ("deep steps", 2)])
def test_after_six_steps_the_parameters_are_where_the_plain_bank_takes_them(device, bank, layers):
    # AdamW divides by the gradient's own size, so where a gradient is nearly zero its rounding moves the parameter.
    # One such entry in a bank is 0.02 of its way, whichever way heads are kept. The bound is that of `rounding`.
    found = answers(device)[bank]
    assert found["ieee"] < 1e3 * EPS32
    assert found["half"] < (layers + 1) * 16 * EPS16


def first_on_a_gpu(problem: Any, bank: Bank, batch: Any) -> Backend:
    """The first backend that would hold this bank if it were on a GPU."""
    theta = SimpleNamespace(is_cuda=True, device=torch.device("cuda"), dtype=bank.theta.dtype)
    bank.theta = theta  # pyright: ignore[reportAttributeAccessIssue]
    return next(backend for backend in preference.backends("cuda") if backend.holds(problem, bank, batch))


@needs_triton
@pytest.mark.parametrize(
    ("layers", "dtype", "name"),
    [
        (((1, 4),), "float32", "fused"),
        (((1, 4), (1, 4)), "float32", "cuda"),
        (((1, 4), (1, 17)), "float32", "by parts"),
        (((1, 4), (1, 4)), "float64", recorded.name),
        (((1, 4),), "float64", recorded.name),
    ],
)
def test_the_backend_is_chosen_by_device_depth_and_precision(layers, dtype, name):
    kind = getattr(torch, dtype)
    bank = Bank([Architecture(layers=layers, width=8).reading(3)], [0], dtype=kind)
    rows = torch.arange(5)[None]
    batch = Batch(torch.randn(1, 5, 4, 3, dtype=kind), torch.zeros(1, dtype=torch.int64), rows, rows.to(kind))
    assert best(ClassToken(), bank, lambda pack: batch, steps=8) is eager
    assert first_on_a_gpu(ClassToken(), bank, batch).name == name


def test_without_triton_the_recorded_bank_is_taken_and_a_line_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [n for n in sys.modules if n.startswith("headcount.kernels.")]:
        if name.split(".")[2] in ("fused", "parts", "triton", "cuda"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("fused", "parts", "triton", "cuda"):
        monkeypatch.delattr(headcount.kernels, name, raising=False)
    for _ in range(2):
        assert list(preference.backends("cuda")) == [recorded]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 2
    assert "Triton" in said.err


@needs_triton
def test_a_kernel_that_the_device_cannot_hold_gives_way_to_the_recorded_bank_with_one_line(best_of, capsys):
    from triton.runtime.errors import OutOfResources

    def too_large(*_: Any) -> torch.Tensor:
        raise OutOfResources(300_000, 232_448, "shared memory")

    kernels = replace(recorded, name="kernels", tolerance=rounding)
    assert best_of([replace(kernels, gradient=too_large), recorded], *two_layers(1)) is recorded
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "kernels: it cannot run here (out of resource: shared memory" in said
    assert f"; {recorded.name} instead" in said

    def given_up(*_: Any) -> torch.Tensor:
        raise RuntimeError("PassManager::run failed")

    assert best_of([replace(kernels, gradient=given_up), recorded], *two_layers(1)) is recorded
    assert "kernels: it cannot run here (PassManager::run failed)" in capsys.readouterr().err
    assert best_of([replace(kernels, forward=given_up), recorded], *two_layers(1)) is recorded
    assert "kernels: it cannot run here (PassManager::run failed)" in capsys.readouterr().err

    def wrong(*_: Any) -> torch.Tensor:
        raise ValueError("a mistake is not a missing device")

    with pytest.raises(ValueError, match="a mistake"):
        best_of([replace(kernels, gradient=wrong), recorded], *two_layers(1))


@pytest.mark.parametrize(("factor", "stays"), [(1.01, True), (1.2, False), (float("nan"), False)])
def test_a_backend_is_verified_on_the_first_batch_or_gives_way_with_one_line(factor, stays, best_of, capsys):
    def scaled(*given: Any) -> torch.Tensor:
        out = eager.gradient(*given)
        out[1] *= factor
        return out

    kernels = replace(eager, name="kernels", gradient=scaled, tolerance=rounding)
    found = best_of([kernels, eager], *two_layers(1, 3))
    said = capsys.readouterr().err
    assert (found is kernels) == stays and (found is eager) != stays  # on a GPU, the recorded one
    assert found.name == ("kernels" if stays else eager.name)
    assert said.count("\n") == (not stays)
    assert stays or ("kernels: the gradient of 3x4+1x4 is off by" in said and f"; {eager.name} instead" in said)


def test_a_trained_bank_says_which_backend_made_it():
    members = [Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))]
    outcome = train(members, Recipe(samples=32, validation=8, epochs=1, batch=16))
    assert outcome.backend.name == outcome.rows[0]["backend"] == eager.name


def test_the_memory_of_a_bank_is_linear_in_its_members_and_grows_with_length_by_the_data_alone():
    def bytes_of(members: int, length: int) -> int:
        arch = Architecture(layers=((4, 8),), width=32)
        return bank_memory([Member(KthLargest(rank=1, length=length), arch)] * members, Recipe(), "cuda").total

    features = KthLargest(rank=1, length=8).token_dim

    assert bytes_of(300, 8) - bytes_of(200, 8) == bytes_of(200, 8) - bytes_of(100, 8)
    tokens = (8000 + 2000) * (16 - 8)
    assert bytes_of(100, 16) - bytes_of(100, 8) == tokens * (4 * features + 2 * 16)


@needs_triton
@pytest.mark.parametrize("token", [1e5, float("nan")])
def test_tokens_that_float16_cannot_hold_are_refused_in_one_sentence(token):
    from headcount.kernels import fused, parts
    from headcount.kernels.cuda import class_network

    for module in (fused, parts, class_network):
        with pytest.raises(ValueError, match="reads tokens up to 65504"):
            module.backend.pack(torch.full((1, 2, 3, 4), token))


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
