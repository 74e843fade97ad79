"""Banks of standard encoders: torch's own gradients, masks by counter, and the same training in any bank."""

import random
from dataclasses import replace

import pytest
import torch

import headcount.nets.standard as plain_network
from headcount.kernels.dropping import WEIGHTS, dropping_keys, factors, weight_units
from headcount.kernels.encoding import EncoderBatch
from headcount.kernels.loss import squared
from headcount.kernels.optimiser import AdamW
from headcount.nets.standard import EncoderShape
from tests.standard_cases import bank_of, by_products, drawn_encoders, outputs_of, torch_gradient

LOW = 2**32 - 1


def by_hand(x: int) -> int:
    """The mixing function in plain integers."""
    x &= LOW
    x = ((x ^ x >> 16) * 0x7FEB352D) & LOW
    x = ((x ^ x >> 15) * 0x846CA68B) & LOW
    return x ^ x >> 16


def kept_by_hand(seed: int, step: int, layer: int, site: int, sample: int, token: int, unit: int, rate: float) -> bool:
    key = by_hand(by_hand(by_hand((seed & LOW) + 0x9E3779B9) + (seed >> 32)) + step)
    row = by_hand(by_hand(by_hand(key + 4 * layer + site) + sample) + token)
    return by_hand(row + unit) >= round(rate * 2**32)


@pytest.mark.parametrize(
    "seeds", [range(12), *(pytest.param(range(n, n + 50), marks=pytest.mark.slow) for n in range(12, 162, 50))]
)
def test_gradients_are_those_of_torch_s_own_encoder_to_1e_10(seeds):
    for seed in seeds:
        case = drawn_encoders(seed, divided=True)
        true = torch_gradient(case)
        found = by_products(case.loss)(case.bank(), case.batch, case.target)
        assert ((found - true).norm(dim=1) <= 1e-10 * true.norm(dim=1).clamp(min=1e-3)).all(), seed


def test_the_drawn_cases_have_every_kind():
    cases = [drawn_encoders(seed, divided=True) for seed in range(12)]
    for kinds, count in (
        ({c.shape.depth for c in cases}, 3),
        ({c.shape.vocab > 0 for c in cases}, 2),
        ({c.shape.pooling for c in cases}, 2),
        ({c.shape.activation for c in cases}, 2),
        ({c.loss for c in cases}, 2),
        ({c.batch.present is None for c in cases}, 2),
        ({c.shape.positions > 0 for c in cases}, 2),
    ):
        assert len(kinds) == count


def test_a_member_is_its_plain_network_whatever_its_head_dim():
    for seed in range(8):
        case = drawn_encoders(seed)
        bank, x, present = case.bank(), case.batch.tokens(), case.batch.present
        outputs = outputs_of(bank, case.batch)
        for k in range(len(bank)):
            alone = bank.module(k)(x[k], None if present is None else present[k])
            assert torch.allclose(outputs[k], alone, rtol=1e-10, atol=1e-12)


def test_padding_and_its_contents_do_not_matter():
    case = drawn_encoders(next(s for s in range(99) if drawn_encoders(s).batch.present is not None), dropout=True)
    bank, batch = case.bank(), case.batch
    present = batch.present if batch.present is not None else torch.ones(*batch.rows.shape, batch.data.shape[2]) > 0
    outputs = outputs_of(bank, replace(batch, present=present))
    room = 0 if not case.shape.positions else case.shape.positions - batch.data.shape[2]
    more = torch.cat([batch.data, batch.data[:, :, : room or 1]], dim=2) if room or not case.shape.positions else None
    if more is not None:
        wide = torch.cat([present, torch.zeros_like(present[..., : more.shape[2] - present.shape[2]])], dim=2)
        padded = outputs_of(bank, replace(batch, data=more, present=wide))
        assert torch.allclose(padded, outputs, rtol=1e-12, atol=1e-13)


