"""Decoders in compiled C++: the plain bank's gradients, whatever is judged, whatever the threads."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from headcount.nets.causal import DecoderShape
from headcount.tasks.neighbours import Neighbour
from headcount.training.backends.choice import LONG
from headcount.training.backends.compiled import ROUNDINGS
from headcount.training.backends.compiled_decoders import compiled_decoder_gradient, compiled_decoder_path
from headcount.training.backends.native_library import native_library
from headcount.training.decoder_bank import DecoderBank
from headcount.training.decoder_paths import DecoderBatch, by_products, choose_decoder, proved_decoder
from headcount.training.decoding import DecoderMember, DecoderRecipe, train_decoders

pytestmark = pytest.mark.skipif(native_library("float64", "decoders") is None, reason="needs a C++ compiler")
Way = Callable[[DecoderBank, DecoderBatch], torch.Tensor]
SHAPE = DecoderShape(((2, 4), (1, 6)), embed_dim=9, width=20, vocab=8, context=30)


def drawn(seed: int) -> tuple[DecoderBank, DecoderBatch]:
    """A bank of random decoders away from their start, and strings of which many, some or few places are judged."""
    generator = torch.Generator().manual_seed(seed)

    def up_to(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=generator))

    depth, vocab, length, models, batch = up_to(3), 1 + up_to(19), up_to(24), up_to(3), up_to(50)
    layers = tuple((up_to(5), up_to(9)) for _ in range(depth))
    places = ("absolute", "none")[up_to(2) - 1]
    shape = DecoderShape(layers, up_to(40), up_to(50), vocab, length + up_to(5) - 1, places)
    bank = DecoderBank(shape, list(range(models)), dtype=torch.float64)
    bank.theta = bank.theta + 0.3 * torch.randn(bank.theta.shape, generator=generator, dtype=torch.float64)
    ids, targets = (torch.randint(0, vocab, (models, batch, length), generator=generator) for _ in range(2))
    judged = torch.rand((models, batch, length), generator=generator) < (0.05, 0.5, 1.0)[up_to(3) - 1]
    offset = torch.randint(0, shape.context - length + 1, (models, batch), generator=generator)
    return bank, DecoderBatch(ids, targets, judged, offset, judged.sum(dim=(1, 2)))


def gap(bank: DecoderBank, batch: DecoderBatch, true: torch.Tensor, way: Way = compiled_decoder_gradient) -> float:
    off = (way(bank, batch).double() - true).norm(dim=1)
    return (off / true.norm(dim=1).clamp(min=1e-9)).max().item()


@pytest.mark.parametrize(
    "seeds", [range(10), *(pytest.param(range(n, n + 50), marks=pytest.mark.slow) for n in range(10, 210, 50))]
)
def test_random_decoders_have_the_plain_gradients(seeds):
    for seed in seeds:
        bank, batch = drawn(seed)
        true = by_products().gradient(bank, batch)
        assert gap(bank, batch, true) < 1e-10, seed
        bank.theta = bank.theta.float()
        # The norm of two or three numbers may lose all digits: then the plain bank in float32 has lost them, too.
        lost = gap(bank, batch, true, by_products().gradient)
        assert gap(bank, batch, true) < max(ROUNDINGS * torch.finfo(torch.float32).eps, 4 * lost), seed


def test_a_member_that_is_judged_nowhere_learns_nothing_and_the_others_do():
    bank, batch = next((b, s) for b, s in map(drawn, range(99)) if len(b) > 1)
    judged = batch.judged.clone()
    judged[0] = False
    batch = replace(batch, judged=judged, counts=judged.sum(dim=(1, 2)))
    found = compiled_decoder_gradient(bank, batch)
    assert torch.equal(found[0], torch.zeros_like(found[0])) and found[1].norm() > 0
    assert gap(bank, batch, by_products().gradient(bank, batch)) < 1e-10


def test_what_comes_after_the_last_judged_place_does_not_matter():
    bank, batch = drawn(3)
    judged = batch.judged.clone()
    judged[:, :, batch.size[2] // 2 :], judged[:, :, 0] = False, True
    batch = replace(batch, judged=judged, counts=judged.sum(dim=(1, 2)))
    ids = batch.ids.clone()
    ids[:, :, batch.size[2] // 2 :] = 0
    assert torch.equal(compiled_decoder_gradient(bank, batch), compiled_decoder_gradient(bank, replace(batch, ids=ids)))


def test_the_bits_do_not_depend_on_the_threads():
    (bank, batch), threads = drawn(5), torch.get_num_threads()
    bank.theta = bank.theta.float()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(compiled_decoder_gradient(bank, batch))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fifty_steps_reach_the_same_losses(dtype):
    members = [DecoderMember(Neighbour(), seed=seed, data_seed=seed, lr=1e-2) for seed in range(2)]
    recipe = DecoderRecipe(steps=50, batch=20, lengths=(4, 9), evaluations=2, samples=40, dtype=dtype)
    ours, theirs = (
        train_decoders(members, SHAPE, recipe, path=path).rows
        for path in (compiled_decoder_path(SHAPE, dtype), by_products())
    )
    assert {row["backend"] for row in ours} == {"decoders in compiled C++"}
    lost = [[loss for row in rows for _, loss, *_ in row["curve"]] for rows in (ours, theirs)]
    assert lost[0] == pytest.approx(lost[1], rel=5e-5)


def test_long_trainings_are_compiled_where_places_are_not_rotary():
    assert choose_decoder(SHAPE, 8, "cpu", "float32", "full", LONG).name == "decoders in compiled C++"
    assert choose_decoder(SHAPE, 8, "cpu", "float32", "full", LONG - 1).name == "batched products"
    turned = replace(SHAPE, positions="rotary")
    assert choose_decoder(turned, 8, "cpu", "float32", "full", LONG).name == "batched products"


def test_a_wrong_gradient_gives_way_with_one_line(capsys):
    bank, batch = drawn(2)
    bank.theta = bank.theta.float()
    path = compiled_decoder_path(bank.shape)
    assert path is not None and proved_decoder(path, bank, batch) is path
    wrong = replace(path, gradient=lambda *given: 1.01 * path.gradient(*given))
    assert proved_decoder(wrong, bank, batch).name == "batched products"
    assert capsys.readouterr().err.count("; batched products instead\n") == 1
