"""Measuring given data: no leakage, a time that is kept, rows that are kept, and a page for whatever is found."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.cli import main
from headcount.measuring import StudyPlan, measure, sequences
from headcount.measuring.ordering import OrderTrial
from headcount.measuring.pacing import Clock
from headcount.measuring.planning import fitting, seconds, smaller
from headcount.measuring.preparing import prepare
from headcount.measuring.question import Question
from headcount.measuring.splitting import split
from headcount.measuring.subject import Subject
from headcount.measuring.timing import Rate, Rates
from headcount.numerals import spoken_time
from headcount.results import Store
from headcount.training import Given, Member, Recipe
from headcount.training.memory import bank_memory

measuring = importlib.import_module("headcount.measuring.measure")  # the name is that of its function too
TINY = StudyPlan(heads=(1, 2), seeds=2, steps=40, embed_dim=4, width=8)


def data(samples=200, length=4, classes=0, seed=0, **more):
    rng = np.random.default_rng(seed)
    x = 5 + 3 * rng.standard_normal((samples, length, 2))
    y = x[:, :, 0].max(axis=1)
    y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y
    return sequences(x, y, **more)


def rows_of(x, rows):
    return {x[i].tobytes() for i in rows}


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(60, 200), st.integers(2, 30), st.booleans())
def test_no_sequence_and_no_group_is_on_both_sides(seed, samples, kinds, grouped):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((max(kinds, 40), 3, 1))[rng.integers(0, max(kinds, 40), samples)]  # copies are likely
    groups = rng.integers(0, 12, samples) if grouped else None
    given_data = sequences(x, rng.standard_normal(samples), groups=groups)
    try:
        parts = split(given_data, seed)
    except ValueError as refusal:
        assert "are left for validation" in str(refusal)
        return
    assert not rows_of(given_data.x, parts.training) & rows_of(given_data.x, parts.validation)
    assert not set(parts.training) & set(parts.validation)
    if grouped:
        assert not set(groups[parts.training]) & set(groups[parts.validation])
    else:
        assert len(parts.training) + len(parts.validation) == samples


def test_windows_are_split_in_time_and_share_no_value():
    series = np.arange(300.0)
    x = np.lib.stride_tricks.sliding_window_view(series, 10)[:-3]
    windows = sequences(x, series[12:], apart=12)
    parts = split(windows)
    last_value_trained_on = windows.y[parts.training].max()
    assert last_value_trained_on < windows.x[parts.validation].min()
    assert windows.x[parts.validation].min() - last_value_trained_on <= 1  # and the gap is no wider than it must be
    assert "12 windows left out" in parts.words


def test_another_seed_is_another_split():
    one, two = split(data(), 0), split(data(), 1)
    assert set(one.validation) != set(two.validation)
    assert len(one.validation) == len(two.validation) == 40


def test_normalisation_knows_the_training_part_alone():
    one = data()
    parts = split(one)
    moved = one.x.copy()
    moved[parts.validation] *= 100
    other = sequences(moved, one.y[:, 0])
    first, second = prepare(one, parts), prepare(other, parts)
    np.testing.assert_allclose(first.training.x, second.training.x)
    np.testing.assert_allclose(first.training.x.mean((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(first.training.x.std((0, 1)), 1, atol=1e-6)
    assert first.constant[0] == pytest.approx(1.0)


def test_a_constant_for_classes_loses_their_entropy():
    found = prepare(data(classes=4), split(data(classes=4)))
    assert found.constant[0] == pytest.approx(np.log(4), abs=0.02)
    assert found.training.y.shape == (160, 4)


def test_a_plan_keeps_the_state_and_shares_it_among_heads():
    archs = [StudyPlan().arch(heads, 3) for heads in range(1, 9)]
    assert {arch.embed_dim for arch in archs} == {24}
    assert [arch.layers[0][1] for arch in archs] == [24, 12, 8, 6, 5, 4, 4, 3]
    assert all(h * n >= 24 for arch in archs for h, n in arch.layers)


def test_plans_shrink_in_the_stated_order_and_never_grow():
    plans = [plan for plan, _ in smaller(StudyPlan())]
    sizes = [len(p.heads) * p.seeds * p.steps for p in plans]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)
    assert [p.seeds for p in plans[:3]] == [4, 4, 4]  # steps go first
    assert plans[3].seeds == 3 and plans[3].heads == StudyPlan().heads  # then seeds
    assert plans[4].heads == (1, 2, 4, 6, 8)  # then every other head count
    assert sizes[-1] < sizes[0] / 20
    assert all(p.heads[0] == 1 and p.heads[-1] == 8 for p in plans)


def test_the_first_plan_that_fits_is_taken_and_none_is_said():
    cost = {plan: float(100 - i) for i, (plan, _) in enumerate(smaller(StudyPlan()))}
    assert fitting(StudyPlan(), cost.__getitem__, None) == (StudyPlan(), "")
    plan, given_up = fitting(StudyPlan(), cost.__getitem__, 97.5)
    assert plan == list(cost)[3] and given_up == "1500 steps instead of 3000, 3 seeds instead of 4"
    smallest, given_up = fitting(StudyPlan(), cost.__getitem__, 5.0)  # nothing fits: the smallest, and it is said
    assert smallest == list(cost)[-1] and given_up.endswith("(the smallest there is: about 1 min 30 s)")


def test_an_estimate_is_linear_in_steps_seeds_and_between_the_heads_timed():
    rates = Rates((1, Rate(0.001, 0.01)), (5, Rate(0.003, 0.03)), seeds=4)
    recipe = Recipe(1000, 100, 10, 100, evaluations=10)
    one = rates.seconds(StudyPlan((1, 5), 4), recipe)
    assert one == pytest.approx(0.1 + 0.1 + 0.3 + 0.3)
    assert rates.seconds(StudyPlan((1, 5), 2), recipe) == pytest.approx(one * 4 / 6)  # half the seeds, shared overhead
    assert rates.seconds(StudyPlan((1, 5), 4), recipe, seeds=10) == pytest.approx(2 * one)
    assert rates.seconds(StudyPlan((1, 3, 5), 4), recipe) == pytest.approx(1.5 * one)


def test_memory_counts_the_data_and_grows_with_them():
    def memory(samples, seeds=4):
        members = [Member(Given("x", 100, 10), StudyPlan().arch(8, 1), seed=seed) for seed in range(seeds)]
        return bank_memory(members, Recipe(samples, 1000, 10, 100), "cpu")

    more = memory(11_000).data - memory(1_000).data
    assert more == 4 * 10**7 + 4 * 8 * 10_000  # every number once, and each member's order of samples
    for part in ("state", "activations"):
        assert getattr(memory(1_000, seeds=8), part) == 2 * getattr(memory(1_000), part)


@pytest.mark.parametrize("text", ["", "-3", "5 days", "0", "m"])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="a time such as 90s, 5m or 1h is needed"):
        seconds(text)
    assert seconds(spoken_time(90).replace("1 min 30 s", "90 s")) == 90


def test_rows_are_kept_and_a_second_call_trains_nothing(tmp_path, monkeypatch):
    first = measure(data(), plan=TINY, store=tmp_path)
    monkeypatch.setattr(Subject, "train", None)  # a call would fail
    monkeypatch.setattr(Question, "fitted", None)  # so would a new trial
    again = measure(data(), plan=TINY, store=tmp_path)
    assert again.study.rows == first.study.rows
    assert again.files == first.files


def test_an_interrupted_measurement_goes_on_with_its_plan(tmp_path, monkeypatch):
    whole = measure(data(), plan=TINY)
    train, calls = Subject.train, []

    def interrupted(self, members, recipe, progress=None):
        if progress is not None:  # not a trial
            calls.append(members[0].arch.layers[0][0])
            if calls == [1, 2]:
                raise KeyboardInterrupt
        return train(self, members, recipe, progress)

    monkeypatch.setattr(Subject, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(data(), plan=TINY, store=tmp_path)
    assert len(Store.open(tmp_path).study()) == 2
    found = measure(data(), plan=TINY, store=tmp_path)
    assert calls == [1, 2, 2]
    assert found.study.rows == whole.study.rows


def test_other_data_are_never_taken_for_these(tmp_path):
    one = measure(data(), plan=TINY, store=tmp_path)
    two = measure(data(seed=1), plan=TINY, store=tmp_path)
    assert {row["run"] for row in one.study}.isdisjoint(row["run"] for row in two.study)


class Elapsing:
    """A clock that a test moves."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


