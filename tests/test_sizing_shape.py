"""Shapes of one budget are ranked by what is known; what is not known says so; limits and marks are kept."""

import json
import math

import numpy as np
import pytest

import headcount as hc
from headcount.cli.options import task_of
from headcount.papers.born.length_study import letter_task
from headcount.sizing.equal_shapes import candidates, parameters_from
from headcount.sizing.evidence import EvidenceRow, EvidenceTable, SeedNoise, evidence_table
from headcount.sizing.expectation import ELSEWHERE, HABIT, HERE, expected
from headcount.sizing.forbidden import every_pattern, forbidding, memorised, task_bounds, task_claim
from headcount.sizing.model_shape import LayerShape, ModelShape
from headcount.sizing.ranked_shapes import shape
from headcount.sizing.settling import found_with, is_trial, read_experiment, settle, settling_experiment

GROUPING = "halve key-value heads"


def planted(step, sources=3, change=GROUPING):
    """A table in which every source finds the same."""
    rows = [
        EvidenceRow(f"r{i}", change, "", "", f"s{i}", "paper", "quoted", metric="loss", base=100.0,
                    value=100 * math.exp(step / 100), steps=1, digits=9)
        for i in range(sources)
    ]  # fmt: skip
    return EvidenceTable(tuple(rows), (SeedNoise("n", "", 0.05, 10),))


@pytest.mark.parametrize(
    "asked",
    [
        {"budget": "10M", "context": 512, "encoder": True},
        {"budget": "135M", "context": 8192, "vocab": 49152},
        {"budget": "1B", "context": 4096, "vocab": 128256, "cache_per_token": 16384},
        {"width": 768, "layers": 12, "vocab": 50257},
        {"model": "Llama-3.2-1B", "context": 8192},
    ],
)
def test_every_shape_of_an_answer_has_the_budgets_parameters(asked):
    answer = shape(**asked)
    sizes = [r.cost.parameters for r in answer.ranked]
    assert max(sizes) / min(sizes) < 1.01
    if "budget" in asked:
        assert answer.first.cost.parameters == pytest.approx(parameters_from(asked["budget"]), rel=0.02)
    assert len({r.shape for r in answer.ranked}) == len(sizes)
    assert len(answer.beside()) == 6


def test_a_time_series_encoder_says_habit():
    answer = shape("10M", context=512, encoder=True)
    assert answer.mark == HABIT.mark and "what people do" in answer.sentence
    assert all(r.expectation.percent is None for r in answer.ranked if r.expectation.parts)
    assert answer.first.shape.layers[0].head_dim == 64 and answer.first.shape.layers[0].ratio == 1


def test_a_limit_on_the_cache_is_kept_and_shapes_that_break_it_come_last():
    free = shape("1B", context=4096, vocab=128256)
    tight = shape("1B", context=4096, vocab=128256, cache_per_token=16384)
    assert free.first.cost.cache_per_token > 16384 >= tight.first.cost.cache_per_token
    states = [bool(r.broken) for r in tight.ranked]
    assert states == sorted(states) and any(states)
    assert "breaks the limit" in next(r for r in tight.beside() if r["model"] == "Llama-3.2-1B")["why it differs"]
    none = shape("1B", context=4096, vocab=128256, cache_per_token=10)
    assert none.first.broken and "No shape keeps to the limits" in none.sentence


def test_memory_and_speed_are_limits_too():
    answer = shape("1B", context=32768, vocab=32768, memory=2.2 * 2**30)
    assert not answer.first.broken and answer.first.cost.decode_bytes <= 2.2 * 2**30
    fast = shape("1B", context=32768, vocab=32768, speed=40, bandwidth=1e11)
    assert not fast.first.broken and fast.first.cost.speed(1e11) >= 40
    assert any("tokens a second" in what for r in fast.ranked for what in r.broken)


def test_quality_decides_when_half_the_bytes_are_worth_nothing():
    dear = shape("135M", context=8192, vocab=32768, worth=0.0, table=planted(0.3))
    assert dear.first.shape.layers[0].ratio == 1
    cheap = shape("135M", context=8192, vocab=32768, worth=5.0, table=planted(0.3))
    assert cheap.first.shape.layers[0].kv_heads == 1
    better = shape("135M", context=8192, vocab=32768, worth=0.0, table=planted(-0.3))
    assert better.first.shape.layers[0].kv_heads == 1


