"""Power laws: exact on exact data by two roads, covering what was planted, and refusing what is no size."""

import itertools

import numpy as np
import pytest
from scipy.optimize import least_squares

from headcount.fits import judge, power_law, power_laws
from headcount.fits.projection import fit_law, fit_line
from headcount.results import Study
from tests import planted

SIZES = np.array([4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


@pytest.mark.parametrize(
    ("exponent", "scale", "floor"), [*itertools.product((0.3, 1.0, 2.5), (0.1, 4.0), (1e-4, 1e-2))]
)
def test_exact_data_give_the_law_back(exponent, scale, floor):
    levels = np.log10(floor + scale * SIZES**-exponent)
    np.testing.assert_allclose(fit_law(levels, SIZES), [exponent, scale, floor], rtol=1e-5)


@pytest.mark.parametrize(("exponent", "floor"), [(-0.5, 1e-3), (-1.5, 0.1)])
def test_an_error_that_grows_has_a_negative_exponent(exponent, floor):
    levels = np.log10(floor + 1e-3 * SIZES**-exponent)
    np.testing.assert_allclose(fit_law(levels, SIZES), [exponent, 1e-3, floor], rtol=1e-4)


def test_an_error_that_does_not_depend_on_the_size_resolves_nothing():
    rows = list(planted.power_study(np.random.default_rng(2), exponent=1.0, share=0.0))
    flat = [{**row, "nmse": 1e-3 * row["nmse"] * row["width"]} for row in rows]
    law = power_law(Study(tuple(flat)), "width", predicted=1.0)
    assert law.exponent.low < 0 < law.exponent.high
    assert law.verdict.outcome == "unresolved"


def test_many_curves_at_once_are_the_curves_one_by_one():
    generator = np.random.default_rng(0)
    curves = np.log10(0.01 + SIZES**-1.2) + 0.1 * generator.standard_normal((7, len(SIZES)))
    np.testing.assert_allclose(fit_law(curves, SIZES), [fit_law(c, SIZES) for c in curves], rtol=1e-8)


def test_projection_reaches_what_a_search_over_all_three_numbers_reaches():
    generator = np.random.default_rng(1)
    for _ in range(20):
        levels = np.log10(0.003 + SIZES**-1.5) + 0.1 * generator.standard_normal(len(SIZES))

        def away(place, levels=levels):
            exponent, scale, floor = np.exp(place)
            return np.log10(floor + scale * SIZES**-exponent) - levels

        ours = float((away(np.log(np.maximum(fit_law(levels, SIZES), 1e-12))) ** 2).sum())
        starts = itertools.product(np.log([0.3, 1.5, 4.0]), [0.0], np.log([1e-8, 1e-3, 1e-2]))
        theirs = min(2 * least_squares(away, start).cost for start in starts)
        assert ours <= theirs * (1 + 1e-6) + 1e-12


def test_without_a_floor_it_is_a_straight_line():
    levels = np.log10(3.0 * SIZES**-0.7)
    np.testing.assert_allclose(fit_line(levels, SIZES), [0.7, 3.0, 0.0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fit_law(levels, SIZES)[:2], [0.7, 3.0], rtol=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_95_percent_interval_covers_the_planted_exponent_and_tells_something(share):
    """Four degrees of freedom are left of seven widths, so that it covers more where seeds share nothing."""
    generator = np.random.default_rng(3)
    covered, widths = [], []
    for exponent in generator.uniform(0.5, 2.0, 40):
        study = planted.power_study(generator, exponent=exponent, share=share, fail=generator.choice([0.0, 0.1]))
        law = power_law(study, "width")
        covered.append(law.exponent.low <= exponent <= law.exponent.high)
        widths.append((law.exponent.high - law.exponent.low) / exponent)
    assert np.mean(covered) >= 0.90
    assert np.median(widths) < 1.0


def test_single_seeds_go_by_the_distances_from_the_law():
    generator = np.random.default_rng(4)
    covered = []
    for _ in range(40):
        study = planted.power_study(generator, exponent=1.0, share=0.0, seeds=1, fail=0.0)
        law = power_law(study, "width")
        assert law.shared is None
        covered.append(law.exponent.low <= 1.0 <= law.exponent.high)
    assert np.mean(covered) >= 0.87


def test_the_law_evaluates_itself_and_names_its_numbers():
    study = planted.power_study(np.random.default_rng(0), exponent=1.0, share=0.5, noise=0.02, fail=0.0)
    law = power_law(study, "width", predicted=1.0)
    assert law(8) == pytest.approx(1 / 8 + 1 / 512, rel=0.1)  # two standard errors of noise and best half
    assert law.verdict.outcome == "consistent"
    assert power_law(study, "width", predicted=2.0).verdict.outcome == "refuted"
    row = law.as_row()
    assert row["exponent_low"] <= row["exponent"] <= row["exponent_high"]
    assert 0 < law.gap < 0.02


def test_every_design_has_its_own_law():
    rows = [
        planted.row(h, T, s, h * T * w**-1.0 / 1e4, width=w, layers=f"{h}x8")
        for h in (1, 2)
        for T in (8, 16)
        for w in (8, 16, 32, 64)
        for s in (0, 1)
    ]
    laws = power_laws(Study(tuple(rows)), "width")
    assert list(laws) == ["length 8, heads 1", "length 16, heads 1", "length 8, heads 2", "length 16, heads 2"]
    assert all(law.exponent.value == pytest.approx(1.0, rel=1e-3) for law in laws.values())
    by_length = power_laws(planted.published(), "length")
    assert list(by_length) == [f"heads {h}" for h in range(1, 6)]


def test_parameters_stand_for_the_widths_they_follow():
    rows = [
        planted.row(4, 8, s, 10.0 / m, width=m // 40, feedforward_parameters=m)
        for m in (400, 800, 1600)
        for s in (0, 1)
    ]
    laws = power_laws(Study(tuple(rows)), "feedforward_parameters")
    assert [law.exponent.value for law in laws.values()] == [pytest.approx(1.0, rel=1e-3)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("widht", "did you mean 'width'"),
        ("nmse", "it is not a size"),
        ("head_dim", "a law in head_dim needs 3 different values of it, got only 8"),
    ],
)
def test_a_column_that_carries_no_law_is_refused(column, message):
    study = planted.power_study(np.random.default_rng(0), exponent=1.0, share=0.0)
    study = study.where(width=8) if column == "head_dim" else study
    with pytest.raises(ValueError, match=message):
        power_law(study, column)


def test_single_seeds_need_more_sizes():
    study = planted.power_study(np.random.default_rng(0), exponent=1.0, share=0.0, sizes=(8, 16, 32), seeds=1)
    with pytest.raises(
        ValueError, match="needs 5 different values of it where a cell has one seed, got only 8, 16, 32"
    ):
        power_law(study, "width")


def test_a_verdict_needs_an_interval_narrow_enough_to_tell():
    assert judge(1.0, 0.9, 1.1).outcome == "consistent"
    assert judge(1.0, 1.05, 1.1).outcome == "refuted"
    assert judge(1.0, 0.4, 1.6).outcome == "unresolved"
    assert judge(1.0, 0.4, 1.6, resolution=2.0).outcome == "consistent"
    assert judge(1.0, 0.5, float("inf")).outcome == "unresolved"
    with pytest.raises(ValueError, match="runs from low to high, got 2 to 1"):
        judge(1.0, 2, 1)


@pytest.mark.parametrize("column", ["heads", "head_dim"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_law_runs_in_sizes_that_the_name_of_the_layers_holds(column, depth):
    rows = []
    for size in (1, 2, 4, 8):
        sizes = {"heads": 2, "head_dim": 8, column: size}
        layers = "+".join([f"{sizes['heads']}x{sizes['head_dim']}"] * depth)
        base = {"task": "T", "length": 8, "layers": layers, "width": 32, **sizes}
        rows += [{**base, "seed": s, "nmse": 0.1 * size**-1.0 * 1.01**s} for s in range(3)]
    laws = power_laws(Study(tuple(rows)), column)
    assert len(laws) == 1 and next(iter(laws.values())).exponent.value == pytest.approx(1.0, abs=0.05)