FOUR = StudyPlan(heads=(1, 2, 3, 4), seeds=2, steps=20, embed_dim=4, width=8, positions=0)


def on_time(monkeypatch, per_bank, budget, plan=FOUR, busy=1.0):
    """Measure with banks that take a stated time on a clock of their own, `busy` times what the trial said."""
    clock, train = Elapsing(), Subject.train

    def trained(self, members, recipe, progress=None):
        if progress is not None:
            clock.time += busy * per_bank * recipe.steps / subject_steps(plan) * (len(members) + 2) / 4
        return train(self, members, recipe, progress)

    rate = Rate(per_bank / subject_steps(plan), 0.0)
    monkeypatch.setattr(Subject, "train", trained)
    monkeypatch.setattr("headcount.measuring.rounds.time.monotonic", clock)
    monkeypatch.setattr(
        "headcount.measuring.question.timed", lambda subject, plan, seconds: Rates((1, rate), (4, rate), 2)
    )
    monkeypatch.setattr(measuring, "Clock", lambda budget, began: Clock(budget, 0.0, clock))
    said = []
    return measure(data(), plan=plan, budget=budget, say=said.append), clock.time, said


def subject_steps(plan):
    return Subject.of(data(), 0, "cpu").recipe(plan).steps


@pytest.mark.parametrize("busy", [1.0, 1.9, 0.6])
def test_a_time_is_kept_and_used_on_a_machine_that_gets_busier_or_idler(monkeypatch, busy):
    found, spent, said = on_time(monkeypatch, per_bank=1.0, budget=20.0, busy=busy)
    assert 0.8 * 20 <= spent <= 1.05 * 20
    few, many = found.knee.seeds
    assert many - few <= 1  # what is left goes into seeds, the same for all but for the last round
    assert (many > 2) == any("With the time left" in line for line in said) and (many > 2 or busy > 1)
    assert len(found.study) == found.study.spec["asked"]  # nothing is called unfinished