def test_expected_differences_add_up_by_steps():
    table, one = planted(0.3), LayerShape(8, 64, 8, 1)
    two = expected(LayerShape(8, 64, 2, 1), one, table)
    assert two.percent == pytest.approx(0.6) and two.basis == ELSEWHERE and two.mark.endswith("3 sources")
    low, high = two.interval
    assert low < 0.6 < high
    back = expected(one, LayerShape(8, 64, 2, 1), table)
    assert back.percent == pytest.approx(-0.6) and back.interval == pytest.approx((-high, -low))
    assert "measured up to 1 steps" in str(two)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (LayerShape(16, 32, 16, 1), "head_dim 32 to 64: no source, three are needed"),
        (LayerShape(6, 96, 6, 1), "head_dim 96 for 64: no three sources"),
        (LayerShape(16, 64, 16, 1), "attention 2 times as wide"),
    ],
)
def test_what_nobody_measured_is_not_known(layer, reason):
    found = expected(layer, LayerShape(8, 64, 8, 1), planted(0.3))
    assert found.percent is None and found.interval is None and found.basis == HABIT
    assert reason in str(found)


def test_two_sources_are_not_enough_and_ours_alone_is_shown_as_ours():
    one = LayerShape(8, 64, 8, 1)
    assert expected(LayerShape(8, 64, 2, 1), one, planted(0.3, sources=2)).percent is None
    ours = EvidenceTable(
        (EvidenceRow("o", GROUPING, "", "", "headcount", "ours", "quoted", metric="loss", base=1.0, value=1.01,
                     size="4 M, text", error=0.1),),
        (SeedNoise("n", "", 0.05, 10),),
    )  # fmt: skip
    found = expected(LayerShape(8, 64, 4, 1), one, ours)
    assert found.percent is None and found.basis == HERE and "measured here alone, +1.00 ± 0.20% at 4 M" in str(found)


def test_a_change_measured_with_few_heads_says_nothing_of_many():
    rows = [
        EvidenceRow(f"r{i}", "head_dim 64 to 128", "8 x 64", "4 x 128", f"s{i}", "paper", "quoted", metric="loss",
                    base=1.0, value=1.01) for i in range(3)
    ]  # fmt: skip
    table = EvidenceTable(tuple(rows), (SeedNoise("n", "", 0.05, 10),))
    near = expected(LayerShape(8, 128, 8, 1), LayerShape(16, 64, 16, 1), table)
    far = expected(LayerShape(16, 128, 16, 1), LayerShape(32, 64, 32, 1), table)
    assert near.percent == pytest.approx(100 * math.log(1.01)) and far.percent is None
    assert "measured where at most 4 heads were left, here 16" in str(far)


def test_unknown_shapes_never_stand_before_known_ones():
    answer = shape("135M", context=8192, vocab=49152)
    known = [r.expectation.known for r in answer.ranked if not r.broken]
    assert known == sorted(known, reverse=True)


