"""The contest on given data: parts that share nothing, equal rules, words that follow their own table."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.cli import main
from headcount.measuring import Measurement, StudyPlan, measure, sequences
from headcount.measuring.answer import Conditions, answer
from headcount.measuring.baselines import _logistic, _ridge, _rotated, fit_baseline, lost
from headcount.measuring.clock import Clock, OutOfTime
from headcount.measuring.contest import Contest
from headcount.measuring.contest_trials import Trials
from headcount.measuring.contestants import (
    CONSTANT,
    FIRST_FED,
    FLATTENED,
    LAST_VALUE,
    POOLED,
    ZERO_HEADS,
    Contestant,
    network,
    without_attention,
)
from headcount.measuring.measure import one_thread
from headcount.measuring.paired_ratios import SplitErrors, compare, paired_ratio
from headcount.measuring.planning import DataSizes, Fitting, seconds, steps_within
from headcount.measuring.preparing import prepare
from headcount.measuring.searching import fit_network
from headcount.measuring.sides import Side
from headcount.measuring.splitting import outer_splits
from headcount.measuring.zero_heads import MeanNetworks, MeanSizes, fit_zero_heads
from headcount.results import Study
from studies.measure.simulated import NOISES, STUDIES, verdicts

TINY = StudyPlan(heads=(1, 2), layers=1, steps=20, splits=2, embed_dim=8, width=8, rates=(4e-3,))
FLAGS = ["--heads", "1-2", "--layers", "1", "--steps", "20", "--splits", "2", "--embed-dim", "8", "--width", "8"]


def data(samples=200, length=4, classes=0, seed=0, **more):
    rng = np.random.default_rng(seed)
    x = 5 + 3 * rng.standard_normal((samples, length, 2))
    y = x[:, :, 0].max(axis=1)
    y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y
    return sequences(x, y, **more)


def rows_of(x, rows):
    return {x[i].tobytes() for i in rows}


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(60, 200), st.integers(2, 30), st.booleans())
def test_no_sequence_and_no_group_is_on_two_sides(seed, samples, kinds, grouped):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((max(kinds, 40), 3, 1))[rng.integers(0, max(kinds, 40), samples)]  # copies are likely
    groups = rng.integers(0, 12, samples) if grouped else None
    found = sequences(x, rng.standard_normal(samples), groups=groups)
    try:
        splits = outer_splits(found, 5)
    except ValueError as refusal:
        assert "are left for validation" in str(refusal)
        return
    for parts in splits:
        assert not rows_of(found.x, [*parts.training, *parts.inner]) & rows_of(found.x, parts.outer)
        assert not set(parts.training) & set(parts.inner) and not set(parts.inner) & set(parts.outer)
        if grouped:
            sides = [set(groups[rows]) for rows in (parts.training, parts.inner, parts.outer)]
            assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    outer = np.concatenate([parts.outer for parts in splits])
    assert len(set(outer)) == len(outer)


def test_an_outer_part_comes_back_with_other_inner_parts_and_as_many_of_each_class():
    x = np.random.default_rng(0).standard_normal((200, 4, 1))
    splits = outer_splits(sequences(x, np.arange(200) % 10 == 0), 20)
    for first, *again in (splits[fold::5] for fold in range(5)):
        seen = [*first.outer, *first.inner]
        for part in again:
            assert (part.outer == first.outer).all() and not set(part.inner) & set(seen)
            assert sorted([*part.training, *part.inner]) == sorted([*first.training, *first.inner])
            assert (part.inner % 10 == 0).sum() == 4
            seen += [*part.inner]
        assert len(seen) == 200  # four quarters of what is not outer


def test_windows_are_split_in_time_and_share_no_value():
    series = np.arange(300.0)
    x = np.lib.stride_tricks.sliding_window_view(series, 10)[:-3]
    windows = sequences(x, series[12:], apart=12)
    for parts in outer_splits(windows, 5):
        assert windows.y[parts.training].max() < windows.x[parts.inner].min()
        assert windows.y[[*parts.training, *parts.inner]].max() < windows.x[parts.outer].min()


def test_units_are_taken_off_by_the_training_part_alone_and_before_digits_are_lost():
    seconds_since = (
        1.7e9 + np.random.default_rng(0).integers(0, 10**6, (300, 4, 1)) / 1e3
    )  # within a quarter of an hour
    found = sequences(seconds_since, seconds_since.max(axis=(1, 2)))
    parts = outer_splits(found, 1)[0]
    fold = prepare(found, parts)
    assert abs(fold.training.x.mean()) < 1e-6 and abs(fold.training.x.std() - 1) < 1e-6
    assert len(np.unique(fold.training.x)) > 0.99 * len(np.unique(found.x[parts.training]))
    assert len(np.unique(found.x.astype(np.float32))) < 20  # what rounding first would have left


def test_a_missing_value_counts_as_the_mean_and_is_marked():
    x = np.random.default_rng(0).standard_normal((100, 3, 2))
    x[::5, 1, 0] = np.nan
    found = sequences(x, x[:, 0, 1])
    fold = prepare(found, outer_splits(found, 1)[0])
    assert fold.training.x.shape[2] == 3 and set(np.unique(fold.training.x[:, :, 2])) == {0.0, 1.0}
    assert (fold.training.x[:, :, 0][fold.training.x[:, :, 2] == 1] == 0).all()
    assert any("60" in note or "20 values are missing" in note for note in found.notes)


def test_a_wide_table_has_units_for_every_place():
    x = np.random.default_rng(0).standard_normal((100, 3, 1)) * [[1.0], [1e3], [1e-3]]
    found = sequences(x, x[:, 0, 0], wide=True)
    fold = prepare(found, outer_splits(found, 1)[0])
    np.testing.assert_allclose(fold.training.x[:, :, 0].std(axis=0), 1, rtol=1e-5)


def test_even_weights_stay_even_in_training():
    found = data()
    fold = prepare(found, outer_splits(found, 1)[0])
    net = fit_network(FIRST_FED, fold, Fitting(TINY, 60))[1].net
    read = net.get_parameter("layer0.read.weight").detach()
    assert float(read[:16].abs().max()) == 0.0 < float(read[16:].abs().max())
    assert float(net.get_parameter("layer1.read.weight").detach()[:16].abs().min()) > 0.0
    look = fit_network(network(1), fold, Fitting(TINY, 60))[1].net.get_parameter("layer0.read.weight")
    assert float(look[:16].detach().abs().min()) > 0.0


def test_zero_heads_learn_a_mean_of_tokens_that_no_line_does():
    x = np.random.default_rng(0).standard_normal((600, 3, 1))
    found = sequences(x, (x**2).mean(axis=(1, 2)))
    fold = prepare(found, outer_splits(found, 1)[0])
    plan = StudyPlan(embed_dim=16, width=16, rates=(4e-3,))
    zero, *_ = fit_zero_heads(fold, Fitting(plan, 600))
    line = fit_baseline(FLATTENED, fold)
    assert lost(zero.outer, fold.outer, False) < 0.15 < 0.8 < lost(line.outer, fold.outer, False)


def test_zero_heads_see_no_order_but_by_places_no_padding_and_are_one_bank_as_alone():
    both = MeanNetworks.drawn(2, MeanSizes(2, 0, length=4, outputs=1, embed_dim=6, width=8), seed=0)
    x, present = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0)), torch.ones(3, 4, dtype=torch.bool)
    with torch.no_grad():
        alone = both.of([1])(x, present)
        torch.testing.assert_close(both(x, present)[1:], alone)
        both.weights["places"].zero_()
        torch.testing.assert_close(both(x.flip(1), present), both(x, present))
        cut = present.clone()
        cut[:, 3] = False
        padded = x.clone()
        padded[:, 3] = 9.0
        torch.testing.assert_close(both(padded, cut), both(x[:, :3], present[:, :3]))


def test_ridge_solves_the_normal_equations():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    predicted = _ridge(x, y, 2.0)(x)
    weights = np.linalg.lstsq(x - x.mean(0), predicted - y.mean(0), rcond=None)[0]
    np.testing.assert_allclose((x - x.mean(0)).T @ (predicted - y) + 2.0 * weights, 0, atol=1e-9)


def test_logistic_regression_is_where_its_gradient_vanishes():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    y = np.eye(2)[(x[:, 0] + rng.standard_normal(200) > 0).astype(int)]
    logits = _logistic(x, y, 1.0)(x)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    weights = np.linalg.lstsq(np.c_[x, np.ones(200)], logits, rcond=None)[0][:2]
    np.testing.assert_allclose(x.T @ (shares - y) + weights, 0, atol=1e-2)


def test_a_linear_penalty_is_no_accident_of_a_small_inner_part():
    """An inner part that a linear model separates asks for no penalty: on one of these splits that loses 2.2."""
    bunch = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    found = sequences(bunch.data[:, :, None], bunch.target, wide=True)
    split = outer_splits(found, 8)[7]
    fold = prepare(found, split)
    level, alone = (
        lost(fit_baseline(FLATTENED, one).outer, fold.outer, True) / fold.constants[2]
        for one in (fold, replace(fold, exchangeable=False))
    )
    assert level < 0.25 < 2 < alone


@pytest.mark.parametrize("fit", [_ridge, _logistic])
def test_a_linear_model_is_the_same_along_the_span_of_its_rows(fit):
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((rows, 40)) for rows in (25, 7)]
    y = np.eye(3)[rng.integers(3, size=25)]
    training, new = _rotated(parts)
    assert training.shape == (25, 25) and _rotated([parts[0].T])[0] is not None
    np.testing.assert_allclose(fit(training, y, 1.0)(new), fit(parts[0], y, 1.0)(parts[1]), atol=1e-3)


def test_order_is_seen_flattened_and_lost_pooled_and_letters_are_counted():
    x = np.random.default_rng(0).standard_normal((400, 4, 1))
    found = sequences(x, x[:, 0, 0] - x[:, 3, 0])
    fold = prepare(found, outer_splits(found, 1)[0])
    errors = {c: lost(fit_baseline(c, fold).outer, fold.outer, False) for c in (FLATTENED, POOLED, CONSTANT)}
    assert errors[FLATTENED] < 1e-3 and errors[POOLED] > 0.9 and errors[CONSTANT] > 0.9
    ids = np.random.default_rng(0).integers(0, 5, (400, 9))
    letters = sequences(ids, (ids == 3).sum(axis=1), kind="regression")
    fold = prepare(letters, outer_splits(letters, 1)[0])
    assert lost(fit_baseline(POOLED, fold, 5).outer, fold.outer, False) < 1e-3


def test_the_interval_adds_what_sequences_and_what_trainings_do():
    rng = np.random.default_rng(0)
    one, other = rng.uniform(0.5, 1.0, (5, 8)), rng.uniform(0.8, 1.3, (5, 8))
    five = np.arange(5)
    ratio, low, high = paired_ratio(one, other, five)
    moved = one / one.sum() - other / other.sum()
    splits, blocks = 5 / 4 * (moved.sum(axis=1) ** 2).sum(), 8 / 7 * (moved.sum(axis=0) ** 2).sum()
    freedom = (splits + blocks) ** 2 / (splits**2 / 4 + blocks**2 / 7)
    reach = scipy.stats.t.ppf(0.95, freedom) * math.sqrt(splits + blocks)
    expected = one.sum() / other.sum()
    assert (ratio, low, high) == pytest.approx((expected, expected * math.exp(-reach), expected * math.exp(reach)))
    assert paired_ratio(3 * one, 3 * other, five) == pytest.approx((ratio, low, high))
    assert paired_ratio(other, one, five) == pytest.approx((1 / ratio, 1 / high, 1 / low))
    few = paired_ratio(np.tile(one[:, :3], (4, 1)), np.tile(other[:, :3], (4, 1)), np.tile(five, 4))
    moved = one[:, :3] / one[:, :3].sum() - other[:, :3] / other[:, :3].sum()
    folds, blocks = 5 / 4 * (moved.sum(axis=1) ** 2).sum(), 3 / 2 * (moved.sum(axis=0) ** 2).sum()
    freedom = (folds + blocks) ** 2 / (folds**2 / 4 + blocks**2 / 2)
    assert math.log(few[2] / few[0]) == pytest.approx(
        scipy.stats.t.ppf(0.95, freedom) * math.sqrt(folds + blocks)
    )  # three speakers on twenty splits are three, and four networks of a fold one
    empty = np.zeros((5, 3))
    assert paired_ratio(np.hstack([one, empty]), np.hstack([other, empty]), five) == pytest.approx((ratio, low, high))


def test_networks_of_one_fold_tell_of_trainings_and_not_of_sequences_or_choices():
    """Ten splits that repeat five tell what five do; what chance does in a training is averaged out by a second one."""
    rng = np.random.default_rng(1)
    one, other = rng.uniform(0.5, 1.0, (5, 8)), rng.uniform(0.8, 1.3, (5, 8))
    once, twice = (paired_ratio(np.tile(one, (n, 1)), np.tile(other, (n, 1)), np.tile(np.arange(5), n)) for n in (1, 2))
    assert twice == pytest.approx(once)
    chance = rng.normal(0, 0.3, (5, 8))
    apart = paired_ratio(np.vstack([other + chance, other - chance]), np.tile(other, (2, 1)), np.tile(np.arange(5), 2))
    assert apart == pytest.approx((1.0, 1.0, 1.0))


def test_a_split_that_goes_wrong_by_a_factor_of_a_hundred_shows_nothing_worse():
    usual = np.array([0.2, 0.21, 0.19, 0.2, 0.21, 0.2, 0.19, 0.2])[:, None]
    wrong = usual.copy()
    wrong[0] = 2.0
    folds = np.arange(8) % 5
    assert paired_ratio(wrong, usual, folds)[1] < 1 and paired_ratio(0.25 * usual, 4 * wrong, folds)[2] < 0.4
    assert compare({0: [1.0]}, {1: [1.0]}, ("a", "b")).splits == 0
    assert compare({0: [1.0], 1: [math.inf]}, {0: [1.0], 1: [1.0]}, ("a", "b")).high == math.inf


def test_blocks_hold_whole_groups_copies_and_times():
    x = np.random.default_rng(0).standard_normal((300, 4, 1))
    x[150:] = x[:150]
    parts = outer_splits(sequences(x, x[:, 0, 0]), 10)
    assert all((part.blocks == parts[0].blocks).all() for part in parts) and parts[0].blocks.max() == 31
    assert (parts[0].blocks[150:] == parts[0].blocks[:150]).all()
    x = np.random.default_rng(1).standard_normal((300, 4, 1))
    groups = np.repeat(np.arange(20), 15)
    by_group = outer_splits(sequences(x, x[:, 0, 0], groups=groups), 5)[0].blocks
    assert len(np.unique(by_group)) == 20 and all(len(set(by_group[groups == g])) == 1 for g in range(20))
    windows = outer_splits(sequences(x, x[:, 0, 0], apart=2), 5)
    outer = np.sort(np.concatenate([part.outer for part in windows]))
    assert (np.diff(windows[0].blocks[outer]) >= 0).all() and windows[0].blocks[outer].max() == 31
    losses = np.arange(len(parts[0].outer), dtype=float)
    assert sum(parts[0].in_blocks(losses)) == pytest.approx(losses.sum(), rel=1e-4)


def test_one_contestant_stands_for_a_side_wherever_the_outer_part_is_the_same():
    """Inner parts of one outer part choose together; what another outer part's inner parts say does not count."""
    outer = dict.fromkeys(range(10), 0.5)
    steady = SplitErrors("a", 1, 1, True, True, outer, dict.fromkeys(range(10), 0.3), outer)
    lucky = SplitErrors("b", 1, 1, True, True, outer, dict.fromkeys(range(10), 0.2) | {7: 0.9}, outer)
    side = Side((steady, lucky))
    assert [side.preferred(split)[0].name for split in range(10)] == ["b", "b", "a", "b", "b"] * 2


