"""How deep one must go: the table of the notes, the formulas by brute force, both sides."""

import math

import numpy as np
import pytest

from headcount.cli import main
from headcount.papers.ssm import DiagonalSSM, entry_bounds, minimal_depth
from headcount.results import Bound

# (c_from, c_to): paper, sharper, positive-real
TABLE = {
    (10, 3): (11, 7, 5),
    (10, 4): (6, 4, 4),
    (10, 8): (3, 2, 2),
    (100, 3): (22, 19, 10),
    (100, 4): (13, 11, 8),
    (100, 8): (6, 5, 5),
    (1000, 3): (34, 30, 14),
    (1000, 4): (19, 17, 11),
    (1000, 8): (9, 8, 7),
}


@pytest.mark.parametrize(("c_from", "c_to"), TABLE)
def test_table_of_minimal_depths(c_from, c_to):
    bounds = minimal_depth(c_from, c_to)
    assert (bounds.paper.value, bounds.sharper.value, bounds.positive_real.value) == TABLE[c_from, c_to]


@pytest.mark.parametrize(("c_from", "c_to"), [*TABLE, (7, 2.2), (50, 5), (1.5, 1.2), (10, 1.1)])
def test_formulas_are_the_least_depth_of_their_inequality(c_from, c_to):
    bounds = minimal_depth(c_from, c_to, modes=13)
    depths = range(1, 500)
    brute = {
        "paper": next((l for l in depths if 2 * c_from ** (2 / (l + 1)) <= c_to), math.inf),
        "sharper": next((l for l in depths if 2 ** (l - 1) * c_from**2 <= c_to ** (l + 1)), math.inf),
        "positive_real": next((l for l in depths if l * c_from**2 <= c_to ** (l + 1)), math.inf),
        "padded": next((l for l in depths if c_from**2 <= c_to ** (l + 1)), math.inf),
        "lower": next((l for l in depths if 13**l * c_to ** (l + 1) >= 13 * c_from**2), math.inf),
    }
    for name, value in brute.items():
        assert getattr(bounds, name).value == value, name


def test_entry_bounds_are_those_of_the_notes():
    paper, sharper, plain = {}, {}, {}
    for depth in (1, 2, 3, 4, 6, 12):
        bounds = entry_bounds(10, depth)
        paper[depth], sharper[depth] = round(bounds.paper.value, 2), round(bounds.sharper.value, 2)
        plain[depth] = round(bounds.exponent_only.value, 2)
    assert paper == {1: 20, 2: 9.28, 3: 6.32, 4: 5.02, 6: 3.86, 12: 2.85}
    assert sharper == {1: 10, 2: 5.85, 3: 4.47, 4: 3.81, 6: 3.17, 12: 2.56}
    assert plain == {1: 10, 2: 4.64, 3: 3.16, 4: 2.51, 6: 1.93, 12: 1.43}


def test_every_answer_is_a_bound_with_a_source():
    for bound in (*minimal_depth(10, 3, modes=13), *entry_bounds(10, 3)):
        assert isinstance(bound, Bound) and bound.source.name and bound.as_row()["c_from"] == 10


def test_the_construction_keeps_each_upper_bound():
    """Systems of norm 10 at the promised depth and width have entries within the goal; the padded bound is exact."""
    rng = np.random.default_rng(0)
    for goal in (1.3, 1.8, 3, 5):
        bounds = minimal_depth(10, goal, modes=13, width=13)
        for _ in range(20):
            poles = rng.uniform(0.1, 0.95, 13) * np.exp(2j * np.pi * rng.random(13))
            system = DiagonalSSM(poles, 100 * np.exp(2j * np.pi * rng.random(13)))
            assert system.deepen(int(bounds.padded.value), 13).largest_entry <= goal
            if int(bounds.padded.value) > 1:
                assert system.deepen(int(bounds.padded.value) - 1, 13).largest_entry > goal
            if math.isfinite(bounds.sharper.value):
                assert system.deepen(int(bounds.sharper.value)).largest_entry <= goal