def test_attention_may_be_divided_over_layers():
    answer = shape("135M", context=2048, vocab=32768)
    uneven = [r for r in answer.ranked if not r.shape.is_uniform]
    assert uneven and all("by layer" in r.as_row() and r.as_row()["by layer"] for r in uneven)
    assert all(r.expectation.basis in (HERE, HABIT) for r in uneven)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "give a budget of parameters, a width, or a model"),
        ({"budget": "much"}, "a budget is a number of parameters"),
        ({"budget": -1}, "budget"),
        ({"budget": "1M", "vocab": 200_000}, "leave no room for layers beside a vocabulary of 200,000"),
        ({"model": "Llama-9"}, "no known shape 'Llama-9'"),
        ({"model": "GPT-2", "budget": "1M"}, "not both"),
        ({"budget": "1M", "context": 0}, "context"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(asked, words):
    with pytest.raises(ValueError, match=words):
        shape(**asked)


def test_candidates_are_not_welded_to_the_width():
    base = shape("135M", vocab=32768).reference
    found = {(o.layers[0].heads * o.layers[0].head_dim) / base.embed_dim for o in candidates(base)}
    assert min(found) < 0.6 and max(found) > 1.8


def test_the_top_of_the_package_knows_the_question():
    assert hc.shape("10M", context=128, vocab=1000).first.cost.parameters > 9e6
    page = hc.shape("10M", context=128, vocab=1000)._repr_html_()
    assert "<table>" in page


# ---------------------------------------------------------------------------------------------- what forbids


def centred(matrix):
    return matrix - matrix.mean(1, keepdims=True)


def test_one_dimension_fewer_than_tokens_is_enough_for_every_pattern():
    rng = np.random.default_rng(0)
    for length in (2, 3, 7):
        pattern = rng.dirichlet(np.ones(length), length)
        logs = np.log(pattern)
        # rows of log P + c 1^T: choose c so that it is singular, det(A + c 1^T) = det(A) (1 + 1^T A^-1 c)
        direction = np.linalg.solve(logs.T, np.ones(length))
        c = -direction / (np.ones(length) @ np.linalg.solve(logs, direction))
        scores = logs + np.outer(c, np.ones(length))
        assert np.linalg.matrix_rank(scores, tol=1e-8) == length - 1
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        assert np.allclose(weights, pattern)
        assert every_pattern(length, length - 1, embed_dim=length).sizes["every"]


def test_two_dimensions_fewer_cannot_look_at_itself():
    """Scores of softmax(beta I) are beta I + c 1^T for some c: their rank is never below length - 1."""
    rng = np.random.default_rng(1)
    for length in (3, 6):
        for c in [np.zeros(length), *rng.standard_normal((200, length)) * 5, -np.ones(length) / length * 3.0]:
            scores = 3.0 * np.eye(length) + np.outer(c, np.ones(length))
            assert np.linalg.matrix_rank(scores, tol=1e-9) >= length - 1
        assert not every_pattern(length, length - 2, embed_dim=length).sizes["every"]
        best = centred(3.0 * np.eye(length))
        left = np.linalg.svd(best, compute_uv=False)
        assert left[length - 2] == pytest.approx(3.0)  # what rank length - 2 must leave out, in centred scores


def test_a_causal_mask_takes_the_bound_away_and_narrow_tokens_leave_it_assumed():
    assert every_pattern(512, 64, embed_dim=512, encoder=False).vacuous
    assert every_pattern(512, 64, embed_dim=256).assumed
    assert not every_pattern(512, 64, embed_dim=512).assumed


def test_memory_grows_with_heads_and_with_dimensions_up_to_the_length():
    assert memorised(512, 16, 64).value > memorised(512, 8, 64).value
    assert memorised(32, 8, 64).value == memorised(32, 8, 128).value == 8 * 31 + 1


def test_a_task_brings_its_own_bounds():
    task = task_of("LinearMax", 128, retrievals=4, token_dim=4)
    (bound,) = task_bounds(task, heads=1, head_dim=2)
    assert (
        bound.holds
        and bound.value == hc.head_count.bounds.linear_max_exponent(length=128, retrievals=4, heads=1, head_dim=2).value
    )
    (wells,) = task_bounds(task_of("Wells", 128, retrievals=4, token_dim=4), heads=1, head_dim=2)
    assert wells.value == hc.head_count.few_heads_exponent(length=128, retrievals=4, heads=1, head_dim=2).value > 0
    assert task_bounds(task, heads=4, head_dim=2) == []
    answer = shape("10M", context=128, encoder=True, task=task)
    assert len(answer.bounds) >= 3 and len(forbidding(answer.first.shape, 128)) == 3


def test_a_bound_of_one_layer_says_nothing_of_two():
    task = task_of("LinearMax", 128, retrievals=4, token_dim=4)
    (bound,) = task_bounds(task, heads=1, head_dim=2, layers=2)
    assert not bound.holds and bound.failed == ("one layer of attention",)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_what_a_shape_is_told_of_a_task_is_the_prediction_of_its_heads(layers, heads):
    task = task_of("LinearMax", 16, retrievals=3, token_dim=2)
    sized = ModelShape.uniform(layers, heads=heads, head_dim=8, embed_dim=64, width=32, vocab=16)
    claim = task_claim(task, sized)
    predicted = hc.predict(task, hc.Architecture(layers=((heads, 8),) * layers, width=32))
    assert claim is not None and claim.word == predicted.verdict
    assert "class-token network" in str(claim) and set(predicted.conditions) <= set(claim.conditions)


@pytest.mark.parametrize(("code", "words"), [("L5", "depth = 3"), ("UF", "proved"), ("NB", "no guarantee")])
def test_a_letter_task_brings_what_is_known_of_it(code, words):
    answer = shape("10M", context=128, task=letter_task(code))
    assert any(words in line for line in answer.theory) and task_claim(answer.task, answer.first.shape) is None


# ------------------------------------------------------------------------------------- what would settle it


@pytest.fixture
def small():
    return shape("3M", context=64, vocab=256, layers=2, table=planted(0.3))


def test_the_experiment_promises_what_its_noise_gives(small):
    one = settling_experiment(small, text="t.txt", flops=1e17, difference=0.5, length=32, vocab=256)
    assert one.low < one.half_width < one.high and len(one.shapes) == 2
    assert {s.parameters for s in one.shapes.values()}.__len__() <= 2
    finer = settling_experiment(small, text="t.txt", flops=1e17, difference=0.05, length=32, vocab=256)
    assert len(finer.seeds) > len(one.seeds) and finer.half_width < one.half_width
    assert finer.finds < one.finds and finer.finds == pytest.approx(found_with(finer.noise, len(finer.seeds)))


def test_a_small_budget_trains_few_seeds_long_enough_and_says_where_it_cannot(small):
    sizes = {"text": "t.txt", "difference": 0.01, "length": 32, "vocab": 256}
    plenty, some, little = (settling_experiment(small, flops=flops, **sizes) for flops in (1e18, 1e16, 1e12))
    assert len(plenty.seeds) > len(some.seeds) > len(little.seeds) == 4
    assert "not measured" in little.sentence
    assert "not measured" not in some.sentence and "not measured" not in plenty.sentence


def test_the_measured_noise_of_our_own_grid_is_used_where_it_is_there(small):
    table = small.table
    known = EvidenceTable(table.rows, table.noise, {"deviation": 0.2, "free": 44})
    answer = shape("3M", context=64, vocab=256, layers=2, table=known)
    one = settling_experiment(answer, text="t.txt")
    assert one.noise == 0.2 and one.free == 44


def test_the_file_is_read_back_and_a_misspelling_refused(small, tmp_path):
    one = settling_experiment(small, text="t.txt", flops=1e12, length=32, vocab=256)
    path = tmp_path / "e.toml"
    path.write_text(one.to_toml())
    assert is_trial(path)
    again = read_experiment(path)
    assert again.shapes == one.shapes and again.seeds == one.seeds and again.steps == one.steps
    assert again.half_width == pytest.approx(one.half_width, rel=1e-5)
    path.write_text(one.to_toml().replace("batch =", "bach ="))
    with pytest.raises(ValueError, match="bach"):
        read_experiment(path)
    path.write_text("[task]\nname = 'x'")
    assert not is_trial(path)


def test_the_experiment_is_run_and_tells_what_it_reached(small, tmp_path):
    from headcount.sizing.settling import SettlingExperiment, facts_of, settled_row

    rng = np.random.default_rng(0)
    (tmp_path / "t.txt").write_bytes(bytes(rng.integers(97, 105, 33 * 60).tolist()))
    one = settling_experiment(small, text="t.txt", flops=1e12, length=32, vocab=256)
    tiny = {
        name: type(s)(tuple(LayerShape(2, 8, g, 32) for _ in range(1)), 16, 256, s.wiring)
        for (name, s), g in zip(one.shapes.items(), (2, 1), strict=True)
    }
    few = SettlingExperiment(
        **{**one.__dict__, "shapes": tiny, "seeds": (1, 2, 3), "rates": (1e-2,), "batch": 4, "steps": 8}
    )
    path = tmp_path / "e.toml"
    path.write_text(few.to_toml())
    planned, found = settle(path, tmp_path / "kept")
    row = settled_row(planned, found)
    assert row["seeds"] == 3 and json.loads((tmp_path / "kept/settled.json").read_text()) == row
    assert "was promised" in facts_of(row)
    again = settle(path, tmp_path / "kept")[1]
    assert again == found
    path.write_text(few.to_toml().replace("vocab = 256", "vocab = 100"))
    with pytest.raises(ValueError, match="is none of the 100"):
        settle(path, tmp_path / "other")


def test_an_encoder_is_settled_by_measuring(tmp_path):
    answer = shape("10M", context=512, encoder=True)
    with pytest.raises(ValueError, match="headcount measure"):
        settling_experiment(answer, text="t.txt")


def test_the_answer_writes_its_page_and_rows(tmp_path):
    answer = shape("135M", context=8192, vocab=49152)
    page, rows = answer.files(tmp_path)
    assert "How many heads for 135 M parameters" in page.read_text()
    assert json.loads(rows.read_text())["sentence"] == answer.sentence


def test_the_table_of_evidence_is_the_packages():
    assert shape("10M", vocab=1000).table is evidence_table()