def test_whom_inner_parts_do_not_tell_apart_stand_for_a_side_together():
    def one(name, outer, inner):
        return SplitErrors(name, 1, 1, True, True, {0: outer}, {0: inner}, {0: outer})

    three = (one("a", 0.2, 0.30), one("b", 0.4, 0.31), one("c", 9.0, 0.32))  # 5% of the best: 0.315
    assert [each.name for each in Side(three).preferred(0)] == ["a", "b"]
    assert Side(three).level([0]) == pytest.approx(0.3)
    exact = one("a", 0.2, 0.0), one("b", 0.4, 0.004), one("c", 9.0, 0.006)  # 0.005 of the constant's error
    assert Side(exact).level([0]) == pytest.approx(0.3)


def scores(name, heads, outer, inner=None, short=None, depth=1):
    by = dict(enumerate(outer))
    inner = dict(enumerate(inner)) if inner is not None else by
    depth = depth if heads else 0
    return SplitErrors(
        name, heads, depth, heads > 0, heads > 0, by, inner, inner if short is None else dict(enumerate(short))
    )


def noisy(level, seed=0, noise=0.02):
    return (level * np.exp(np.random.default_rng(seed).normal(0, noise, 10))).tolist()


def test_attention_is_held_against_everybody_without_it_and_not_against_whom_inner_parts_prefer():
    """Zero heads stop by their inner parts and have the smaller error there; the linear model is the better one."""
    zero = scores("zero heads", 0, noisy(0.18), inner=[0.09] * 10, short=noisy(0.18))
    line = scores("linear, flattened", 0, noisy(0.11, 1), inner=[0.13] * 10, short=noisy(0.11, 1))
    head = scores("1 head", 1, noisy(0.15, 2), inner=[0.08] * 10, short=noisy(0.15, 2))
    assert answer([zero, head]).verdict == "worth it"
    found = answer([zero, line, head])
    assert found.verdict == "not worth it" and found.compared[0].other == "linear, flattened"
    assert {one.other for one in found.compared} == {"linear, flattened", "zero heads"}
    better = answer([zero, line, scores("1 head", 1, noisy(0.08, 2))])
    assert better.verdict == "worth it" and better.compared[0].other == "linear, flattened"


