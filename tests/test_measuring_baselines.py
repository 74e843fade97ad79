"""Is attention worth anything: baselines that are exact where they can be, and a verdict that uses them."""

from dataclasses import replace

import numpy as np
import pytest

from headcount.cli import main
from headcount.measuring import StudyPlan, measure, sequences
from headcount.measuring.baselines import _logistic, _ridge, baselines
from headcount.measuring.subject import Subject
from headcount.measuring.tables import Reading, from_columns
from headcount.report import measured
from headcount.results import Study
from tests.test_fits_measurement import CASES

TINY = StudyPlan(heads=(1, 2), seeds=2, steps=40, embed_dim=4, width=8, positions=0)


def levels(data, plan=TINY):
    return {base.name: base for base in baselines(Subject.of(data, 0, "cpu"), plan)}


def judged(case, *bases, validation=1000):
    found = CASES[case][0]
    rows = [{"name": name, "level": level, "error_rate": None} for name, level in bases]
    spec = {**found.study.spec, "baselines": rows, "validation": validation}
    return replace(found, study=Study(found.study.rows, spec, found.study.environment, "d"))


def test_ridge_solves_the_normal_equations():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    predicted = _ridge(x, y, 2.0)(x)
    gap = predicted - y
    weights = np.linalg.lstsq(x - x.mean(0), predicted - y.mean(0), rcond=None)[0]
    np.testing.assert_allclose((x - x.mean(0)).T @ gap + 2.0 * weights, 0, atol=1e-9)


def test_logistic_regression_is_where_its_gradient_vanishes():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    y = np.eye(2)[(x[:, 0] + rng.standard_normal(200) > 0).astype(int)]
    logits = _logistic(x, y, 1.0)(x)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    weights = np.linalg.lstsq(np.c_[x, np.ones(200)], logits, rcond=None)[0][:2]
    np.testing.assert_allclose(x.T @ (shares - y) + weights, 0, atol=1e-2)


def test_order_is_seen_flattened_and_lost_pooled():
    x = np.random.default_rng(0).standard_normal((400, 4, 1))
    found = levels(sequences(x, x[:, 0, 0] - x[:, 3, 0]))
    assert found["linear, flattened"].level < 1e-3
    assert found["linear, pooled"].level > 0.9
    pooled = levels(sequences(x, x.mean(axis=(1, 2))))
    assert pooled["linear, pooled"].level < 1e-3


def test_zero_heads_learn_a_mean_of_tokens_that_no_line_does():
    x = np.random.default_rng(0).standard_normal((600, 3, 1))
    found = levels(sequences(x, (x**2).mean(axis=(1, 2))), replace(TINY, steps=600, width=16))
    assert found["zero heads"].level < 0.1 < 0.8 < found["linear, flattened"].level


def test_a_constant_is_near_one_and_the_last_value_of_a_walk_is_the_best_there_is():
    walk = np.random.default_rng(0).standard_normal(600).cumsum()
    found = levels(from_columns({"target": list(walk)}, Reading(window=4), "walk"))
    assert found["constant"].level >= 1.0
    innovation = float(np.mean(np.diff(walk)[-119:] ** 2))
    assert found["last value"].level == pytest.approx(innovation / walk[-119:].var(), rel=0.05)
    assert "last value" not in levels(sequences(np.eye(60)[:, :, None], walk[:60]))


def test_classes_have_their_share_of_wrong_ones():
    x = np.random.default_rng(0).standard_normal((400, 2, 1))
    found = levels(sequences(x, np.where(x[:, 0, 0] > 0, "up", "down")))
    assert found["linear, flattened"].error_rate < 0.05 < found["constant"].error_rate


def test_the_verdict_says_first_whether_attention_is_worth_anything():
    pays = judged("enough", ("linear, flattened", 0.4))
    assert pays.attention.pays and pays.advice.startswith("Attention is worth it here: its error is 100% below")
    assert "Use 3 heads" in pays.advice
    lost = judged("any", ("linear, flattened", 0.099))
    assert not lost.attention.pays
    assert lost.advice.startswith("Attention is worth nothing measurable here: linear, flattened reaches 0.099")
    assert "No attention needed: linear, flattened does as well" in measured(lost)
    noise = judged("nothing", ("constant", 1.01), ("linear, pooled", 0.99))
    assert noise.advice.startswith("There is nothing to learn here")
    assert "Nothing to learn here" in measured(noise)
    assert CASES["enough"][0].attention is None  # a study without baselines says nothing of them


def test_few_validation_samples_ask_for_a_wider_lead():
    near = (("zero heads", 0.115),)
    assert judged("any", *near, validation=1000).attention.pays
    assert not judged("any", *near, validation=16).attention.pays


def test_noise_has_nothing_to_learn_and_the_command_ends_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("noise.npz", x=rng.standard_normal((400, 4, 1)), y=rng.standard_normal(400))
    small = ["--heads", "1-2", "--seeds", "2", "--steps", "40", "--width", "8", "--positions", "0"]
    with pytest.raises(SystemExit):
        main(["measure", "noise.npz", *small])
    out = capsys.readouterr().out
    assert "linear, flattened" in out and "zero heads" in out
    last = " ".join(out[out.rindex("So: ") :].split())  # lines are folded at 80 columns
    assert last.startswith("So: there is nothing to learn here") and last.endswith("better than a constant.")


def test_the_baselines_are_kept_in_the_store(tmp_path):
    x = np.random.default_rng(0).standard_normal((200, 4, 1))
    first = measure(sequences(x, x.max(axis=(1, 2))), plan=TINY, store=tmp_path)
    again = measure(sequences(x, x.max(axis=(1, 2))), plan=TINY, store=tmp_path)
    assert first.baselines == again.baselines and len(first.baselines) == 4
