"""Standard encoders in compiled C++: the batched products' gradients and outputs, whatever the threads and the bank."""

import time
from dataclasses import replace

import pytest
import torch

from headcount.kernels.cpp import compiled_encoders
from headcount.kernels.cpp.compiled import ROUNDINGS, compiled_update
from headcount.kernels.cpp.native_library import native_library
from headcount.kernels.dropping import dropping_keys
from headcount.kernels.encoding import EncoderBatch, Encoding
from headcount.kernels.loss import cross_entropy, squared
from headcount.nets.standard import EncoderShape
from tests.standard_cases import (
    EncoderCase,
    bank_of,
    by_cpp,
    by_products,
    drawn_encoders,
    outputs_by_cpp,
    outputs_of,
    torch_gradient,
)
from tests.test_kernels_standard import trained

pytestmark = pytest.mark.skipif(native_library("float64", "encoders") is None, reason="needs a C++ compiler")
SEEDS = [range(10), *(pytest.param(range(n, n + 50), marks=pytest.mark.slow) for n in range(10, 210, 50))]


def gaps(case: EncoderCase, dtype: torch.dtype) -> tuple[float, float, float]:
    """How far a member's gradient and outputs are from the batched products in float64; and those in this type."""
    bank, batch, target = case.of(dtype)
    exact, true_batch, true_target = case.of(torch.float64)
    true = by_products(case.loss)(exact, true_batch, true_target)
    size = true.norm(dim=1).clamp(min=1e-9)
    ours, theirs = (
        ((way(case.loss)(bank, batch, target).double() - true).norm(dim=1) / size).max().item()
        for way in (by_cpp, by_products)
    )
    output = outputs_of(exact, true_batch)
    off = (outputs_by_cpp(bank, batch).double() - output).abs().max() / output.abs().max()
    return ours, off.item(), theirs


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("dropout", [False, True], ids=["all units", "dropout"])
def test_random_encoders_have_the_gradients_and_outputs_of_the_batched_products(seeds, dropout):
    for seed in seeds:
        case = drawn_encoders(seed, dropout)
        ours, off, _ = gaps(case, torch.float64)
        assert ours < 1e-10 and off < 1e-10, seed
        ours, off, theirs = gaps(case, torch.float32)
        assert ours < max(ROUNDINGS * torch.finfo(torch.float32).eps, 4 * theirs) and off < 1e-3, seed


@pytest.mark.parametrize("seeds", SEEDS)
def test_gradients_are_those_of_torch_s_own_encoder_to_1e_10(seeds):
    for seed in seeds:
        case = drawn_encoders(seed, divided=True)
        true, found = torch_gradient(case), by_cpp(case.loss)(case.bank(), case.batch, case.target)
        assert ((found - true).norm(dim=1) <= 1e-10 * true.norm(dim=1).clamp(min=1e-3)).all(), seed


