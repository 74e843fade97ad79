"""The published numbers agree with each other, with the formulas they come from, and with what the papers derive."""

import math

import pytest

from headcount.papers.allocation.reproduce import E_128, FOUR_GRAM
from headcount.papers.head_count.error_law import fit_error_law, fixed_law
from headcount.papers.head_count.published import (
    EXPONENTS,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    TABLE_9,
)
from headcount.papers.head_count.reversal import reversal, score
from headcount.papers.infoflow.reproduce import PAIR_TABLE, TRIANGLE_TABLE
from studies.head_count.text_retrieval import law_of


def errors_by_row(table, of=lambda v: v):
    return {row: [of(v) for v in line] for row, line in zip(table.rows, table.values, strict=True)}


def test_the_published_fit_follows_from_table_6():
    cells = {(h, t): (TABLE_6.at(h, t),) for h in (2, 4, 6, 8) for t in TABLE_6.columns}
    free, theirs = law_of(cells)
    assert free.rate == pytest.approx(-1.58, abs=0.02)
    assert free.delta == pytest.approx(0.306, abs=0.01)
    assert free.gap == pytest.approx(0.121, abs=0.001)
    assert theirs.gap == pytest.approx(0.123, abs=0.001)
    assert theirs.power == pytest.approx(0.42, abs=0.05)
    assert free.gap < theirs.gap  # more freedom cannot fit worse


def test_a_tenfold_other_rate_fits_table_6_far_worse():
    errors = {(h, t): 1 - TABLE_6.at(h, t) for h in (2, 4, 6, 8) for t in TABLE_6.columns}
    assert fixed_law(errors, rate=-0.14, delta=0.25).gap > 5 * fixed_law(errors, rate=-1.40, delta=0.25).gap


def test_a_fit_of_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="at least five cells"):
        fit_error_law({(2, 8): 0.1, (4, 8): 0.05})


@pytest.mark.parametrize(
    ("table", "of", "expected"),
    [
        (TABLE_2, lambda v: v, [0, 0, 0.06, 5.3, 4.5]),
        (TABLE_3, lambda v: v, [0, 0, 0, 4.0, 4.2]),
        (TABLE_4, lambda v: v, [0, 2.6, 3.4, 3.2]),
        (TABLE_8, lambda v: 1 - v, [0, 0, 0, 0, 0.125, 0.18, 0, 0.25, 0, 1, 4, 4]),
    ],
    ids=["table-2", "table-3", "table-4", "table-8"],
)
def test_reversal_scores_of_the_published_tables(table, of, expected):
    found = [score(values) for values in errors_by_row(table, of).values()]
    assert found == pytest.approx(expected, abs=0.06)


def test_the_reversal_score_has_no_scale_which_is_what_is_wrong_with_it():
    tiny, huge = [1.0, 0.999, 0.998, 0.997, 0.996], [5.0, 4.0, 3.0, 2.0, 1.0]
    assert score(tiny) == pytest.approx(score(huge)) == pytest.approx(5.0)


def test_the_interval_of_a_score_between_equal_lengths_reaches_far_from_zero():
    noise = {(3, t): [1 + 0.01 * ((7 * s + 3 * t) % 5) for s in range(6)] for t in (8, 16, 32, 64)}
    assert reversal(noise, 3, sums_up=lambda v: sum(v) / len(v)).high > 1


def test_exponents_are_those_of_the_theorem():
    for row in EXPONENTS.rows:
        n, s = map(int, row.split(", "))
        for T in EXPONENTS.columns:
            k = (T / 4 - s - 4 + 1) / ((n + 1) * s + 1) - 1
            assert EXPONENTS.at(row, T) == pytest.approx(k, abs=0.051)


def test_the_curve_e_128_is_its_formula():
    for heads in E_128.rows:
        lost = math.sqrt(max(0.0, 1 - 128 / heads / 16))
        assert E_128.at(heads, "error") == pytest.approx(lost + 1.3 * math.exp(0.02) / heads, abs=0.002)


@pytest.mark.parametrize("table", [TABLE_6, TABLE_8], ids=lambda t: t.title)
def test_training_accuracy_rises_with_heads(table):
    for column in range(len(table.columns)):
        values = [line[column] for line in table.values]
        assert values == sorted(values)


@pytest.mark.parametrize("table", [TABLE_7, TABLE_9], ids=lambda t: t.title)
def test_validation_accuracy_does_not_follow(table):
    longest = [line[-1] for line in table.values]
    assert max(longest) > longest[-1] + 0.03  # the most heads are not the best: they memorise


@pytest.mark.parametrize("table", [TABLE_2, TABLE_3, TABLE_4, TABLE_5], ids=lambda t: t.title)
def test_the_stated_transition_is_the_largest_fall(table):
    for column in range(len(table.columns)):
        values = [line[column] for line in table.values]
        falls = {row: a / b for row, a, b in zip(table.rows[1:], values, values[1:], strict=False)}
        after = [fall for row, fall in falls.items() if row > table.transition]
        assert falls[table.transition] > max(after)


def test_pair_cells_with_enough_heads_are_far_below_those_without():
    for line in PAIR_TABLE.values:
        assert line[0] < min(line[1:])
    assert all(a[0] < b[0] for a, b in zip(TRIANGLE_TABLE.values, TRIANGLE_TABLE.values[1:], strict=False))
    assert min(FOUR_GRAM.values)[0] == FOUR_GRAM.at(8, "validation")