def test_one_rival_that_cannot_be_told_from_attention_leaves_it_open_and_one_as_good_decides():
    zero, head = scores("zero heads", 0, noisy(0.4)), scores("1 head", 1, noisy(0.2, 1))
    unsteady = scores("boosting", 0, noisy(0.24, 2, noise=1.0))
    assert answer([zero, unsteady, head]).verdict == "cannot say yet"
    equal = scores("linear", 0, noisy(0.2, 3))
    assert answer([zero, unsteady, equal, head]).verdict == "not worth it"


def test_more_steps_must_turn_everybody_who_decides_against_attention():
    late = scores("1 head", 1, noisy(0.3, 1), short=[0.6] * 10)
    exact, equal = scores("linear", 0, noisy(0.05)), scores("zero heads", 0, noisy(0.3, 2))
    fewer, most = Conditions(steps=1500), Conditions(steps=6000)
    assert answer([equal, late], fewer).missing == "steps"  # after four times the steps, half of the error
    assert answer([exact, equal, late], fewer).verdict == "not worth it"
    assert answer([equal, late], most).verdict == "not worth it"  # nobody is trained for longer


def test_more_layers_with_a_smaller_error_on_too_few_splits_are_named_beside_the_advice():
    """A sentence never stands against a row of its own table: the row is named, with what it does not tell."""
    zero = scores("zero heads", 0, [0.4, 0.41, 0.4, 0.42])
    one = scores("1 head", 1, [0.2, 0.21, 0.2, 0.2])
    deep = scores("1 head, 2 layers", 1, [0.1], depth=2)
    found = answer([zero, one, deep])
    assert (found.heads, found.layers, found.missing) == (1, 1, "splits")
    assert "1 head in 2 layers had 0.1 against 0.2 on 1 split, which does not tell yet." in found.advice
    alike = answer([zero, one, scores("1 head, 2 layers", 1, [0.197], depth=2)])
    assert alike.open_depth == "" and "2 layers" not in alike.advice