@pytest.mark.parametrize("pooling", ["mean", "class token"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_smallest_networks_and_batches_are_right(depth, activation, pooling):
    kind = {"activation": activation, "pooling": pooling, "dropout": 0.3}
    for shape in (
        EncoderShape(((1, 1),) * depth, embed_dim=2, width=1, token_dim=1, **kind),
        EncoderShape(((3, 5),) * depth, embed_dim=17, width=33, vocab=4, positions=33, outputs=3, **kind),
    ):
        for length in (1, 2, 33):
            for samples in (1, 2, 130):
                g = torch.Generator().manual_seed(length)
                data = torch.randn(1, samples, length, 1, generator=g, dtype=torch.float64)
                data = torch.randint(0, 4, (1, samples, length), generator=g) if shape.vocab else data
                which, rows = torch.zeros(1, dtype=torch.int64), torch.arange(samples)[None]
                target = torch.randn(1, samples, shape.outputs, generator=g, dtype=torch.float64)
                target = target[..., 0] if shape.outputs == 1 else target
                bank, batch = bank_of(shape, [3], dtype=torch.float64), EncoderBatch(data, which, rows, target)
                for keys in (None, dropping_keys([3], 7)):
                    given = (bank, replace(batch, keys=keys), target)
                    true, found = by_products()(*given), by_cpp()(*given)
                    assert (found - true).norm() <= 1e-10 * true.norm().clamp(min=1e-3)


def test_masks_change_with_the_step_and_only_where_units_are_left_out():
    case = drawn_encoders(0, dropout=True)
    found = [
        by_cpp(case.loss)(case.bank(), replace(case.batch, keys=keys), case.target)
        for keys in (case.batch.keys, dropping_keys(range(len(case.theta)), 2000), None)
    ]
    assert not torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    same = replace(case, shape=replace(case.shape, dropout=0.0))
    assert torch.equal(by_cpp(case.loss)(same.bank(), case.batch, case.target), found[2])


def test_a_member_has_the_same_bits_with_any_threads_and_in_any_bank():
    for seed in (1, 2, 3, 4):
        case, threads = drawn_encoders(seed, dropout=True), torch.get_num_threads()
        bank, batch, target = case.of(torch.float32)
        found = []
        try:
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                found.append(by_cpp(case.loss)(bank, batch, target))
        finally:
            torch.set_num_threads(threads)
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        for k in range(len(bank)):
            one, mine = case.of(torch.float32)[0], slice(k, k + 1)
            one.theta = bank.theta[mine]
            present = None if batch.present is None else batch.present[mine]
            alone = EncoderBatch(
                batch.data, batch.which[mine], batch.rows[mine], target[mine], present, batch.keys[mine]
            )
            assert torch.equal(by_cpp(case.loss)(one, alone, target[mine])[0], found[0][k])


@pytest.mark.parametrize("layers", [((2, 4),), ((2, 4), (3, 3))])
def test_a_training_reaches_the_losses_of_the_batched_products_and_alike_in_any_bank(layers):
    shape = EncoderShape(layers, embed_dim=8, width=16, token_dim=3, positions=6, dropout=0.2)
    ours, theirs = (trained([3, 8, 1], shape, way()) for way in (by_cpp, by_products))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-9)
    assert trained([8], shape, by_cpp())[0] == pytest.approx(ours[1], rel=1e-12)


def test_who_has_stopped_has_no_gradient_and_changes_nothing_for_the_others():
    case = next(c for c in map(drawn_encoders, range(99)) if len(c.theta) > 2)
    bank = case.bank()
    whole = by_cpp(case.loss)(bank, case.batch, case.target)
    bank.active = torch.tensor([True, False, True])
    found = by_cpp(case.loss)(bank, case.batch, case.target)
    assert torch.equal(found[[0, 2]], whole[[0, 2]]) and not found[1].any() and whole[1].any()
    bank.active = torch.zeros(3, dtype=torch.bool)
    assert not by_cpp(case.loss)(bank, case.batch, case.target).any()
    outputs = outputs_by_cpp(bank, case.batch)  # of everyone, still
    assert torch.allclose(outputs, outputs_of(bank, case.batch), rtol=1e-10, atol=1e-12)


def test_who_has_stopped_takes_no_time():
    shape = EncoderShape(((4, 12),), embed_dim=48, width=96, token_dim=4)
    bank, x = bank_of(shape, range(8)), torch.randn(1, 100, 12, 4)
    which, rows = torch.zeros(8, dtype=torch.int64), torch.arange(100).expand(8, -1)
    batch = EncoderBatch(x, which, rows, torch.zeros(8, 100))

    def seconds(active: torch.Tensor) -> float:
        bank.active, took = active, []
        for _ in range(9):
            begun = time.process_time()
            by_cpp()(bank, batch, batch.target)
            took.append(time.process_time() - begun)
        return min(took)

    everyone = torch.ones(8, dtype=torch.bool)
    assert seconds(torch.arange(8) == 3) < 0.5 * seconds(everyone)  # an eighth of the work


def test_an_id_that_the_table_lacks_is_an_error_and_one_in_the_padding_s_end_is_not_read():
    shape = EncoderShape(((1, 2),), embed_dim=4, width=4, vocab=3)
    bank, one = bank_of(shape, [0]), torch.zeros(1, 1, dtype=torch.int64)
    for wrong in (3, -1, 2**40):
        batch = EncoderBatch(torch.tensor([[[0, wrong]]]), one[0], one, 0.0 * one)
        with pytest.raises(IndexError, match="an id is none of the 3"):
            by_cpp()(bank, batch, torch.zeros(1, 1))
    batch = EncoderBatch(torch.tensor([[[0, 3]]]), one[0], one, 0.0 * one, torch.tensor([[[True, False]]]))
    assert outputs_by_cpp(bank, batch).isfinite().all()
    for rows, which in ((one + 1, one[0]), (one - 1, one[0]), (one, one[0] + 1)):
        with pytest.raises(IndexError, match="a row is none of the 1 samples"):
            outputs_by_cpp(bank, EncoderBatch(torch.tensor([[[0, 1]]]), which, rows, 0.0 * one))
    with pytest.raises(ValueError, match="3 tokens and the encoder 2 positions"):
        few = bank_of(replace(shape, positions=2), [0])
        outputs_by_cpp(few, EncoderBatch(torch.tensor([[[0, 1, 2]]]), one[0], one, 0.0 * one))


def test_numbers_of_other_types_are_taken_for_what_they_say():
    for seed in range(4):
        case = drawn_encoders(seed, dropout=True)
        bank, batch, target = case.of(torch.float32)
        few = torch.int32 if case.shape.vocab else torch.float64
        other = replace(batch, data=batch.data.to(few), which=batch.which.int(), rows=batch.rows.int())
        way = by_cpp(case.loss)
        assert torch.equal(way(bank, other, target.double()), way(bank, batch, target))


def test_what_is_not_held_is_said_before(monkeypatch):
    case = drawn_encoders(2)
    held, given = compiled_encoders.backend.holds, (case.bank(), case.batch)
    assert held(Encoding(squared), *given) and held(Encoding(cross_entropy), *given)
    assert not held(Encoding(lambda output, target: (output - target).abs()), *given)
    monkeypatch.setattr(compiled_encoders, "MEMORY", 100)
    monkeypatch.setattr(compiled_encoders, "library_for", None)  # nobody asks for it
    assert not held(Encoding(), *given)
    assert torch.equal(outputs_by_cpp(*given), outputs_of(*given))


def test_adamw_in_one_pass_moves_encoders_as_the_plain_one_does():
    from headcount.kernels.optimiser import AdamW

    case = drawn_encoders(4)
    slope = by_cpp(case.loss)(case.bank(), case.batch, case.target)
    moved, rates = [], torch.full((len(case.theta),), 1e-2, dtype=torch.float64)
    for update in (compiled_update, AdamW.update):
        theta = case.theta.clone()
        update(AdamW(theta, rates, rates, 10, 0.1), theta, slope, torch.ones(len(theta), dtype=torch.bool))
        moved.append(theta)
    assert torch.allclose(*moved, rtol=1e-12, atol=1e-14) and not torch.equal(moved[0], case.theta)


def test_numbers_that_are_none_stay_none():
    case = next(c for c in map(drawn_encoders, range(99)) if c.shape.token_dim and c.batch.present is None)
    bank, batch, target = case.of(torch.float32)
    batch.data[batch.which[0], batch.rows[0, 0]] = torch.nan
    assert not by_cpp(case.loss)(bank, batch, target)[0].isfinite().all()
    assert outputs_by_cpp(bank, batch)[0, 0].isnan().all()