def test_a_late_measurement_stops_between_head_counts_and_says_so(monkeypatch):
    found, _, said = on_time(monkeypatch, per_bank=1.0, budget=9.0, busy=4.0)
    assert sorted(found.levels) == [1, 4]  # both ends first
    assert "The time is over with 2 head counts to go; run it again to go on." in said
    assert "4 of 8 networks are trained" in found.files["report.html"]


def test_plenty_of_time_goes_into_seeds_and_then_into_steps(monkeypatch):
    found, spent, _ = on_time(monkeypatch, per_bank=0.1, budget=20.0)
    assert found.study.spec["plan"]["steps"] == 4 * FOUR.steps
    assert max(found.knee.seeds) == 16  # no more are asked for
    assert spent < 20


def test_a_second_call_finds_all_the_seeds_that_the_time_allowed_for(monkeypatch, tmp_path):
    clock = Elapsing()
    monkeypatch.setattr(measuring, "Clock", lambda budget, began: Clock(budget, None, clock))
    monkeypatch.setattr("headcount.measuring.rounds.time.monotonic", clock)
    plan = replace(TINY, steps=10, positions=0)
    first = measure(data(), plan=plan, budget=5.0, store=tmp_path)
    monkeypatch.setattr(Subject, "train", None)  # a call would fail
    again = measure(data(), plan=plan, budget=5.0, store=tmp_path)
    assert again.study.rows == first.study.rows and max(first.knee.seeds) == 16


