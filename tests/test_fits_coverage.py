"""Intervals hold the truth as often as they say: the designs of docs/coverage.md in small, and the page they make."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import DATA, DESIGNS, PAGE, WANTED, gradual, law, measure, merged, page, turn
from headcount.fits import knee, power_law
from headcount.results import Study
from tests import planted
from tests.effort import lines_run

BY_NAME = {design.name: design for design in DESIGNS}


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("law: shared effects", 0.21),
        ("law: heteroscedastic", 0.805),
        ("law: one seed, floor", 0.86),
        ("knee: gradual, two noisy seeds", 0.82),
        ("knee: gradual, two quiet seeds", 0.81),
    ],
)
def test_an_interval_that_did_not_cover_does(name, before):
    """`before` is the coverage of the percentile bootstrap over seeds; 24 studies tell 0.95 from it, or nearly."""
    found = measure(BY_NAME[name], 24, seed=7)
    assert found["coverage"] >= 0.83 and found["coverage"] > before
    assert found["refuted"] <= 0.17


def test_shared_effects_widen_the_interval_and_stand_on_the_law():
    generator = np.random.default_rng(0)
    sizes = (8, 16, 32, 64, 128, 256)
    shift = 0.1 * generator.standard_normal(len(sizes))
    alone, shared = [
        power_law(
            Study(
                tuple(
                    planted.row(4, 8, s, 10 ** (-np.log10(w) + scale * e + 0.01 * generator.standard_normal()), width=w)
                    for w, e in zip(sizes, shift, strict=True)
                    for s in range(5)
                )
            ),
            "width",
        )
        for scale in (0.0, 1.0)
    ]
    assert alone.shared < 0.02 < 0.05 < shared.shared < 0.3
    assert (shared.exponent.high - shared.exponent.low) > 3 * (alone.exponent.high - alone.exponent.low)


def test_three_sizes_are_too_few_to_tell():
    study = planted.power_study(np.random.default_rng(0), exponent=1.0, share=0.0, sizes=(8, 16, 32), fail=0.0)
    law = power_law(study, "width", predicted=3.0)
    assert law.verdict.outcome == "unresolved" and law.verdict.reason.startswith("too few to tell")


def test_seeds_that_spread_further_at_few_heads_refute_far_less_than_they_miss():
    trial = turn(gradual(4, 0.5), seeds=3, noise=(0.4, 0.05))
    trials = [trial(np.random.default_rng([3, i])) for i in range(40)]
    missed, refuted = sum(not t.covered for t in trials), sum(t.refuted for t in trials)
    assert missed > 0 and refuted <= missed / 2  # 24 and 4 of the 200 studies of docs/coverage.md
    rows = [planted.row(h, 8, s, 10 ** (-min(h, 2) + (s - 1) * 0.4 / h**2)) for h in (1, 2, 3, 4) for s in range(3)]
    reason = knee(Study(tuple(rows)), predicted=4).verdict.reason
    assert reason.startswith("too few to tell: seeds spread")


def test_a_fit_of_five_hundred_rows_is_hardly_more_work_than_one_of_a_hundred():
    def lines(sizes):
        study = planted.power_study(np.random.default_rng(0), exponent=1.0, share=0.5, sizes=sizes, seeds=10)
        return lines_run(lambda: power_law(study, "width"), most=3_000_000)  # a fraction of a second

    lines((8, 16, 32, 64))  # what is loaded and kept at the first fit
    assert lines(tuple(range(8, 58))) < 2 * lines(tuple(range(8, 18)))


def test_the_page_is_what_the_data_say_and_every_design_was_measured_in_full():
    whole = json.loads(Path(DATA).read_text())
    assert PAGE.read_text() == page(whole)
    assert [row["design"] for row in whole["designs"]] == [design.name for design in DESIGNS]
    assert {row["studies"] for row in whole["designs"]} == {200}
    low = {row["design"] for row in whole["designs"] if row["coverage"] < WANTED}
    assert low <= {"knee: gradual, heteroscedastic, falling"}  # where the verdict says "too few to tell"
    assert all(row["refuted"] <= 1 - WANTED + 1e-9 for row in whole["designs"])


def test_a_truth_refuted_is_a_truth_outside():
    trials = [law()(np.random.default_rng([5, i])) for i in range(5)]
    assert all(t.covered or not t.decided or t.refuted for t in trials)


def test_designs_measured_anew_leave_the_others_as_they_were():
    kept = {"studies": 200, "seed": 13, "date": "2026-11-15", "before": {}}
    whole = kept | {"designs": [{"design": "law: plain", "coverage": 1.0}, {"design": "knee: sharp", "coverage": 0.5}]}
    anew = [{"design": "knee: sharp", "coverage": 0.9, "date": "2026-11-16"}]
    found = merged(whole, anew, 200, 13)
    assert [(row["design"], row["coverage"]) for row in found["designs"]] == [("law: plain", 1.0), ("knee: sharp", 0.9)]
    assert found["date"] == "2026-11-15 to 2026-11-16" and "before" in found
    assert len(merged(whole, anew, 20, 13)["designs"]) == 1  # others were measured over more studies