def test_a_count_by_the_mean_and_a_block_by_the_interval_are_told_apart():
    zero, one = scores("zero heads", 0, noisy(0.4)), scores("1 head", 1, noisy(0.3, 1))
    best = scores("3 heads", 3, noisy(0.1, 3, 0.005))
    clear = answer([zero, one, scores("2 heads", 2, noisy(0.102, 2)), best])
    assert (clear.heads, clear.heads_claim.value) == (2, 2) and "by the mean" not in clear.advice
    open_ = answer([zero, one, scores("2 heads", 2, noisy(0.103, 2, 0.04)), best])
    assert (open_.heads, open_.heads_claim.value) == (3, 2)
    assert "That is by the mean error; by the whole interval" in open_.advice
    assert open_.advice.endswith("it takes 3 heads in 1 layer.")
    assert "That is among counts in 1 layer; by the whole" in replace(clear, heads=3).advice


def test_a_short_training_does_not_say_that_attention_is_not_worth_it():
    """Eight rows of digits in twenty seconds: a hundred steps, and an error that has just been more than halved."""
    linear, late = scores("linear", 0, [0.043, 0.044, 0.044]), [0.18, 0.17, 0.19]
    found = answer([linear, scores("6 heads", 6, late, short=[0.42, 0.41, 0.42])])
    assert (found.verdict, found.missing) == ("cannot say yet", "steps")
    settled = answer([linear, scores("6 heads", 6, late, short=[0.2, 0.19, 0.2])])
    assert settled.verdict == "not worth it"


@pytest.mark.parametrize("noise", NOISES)
def test_where_both_sides_are_equal_worth_it_is_rarely_said_and_a_gain_of_a_fifth_is_found(noise):
    equal, better = verdicts(0.0, noise), verdicts(0.2, noise)
    assert equal["worth it"] <= 0.05 * STUDIES
    assert better["worth it"] >= 0.8 * STUDIES
    assert better["not worth it"] <= 0.05 * STUDIES


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.0, 0.5), st.integers(2, 6))
def test_no_sentence_is_said_against_its_own_table(seed, noise, splits):
    rng = np.random.default_rng(seed)
    tested = (1, 2, 3, 4, 6, 8)
    levels = {h: 10 ** rng.uniform(-3, 0) for h in tested}
    counts = [scores(f"{h} heads", h, levels[h] * 10 ** rng.normal(0, noise, splits)) for h in tested]
    found = answer([scores("zero heads", 0, 0.9 * np.ones(splits)), *counts])
    for count in found.counts:
        means = {one.heads: one.mean(one.outer) for one in counts}
        bound = max(1.05 * min(means.values()), min(means.values()) + 0.005)
        assert count.low <= count.heads <= count.high and means[count.heads] <= bound * (1 + 1e-9)
        assert all(means[h] > bound for h in tested if h < count.heads)
        assert count.best == min(means, key=means.get)
    if found.verdict == "worth it":
        assert found.heads in tested and found.compared[0].high < 1


