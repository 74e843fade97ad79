"""The knee: right on published tables, covering what was planted, and honest where nothing can be said."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binom

from headcount.fits import Cells, knee, knees, predicted_heads, variants
from headcount.fits.knee import change_point
from headcount.results import Study
from tests import planted

TABLES = [(planted.TABLE_3, 4), (planted.TABLE_4, 3), (planted.TABLE_5, 2)]


def curve(levels, seeds=4, spread=0.05, first=1):
    """A study of one length whose log10 NMSE at first, first + 1, ... heads is given."""
    steps = np.linspace(-spread, spread, seeds)
    heads = range(first, first + len(levels))
    return Study(
        tuple(
            planted.row(h, 8, s, 10 ** (v + e)) for h, v in zip(heads, levels, strict=True) for s, e in enumerate(steps)
        )
    )


@pytest.mark.parametrize(("table", "retrievals"), TABLES)
def test_the_published_tables_turn_at_the_number_of_retrievals_at_every_length(table, retrievals):
    study = planted.tabled(table, retrievals)
    assert [found.value for found in knees(study).values()] == [retrievals] * 5
    pooled = knee(study)
    assert (pooled.value, pooled.low, pooled.high) == (retrievals, retrievals, retrievals)
    assert pooled.verdict.outcome == "consistent"


def test_means_that_failed_seeds_have_moved_hide_the_turn_and_the_verdict_says_so():
    # At lengths 16 and 32 the published mean of four heads is a fifth of its standard deviation: one failed seed.
    study = planted.tabled(planted.TABLE_2, 4)
    assert [found.text for found in knees(study).values()] == ["4", ">= 5", ">= 5", "4", "4"]
    assert knee(study).verdict.outcome == "unresolved"


@pytest.mark.parametrize("seed", range(3))
def test_seeds_with_the_published_mean_and_spread_turn_at_four(seed):
    pooled = knee(planted.published(seed=seed))
    assert (pooled.value, pooled.low, pooled.high) == (4, 4, 4)
    assert pooled.verdict.outcome == "consistent"
    assert pooled.seeds == (6, 6)


@pytest.mark.parametrize("seed", range(3))
def test_read_as_log_normal_the_same_numbers_turn_at_four_and_leave_the_interval_open(seed):
    # The published spread at four heads is then 0.4 to 0.8 decades, and one count above four bounds little.
    pooled = knee(planted.log_normal(seed=seed))
    assert (pooled.value, pooled.low) == (4, 4)
    assert pooled.verdict.outcome != "refuted"


def moved(heads, seeds, fail=0.15):
    """The share of studies in which failing seeds set the level of a cell: more than half fail, and two counts open."""
    kept = -(-seeds // 2)
    return 1 - binom.cdf(seeds - kept, seeds, fail) ** heads


def test_of_three_seeds_too_few_succeed_in_a_quarter_of_studies_and_of_eight_in_hardly_any():
    assert moved(5, 3) > 0.25 and moved(8, 3) > 0.35 and moved(8, 8) < 0.05


@pytest.mark.parametrize(
    ("truth", "heads", "seeds"), [(1, 4, 4), (2, 4, 5), (3, 5, 3), (4, 5, 5), (4, 8, 3), (6, 8, 8)]
)
def test_the_interval_covers_a_planted_knee_and_is_not_the_whole_range(truth, heads, seeds):
    generator = np.random.default_rng(truth + 10 * heads)
    found = [knee(planted.planted(generator, knee=truth, heads=heads, seeds=seeds), resamples=300) for _ in range(200)]
    covered = [k.low <= truth <= (k.high or math.inf) for k in found]
    width = [sum(k.low <= h <= (k.high or math.inf) for h in k.tested) for k in found]
    assert np.mean(covered) >= 0.93
    assert np.mean(width) <= 2.7 + 2 * (moved(heads, seeds) if seeds < 4 else 0)
    assert np.mean([w == heads for w in width]) <= 0.1
    assert np.mean([k.value == truth for k in found]) >= 0.75


def test_lengths_together_are_surer_than_one():
    generator = np.random.default_rng(5)
    alone, together = [], []
    for _ in range(60):
        study = planted.planted(generator, knee=3, heads=6, seeds=3, lengths=(8, 16, 32, 64), noise=0.3)
        alone.append(knee(study, length=8, resamples=200).value == 3)
        together.append(knee(study, resamples=200).value == 3)
    assert np.mean(together) > np.mean(alone)
    assert np.mean(together) >= 0.9


def test_a_curve_that_never_levels_off_is_censored_above():
    found = knee(curve([-1, -2, -3, -4, -5]), predicted=5)
    assert (found.text, found.interval, found.reached) == (">= 5", "[5, ...)", False)
    assert found.verdict.outcome == "unresolved"
    assert "test more than 5" in found.verdict.reason
    assert knee(curve([-1, -2, -3, -4, -5]), predicted=3).verdict.outcome == "refuted"


def test_a_curve_that_is_flat_from_the_first_count_is_censored_below():
    found = knee(curve([-5, -5, -5], first=4), predicted=2)
    assert (found.text, found.interval) == ("<= 4", "[1, 4]")
    assert found.verdict.outcome == "unresolved"
    assert "test fewer" in found.verdict.reason


def test_one_head_is_told_from_no_head_since_a_constant_scores_one():
    found = knee(curve([-5, -5, -5, -5]), predicted=1)
    assert (found.text, found.interval, found.verdict.outcome) == ("1", "[1, 1]", "consistent")
    assert found.sentence.startswith("1 head is enough")


def test_nothing_learned_is_no_evidence_about_heads():
    found = knee(curve([-0.05, -0.06, -0.05, -0.07]), predicted=2)
    assert not found.learned
    assert found.verdict.outcome == "unresolved"
    assert "no head count" in found.sentence


def test_the_knee_does_not_depend_on_the_scale_of_the_fall():
    # The rule compares falls with falls: stretching log NMSE, as one digit more of everything does, changes nothing.
    levels = np.array([-1.0, -2.2, -3.1, -4.5, -4.6, -4.7])
    heads = np.arange(1.0, 7.0)
    assert [int(change_point(factor * levels, heads)) for factor in (0.5, 1.0, 3.0)] == [3, 3, 3]


def test_a_third_of_the_fall_so_far_is_where_slower_begins():
    heads = np.arange(1.0, 4.0)
    assert int(change_point(np.array([-1.0, -2.0, -2.0 - 0.99 / 3]), heads)) == 1
    assert int(change_point(np.array([-1.0, -2.0, -2.0 - 1.01 / 3]), heads)) == 2


def test_a_late_fall_beyond_a_flat_stretch_is_not_missed():
    assert knee(curve([-1, -1.1, -1.2, -4, -4])).value == 4


@pytest.mark.parametrize(("seeds", "high"), [(2, 2), (3, 2), (4, 1)])
def test_fewer_than_four_seeds_single_no_count_out(seeds, high):
    found = knee(curve([-2.0, -2.0, -2.0, -2.0], seeds=seeds), predicted=1)
    assert (found.value, found.low, found.high) == (1, 1, high)
    lengths = [planted.row(h, T, s, 0.01 * (1 + s / 50)) for h in (1, 2, 3) for T in (8, 16, 32) for s in range(seeds)]
    assert knee(Study(tuple(lengths))).interval == "[1, 1]"  # the lengths tell it


def test_training_that_did_not_settle_refutes_nothing_and_asks_for_more():
    settled = knee(curve([-1.0, -2.0, -4.0, -4.0, -4.0], spread=0.05), predicted=1)
    assert settled.settled and settled.verdict.outcome == "refuted"
    apart = knee(curve([-1.0, -2.0, -4.0, -4.0, -4.0], spread=0.6), predicted=1)
    assert apart.value == 3 and apart.apart == pytest.approx(10**1.2) and not apart.settled
    assert apart.verdict.outcome == "unresolved"
    if apart.low > 1:
        assert "training did not settle" in str(apart.verdict) and "train longer or add seeds" in str(apart.verdict)


def test_counts_that_were_not_tested_stay_inside_the_interval():
    rows = [planted.row(h, 8, s, 10.0 ** -min(h, 3)) for h in (1, 2, 4, 8) for s in range(4)]
    found = knee(Study(tuple(rows)), predicted=3)
    assert (found.value, found.low, found.high) == (4, 3, 4)
    assert found.verdict.outcome == "consistent"


def test_failed_seeds_do_not_move_the_knee():
    rows = list(curve([-1, -2, -3, -4, -4, -4], seeds=5))
    stuck = [{**row, "nmse": 0.05} if row["seed"] == 4 and row["heads"] > 2 else row for row in rows]
    assert knee(Study(tuple(stuck))).value == 4


def test_seeds_that_disagree_leave_it_unresolved():
    generator = np.random.default_rng(0)
    study = planted.planted(generator, knee=4, heads=8, seeds=3, noise=0.8, falls=(0.4, 0.6))
    found = knee(study)
    assert found.verdict.outcome == "unresolved"
    assert len([share for share in found.shares.values() if share > 0.05]) > 2


def test_one_seed_at_one_length_has_no_spread_and_claims_nothing():
    found = knee(curve([-1, -2, -3, -3, -3], seeds=1, spread=0.0), predicted=3)
    assert (found.value, found.low, found.high) == (3, 1, None)
    assert found.verdict.outcome == "unresolved"


def test_diverged_rows_are_counted_and_score_as_a_constant():
    rows = list(curve([-1, -3, -3, -3], seeds=4))
    rows[5] |= {"status": "diverged", "nmse": None}
    rows[9] |= {"status": "diverged", "nmse": math.inf}
    found = knee(Study(tuple(rows)))
    assert (found.value, found.diverged) == (2, 2)
    cells = Cells.of(Study(tuple(rows)), "heads")
    assert cells.counts.tolist() == [[4, 4, 4, 4]]  # none dropped
    assert cells.logs.max() == 0.0


def test_the_same_study_gives_the_same_interval():
    study = planted.planted(np.random.default_rng(0), knee=3, heads=6, seeds=4, noise=0.4)
    assert knee(study) == knee(study)


def test_a_seed_keeps_its_best_learning_rate():
    rows = [planted.row(h, 8, s, 10.0 ** -min(h, 2), lr=1e-3) for h in (1, 2, 3) for s in range(3)]
    rows += [{**row, "lr": 1.0, "nmse": 1.0} for row in rows]
    assert knee(Study(tuple(rows))).value == 2
    assert Cells.of(Study(tuple(rows)), "heads").counts.tolist() == [[3, 3, 3]]


def test_designs_are_kept_apart_and_mixing_them_is_refused():
    rows = [planted.row(h, 8, s, 10.0**-h, width=w) for h in (1, 2) for w in (16, 32) for s in (0, 1)]
    study = Study(tuple(rows))
    assert list(variants(study)) == ["width 16", "width 32"]
    with pytest.raises(ValueError, match=r"rows of width 16 and 32: choose one"):
        knee(study)


def test_a_fixed_embedding_is_one_design_though_the_head_dim_follows_the_heads():
    rows = [planted.row(h, 8, 0, 10.0**-h, head_dim=E // h, embed_dim=E) for h in (1, 2, 4) for E in (32, 64)]
    assert list(variants(Study(tuple(rows)))) == ["embed_dim 32", "embed_dim 64"]


def test_a_prediction_for_one_layer_is_not_put_to_two():
    study = planted.tabled(planted.TABLE_5, 4)
    assert predicted_heads(study) == 4
    deep = Study(tuple({**row, "layers": f"{row['heads']}x8, {row['heads']}x8"} for row in study), study.spec)
    assert predicted_heads(deep) is None
    assert knee(deep).verdict is None


@pytest.mark.parametrize(
    ("study", "settings", "message"),
    [
        (curve([-1]), {}, "two head counts"),
        (curve([-1, -2]), {"length": 9}, "no rows of length 9; lengths: 8"),
        (curve([-1, -2]), {"confidence": 95}, "confidence must lie between 0 and 1, got 95"),
        (curve([-1, -2]), {"resamples": 0}, "resamples must be at least 1, got 0"),
        (Study(()), {}, "no rows yet"),
    ],
)
def test_a_mistake_is_one_sentence(study, settings, message):
    with pytest.raises(ValueError, match=message):
        knee(study, **settings)


@pytest.mark.parametrize("room", ["fits", "report"])
def test_the_room_needs_no_torch(room):
    code = f"import headcount.{room}, headcount.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