def test_threads_are_as_they_were_afterwards(monkeypatch):
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr("headcount.measuring.question.threads_for", lambda subject, plan: 1)
        found = measure(data(), plan=replace(TINY, steps=10, positions=0))
        assert torch.get_num_threads() == 2 and found.study.environment["threads"] == 1
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("classes", [0, 3])
def test_the_command_writes_the_page_and_prints_what_it_says(classes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given_data = data(classes=classes)
    lengths = 2 + np.arange(200) % 3
    np.savez("mine.npz", x=given_data.x, y=given_data.y[:, 0], lengths=lengths)
    small = ["--heads", "1-2", "--seeds", "2", "--steps", "60", "--width", "8", "--positions", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["measure", "mine.npz", *small, "--out", "here"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "2 to 4 tokens with 2 features" in out and "4 networks of 60 steps take about" in out
    assert ("wrong" in out) == bool(classes)
    page = (tmp_path / "here" / "report.html").read_text()
    assert ("relative cross-entropy" in page) == bool(classes)
    assert "what is padded is never attended to" in page
    with pytest.raises(SystemExit) as stop:
        main(["measure", "mine.npz", *small, "--out", "here", "--json"])
    whole = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["report", "here/study", "--out", "again"])
    capsys.readouterr()
    advice = json.dumps(whole["advice"])[1:-1]
    assert advice in (tmp_path / "again" / "report.html").read_text()
    assert set(whole) >= {"advice", "finding", "knee", "levels", "one_fewer", "one_more", "warnings", "files", "rows"}
    assert len(whole["rows"]) == 4
    assert all(("error_rate" in row) == bool(classes) for row in whole["rows"])


def test_order_is_asked_where_it_is_not_said_and_the_answer_is_kept(tmp_path):
    x = np.random.default_rng(0).standard_normal((300, 4, 1))
    plan = StudyPlan(heads=(1, 2), seeds=2, steps=300, embed_dim=8, width=8)
    for y, seen, words in ((x[:, 0, 0], 8, "carries 8 features"), (x.max(axis=(1, 2)), 0, "no order is shown")):
        said: list[str] = []
        found = measure(sequences(x, y), plan=plan, say=said.append, store=tmp_path / str(seen))
        assert {row["positions"] for row in found.study} == {seen}
        assert any(words in line for line in said) and words in found.files["report.html"]
        again = measure(sequences(x, y), plan=plan, store=tmp_path / str(seen))
        assert again.study.spec["order"] == found.study.spec["order"]


def test_where_neither_is_ahead_windows_keep_their_order_and_others_go_without():
    tie = OrderTrial(without=0.5, placed=0.49, heads=1, networks=3, steps=10, series=False)
    assert tie.positions == 0 and replace(tie, series=True).positions == 8
    assert replace(tie, placed=0.45).positions == 0 and replace(tie, placed=0.3, apart=False).positions == 0
    assert replace(tie, placed=0.3).positions == 8 and replace(tie, placed=0.7, series=True).positions == 0


def test_positions_that_are_given_are_not_asked():
    found = measure(data(), plan=replace(TINY, positions=3))
    assert found.study.spec["order"] is None and {row["positions"] for row in found.study} == {3}


def test_two_targets_are_learned_together():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4, 2))
    found = measure(
        sequences(x, x.max(axis=1)), plan=StudyPlan(heads=(1, 2), seeds=2, steps=300, embed_dim=8, width=16)
    )
    assert found.study.spec["data"]["target"] == "2 numbers"
    assert found.levels[2] < 0.3


@pytest.mark.slow
def test_two_planted_look_ups_are_found():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 6, 3))
    y = np.take_along_axis(x[:, :, 2], x[:, :, :2].argmax(axis=1), axis=1).sum(axis=1)
    found = measure(sequences(x, y), plan=StudyPlan(heads=(1, 2, 3, 4), seeds=4, steps=1500))
    assert found.knee.value == 2
    assert found.finding == "enough"