def test_a_count_that_was_not_tried_stays_open_and_half_a_hundredth_of_the_constant_is_no_reason_for_a_head():
    zero = scores("zero heads", 0, [0.5, 0.52, 0.51])
    tried = [scores(f"{h} heads", h, [e, 1.02 * e, 0.99 * e]) for h, e in ((1, 0.3), (2, 0.1), (4, 0.004), (8, 0.003))]
    found = answer([zero, *tried], Conditions(tested=(1, 2, 3, 4, 6, 8)))
    (count,) = found.counts
    assert (count.heads, count.low, count.high, count.untested) == (4, 3, 4, (3,))
    assert Measurement._sparse(SimpleNamespace(answer=found)).endswith("were not tested: 3 in 1 layer")
    (count,) = answer([zero, *tried], Conditions(tested=(1, 2, 4, 8))).counts
    assert (count.heads, count.low, count.high, count.best, count.hurts) == (4, 4, 4, 8, None)


def test_more_heads_that_do_worse_are_named_and_the_last_count_tried_is_no_answer():
    zero = scores("zero heads", 0, [0.9, 0.92, 0.91])
    turned = [scores(f"{h} heads", h, [e, 1.01 * e, 0.99 * e]) for h, e in ((1, 0.5), (2, 0.02), (4, 0.05), (8, 0.2))]
    found = answer([zero, *turned])
    assert found.counts[0].hurts == 4 and "from 4 heads on it is larger again" in found.advice
    falling = [scores(f"{h} heads", h, [e, 1.01 * e, 0.99 * e]) for h, e in ((1, 0.5), (2, 0.3), (4, 0.1), (8, 0.02))]
    found = answer([zero, *falling])
    assert found.verdict == "worth it" and "The error still falls at 8 heads" in found.advice
    assert (found.heads_claim.word, found.missing, found.ask) == ("still falls", "heads", {"heads": "1-16"})


def test_a_contestant_given_up_after_three_splits_leaves_the_others_their_later_ones():
    zero = scores("zero heads", 0, [0.5, 0.52, 0.51, 0.5, 0.49])
    given_up, two = scores("1 head", 1, [0.4, 0.41, 0.4]), scores("2 heads", 2, [0.1, 0.11, 0.1, 0.12, 0.1])
    found = answer([zero, given_up, two], Conditions(complete=[0, 1, 2, 3, 4]))
    assert found.compared[0].splits == 5 and (found.heads, found.counts[0].low) == (2, 2)
    half = answer([zero, given_up, two], Conditions(complete=[0, 1, 2]))
    assert half.compared[0].splits == 3 and half.verdict == "worth it"


def test_what_needs_no_attention_and_leaves_nothing_to_gain_is_said_to():
    zero = scores("zero heads", 0, [0.004, 0.001, 0.002])
    one = scores("1 head", 1, [0.003, 0.004, 0.001])
    assert answer([zero, one]).verdict == "not worth it"
    larger = [scores("zero heads", 0, [0.4, 0.1, 0.2]), scores("1 head", 1, [0.3, 0.4, 0.1])]
    assert answer(larger).verdict == "cannot say yet"


def test_a_rare_class_is_counted_where_classes_are_uneven_and_not_where_all_are_small():
    x = np.random.default_rng(0).standard_normal((80, 3, 1))
    assert not sequences(x, np.arange(80) % 4).uneven
    assert sequences(x, (np.arange(80) % 16 == 0).astype(int)).uneven


def test_what_more_steps_might_overturn_is_not_said():
    falling = scores("1 head", 1, [0.5] * 3, [0.5] * 3, [2.0] * 3)
    still = scores("zero heads", 0, [0.4, 0.41, 0.39])
    assert answer([still, falling], Conditions(steps=100)).missing == "steps"
    settled = scores("1 head", 1, [0.5, 0.51, 0.49])
    assert answer([still, settled]).verdict == "not worth it"
    assert answer([still, falling], Conditions(steps=100)).ask == {"steps": 400}


def test_few_positives_one_split_and_nothing_to_learn_have_words_of_their_own():
    good = [scores("zero heads", 0, [0.4, 0.41, 0.39]), scores("1 head", 1, [0.2, 0.21, 0.19])]
    assert answer(good, Conditions(rarest=("yes", 17))).missing == "positives"
    assert answer([scores("zero heads", 0, [0.4]), scores("1 head", 1, [0.1])]).missing == "splits"
    noise = [scores("zero heads", 0, [1.0, 1.01, 1.02]), scores("1 head", 1, [1.03, 1.0, 1.01])]
    found = answer(noise)
    assert found.verdict == "not worth it" and "better than a constant" in found.reason
    assert answer(()).verdict == "cannot say yet"


def test_steps_follow_from_the_time_given_and_never_from_a_clock():
    sizes = DataSizes(training=1000, inner=200, length=12)
    planned = [steps_within(StudyPlan(), budget, sizes) for budget in (5, 20, 60, 120, 300, 600, 6000)]
    assert planned == sorted(planned) and planned[0] == (100, 3) and planned[-2][0] >= 1500
    assert steps_within(StudyPlan(steps=77), 5.0, sizes) == (77, 5)
    assert planned[-1] == (3000, 5)  # a hundred epochs: more steps would only remember
    few = replace(sizes, training=100)
    assert steps_within(StudyPlan(), 6000.0, few) == (1500, 5)