def test_masks_are_those_of_the_formula_in_plain_integers():
    draw, rate = random.Random(0), 0.3
    seeds = [0, 1, 2**32 + 5, 2**62 + 12345]
    samples = torch.tensor([[0, 7, 2**33 + 1]] * len(seeds))
    units = weight_units(3, 5, torch.device("cpu"))
    for step in (0, 1, 99_999):
        keys = dropping_keys(seeds, step)
        for layer, site in ((0, WEIGHTS), (2, 3)):
            found = factors(keys, (layer, site), samples, 6, units, rate, torch.float64)
            for _ in range(50):
                k, b, t, u = (draw.randrange(n) for n in found.shape)
                true = kept_by_hand(seeds[k], step, layer, site, int(samples[k, b]), t, int(units[u]), rate)
                assert found[k, b, t, u].item() == (1 / (1 - rate) if true else 0.0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_masks_leave_out_their_share_and_no_axis_follows_another(rate):
    keys = dropping_keys(range(6), 17)
    kept = factors(keys, (1, 2), torch.arange(30).expand(6, -1), 12, torch.arange(96), rate, torch.float64) > 0
    share = 1 - kept.double().mean()
    spread = (rate * (1 - rate)) ** 0.5
    assert abs(share - rate) < 4 * spread / kept.numel() ** 0.5
    centred = kept.double() - (1 - rate)
    for dim in range(4):
        for lag in (1, 2, 4):
            moved = centred.roll(lag, dims=dim)
            assert abs((centred * moved).mean()) < 4.5 * spread**2 / kept.numel() ** 0.5, (dim, lag)
    later = factors(dropping_keys(range(6), 18), (1, 2), torch.arange(30).expand(6, -1), 12, torch.arange(96), rate,
                    torch.float64) > 0  # fmt: skip
    assert abs((centred * (later.double() - (1 - rate))).mean()) < 4.5 * spread**2 / kept.numel() ** 0.5


def test_with_dropout_a_member_is_its_plain_network_with_these_masks(monkeypatch):
    for seed in range(6):
        case = drawn_encoders(seed, dropout=True)
        bank, x, present, shape = case.bank(), case.batch.tokens(), case.batch.present, case.shape
        outputs = outputs_of(bank, case.batch)
        for k in range(len(bank)):
            calls = iter([(layer, site) for layer in range(shape.depth) for site in (0, 1, 2, 3)])

            def masked(
                y: torch.Tensor, rate: float, training: bool, k=k, calls=calls, batch=case.batch
            ) -> torch.Tensor:
                layer, site = next(calls)
                keys, rows = batch.keys[k : k + 1], batch.rows[k : k + 1]
                if site == WEIGHTS:  # batch, heads, queries, keys
                    units = weight_units(y.shape[1], y.shape[3], y.device)
                    drawn = factors(keys, (layer, site), rows, y.shape[2], units, rate, y.dtype)[0]
                    return y * drawn.unflatten(-1, (y.shape[1], -1)).transpose(1, 2)
                return y * factors(keys, (layer, site), rows, y.shape[1], torch.arange(y.shape[2]), rate, y.dtype)[0]

            monkeypatch.setattr(plain_network, "dropout", masked)
            alone = bank.module(k)(x[k], None if present is None else present[k])
            assert torch.allclose(outputs[k], alone, rtol=1e-10, atol=1e-12)


def trained(seeds: list[int], shape: EncoderShape, gradient, steps: int = 25) -> list[list[float]]:
    """The losses of every member, step by step; its samples and masks by its own seed."""
    g = torch.Generator().manual_seed(5)
    x = torch.randn(1, 64, 6, 3, generator=g, dtype=torch.float64)
    y = x[0, :, :, 0].amax(dim=1)
    bank, which = bank_of(shape, seeds, dtype=torch.float64), torch.zeros(len(seeds), dtype=torch.int64)
    rates = torch.full((len(seeds),), 3e-3, dtype=torch.float64)
    adam, lost = AdamW(bank.theta, rates, rates, steps, 0.1), []
    orders = [torch.Generator().manual_seed(seed) for seed in seeds]
    for step in range(steps):
        rows = torch.stack([torch.randperm(64, generator=order)[:16] for order in orders])
        batch = EncoderBatch(x, which, rows, y[rows], None, dropping_keys(seeds, step))
        lost.append(squared(outputs_of(bank, batch), y[rows]).mean(dim=1).tolist())
        adam.update(bank.theta, gradient(bank, batch, y[rows]), torch.ones(len(seeds), dtype=torch.bool))
    return [list(curve) for curve in zip(*lost, strict=True)]


def test_a_member_trains_alike_alone_and_among_others():
    shape = EncoderShape(((2, 4),), embed_dim=8, width=16, token_dim=3, positions=6, dropout=0.2)
    together = trained([3, 8, 1], shape, by_products())
    for k, seed in enumerate([3, 8, 1]):
        assert trained([seed], shape, by_products())[0] == pytest.approx(together[k], rel=1e-9)
    assert together[0][-1] < together[0][0] and together[0] != together[1]


def test_an_id_that_the_table_lacks_is_an_error():
    shape = EncoderShape(((1, 2),), embed_dim=4, width=4, vocab=3)
    bank = bank_of(shape, [0])
    batch = EncoderBatch(
        torch.tensor([[[0, 3]]]),
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, 1, dtype=torch.int64),
        torch.zeros(1, 1),
    )
    with pytest.raises(IndexError):
        outputs_of(bank, batch)
