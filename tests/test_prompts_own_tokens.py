"""Sequences with last tokens of their own: n tokens are needed, suffice somewhere, and are proved too few elsewhere."""

import math

import numpy as np
import pytest

from headcount.papers.prompts import (
    PromptedLayer,
    attention_loss,
    excluded_rows,
    fit_prompt,
    memorisable,
    prompt_trap,
    random_layer,
    reach,
    token_memory,
    token_rows,
    token_trap,
)
from headcount.papers.prompts.own_tokens import _Conditions, _conditions


def problem(trap):
    return trap.layer, trap.lasts, trap.contexts, trap.targets


def random_trap(n, seed):
    return token_trap(random_layer(8, np.random.default_rng(seed)), n, 1.0, seed)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_excluded_no_training_fits_and_what_is_not_two_tokens_fit(seed):
    trap = random_trap(2, seed)
    trained = fit_prompt(*problem(trap), 2, 8, seed)
    if memorisable(*problem(trap), 2).possible:
        assert trained.loss < 1e-12
    else:
        assert trained.loss > 0.05
    assert memorisable(*problem(trap), 2).possible is (seed not in (1, 3))


def test_more_tokens_help_one_pair_and_no_number_of_them_another():
    assert [memorisable(*problem(random_trap(2, 3)), m).possible for m in (2, 64, 10**6)] == [False, False, True]
    assert [memorisable(*problem(random_trap(2, 1)), m).possible for m in (2, 64, 10**300)] == [False, False, False]


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_what_a_prompt_does_is_never_excluded(tokens):
    for seed in range(15):
        g = np.random.default_rng(seed)
        layer, lasts, contexts = random_layer(5, g), g.standard_normal((3, 5)), g.standard_normal((3, 4, 5))
        prompt = g.choice((0.3, 1.0, 3.0)) * g.standard_normal((tokens, 5))
        pairs = zip(lasts, contexts, strict=True)
        targets = np.array([layer.attend(x, np.vstack([prompt, c, x])) for x, c in pairs])
        given = _conditions(layer, lasts, contexts, targets, tokens)
        v = [
            layer.mass(x, np.vstack([c, x]))[1] - layer.mass(x, prompt)[1] for x, c in zip(lasts, contexts, strict=True)
        ]
        low, high = given.box()
        assert (low <= v).all() and (v <= high).all()
        at = np.array([v])
        assert given.most(at, at)[0] >= -1e-9 * (1 + np.abs(given.c).max() + np.abs(given.b).max())
        assert memorisable(layer, lasts, contexts, targets, tokens).possible is not False


def test_no_point_of_a_box_meets_the_conditions_by_more_than_the_box():
    g = np.random.default_rng(0)
    for _ in range(50):
        given = _Conditions(3 * g.standard_normal((3, 3)), 2 * g.standard_normal((3, 3)), math.log(7))
        low = 2 * g.standard_normal(3)
        high = low + g.random(3)
        inside = low + (high - low) * g.random((400, 3))
        assert given.most(inside, inside).max() <= given.most(low[None], high[None])[0] + 1e-12


def test_one_sequence_has_a_closed_form_that_the_floor_agrees_with():
    excluded = 0
    for seed in range(8):
        trap = random_trap(1, seed)
        (x,), (context,), (target,) = trap.lasts, trap.contexts, trap.targets
        mean, mass = trap.layer.mass(x, np.vstack([context, x]))
        h = trap.layer.direction(x)
        c = -float(h @ (target - mean))
        need = math.exp(mass - h @ mean + 1 + c) * c if c > 0 else 0.0
        for m in (1, 2, 8):
            may = memorisable(*problem(trap), m).possible
            assert may is (need <= m * (1 + 1e-6))
            excluded += not may
            if not may or seed == 1:
                assert (reach(trap.layer, x, [context], trap.targets, m).floor > 1e-9) is (not may)
    assert 5 < excluded < 20


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_a_layer_in_which_n_tokens_memorise_n_sequences_exactly_and_fewer_do_not(n):
    for scale in (0.1, 3.0):
        trap, prompt = token_memory(n, 2 * n + 1, scale, seed=n)
        assert prompt.shape == (n, 2 * n + 1)
        assert attention_loss(*problem(trap), prompt) < 1e-24 * scale**2 * n + 1e-28
        assert memorisable(*problem(trap), n).possible
    if n == 4:
        assert fit_prompt(*problem(token_memory(4, 9)[0]), 3, 4).loss > 1.0


def test_the_rows_say_what_is_excluded_and_never_pass_their_floor():
    for row in token_rows(2, starts=4, seed=3) + token_rows(3, starts=8, made=True):
        assert row["trained"] >= row["floor"] * (1 - 1e-9)
        assert row["trained"] <= row["median"]
        if row["excluded"]:
            assert row["trained"] > 1e-3
    assert row["layer"] == "made"
    assert row["trained"] < 1e-12
    assert token_rows(2, starts=4, seed=3)[1]["floor"] > 0.07  # a sequence alone needs 105 tokens
    one, two = excluded_rows((1, 3), layers=6)
    assert one["n tokens excluded"] < two["n tokens excluded"] == 6
    assert max(one["made layer"], two["made layer"]) < 1e-24


def test_what_it_does_not_cover_is_refused():
    g = np.random.default_rng(0)
    head = PromptedLayer(*(g.standard_normal((3, 8)) for _ in range(3)))
    with pytest.raises(ValueError, match="square"):
        memorisable(head, g.standard_normal((1, 8)), g.standard_normal((1, 2, 8)), g.standard_normal((1, 3)), 1)
    trap = random_trap(2, 0)
    with pytest.raises(ValueError, match="2 last tokens, 2 contexts and 1 targets"):
        memorisable(trap.layer, trap.lasts, trap.contexts, trap.targets[:1], 2)
    with pytest.raises(ValueError, match="tokens"):
        memorisable(*problem(trap), 0)
    with pytest.raises(ValueError, match="token_dim / 2 = 2"):
        token_memory(3, 5)
    pair = prompt_trap(trap.layer, 1.0, 0)  # one last token twice: the conditions hold there too
    lasts = np.array([pair.last, pair.last])
    assert memorisable(trap.layer, lasts, pair.contexts, pair.targets, 4).possible in (True, False, None)
