"""Banks in compiled C++: the plain bank's gradients and outputs for every member, whatever the threads and the bank."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from headcount.kernels.backend import complaint, eager, member_gaps, reference
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cpp import native_library as building
from headcount.kernels.cpp.compiled import (
    LONG,
    ROUNDINGS,
    backend,
    compiled_forward,
    compiled_gradient,
    compiled_update,
)
from headcount.kernels.cpp.native_library import native_library, native_name
from headcount.kernels.loss import cross_entropy
from headcount.kernels.optimiser import AdamW
from headcount.kernels.plain import Batch, plain
from headcount.kernels.preference import best
from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe, train
from headcount.training.checkpoints import Checkpoint
from tests.compiled_cases import Case, mixed_bank, usual_bank
from tests.test_training_checkpoints import Cut, same

needs_compiler = pytest.mark.skipif(native_library("float64") is None, reason="needs a C++ compiler")
MEMBER = [Member(KthLargest(rank=1, length=4), Architecture(layers=((2, 4),), width=8))]
SHAPES = {
    "one layer": [Architecture(layers=((4, 8),), width=32, positions=1), Architecture(layers=((1, 3),), width=5)],
    "two layers": [Architecture(layers=((4, 8), (2, 8)), width=32), Architecture(layers=((1, 3), (5, 2)), width=7)],
}
SHAPES = {name: [replace(arch, positions=0) for arch in archs] for name, archs in SHAPES.items()}


def gaps(case: Case, dtype: torch.dtype) -> tuple[float, float]:
    """The largest relative gap of a member's gradient and gap of an output, to the plain bank in float64."""
    exact, true = case.bank(torch.float64), case.batch(torch.float64)
    bank, batch = case.bank(dtype), case.batch(dtype)
    slope = reference.gradient(case.problem, exact, true)
    found = compiled_gradient(case.problem, bank, batch).double()
    size = slope.norm(dim=1).clamp(min=1e-12)
    output = plain(exact, exact.named(), true)
    off = (compiled_forward(case.problem, bank, bank.named(), batch).double() - output).abs().max() / output.abs().max()
    return ((found - slope).norm(dim=1) / size).max().item(), off.item()


def gradient(case: Case) -> torch.Tensor:
    return compiled_gradient(case.problem, case.bank(torch.float32), case.batch(torch.float32))


@needs_compiler
@pytest.mark.parametrize(
    "seeds", [range(10), *(pytest.param(range(n, n + 50), marks=pytest.mark.slow) for n in range(10, 210, 50))]
)
def test_mixed_banks_have_the_plain_gradients_and_outputs(seeds):
    for seed in seeds:
        case = mixed_bank(seed)
        if not backend.holds(case.problem, case.bank(torch.float32), case.batch(torch.float32)):
            assert len(case.archs[0].layers) == 1 and case.archs[0].embedding == "linear", seed
            continue
        assert max(gaps(case, torch.float64)) < 1e-10, seed
        assert max(gaps(case, torch.float32)) < ROUNDINGS * torch.finfo(torch.float32).eps, seed


@needs_compiler
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(
    "kind", [{}, {"class_token": "last"}, {"embedding": "linear"}, {"activation": "gelu"}], ids=str
)
def test_the_smallest_networks_and_batches_are_right(depth, kind):
    least = Architecture(layers=((1, 1),) * depth, width=1, **kind)
    some = Architecture(layers=((2, 3),) * depth, width=9, **kind)
    for arch in (least, some):
        for length in (1, 2, 17):
            for batch in (1, 2, 65):
                case = usual_bank([arch], length, batch)
                bank = case.bank(torch.float64)
                if not backend.holds(case.problem, bank, case.batch(torch.float64)):
                    assert depth == 1 and arch.embedding == "linear"
                    continue
                bank.theta = bank.theta.abs()  # so that a single hidden unit is not silent
                slope = reference.gradient(case.problem, bank, case.batch(torch.float64))
                found = compiled_gradient(case.problem, bank, case.batch(torch.float64))
                assert (found - slope).norm() <= 1e-10 * slope.norm()


@needs_compiler
@pytest.mark.parametrize("archs", SHAPES.values(), ids=SHAPES)
def test_equal_tokens_and_no_gap_at_all(archs):
    case = usual_bank(archs, 6, 20)
    case.data[:] = case.data[:, :, :1]
    assert max(gaps(case, torch.float64)) < 1e-10
    bank, batch = case.bank(torch.float64), case.batch(torch.float64)
    batch.target = compiled_forward(case.problem, bank, bank.named(), batch)
    assert compiled_gradient(case.problem, bank, batch).abs().max() < 1e-12  # nothing to learn