@pytest.mark.parametrize("text", ["soon", "", "-3s", "0", "5 days"])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="a time such as"):
        seconds(text)


def test_rows_are_kept_and_a_second_call_trains_nothing(tmp_path, monkeypatch):
    first = measure(data(), plan=TINY, store=tmp_path)
    monkeypatch.setattr(Trials, "trained", lambda *rest: pytest.fail("trained again"))
    assert measure(data(), plan=TINY, store=tmp_path).study.rows == first.study.rows
    with pytest.raises(BaseException, match="trained again"):
        measure(data(seed=1), plan=TINY, store=tmp_path)


def test_an_interrupted_contest_says_what_is_known_and_goes_on(tmp_path, monkeypatch):
    trained = Trials.trained
    left = [4]

    def interrupting(self, *rest):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return trained(self, *rest)

    monkeypatch.setattr(Trials, "trained", interrupting)
    part = measure(data(), plan=TINY, store=tmp_path)
    assert part.answer.verdict == "cannot say yet" and len(part.study) == 4
    assert any("goes on where it stopped" in warning for warning in part.warnings)
    left[0] = 1000
    rest = measure(data(), plan=TINY, store=tmp_path)
    assert rest.study.rows[:4] == part.study.rows and len(rest.study) > 10


def test_a_busy_machine_gets_less_far_with_the_same_networks(tmp_path):
    now = [0.0]

    def ticking(step):
        def clock():
            now[0] += step
            return now[0]

        return clock

    def rows(step):
        now[0] = 0.0
        plan = StudyPlan(heads=(1, 2), layers=1, steps=20, embed_dim=8, width=8, rates=(4e-3,))
        contest = Contest.of(
            data(), plan, tmp_path / str(step), Clock(60.0, 0.0, ticking(step)), lambda line: None, "cpu"
        )
        return contest.run()

    idle, busy = rows(0.3), rows(2.0)
    assert 0 < len(busy) < len(idle) and busy.spec["stopped"] == "time"
    for one, other in zip(busy, idle, strict=False):
        assert (one["contestant"], one["seed"], one["nmse"]) == (other["contestant"], other["seed"], other["nmse"])
    assert Measurement(busy).answer.verdict in (Measurement(idle).answer.verdict, "cannot say yet")


def test_a_training_is_given_up_when_the_time_is_over():
    passed = [0.0]

    def now():
        passed[0] += 1.0
        return passed[0]

    fold = prepare(data(), outer_splits(data(), 2)[0])
    for fit in (partial(fit_network, network(1)), fit_zero_heads):
        passed[0] = 0.0
        clock = Clock(30.0, 0.0, now)
        with pytest.raises(OutOfTime):
            fit(fold, Fitting(TINY, 2000, look=clock.look))
        assert passed[0] < 40
        fit(fold, Fitting(TINY, 20))


def test_a_busy_machine_keeps_more_time_for_the_page():
    passed = {"wall": 0.0, "processor": 0.0}
    clock = Clock(100.0, 0.0, lambda: passed["wall"], lambda: passed["processor"])
    passed |= {"wall": 20.0, "processor": 20.0}
    idle = clock.left
    passed["processor"] = 5.0
    assert clock.busy == 4 and idle - clock.left == pytest.approx(12) and not clock.fits(20.0)
    clock.rested(15.0)  # nothing was asked of it
    assert clock.busy == 1
    passed["processor"] = 0.001
    assert clock.left == pytest.approx(100 - 20 - 40)  # never more than two fifths