def test_padded_bound_holds_at_small_widths_where_the_papers_says_nothing():
    rng = np.random.default_rng(1)
    bounds = minimal_depth(10, 1.5, modes=13, width=4)
    assert math.isinf(bounds.paper.value) and bounds.paper.vacuous
    for _ in range(50):
        system = DiagonalSSM(rng.uniform(-0.95, 0.95, 13), 100 * rng.choice([-1, 1], 13))
        assert system.deepen(int(bounds.padded.value), 4).largest_entry <= 1.5


def test_lower_bound_is_below_every_upper_one_and_met_by_gain_stages():
    for c_from in (5, 10, 300):
        for c_to in (0.5, 1, 1.5, 3):
            bounds = minimal_depth(c_from, c_to, modes=13)
            uppers = [b.value for b in bounds if b.side == "upper"]
            assert bounds.lower.value <= min(uppers)
            assert bounds.lower.value == bounds.gain_stages.value


def test_the_count_of_modes_is_part_of_every_bound_at_a_given_width():
    bounds = minimal_depth(2, 1.9, modes=101, width=2)
    assert bounds.lower.value >= 100 and bounds.positive_real.value >= 100
    assert math.isinf(minimal_depth(2, 1.9, modes=3, width=1).lower.value)


def test_bounds_say_when_they_say_nothing():
    bounds = minimal_depth(10, 1.5)
    assert bounds.paper.vacuous and bounds.sharper.vacuous and bounds.lower.vacuous
    assert not bounds.positive_real.vacuous
    assert minimal_depth(3, 10).paper.value == 1
    assert math.isinf(minimal_depth(10, 0.01, modes=13).lower.value)  # 13 * 0.01 < 1: no depth helps


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: minimal_depth(0, 1), "c_from must be a finite number above 0"),
        (lambda: minimal_depth(1, float("nan")), "c_to must be"),
        (lambda: minimal_depth(1, 1, modes=0), "modes must be at least 1"),
        (lambda: minimal_depth(1, 1, width=3), "needs the number of modes"),
        (lambda: entry_bounds(10, 0), "depth must be at least 1"),
    ],
)
def test_nonsense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize(("residues", "width"), [((100.0,) * 5, 60), ((100.0, 1.0, 1.0, 1.0, 1.0), 16)])
def test_a_wider_layer_or_another_system_does_in_one_layer_what_the_bound_says_of_the_worst(residues, width):
    poles = (0.9, 0.8, 0.7, 0.6, 0.5)
    copies = [width // 5] * 5 if width == 60 else [12, 1, 1, 1, 1]
    wide = DiagonalSSM(np.repeat(poles, copies), np.repeat(np.array(residues) / copies, copies))
    assert wide.largest_entry <= 3 and len(wide.poles) <= width
    found = minimal_depth(10, 3, modes=5)
    assert found.lower.value == 2 and "5 states" in found.lower.assumed[0]
    assert all("never" not in line for line in found.claim().lines)
    assert "some system of 5 modes" in str(found.claim()) and "at most 5 states" in str(found.claim())
    assert minimal_depth(10, 3, modes=5, width=60).lower.value == 1


SHAPES = ((None, None), (1, None), (5, None), (5, 5), (5, 3), (3, 50))
SIZES = [(c, d, n, m) for c in (1.0001, 3, 1e300) for d in (1e-300, 0.9, 1, 1.5, 3, 1e9) for n, m in SHAPES]


@pytest.mark.parametrize(("c_from", "c_to", "modes", "width"), SIZES)
def test_the_sentence_on_depth_is_the_best_bound_that_speaks_of_all_systems(c_from, c_to, modes, width):
    bounds = minimal_depth(c_from, c_to, modes=modes, width=width)
    claim = bounds.claim()
    general = [bounds.paper, bounds.sharper, bounds.padded, bounds.gain_stages]
    values = [bound.value for bound in general if not bound.vacuous]
    assert (claim.word == "nothing follows") == (not values)
    assert not values or claim.value.value == min(values)
    if values and modes and not width:  # no layer is wider than modes unless that is said
        assert claim.assumed
    assert all(bound.value >= bounds.lower.value for bound in general)


@pytest.mark.parametrize("words", [("1.0001", "1", "--modes", "1"), ("1e300", "1e-300", "--modes", "2"), ("2", "0.9")])
def test_sizes_that_no_depth_reaches_are_answered(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["ssm", "depth", *words])
    assert end.value.code == 0 and "nothing follows" in " ".join(capsys.readouterr().out.split())