@needs_compiler
@pytest.mark.parametrize("archs", SHAPES.values(), ids=SHAPES)
def test_a_member_has_the_same_bits_with_any_threads_and_in_any_bank(archs):
    case, threads = usual_bank(archs, 9, 200), torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(gradient(case))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    bank, alone = case.bank(torch.float32), [case.member(k) for k in range(len(archs))]
    for k, one in enumerate(alone):
        small = one.bank(torch.float32)
        small.load([bank.module(k)])
        mine = compiled_gradient(one.problem, small, one.batch(torch.float32))
        net, same_net = bank.module(k, found[0][k : k + 1].expand(len(archs), -1)), small.module(0, mine)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), same_net.parameters(), strict=True))


@needs_compiler
def test_who_has_stopped_takes_no_time_and_changes_nothing_for_the_others():
    case = usual_bank(SHAPES["two layers"], 5, 20)
    bank, batch = case.bank(torch.float32), case.batch(torch.float32)
    whole = compiled_gradient(case.problem, bank, batch)
    bank.active = torch.tensor([False, True])
    found = compiled_gradient(case.problem, bank, batch)
    assert torch.equal(found[1], whole[1]) and not found[0].any()
    outputs = compiled_forward(case.problem, bank, bank.named(), batch)  # of everyone, still
    assert torch.allclose(outputs, plain(bank, bank.named(), batch), atol=1e-5)
    members = [replace(MEMBER[0], seed=0, lr=lr) for lr in (1e-2, 1e-9)]  # the second never gets better for long
    recipe = Recipe(samples=64, validation=32, epochs=30, batch=32, evaluations=30, patience=2)
    ours, theirs = (train(members, recipe, backend=way).rows for way in (backend, eager))
    assert [r["status"] for r in ours] == [r["status"] for r in theirs] and ours[1]["status"] == "frozen"
    assert ours[0]["nmse"] == pytest.approx(theirs[0]["nmse"], rel=1e-3)


@needs_compiler
def test_what_takes_too_much_memory_is_not_compiled(monkeypatch):
    case = usual_bank(SHAPES["two layers"], 5, 20)
    given = case.bank(torch.float64), case.batch(torch.float64)
    assert backend.holds(case.problem, *given)
    monkeypatch.setattr("headcount.kernels.cpp.compiled.MEMORY", 100)
    monkeypatch.setattr("headcount.kernels.cpp.compiled.library_for", None)  # nobody asks for it
    assert best(case.problem, given[0], lambda pack: given[1]) is eager
    output = compiled_forward(case.problem, given[0], given[0].named(), given[1])
    assert torch.equal(output, case.problem.output(given[0], given[0].named(), given[1]))


@needs_compiler
def test_numbers_that_are_none_stay_none():
    case = usual_bank(SHAPES["two layers"], 5, 20)
    case.data[0, 3, 2, 1] = torch.nan
    bank, batch = case.bank(torch.float32), case.batch(torch.float32)
    assert not compiled_gradient(case.problem, bank, batch).isfinite().all()
    lost = compiled_forward(case.problem, bank, bank.named(), batch).isnan()
    assert lost[:, 3].all() and lost.sum() == len(case.archs)


@needs_compiler
@pytest.mark.parametrize("each", [False, True], ids=["a rate of a member", "a rate of every parameter"])
def test_adamw_is_the_plain_one_and_leaves_who_has_stopped(each):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    theta, (lr, decay) = draw(3, 37), (draw(3, 37) if each else draw(3) for _ in range(2))
    mine, theirs, active = theta.clone(), theta.clone(), torch.tensor([True, False, True])
    ours, plain_one = (AdamW(theta, lr, decay, 20, 0.1) for _ in range(2))
    for _ in range(5):
        slope = draw(3, 37) - 0.5
        compiled_update(ours, mine, slope, active)
        plain_one.update(theirs, slope, active)
    assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-14) and torch.equal(mine[1], theta[1])
    assert torch.allclose(ours.second, plain_one.second, rtol=1e-12) and ours.step == plain_one.step