def test_the_saved_network_is_the_one_that_the_inner_part_chose(tmp_path):
    found = measure(data(), plan=TINY, store=tmp_path / "kept", model=tmp_path / "m.safetensors")
    attending = [row for row in found.study if row["attends"]]
    if found.answer.heads is not None:
        attending = [r for r in attending if r["standard"] and (r["heads"], r["depth"]) == found._advised]
    assert found.saved.inner == min(row["inner"] for row in attending)
    assert (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize("classes", [0, 3])
def test_the_command_writes_the_page_and_prints_what_it_says(classes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given_data = data(classes=classes)
    np.savez("mine.npz", x=given_data.x, y=given_data.y[:, 0], lengths=2 + np.arange(200) % 3)
    with pytest.raises(SystemExit) as stop:
        main(["measure", "mine.npz", *FLAGS, "--out", "here"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "2 to 4 tokens with 2 features" in out
    assert ("wrong" in out) == bool(classes)
    page = Path("here/report.html").read_text()
    assert ("elative cross-entropy" in page) == bool(classes) and "what is padded is never attended to" in page
    with pytest.raises(SystemExit):
        main(["measure", "mine.npz", *FLAGS, "--out", "here", "--json"])
    whole = json.loads(capsys.readouterr().out)
    assert set(whole) >= {"verdict", "heads", "layers", "reason", "compared", "advice", "levels", "files", "rows"}
    assert all(("error_rate" in row) == bool(classes) for row in whole["rows"])
    with pytest.raises(SystemExit):
        main(["report", "here/study.json", "--out", "again"])
    assert Path("again/report.html").read_text().split("<header>")[1].split("</header>")[0] in page
    capsys.readouterr()
    for words, said in (
        (["fit", "here/study.json"], "was measured, not swept: `headcount report here/study.json`"),
        (["fit", "here/study.json", "--learning-rate"], "was measured, not swept"),
        (["fit", "here"], "a study of another command is there: here/study.json"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code and said in capsys.readouterr().err


def test_two_targets_are_learned_together():
    x = np.random.default_rng(0).standard_normal((200, 5, 2))
    y = np.stack([x[:, :, 0].max(axis=1), x[:, :, 1].mean(axis=1)], axis=1)
    found = measure(x, y, plan=TINY)
    assert all(np.isfinite(level) for level in found.levels.values())
    with pytest.raises(ValueError, match="one per token"):
        sequences(x, x[:, :, 0])


def test_a_measurement_shows_itself_in_few_letters():
    rows = tuple(
        {"contestant": name, "heads": h, "depth": min(h, 1), "attends": h > 0, "standard": h > 0, "seed": s,
         "nmse": level * (1 + s / 50), "inner": level, "short": level}
        for name, h, level in (("zero heads", 0, 0.5), ("1 head", 1, 0.1)) for s in range(3)
    )  # fmt: skip
    found = Measurement(Study(rows))
    assert len(repr(found)) < 2000 and "worth it" in repr(found) and "<table>" in found._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("look_ups", [0, 1, 2])
def test_planted_look_ups_are_found(look_ups):
    rng = np.random.default_rng(100 + look_ups)
    directions = rng.standard_normal((max(look_ups, 1), 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x = rng.standard_normal((1000, 8, 4))
    y = (x @ directions.T).max(axis=1).sum(axis=1) if look_ups else x.mean(axis=1) @ directions[0]
    found = measure(x, y, heads=(1, 2, 4), layers=1, steps=800, splits=3)
    assert found.answer.verdict == ("worth it" if look_ups else "not worth it")
    if look_ups:
        (count,) = found.answer.counts
        assert count.low <= look_ups <= count.high


def test_contestants_are_told_apart_by_name():
    assert (
        Contestant("zero heads", (0,)) == ZERO_HEADS and not ZERO_HEADS.attends and network(4, layers=2).heads == (4, 4)
    )


def test_a_network_that_diverged_neither_stands_for_its_side_nor_stops_the_count():
    broken = scores("4 heads", 4, [math.inf, 0.11, 0.1], [math.inf, 0.1, 0.1])
    good = scores("2 heads", 2, [0.1, 0.11, 0.1])
    zero = scores("zero heads", 0, [0.5, 0.52, 0.51])
    found = answer([zero, good, broken])
    assert found.verdict == "worth it" and (found.heads, found.counts[0].best) == (2, 2)
    rows = tuple(
        {"contestant": one.name, "heads": one.heads, "depth": one.depth, "attends": one.attends,
         "standard": one.standard, "seed": s, "nmse": None if math.isinf(v) else v, "inner": v, "short": math.nan}
        for one in (zero, good, broken) for s, v in one.outer.items()
    )  # fmt: skip
    assert Measurement(Study(rows)).answer.heads == 2


def test_one_split_is_said_in_plain_json():
    found = answer([scores("zero heads", 0, [0.4]), scores("1 head", 1, [0.1])])
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["verdict"] == "cannot say yet"


def test_the_last_value_of_a_walk_is_the_best_there_is_and_a_constant_loses_one():
    walk = np.random.default_rng(0).standard_normal(400).cumsum()
    x = np.lib.stride_tricks.sliding_window_view(walk, 5)[:-1, :, None]
    windows = sequences(x, walk[5:], apart=5, past=0)
    assert LAST_VALUE in without_attention(windows)
    fold = prepare(windows, outer_splits(windows, 1)[0])
    last, constant = (lost(fit_baseline(c, fold).outer, fold.outer, False) for c in (LAST_VALUE, CONSTANT))
    in_units = last * fold.scale.y_spread[0] ** 2
    assert 0.6 < in_units < 1.6 and constant >= fold.constants[2] > last


def test_a_constant_for_classes_loses_their_entropy():
    found = data(classes=4)
    fold = prepare(found, outer_splits(found, 1)[0])
    assert lost(fit_baseline(CONSTANT, fold).outer, fold.outer, True) == pytest.approx(math.log(4), rel=0.02)


def test_threads_are_as_they_were_afterwards():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_workers_train_the_rows_that_one_process_would(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.measuring.contest.WORTH_WORKERS", 0.0)
    alone, together = (
        measure(data(), plan=TINY, store=tmp_path / str(count), workers=count, model=tmp_path / f"{count}.hc")
        for count in (1, 2)
    )

    def told(found):
        return [{k: v for k, v in row.items() if k != "cpu_seconds"} for row in found.study]

    assert told(alone) == told(together) and alone.sentence == together.sentence
    assert (tmp_path / "1.hc").read_bytes() == (tmp_path / "2.hc").read_bytes()


@pytest.mark.parametrize(
    "field",
    ["rarest", "complete", "steps", "most_splits", "entering", "plan", "plan.heads", "plan.tolerance"],
)
@pytest.mark.parametrize("value", [[1], "x", {"a": 1}, [["a"], 2, 3], [[0], [1]], -0.5])
def test_a_stored_measurement_with_a_field_of_another_type_is_one_line_or_none(field, value):
    rows = tuple(
        {"contestant": name, "heads": h, "depth": min(h, 1), "attends": h > 0, "standard": h > 0, "seed": s,
         "nmse": level * (1 + s / 50), "inner": level, "short": level}
        for name, h, level in (("zero heads", 0, 0.5), ("1 head", 1, 0.1)) for s in range(3)
    )  # fmt: skip
    spec = {"plan": {field.removeprefix("plan."): value}} if "." in field else {field: value}
    try:
        assert Measurement(Study(rows, spec)).sentence
    except ValueError as refusal:
        assert "damaged" in str(refusal)


@pytest.mark.parametrize("value", [None, "x", [1], {}, "gone"])
@pytest.mark.parametrize(
    "column", ["contestant", "heads", "depth", "attends", "standard", "seed", "nmse", "inner", "short"]
)
def test_a_stored_row_with_a_field_missing_or_of_another_type_is_one_line(column, value):
    row = {"contestant": "1 head", "heads": 1, "depth": 1, "attends": True, "standard": True, "seed": 0,
           "nmse": 0.2, "inner": 0.2, "short": 0.3}  # fmt: skip
    changed = {k: v for k, v in row.items() if k != column} if value == "gone" else row | {column: value}
    if (column == "contestant" and value == "x") or (value is None and column in ("nmse", "inner", "short")):
        assert Measurement(Study((changed,))).sentence
        return
    with pytest.raises(ValueError, match=f"damaged: {column} is"):
        Measurement(Study((changed,))).sentence  # noqa: B018


def test_splits_are_missing_only_where_they_would_tell():
    """Seventeen of twenty say nearly all that splits can say; of five that nearly tell, fifteen more would.

    What differs between outer parts, and not between the splits of one, more splits do not lower. Nor do they mend
    one on which a network diverged.
    """
    far = [0.1, 0.9, 0.2, 0.8, 0.3] * 3 + [0.1, 0.9]
    even = answer([scores("zero heads", 0, [0.5] * 17), scores("1 head", 1, far)], Conditions(most_splits=20))
    near = answer([scores("zero heads", 0, [0.4] * 5), scores("1 head", 1, [0.3, 0.42, 0.3, 0.42, 0.3])],
                  Conditions(most_splits=20))  # fmt: skip
    assert (even.verdict, even.missing, even.ask) == ("cannot say yet", "sequences", None)
    for zero, head in ((math.inf, 0.1), (0.4, math.inf), (math.inf, math.inf)):
        lost = answer([scores("zero heads", 0, [0.4] * 5 + [zero]), scores("1 head", 1, [0.1] * 5 + [head])],
                      Conditions(most_splits=20))  # fmt: skip
        assert (lost.verdict, lost.missing) == ("cannot say yet", "")
        assert lost.reason.endswith("and a network diverged on a split")
    outer = np.array([0.33, 0.40, 0.34, 0.38, 0.35])
    for apart, missing in ((0.02, "sequences"), (0.04, "splits")):
        twice = scores("1 head", 1, [*(outer + apart), *(outer - apart)])
        half = answer([scores("zero heads", 0, [0.39] * 10), twice], Conditions(most_splits=20))
        assert (half.verdict, half.missing) == ("cannot say yet", missing)
    assert (near.verdict, near.missing, near.ask) == ("cannot say yet", "splits", {"splits": 20})


def test_splits_are_missing_for_heads_only_where_they_would_tell_them_apart():
    """The same spread of 1 head over ten splits: between outer parts it stays, within them it is averaged further."""
    zero, best = scores("zero heads", 0, [0.6] * 10), scores("4 heads", 4, [0.2] * 10)
    outer, within = np.array([1, -0.6, 1.2, -0.7, -0.9]), np.array([1, -1, 1, -1, 0.5])
    for share, missing in ((0.0, "sequences"), (3.0, "splits")):
        parts = [0.225 + 0.015 * (outer + sign * share * within) for sign in (1, -1)]
        found = answer([zero, scores("1 head", 1, np.concatenate(parts)), best], Conditions(most_splits=20))
        assert (found.verdict, found.counts[0].interval) == ("worth it", "[1, 4]")
        assert found.missing == missing


def test_a_title_names_a_block_only_where_its_heads_are_the_count_that_is_enough():
    zero, two, eight = (scores(n, h, [e, e * 1.01, e * 0.99]) for n, h, e in
                        (("zero heads", 0, 0.4), ("2 heads", 2, 0.1), ("8 heads", 8, 0.0999)))  # fmt: skip
    found = answer([zero, scores("1 head", 1, [0.3, 0.303, 0.297]), two, eight])
    assert found.heads_claim is not None and found.heads_claim.value == found.heads == 2
    assert found.headline == "Attention is worth it: 2 heads in 1 layer"
    assert replace(found, heads=8).headline == "Attention is worth it; heads and layers are open"


def test_what_a_contest_with_a_time_to_keep_writes_is_read():
    """`StudyPlan.steps` is None there, as in every plan that says nothing of steps."""
    from headcount.results.study import as_spec

    spec = {"measured": True, "plan": StudyPlan().to_json(), "steps": 1500, "budget": 300.0}
    assert as_spec(json.loads(json.dumps(spec)), "the spec")["plan"]["steps"] is None


def test_no_two_modules_of_a_contest_call_each_other():
    calls = set()

    def module_of(frame):
        name = frame.f_globals.get("__name__", "")
        return name if name.startswith("headcount.measuring.") else ""

    def heard(frame, event, argument):
        if event == "call" and (called := module_of(frame)):
            caller = frame.f_back
            while caller is not None and "headcount" not in caller.f_code.co_filename:  # what checks types, a library
                caller = caller.f_back
            calls.add((module_of(caller) if caller else "", called))

    x = np.random.default_rng(0).standard_normal((80, 4, 1))
    small = StudyPlan(heads=(1, 2, 3), layers=2, steps=20, splits=2, embed_dim=8, width=8, rates=(4e-3, 1e-3))
    sys.setprofile(heard)
    try:
        measured = measure(x, x.max(axis=(1, 2)), plan=small)
        assert measured.sentence and measured._repr_html_() and measured.as_row()
    finally:
        sys.setprofile(None)
    pairs = {(one, other) for one, other in calls if one not in ("", other)}
    assert len(pairs) > 30 and not {(one, other) for one, other in pairs if (other, one) in pairs}
