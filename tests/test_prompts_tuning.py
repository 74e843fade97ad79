"""Trained prompts and low-rank updates, tokens needed, slopes and injectivity, and a prompt as a memory."""

import numpy as np
import pytest

from headcount.papers.prompts import (
    PromptedLayer,
    attention_slope,
    fit_heads,
    fit_low_rank,
    fit_prompt,
    prompt_floor,
    prompt_memory,
    prompt_tokens,
    prompt_trap,
    random_layer,
    token_rows,
    token_trap,
    tuning_rows,
)


def test_a_trained_prompt_has_the_loss_it_says():
    layer = random_layer(5, np.random.default_rng(0))
    trap = prompt_trap(layer, 1.0, 0)
    tuned = fit_prompt(layer, trap.last, trap.contexts, trap.targets, 2, 3)
    prompt = tuned.values.reshape(2, 5)
    outputs = [layer.attend(trap.last, np.vstack([prompt, c, trap.last])) for c in trap.contexts]
    assert ((np.array(outputs) - trap.targets) ** 2).sum() == pytest.approx(tuned.loss, rel=1e-9)
    assert tuned.loss == min(tuned.losses)
    assert tuned.numbers == 10


def test_one_prompt_for_several_heads_is_a_search_that_agrees_with_one_head():
    g = np.random.default_rng(3)
    heads = [PromptedLayer(*(g.standard_normal((2, 6)) / 2 for _ in range(3))) for _ in range(2)]
    last, contexts = g.standard_normal(6), g.standard_normal((2, 3, 6))
    targets = [g.standard_normal((2, 2)) for _ in heads]
    both = fit_heads(heads, last, contexts, targets, 2, 6)
    alone = [fit_prompt(head, last, contexts, t, 2, 6).loss for head, t in zip(heads, targets, strict=True)]
    assert both.loss >= sum(alone) - 1e-6
    prompt = both.values.reshape(2, 6)
    pairs = [(h, c, t[i]) for h, t in zip(heads, targets, strict=True) for i, c in enumerate(contexts)]
    left = [h.attend(last, np.vstack([prompt, c, last])) - wanted for h, c, wanted in pairs]
    assert (np.array(left) ** 2).sum() == pytest.approx(both.loss, rel=1e-9)
    one = fit_heads(heads[:1], last, contexts, targets[:1], 2, 6)
    assert one.loss == fit_prompt(heads[0], last, contexts, targets[0], 2, 6).loss
    with pytest.raises(ValueError, match="as many arrays"):
        fit_heads(heads, last, contexts, targets[:1], 2)


def test_a_reachable_target_is_trained_to_nothing():
    g = np.random.default_rng(2)
    layer, last = random_layer(6, g), g.standard_normal(6)
    contexts, prompt = g.standard_normal((2, 4, 6)), g.standard_normal((2, 6))
    targets = np.array([layer.attend(last, np.vstack([prompt, c, last])) for c in contexts])
    assert fit_prompt(layer, last, contexts, targets, 2, 8).loss < 1e-8


def test_fewer_tokens_than_sequences_leave_the_floor():
    for row in token_rows(2, starts=5) + token_rows(3, starts=5)[:2]:
        assert row["trained"] >= row["floor"]
        if row["tokens"] == 1:
            assert row["trained"] <= 1.05 * row["floor"]
    assert prompt_tokens(3).value == 3
    assert prompt_floor(1.0, 3, 5).value == 0
    with pytest.raises(ValueError, match="token_dim - 2"):
        token_trap(random_layer(4, np.random.default_rng(0)), 3)


def test_a_low_rank_update_does_what_no_prompt_can_with_as_many_numbers():
    rows = tuning_rows(starts=4)
    prompts, low = rows[:-1], rows[-1]
    assert low["numbers"] == 5 * 6
    assert low["loss"] < 1e-9
    assert any(row["numbers"] == low["numbers"] for row in prompts)
    assert all(row["loss"] >= row["floor"] > 0 for row in prompts)
    bare = PromptedLayer(np.eye(3), np.eye(3), np.eye(3))
    with pytest.raises(ValueError, match="feed-forward"):
        fit_low_rank(bare, np.ones(3), [np.ones((1, 3))], np.ones((1, 3)))


