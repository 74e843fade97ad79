"""What a study of given data says, case by case: the finding, the advice, the warnings, and a page for each."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.fits import Measurement
from headcount.numerals import counted, spelt
from headcount.report import measured, write_measured
from headcount.results import Study
from tests import planted
from tests.test_report import read

SPEC = {
    "measured": True,
    "level": "NMSE",
    "data": {
        "name": "d",
        "sequences": "400 sequences",
        "tokens": "3 to 8 tokens with 2 features",
        "target": "a number",
    },
    "plan": {"heads": [1, 2, 3, 4], "seeds": 4, "steps": 3000, "embed_dim": 24, "width": 32, "layers": 1},
    "given_up": "",
}


def measurement(levels, *, spread=0.05, seeds=4, train=0.8, final=1.0, **columns):
    rng = np.random.default_rng(0)
    rows = []
    for heads, level in levels.items():
        for seed in range(seeds):
            value = float(level * 10 ** (spread * rng.standard_normal()))
            more = {"train_nmse": train * value, "final_nmse": final * value, **columns}
            rows.append(planted.row(heads, 8, seed, value) | more)
    return Measurement(Study(tuple(rows), SPEC, planted.ENVIRONMENT, "d"))


ENOUGH = {1: 0.3, 2: 0.1, 3: 1e-3, 4: 1e-3, 5: 1e-3}
CASES = {
    "nothing": (measurement(dict.fromkeys(range(1, 6), 0.99), spread=0.001), "Nothing was learned at any head count"),
    "little": (measurement(dict.fromkeys(range(1, 6), 0.7), spread=0.01), "Too little was learned to count heads"),
    "any": (measurement(dict.fromkeys(range(1, 6), 0.1), spread=0.01), "One head is enough"),
    "enough": (measurement(ENOUGH), "Three heads are enough"),
    "more": (measurement({h: 10.0**-h for h in range(1, 6)}), "At least five heads are needed"),
}
ADVICE = {
    "nothing": "No head count up to 5 predicts better than a constant: heads are not what is missing.",
    "little": "No head count up to 5 explains half of the target (the best leaves 67%)",
    "any": "Use one head: more bring",
    "enough": "Use 3 heads: with 2 the error is 110 times as large, and 4 bring nothing that can be measured.",
    "more": "Use at least 5 heads: the error still falls at the most that was tested, so test more.",
}


@pytest.mark.parametrize("finding", CASES)
def test_every_finding_has_its_advice_and_its_page(finding):
    found, headline = CASES[finding]
    assert found.finding == finding
    assert found.advice.startswith(ADVICE[finding])
    page = measured(found)
    reader = read(page)
    assert f"<h1>{headline}</h1>" in page
    assert reader.addresses == []
    assert "NaN" not in page.replace("isNaN", "") and 'nan"' not in page
    assert write_measured(found) == write_measured(found)


def test_seeds_that_disagree_leave_it_undecided():
    rng = np.random.default_rng(1)
    rows = [planted.row(h, 8, s, float(10 ** (-h / 3 + rng.normal(0, 0.5)))) for h in (1, 2, 3, 4, 5) for s in range(3)]
    found = Measurement(Study(tuple(rows), SPEC))
    assert found.finding in ("undecided", "more")
    assert "more seeds" in found.advice or "test more" in found.advice


def test_what_a_head_is_worth_is_the_ratio_of_levels_with_its_interval():
    found = measurement(ENOUGH, spread=0.0)
    assert found.fewer.heads == 2 and found.more.heads == 4
    assert found.fewer.factor.value == pytest.approx(100.0)
    assert found.fewer.tells and not found.more.tells
    noisy = measurement(ENOUGH, spread=0.3)
    worth = noisy.worth(2).factor
    assert worth.low < worth.value < worth.high


def test_a_further_head_that_helps_is_named_even_where_the_curve_has_turned():
    found = measurement({1: 0.1, 2: 1e-3, 3: 6e-4, 4: 6e-4}, spread=0.01)
    assert found.knee.value == 2
    assert found.advice.startswith("Use 2 heads, or 3 for 4") and "with 1 the error is" in found.advice


def test_one_head_is_not_called_all_there_is_where_more_leave_a_third_of_its_error():
    found = measurement({1: 0.07, 2: 0.04, 4: 0.024, 6: 0.024}, spread=0.001)
    assert (found.knee.value, found.finding, found.better.heads) == (1, "enough", 4)
    assert found.advice == "Use 1 head, or 4 for 66% less error."
    assert "1 head is enough" in found.sentence and "though with 4 the error is 0.34 times" in found.sentence
    assert "One head is enough for most of it; four do better" in measured(found)


def test_more_heads_that_bring_little_are_not_named():
    found = measurement({1: 0.07, 2: 0.06, 4: 0.06, 6: 0.06}, spread=0.001)  # a seventh less, and all seeds agree
    assert (found.finding, found.better) == ("any", None)


def test_training_and_validation_that_part_ways_are_said():
    assert measurement(ENOUGH).warnings == ()
    (warning,) = measurement(ENOUGH, train=0.1).warnings
    assert warning.startswith("training and validation part ways: at 3 heads")
    assert measurement(ENOUGH, train=0.51).warnings == ()  # just not twice
    assert len(measurement(ENOUGH, train=0.49).warnings) == 1


def test_training_for_too_long_and_divergence_are_said():
    (warning,) = measurement(ENOUGH, final=1.5).warnings
    assert "rose" in warning
    lost = measurement(ENOUGH)
    rows = tuple({**row, "status": "diverged"} if row["seed"] == 0 else row for row in lost.study)
    assert Measurement(Study(rows, SPEC)).warnings == ("5 of 20 networks diverged; a smaller learning rate may help",)


def test_a_head_count_that_never_converged_has_a_page_all_the_same():
    rows = [
        planted.row(h, 8, s, math.inf if h == 2 else 0.1) | {"status": "diverged" if h == 2 else "done"}
        for h in (1, 2, 3)
        for s in range(2)
    ]
    read(measured(Measurement(Study(tuple(rows), SPEC))))


def test_classes_show_how_many_are_wrong():
    spec = {**SPEC, "level": "relative cross-entropy", "data": {**SPEC["data"], "target": "10 classes"}}
    found = measurement(ENOUGH, error_rate=0.125)
    page = measured(Measurement(Study(found.study.rows, spec)))
    assert "12.5%" in page and "relative cross-entropy" in page


def test_everything_found_is_one_machine_readable_value():
    row = CASES["enough"][0].as_row()
    assert row["one_fewer"]["heads"] == 2 and row["one_more"]["heads"] == 4
    assert row["knee"]["heads"] == 3
    assert row["finding"] == "enough"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-4.0, 0.0), min_size=2, max_size=6),
    st.integers(2, 5),
    st.floats(0.0, 0.7),
    st.one_of(st.none(), st.floats(1e-4, 1.2)),
)
def test_headline_advice_and_marked_row_never_contradict_each_other(levels, seeds, spread, baseline):
    found = measurement({h + 1: 10**v for h, v in enumerate(levels)}, spread=spread, seeds=seeds)
    if baseline is not None:
        spec = {**found.study.spec, "baselines": [{"name": "linear", "level": baseline, "error_rate": None}]}
        found = Measurement(replace(found.study, spec=spec))
    answer, marked = found.answer, [row for row in found.by_heads() if row["heads"] == found.answer.heads]
    assert answer.heads == found.knee.value and len(marked) == 1 and marked[0]["against"] is None
    learnable = answer.attention is None or answer.attention.learnable
    pays = answer.attention is None or answer.attention.pays
    assert ("nothing to learn" in answer.advice) == (answer.headline == "Nothing to learn here") == (not learnable)
    if learnable:
        assert answer.headline.startswith("No attention needed") == (not pays) == ("worth nothing" in answer.advice)
    if learnable and pays:
        sure = answer.headline.endswith("enough") and not answer.headline.startswith("Between")
        again = any(words in answer.advice for words in ("measure again", "test more", "do not decide"))
        assert not (sure and again)
        assert ("did not settle" in answer.headline) == ("did not settle" in answer.advice)
        assert answer.decided <= (not answer.open)
        if answer.finding in ("any", "enough") and len(answer.inside) == 1:
            use = "Use one head" if answer.finding == "any" else f"Use {counted(answer.heads, 'head')}"
            assert answer.headline.startswith(spelt(answer.heads).capitalize()) and use in answer.advice


def test_seeds_a_factor_ten_apart_at_the_knee_are_said_in_headline_and_advice():
    rng = np.random.default_rng(0)
    rows = []
    for heads, at in ENOUGH.items():
        for seed, off in enumerate((0.0, 0.01, 0.02, 1.5)):  # one seed stuck thirty times above
            rows.append(planted.row(heads, 8, seed, float(at * 10 ** (off + 0.01 * rng.standard_normal()))))
    found = Measurement(Study(tuple(rows), SPEC))
    assert found.knee.value == 3 and not found.knee.settled
    assert found.answer.headline.endswith("but training did not settle") and not found.answer.decided
    assert found.advice.endswith("so measure again with more steps or seeds.")
    assert found.as_row()["decided"] is False


def test_cost_stands_beside_error():
    found = measurement(ENOUGH)
    (row,) = [line for line in found.by_heads() if line["heads"] == 3]
    assert row["bytes"] == 4 * row["parameters"] and row["milliseconds"] is None
    timed = replace(found.study, spec={**SPEC, "milliseconds": {"3": 0.25}})
    assert [line["milliseconds"] for line in Measurement(timed).by_heads() if line["heads"] == 3] == [0.25]