@needs_compiler
@pytest.mark.parametrize("layers", [((2, 4),), ((2, 4), (1, 8))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fifty_steps_reach_the_same_losses(layers, dtype):
    members = [
        Member(KthLargest(rank=1, length=length), Architecture(layers=layers, width=width), seed, seed)
        for length, width, seed in ((4, 8, 0), (7, 12, 1))
    ]
    recipe = Recipe(samples=160, validation=64, epochs=10, batch=32, evaluations=5, dtype=dtype)
    assert recipe.steps == 50
    ours, theirs = (train(members, recipe, backend=way) for way in (backend, eager))
    assert {row["backend"] for row in ours.rows} == {"cpp"}
    for name in ("nmse", "final_nmse", "train_nmse"):
        assert [r[name] for r in ours.rows] == pytest.approx([r[name] for r in theirs.rows], rel=5e-5)


@needs_compiler
def test_a_compiled_bank_that_is_cut_goes_on_bit_for_bit(tmp_path):
    recipe = Recipe(samples=96, validation=32, epochs=6, batch=32)
    members = [replace(MEMBER[0], seed=seed) for seed in range(3)]

    def cut(steps: int) -> None:
        made.append(steps)
        if len(made) > 3:
            raise Cut

    made: list[int] = []
    with pytest.raises(Cut):
        train(members, recipe, backend=backend, checkpoint=Checkpoint(tmp_path / "bank", every=0), on_progress=cut)
    again = train(members, recipe, backend=backend, checkpoint=Checkpoint(tmp_path / "bank"))
    assert same(again, train(members, recipe, backend=backend))
    # The state that another backend left is not taken up: its numbers differ by rounding.
    with pytest.raises(Cut):
        made.clear()
        train(members, recipe, backend=eager, checkpoint=Checkpoint(tmp_path / "old", every=0), on_progress=cut)
    made.clear()
    kept = Checkpoint(tmp_path / "old")
    later = train(members, recipe, backend=backend, checkpoint=kept, on_progress=made.append)
    assert len(made) == recipe.epochs and same(later, again)


def chosen(problem, steps: int | None):
    case = usual_bank(SHAPES["one layer"], 4, 8)
    return best(problem, case.bank(torch.float32), lambda pack: case.batch(torch.float32), steps)


@needs_compiler
def test_long_trainings_on_a_cpu_are_compiled_and_short_ones_are_not():
    assert chosen(ClassToken(), steps=LONG) is backend and chosen(ClassToken(), steps=None) is backend
    assert chosen(ClassToken(), steps=LONG - 1) is eager

    def no_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).abs()

    assert chosen(ClassToken(no_loss), steps=LONG) is eager
    case = next(c for c in map(mixed_bank, range(99)) if c.loss is cross_entropy and c.archs[0].relu_encoder)
    given = case.bank(torch.float32), lambda pack: case.batch(torch.float32)
    assert best(ClassToken(cross_entropy), *given, LONG) is backend


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ({"activation": "gelu", "embedding": "linear"}, "cpp"),
        ({"residual": False}, "products"),
        ({"embedding": "linear", "layers": ((2, 4),)}, "products"),
    ],
)
def test_a_training_names_the_backend_it_took(kind, name):
    arch = replace(Architecture(layers=((2, 4), (1, 4)), width=8), **kind)
    recipe = Recipe(samples=64, validation=32, epochs=250, batch=16, evaluations=2)
    outcome = train([replace(MEMBER[0], net=arch)], recipe)
    assert recipe.steps >= LONG and outcome.backend.name == outcome.rows[0]["backend"] == name
    if name != backend.name:
        with pytest.raises(ValueError, match="the backend cpp cannot compute this bank of 2x4"):
            train([replace(MEMBER[0], net=arch)], recipe, backend=backend)


@needs_compiler
def test_a_compiled_bank_with_a_wrong_gradient_gives_way_with_one_line(monkeypatch, capsys):
    case = next(c for c in map(mixed_bank, range(99)) if c.loss is cross_entropy and len(c.archs[0].layers) > 1)
    bank, batch = case.bank(torch.float32), case.batch(torch.float32)
    assert complaint(backend, case.problem, bank, batch) is None
    wrong = replace(backend, gradient=lambda *given: 1.01 * backend.gradient(*given))
    assert "is off by 1.0e-02" in (complaint(wrong, case.problem, bank, batch) or "")
    monkeypatch.setattr("headcount.kernels.cpp.compiled.backend", wrong)
    assert best(case.problem, bank, lambda pack: batch) is eager
    assert capsys.readouterr().err.count("; products instead\n") == 1