def slope_share(layers, token_dim=4, seed=0):
    """The largest measured slope of attention, in the norm of the largest token, over its bound."""
    g = np.random.default_rng(seed)
    shares = []
    for _ in range(layers):
        layer = random_layer(token_dim, g)
        x = g.standard_normal((3, token_dim)) * g.choice((0.1, 0.5, 1.0))
        step = g.standard_normal(x.shape)
        step *= 1e-6 / np.linalg.norm(step, axis=1).max()
        moved = [
            np.linalg.norm(layer.attend(a, x + step) - layer.attend(b, x)) for a, b in zip(x + step, x, strict=True)
        ]
        radius = float(np.linalg.norm(x, axis=1).max())
        bound = attention_slope(
            float(np.linalg.norm(layer.value, 2)), float(np.linalg.norm(layer.key.T @ layer.query, 2)), radius
        )
        shares.append(max(moved) / 1e-6 / bound.value)
    return max(shares)


def test_the_slope_of_attention_keeps_its_bound():
    assert 0.3 < slope_share(100) <= 1


def test_below_slope_one_different_sequences_have_different_outputs():
    g = np.random.default_rng(1)
    layer = random_layer(4, g)
    layer = PromptedLayer(layer.query * 0.3, layer.key * 0.3, layer.value * 0.2)
    norms = np.linalg.norm(layer.value, 2), np.linalg.norm(layer.key.T @ layer.query, 2)
    bound = attention_slope(float(norms[0]), float(norms[1]), 1.0).value
    assert bound < 1
    for _ in range(50):
        x, y = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1) for v in g.standard_normal((2, 3, 4)))
        out = [np.array([t + layer.attend(t, s) for t in s]) for s in (x, y)]
        apart = np.linalg.norm(x - y, axis=1).max()
        assert np.linalg.norm(out[0] - out[1], axis=1).max() >= (1 - bound) * apart


def test_an_unbounded_prompt_breaks_injectivity():
    one = np.ones((1, 1))
    layer = PromptedLayer(one, one, -0.5 * one)
    prompt = np.array([[4.0], [-4.0]])
    at = np.array([-0.25, 0.0, 0.25])
    with_prompt = [x + layer.attend(np.array([x]), np.vstack([prompt, [[x]]]))[0] for x in at]
    without = [x + layer.attend(np.array([x]), np.array([[x]]))[0] for x in at]
    assert np.allclose(with_prompt, [0.915, 0.0, -0.915], atol=1e-3)
    assert np.allclose(without, at / 2)


def test_the_last_token_alone_does_not_tell_sequences_apart():
    layer = random_layer(4, np.random.default_rng(0))
    x = np.random.default_rng(1).standard_normal((3, 4))
    assert np.allclose(layer.attend(x[2], x), layer.attend(x[2], x[[1, 0, 2]]))


def waves(x):
    return np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1])


def test_a_prompt_remembers_a_function_within_its_error_and_halves_it():
    points = np.random.default_rng(0).random((20000, 2))
    found = []
    for n, bound in ((4, 0.884), (8, 0.442), (16, 0.221)):
        memory = prompt_memory(waves, n, 2, 5.0)
        gap = np.abs(memory(points) - waves(points)).max()
        assert len(memory.prompt) == n**2
        assert memory.error == pytest.approx(bound, abs=1e-3)
        assert 0.5 * memory.error < gap <= memory.error
        found.append(gap)
    assert found[1] / found[0] == pytest.approx(0.5, abs=0.1)
    assert found[2] / found[1] == pytest.approx(0.5, abs=0.1)


def test_the_bound_of_the_memory_is_met_by_a_distance():
    for beta in (3 * 25, 40 * 25):
        memory = prompt_memory(lambda x: np.abs(x[:, 0] - 0.5), 5, 1, 1.0, beta)
        points = np.linspace(0, 1, 2001)[:, None]
        gap = np.abs(memory(points) - np.abs(points[:, 0] - 0.5)).max()
        assert gap <= memory.error
        assert gap > 0.5 * memory.error
    with pytest.raises(ValueError, match=r"at least 3 grid\^2"):
        prompt_memory(waves, 4, 2, 5.0, 10.0)
