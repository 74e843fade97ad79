"""Shapes are compared fairly: a bank's member is the plain decoder, seeds fix start and order, runs go on."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from headcount.kernels.next_token import NextToken, WindowBatch
from headcount.nets.grouped import GroupedShape
from headcount.papers.allocation.schedules import ramp
from headcount.sizing.model_shape import BARE, LayerShape, ModelShape
from headcount.sizing.paired_difference import paired_differences, pooled_deviation
from headcount.sizing.paired_trial import PairedTrial, TrialRows, grouped, recipe_of, run
from headcount.sizing.windows import TokenWindows
from headcount.training import Bank, Given, Member, train
from headcount.training.windows_in_order import WindowsInOrder

LAYERS = (LayerShape(4, 8, 2, 40), LayerShape(3, 6, 1, 24))
SHAPE = ModelShape(LAYERS, embed_dim=16, vocab=11, wiring=BARE)


def repeating(windows):
    """Every second token is the one before it once more."""
    ids = np.random.default_rng(0).integers(0, 11, (windows + 16, 9))
    ids[:, 1::2] = ids[:, 0:-1:2]
    return TokenWindows(ids[:windows], ids[windows:], np.array(["a", "b"] * 8), vocab=11, bytes_per_token=2.0)


@pytest.fixture
def text():
    return repeating(56)


def plain_loss(weights, ids):
    """One decoder by loops: every head, place and past token on its own."""
    x = weights["token"][ids[:-1]]

    def norm(x):
        return functional.layer_norm(x, x.shape[-1:])

    for i, one in enumerate(LAYERS):
        n, h, g = one.head_dim, one.heads, one.kv_heads
        mixed = norm(x) @ weights[f"layer{i}.read"]
        out = torch.zeros(len(x), n * h, dtype=x.dtype)
        for head in range(h):
            group = head // (h // g)
            q = turned(mixed[:, head * n : (head + 1) * n])
            k = turned(mixed[:, n * h + group * n : n * h + (group + 1) * n])
            v = mixed[:, n * (h + g) + group * n : n * (h + g) + (group + 1) * n]
            for t in range(len(x)):
                scores = torch.stack([q[t] @ k[s] for s in range(t + 1)]) / math.sqrt(n)
                out[t, head * n : (head + 1) * n] = scores.softmax(0) @ v[: t + 1]
        x = x + out @ weights[f"layer{i}.write"]
        hidden = functional.gelu(norm(x) @ weights[f"layer{i}.inner"], approximate="tanh")
        x = x + hidden @ weights[f"layer{i}.outer"]
    return functional.cross_entropy(norm(x) @ weights["token"].T, ids[1:])


def turned(x):
    half = x.shape[1] // 2
    out = x.clone()
    for t in range(len(x)):
        for i in range(half):
            angle = t * 10000.0 ** (-i / half)
            a, b = x[t, i], x[t, half + i]
            out[t, i] = a * math.cos(angle) - b * math.sin(angle)
            out[t, half + i] = b * math.cos(angle) + a * math.sin(angle)
    return out


def losses(bank, ids):
    """Of every window of every member."""
    problem, batch = NextToken(), WindowBatch(ids)
    return problem.losses(problem.output(bank, bank.named(), batch), batch)


def test_a_member_of_a_bank_is_the_plain_decoder():
    bank = Bank([grouped(SHAPE)] * 2, [3, 4], dtype=torch.float64)
    ids = torch.randint(0, 11, (2, 3, 8), generator=torch.Generator().manual_seed(0))
    one = [{name: p[m] for name, p in bank.named().items()} for m in range(2)]
    wanted = torch.stack([torch.stack([plain_loss(one[m], ids[m, b]) for b in range(3)]) for m in range(2)])
    torch.testing.assert_close(losses(bank, ids), wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        functional.cross_entropy(bank.module(1)(ids[1, :, :-1]).flatten(0, 1), ids[1, :, 1:].flatten()),
        wanted[1].mean(),
        rtol=1e-10,
        atol=1e-12,
    )


def test_the_shape_counts_the_numbers_that_are_trained():
    assert SHAPE.parameters == sum(math.prod(size) for size in grouped(SHAPE).tensors().values())
    assert SHAPE.parameters == Bank([grouped(SHAPE)], [0]).theta.shape[1]


def test_only_bare_decoders_of_even_heads_that_share_evenly_are_trained():
    with pytest.raises(ValueError, match="give wiring=BARE"):
        grouped(ModelShape(LAYERS, embed_dim=16, vocab=11))
    for blocks, why in ((((3, 4, 2, 8),), "evenly"), (((2, 3, 1, 8),), "even"), ((), "empty")):
        with pytest.raises(ValueError, match=why):
            GroupedShape(blocks, 16, 11)


def test_the_steps_are_those_of_torch(text):
    """AdamW, its rate on a trapezoid, a clipped gradient: the whole pass by hand, in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        trial = PairedTrial({"a": SHAPE}, (1e-2, 3e-2), (5,), batch=4)
        recipe, steps = recipe_of(trial, text, "cpu"), trial.steps_on(text)
        members = [Member(Given("x", 8, 0), grouped(SHAPE), 5, 5, lr=rate, weight_decay=0.1) for rate in trial.rates]
        bank = train(members, recipe, data=partial(WindowsInOrder, text)).bank
        twin = members[1].shape.module(5)
        adam = torch.optim.AdamW(twin.parameters(), lr=3e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        windows, order = torch.from_numpy(text.train), text.order(5)
        for step in range(steps):
            rise, fall = max(1, round(0.05 * steps)), max(1, round(0.3 * steps))
            adam.param_groups[0]["lr"] = 3e-2 * min(1.0, (step + 1) / rise, (steps - step) / fall)
            ids = windows[order[step * 4 : (step + 1) * 4]]
            adam.zero_grad()
            functional.cross_entropy(twin(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
            adam.step()
        for name, p in twin.named().items():  # torch's clipping adds 1e-6 to the length
            torch.testing.assert_close(bank.named()[name][1], p, rtol=1e-4, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_losses_are_those_of_the_loop_that_trained_before(tmp_path):
    """Measured by the bank and loop that this one replaced, on the same machine, in float32."""
    same = SHAPE.with_layers((LayerShape(2, 8, 2, 48), LayerShape(3, 6, 3, 12)))
    kept = TrialRows.open(tmp_path / "rows.json", {})
    run(PairedTrial({"a": SHAPE, "b": same}, (1e-2, 3e-2), (0, 1), batch=4), repeating(200), kept)
    before = [1.972338, 2.024702, 1.996872, 2.06565, 2.043271, 1.909412, 2.094837, 2.005447]
    assert [row["loss"] for row in kept.rows] == pytest.approx(before, abs=2e-4)
    assert kept.rows[0]["curve"][0] == [12, pytest.approx(2.238228, abs=2e-5)]
    assert kept.rows[0]["loss on a"] == pytest.approx(2.023301, abs=2e-4)


def test_shapes_share_their_start_where_they_are_alike():
    other = SHAPE.with_layers((LayerShape(2, 8, 1, 40), LAYERS[1]))
    one, two = (grouped(shape).module(7).named() for shape in (SHAPE, other))
    same = {name for name in one if one[name].shape == two[name].shape}
    assert "token" in same and "layer0.inner" in same and "layer0.read" not in same
    assert all(torch.equal(one[name], two[name]) for name in same)
    assert not torch.equal(one["token"], grouped(SHAPE).module(8).named()["token"])


def test_a_stopped_trial_goes_on_and_gives_the_same_rows(text, tmp_path):
    same = SHAPE.with_layers((LayerShape(2, 8, 2, 48), LayerShape(3, 6, 3, 12)))
    trial = PairedTrial({"a": SHAPE, "b": same}, rates=(1e-2, 2e-2), seeds=(0, 1), batch=4)
    whole = TrialRows.open(tmp_path / "whole.json", {"x": 1})
    assert run(trial, text, whole)
    parts = TrialRows.open(tmp_path / "parts.json", {"x": 1})
    assert not run(PairedTrial({"a": SHAPE, "b": same}, (1e-2, 2e-2), (0, 1), 4), text, parts, until=-math.inf)
    assert parts.rows == []
    assert run(PairedTrial({"a": SHAPE}, (1e-2, 2e-2), (0, 1), 4), text, parts)
    again = TrialRows.open(tmp_path / "parts.json", {"x": 1})
    assert run(trial, text, again)
    assert again.rows == whole.rows == json.loads((tmp_path / "whole.json").read_text())["rows"]
    assert {len(row["curve"]) for row in again.rows} <= {4, 5}
    with pytest.raises(ValueError, match="was made with x 1, not 2"):
        TrialRows.open(tmp_path / "parts.json", {"x": 2})


def test_how_many_members_are_trained_at_once_changes_nothing(text, tmp_path):
    trial = PairedTrial({"a": SHAPE}, rates=(1e-2, 2e-2), seeds=(0, 1, 2), batch=4)
    together, apart = (TrialRows.open(tmp_path / f"{n}.json", {}) for n in ("together", "apart"))
    assert run(trial, text, together) and run(trial, text, apart, room=4 * SHAPE.parameters)
    for one, other in zip(together.rows, apart.rows, strict=True):
        assert (one["seed"], one["rate"]) == (other["seed"], other["rate"])
        assert one["loss"] == pytest.approx(other["loss"], abs=2e-5)


def test_training_learns_what_the_text_repeats(tmp_path):
    kept = TrialRows.open(tmp_path / "rows.json", {})
    run(PairedTrial({"a": SHAPE}, (1e-2,), (0, 1), batch=4), repeating(800), kept)
    assert all(row["loss"] < 0.75 * math.log(11) for row in kept.rows)  # half of the tokens can be known
    assert all(row["curve"][0][1] > row["curve"][-1][1] for row in kept.rows)


def test_one_pass_sees_every_window_once(text):
    assert sorted(text.order(5).tolist()) == list(range(56))
    assert PairedTrial({"a": SHAPE}, (1e-2,), (0,), batch=5).steps_on(text) == 11
    with pytest.raises(ValueError, match="56 windows in batches of 30 make 1 steps"):
        PairedTrial({"a": SHAPE}, (1e-2,), (0,), batch=30).steps_on(text)


def test_windows_come_back_from_their_file(text, tmp_path):
    again = TokenWindows.read(text.write(tmp_path / "text.npz"))
    assert np.array_equal(again.train, text.train) and again.facts() == text.facts()


def test_paired_differences_take_away_what_the_seeds_share():
    rng = np.random.default_rng(0)
    shared = 0.05 * rng.standard_normal(6)
    rows = [
        {"shape": name, "seed": s, "rate": rate, "loss": float((3 + shared[s]) * (1 + extra + (rate != 1) * 0.1))}
        for name, extra in (("base", 0.0), ("worse", 0.01))
        for rate in (0.5, 1, 2)
        for s in range(6)
    ]
    (found,) = paired_differences(rows, "base")
    assert found.rate == found.base_rate == 1 and not found.edge
    assert found.mean == pytest.approx(100 * math.log(1.01)) and found.deviation < 1e-9
    with pytest.raises(ValueError, match="no rows of the base 'other'"):
        paired_differences(rows, "other")


def test_a_diverged_seed_rules_its_rate_out():
    rows = [{"shape": "base", "seed": s, "rate": r, "loss": 3.0} for s in (0, 1) for r in (1, 2)]
    rows += [{"shape": "a", "seed": s, "rate": r, "loss": 2.0 if r == 1 else 1.0} for s in (0, 1) for r in (1, 2)]
    rows[-1]["loss"] = None
    (found,) = paired_differences(rows, "base")
    assert found.rate == 1 and found.edge


def test_the_noise_of_all_pairs_is_that_of_each():
    rng = np.random.default_rng(1)
    rows = [{"shape": "base", "seed": s, "rate": 1, "loss": 3.0} for s in range(40)]
    for name in "abcdef":
        rows += [
            {"shape": name, "seed": s, "rate": 1, "loss": 3 * math.exp(0.002 * rng.standard_normal())}
            for s in range(40)
        ]
    deviation, free = pooled_deviation(paired_differences(rows, "base"))
    assert free == 6 * 39 and deviation == pytest.approx(0.2, rel=0.1)


def test_the_twelve_shapes_of_the_study_are_equal_in_parameters():
    from studies.shape.grid import shapes

    known = shapes()
    assert len(known) == 12 and {s.parameters for s in known.values()} == {3_670_016}
    assert [one.heads for one in known["ramp"].layers] == [h for h, _ in ramp(4, 8, 32).layers]