def test_the_check_sees_as_many_samples_of_a_bank_that_is_read_in_pieces():
    """By one sample, a member that happens to be right there would be off by any rounding."""
    case = next(
        c
        for c in map(mixed_bank, range(99))
        if c.loss is not cross_entropy and c.batch(torch.float64).rows.shape[1] > 3
    )
    bank, batch = case.bank(torch.float64), case.batch(torch.float64)
    whole, pieces = batch.few(bank), batch.few(bank, numbers=1)
    assert len(whole) == 1 and len(pieces) == min(32, batch.rows.shape[1]) and pieces[0].rows.shape[1] == 1
    together = reference.gradient(case.problem, bank, whole[0])
    apart = torch.stack([reference.gradient(case.problem, bank, piece) for piece in pieces]).mean(dim=0)
    torch.testing.assert_close(apart, together, rtol=1e-9, atol=1e-12)
    wrong = replace(eager, gradient=lambda *given: 1.01 * eager.gradient(*given))
    for some in (whole, pieces):
        assert float(member_gaps(eager, case.problem, bank, some).max()) < 1e-9
        torch.testing.assert_close(member_gaps(wrong, case.problem, bank, some).max().item(), 0.01, rtol=1e-6, atol=0)


def compiler(folder, text):
    """A program that is taken for the compiler."""
    file = folder / "c++"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def test_without_a_compiler_there_is_no_library_and_nothing_is_said(monkeypatch, capsys, tmp_path):
    fresh = native_library.__wrapped__
    with monkeypatch.context() as changed:
        changed.setenv("HEADCOUNT_COMPILED", "0")
        assert fresh("float32") is None
    with monkeypatch.context() as changed:
        changed.delenv("CXX", raising=False)
        changed.setenv("PATH", str(tmp_path))
        assert fresh("float32") is None
    assert capsys.readouterr().err == ""


def test_a_compiler_that_fails_is_said_in_one_line_and_leaves_no_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", compiler(tmp_path, '[ "$1" = -v ] || { echo "no room left" >&2; exit 1; }'))
    assert native_library.__wrapped__("float32") is None
    assert capsys.readouterr().err == "headcount: no compiled banks (no room left)\n"
    assert not list((tmp_path / "cache").rglob("*.so*"))
    monkeypatch.setenv("CXX", compiler(tmp_path, '[ "$1" = -v ] && exit; for last; do :; done; echo half > "$last"'))
    assert native_library.__wrapped__("float32") is None  # a file that is no library
    assert capsys.readouterr().err.count("\n") == 1


def test_a_library_is_built_once_and_one_that_others_can_write_is_not_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "_try", lambda *rest: None)
    count = f'[ "$1" = -v ] && exit; for last; do :; done; echo run >> {tmp_path}/runs; echo it > "$last"'
    made = compiler(tmp_path, count)
    mask = os.umask(0o000)
    try:
        first = building._built(made, "float32")
    finally:
        os.umask(mask)
    assert building._built(made, "float32") == first and first.read_text() == "it\n"
    assert all(at.stat().st_mode & 0o077 == 0 for at in (first, first.parent, first.parent.parent))
    first.chmod(0o722)
    assert building._built(made, "float32") == first and "is damaged; it is made anew" in capsys.readouterr().err
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    assert native_name(made, "float32") != native_name(made, "float64")
    other = tmp_path / "other"
    other.mkdir()
    assert native_name(compiler(other, "echo 2.0 >&2"), "float32") != native_name(made, "float32")


FORKED = """
import os, torch
from headcount.kernels.cpp.compiled import compiled_gradient
from tests.compiled_cases import mixed_bank
case = mixed_bank(4)
given = case.problem, case.bank(torch.float32), case.batch(torch.float32)
ask = lambda: bytes(compiled_gradient(*given).numpy())
torch.set_num_threads(2)
true = ask()
child = os.fork()
if child == 0:
    os._exit(0 if ask() == true else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@needs_compiler
def test_a_batch_that_lies_apart_in_memory_is_read_right():
    case = usual_bank(SHAPES["one layer"], 5, 30)
    bank, data = case.bank(torch.float64), case.data
    spread = torch.stack([data, -data], dim=-1)[..., 0]
    assert not spread.is_contiguous()
    batch = Batch(spread, case.which, torch.arange(30).expand(2, -1), case.target.T.contiguous().T)
    exact = compiled_gradient(case.problem, bank, case.batch(torch.float64))
    assert torch.equal(compiled_gradient(case.problem, bank, batch), exact)
