"""Decoders in compiled C++: the plain bank's gradients, whatever is judged, whatever the threads."""

from dataclasses import replace

import pytest
import torch

from headcount.kernels.backend import Gradient, complaint, eager
from headcount.kernels.bank import Bank
from headcount.kernels.cpp.compiled import LONG, ROUNDINGS
from headcount.kernels.cpp.compiled_decoders import backend, compiled_decoder_gradient
from headcount.kernels.cpp.native_library import native_library
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.kernels.preference import best
from headcount.nets.causal import DecoderShape
from headcount.tasks.letters import OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training import Member, train
from headcount.training.strings import string_recipe

pytestmark = pytest.mark.skipif(native_library("float64", "decoders") is None, reason="needs a C++ compiler")
PROBLEM = NextLetter()
SHAPE = DecoderShape(((2, 4), (1, 6)), embed_dim=9, width=20, vocab=8, context=30)


def drawn(seed: int) -> tuple[Bank, StringBatch]:
    """A bank of random decoders away from their start, and strings of which many, some or few places are judged."""
    generator = torch.Generator().manual_seed(seed)

    def up_to(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=generator))

    depth, vocab, length, models, batch = up_to(3), 1 + up_to(19), up_to(24), up_to(3), up_to(50)
    layers = tuple((up_to(5), up_to(9)) for _ in range(depth))
    places = ("absolute", "none")[up_to(2) - 1]
    shape = DecoderShape(layers, up_to(40), up_to(50), vocab, length + up_to(5) - 1, places)
    bank = Bank([shape] * models, range(models), dtype=torch.float64)
    bank.theta = bank.theta + 0.3 * torch.randn(bank.theta.shape, generator=generator, dtype=torch.float64)
    ids, targets = (torch.randint(0, vocab, (models, batch, length), generator=generator) for _ in range(2))
    judged = torch.rand((models, batch, length), generator=generator) < (0.05, 0.5, 1.0)[up_to(3) - 1]
    offset = torch.randint(0, shape.context - length + 1, (models, batch), generator=generator)
    return bank, StringBatch(ids, targets, judged, offset, judged.sum(dim=(1, 2)))


def gap(bank: Bank, batch: StringBatch, true: torch.Tensor, way: Gradient = compiled_decoder_gradient) -> float:
    off = (way(PROBLEM, bank, batch).double() - true).norm(dim=1)
    return (off / true.norm(dim=1).clamp(min=1e-9)).max().item()


@pytest.mark.parametrize(
    "seeds", [range(10), *(pytest.param(range(n, n + 50), marks=pytest.mark.slow) for n in range(10, 210, 50))]
)
def test_random_decoders_have_the_plain_gradients(seeds):
    for seed in seeds:
        bank, batch = drawn(seed)
        true = eager.gradient(PROBLEM, bank, batch)
        assert gap(bank, batch, true) < 1e-10, seed
        bank.theta = bank.theta.float()
        # The norm of two or three numbers may lose all digits: then the plain bank in float32 has lost them, too.
        lost = gap(bank, batch, true, eager.gradient)
        assert gap(bank, batch, true) < max(ROUNDINGS * torch.finfo(torch.float32).eps, 4 * lost), seed


def test_a_member_that_is_judged_nowhere_learns_nothing_and_the_others_do():
    bank, batch = next((b, s) for b, s in map(drawn, range(99)) if len(b) > 1)
    judged = batch.judged.clone()
    judged[0] = False
    batch = replace(batch, judged=judged, counts=judged.sum(dim=(1, 2)))
    found = compiled_decoder_gradient(PROBLEM, bank, batch)
    assert torch.equal(found[0], torch.zeros_like(found[0])) and found[1].norm() > 0
    assert gap(bank, batch, eager.gradient(PROBLEM, bank, batch)) < 1e-10


def test_what_comes_after_the_last_judged_place_does_not_matter():
    bank, batch = drawn(3)
    judged = batch.judged.clone()
    judged[:, :, batch.size[2] // 2 :], judged[:, :, 0] = False, True
    batch = replace(batch, judged=judged, counts=judged.sum(dim=(1, 2)))
    ids = batch.ids.clone()
    ids[:, :, batch.size[2] // 2 :] = 0
    assert torch.equal(
        compiled_decoder_gradient(PROBLEM, bank, batch),
        compiled_decoder_gradient(PROBLEM, bank, replace(batch, ids=ids)),
    )


def test_the_bits_do_not_depend_on_the_threads():
    (bank, batch), threads = drawn(5), torch.get_num_threads()
    bank.theta = bank.theta.float()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(compiled_decoder_gradient(PROBLEM, bank, batch))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fifty_steps_reach_the_same_losses(dtype):
    task = OnLengths(Neighbour(), (4, 9))
    members = [Member(task, SHAPE, seed=seed, data_seed=seed, lr=1e-2, weight_decay=1e-2) for seed in range(2)]
    recipe = string_recipe(steps=50, batch=20, evaluations=2, samples=40, dtype=dtype)
    ours, theirs = (train(members, recipe, backend=way).rows for way in (backend, eager))
    assert {row["backend"] for row in ours} == {"cpp"}
    lost = [[at["loss"] for row in rows for at in row["curve"]] for rows in (ours, theirs)]
    assert lost[0] == pytest.approx(lost[1], rel=5e-5)


def chosen(shape: DecoderShape, problem: NextLetter, steps: int | None):
    ids = torch.zeros((1, 2, 8), dtype=torch.int64)
    parts = (ids, ids, ids == 0, ids[..., 0], torch.tensor([16]))
    return best(problem, Bank([shape], [0]), lambda pack: StringBatch(*parts), steps)


def test_long_trainings_are_compiled_where_places_are_not_rotary():
    assert chosen(SHAPE, PROBLEM, LONG) is backend and chosen(SHAPE, PROBLEM, None) is backend
    assert chosen(SHAPE, PROBLEM, LONG - 1) is eager
    assert chosen(SHAPE, NextLetter("bfloat16"), LONG) is eager
    assert chosen(replace(SHAPE, positions="rotary"), PROBLEM, LONG) is eager


def test_a_wrong_gradient_gives_way_with_one_line(monkeypatch, capsys):
    bank, batch = drawn(2)
    bank.theta = bank.theta.float()
    assert complaint(backend, PROBLEM, bank, batch) is None and best(PROBLEM, bank, lambda pack: batch) is backend
    wrong = replace(backend, gradient=lambda *given: 1.01 * backend.gradient(*given))
    monkeypatch.setattr("headcount.kernels.cpp.compiled_decoders.backend", wrong)
    assert best(PROBLEM, bank, lambda pack: batch) is eager
    assert capsys.readouterr().err.count("; products instead\n") == 1
