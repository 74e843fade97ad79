"""The verdict on planted tables: matches, same shape, differs, undecided; and files that keep what it rests on."""

from dataclasses import replace

import pytest

from headcount.fits.agreement import compare, judge_claims
from headcount.results.literature import Difference, Published
from headcount.results.record import Measured, Record, Stated
from headcount.sources import Source

ROWS, COLUMNS = (1, 2, 3, 4, 5), (8, 16)
LEVELS = {1: 1e-1, 2: 1e-2, 3: 1e-3, 4: 1e-6, 5: 8e-7}
VALUES = tuple((LEVELS[h], 1.1 * LEVELS[h]) for h in ROWS)
PLANTED = Published("planted", Source("headcount", "planted"), "heads", ROWS, "length", COLUMNS, VALUES, transition=4)
SPREAD = Published(
    "planted", Source("headcount", "planted"), "heads", ROWS, "length", COLUMNS, VALUES,
    tuple((v / 5, v / 5) for v, _ in VALUES), transition=4,
)  # fmt: skip


def cells(of, wobble=0.02):
    return {(h, t): [of(h, v) * (1 - wobble), of(h, v), of(h, v) * (1 + wobble)]
            for h, line in zip(ROWS, VALUES, strict=True) for t, v in zip(COLUMNS, line, strict=True)}  # fmt: skip


@pytest.mark.parametrize("table", [PLANTED, SPREAD], ids=["seeds", "published spread"])
def test_the_same_numbers_match(table):
    assert compare(table, cells(lambda h, v: v)).verdict.word == "matches"


@pytest.mark.parametrize("table", [PLANTED, SPREAD], ids=["seeds", "published spread"])
def test_the_same_curve_at_another_level_has_the_same_shape(table):
    found = compare(table, cells(lambda h, v: 2 * v))
    assert found.verdict.word == "same shape"
    assert found.knees == (4, 4)
    assert found.agreeing == 0


def test_a_knee_elsewhere_differs():
    late = {1: 1e-1, 2: 1e-2, 3: 1e-5, 4: 9e-6, 5: 8e-6}
    found = compare(PLANTED, cells(lambda h, v: late[h]))
    assert found.knees == (4, 3)
    assert found.verdict.word == "differs"


def test_a_table_of_one_number_shows_no_order():
    found = compare(PLANTED, cells(lambda h, v: 1e-2))
    assert found.ordered[0] == 0 and found.verdict.word == "differs"


def test_another_order_differs():
    swapped = {1: 1e-3, 2: 1e-2, 3: 1e-1, 4: 1e-6, 5: 8e-7}
    assert compare(PLANTED, cells(lambda h, v: swapped[h])).verdict.word == "differs"


def test_a_published_difference_within_its_own_spread_asks_nothing_of_ours():
    noisy = Published(
        "n", Source("headcount", "n"), "heads", (1, 2), "length", (8,), ((1e-5,), (1e-6,)), ((1e-4,), (1e-5,))
    )
    found = compare(noisy, {(1, 8): [1e-2], (2, 8): [1e-1]})
    assert found.ordered == (0, 0)
    assert found.verdict.word == "undecided"


def test_accuracies_are_compared_by_difference():
    table = Published(
        "a", Source("headcount", "a"), "heads", (1, 2), "length", (8,), ((0.50,), (0.51,)), measure=Difference()
    )
    assert compare(table, {(1, 8): [0.3], (2, 8): [0.2]}).ordered == (0, 0)
    wide = Published(
        "a", Source("headcount", "a"), "heads", (1, 2), "length", (8,), ((0.50,), (0.90,)), measure=Difference()
    )
    assert compare(wide, {(1, 8): [0.2], (2, 8): [0.3]}).verdict.word == "same shape"
    assert compare(wide, {(1, 8): [0.3], (2, 8): [0.2]}).verdict.word == "differs"


def test_a_number_without_seeds_agrees_as_far_as_it_can_be_read():
    table = Published("f", Source("headcount", "f"), "heads", (1, 2), "curve", ("k",), ((0.5,), (2.6,)), read_to=0.05)
    close, far = ({(1, "k"): [0.54], (2, "k"): [2.6 + off]} for off in (-0.04, 0.06))
    assert compare(table, close).verdict.word == "matches"
    assert "2 of 2 cells equal up to 0.05, as far as" in compare(table, close).verdict.reason
    assert compare(table, far).agreeing == 1 and compare(table, far).verdict.word == "same shape"


@pytest.mark.parametrize(
    ("origin", "outcome", "words"),
    [
        ("paper", "matches", "ordered alike"),
        ("second-hand", "matches", "known from a summary of the paper only"),
        ("derived here", "consistent", "derived here, so this is a check of consistency"),
    ],
)
def test_agreement_with_our_own_numbers_is_a_check_of_consistency(origin, outcome, words):
    table = replace(PLANTED, origin=origin)
    verdict = compare(table, cells(lambda h, v: v)).verdict
    assert verdict.word == outcome and words in verdict.reason
    assert compare(table, cells(lambda h, v: 1e-2)).verdict.word == "differs"


def test_one_formula_on_both_sides_is_compared_with_nothing():
    table = replace(PLANTED, origin="same formula")
    for measured in (cells(lambda h, v: v), cells(lambda h, v: 1e-2)):
        assert compare(table, measured).verdict.word == "not comparable"


def test_the_distance_stands_beside_the_same_shape_and_the_claim_knows_it():
    claim = compare(PLANTED, cells(lambda h, v: 7 * v)).verdict
    assert claim.word == "same shape" and "7 times the published" in claim.reason
    assert claim.compared.ratio == pytest.approx(7) and claim.compared.side == "printed"


def test_runs_of_which_half_diverged_have_neither_the_same_shape_nor_do_they_match():
    for factor in (1, 7):
        found = compare(PLANTED, cells(lambda h, v, factor=factor: factor * v))
        lost = replace(found, diverged=sum(cell.seeds for cell in found.cells))
        assert lost.verdict.word in ("undecided", "consistent") and found.verdict.word != lost.verdict.word


def test_no_published_table_without_printed_numbers_says_that_the_paper_printed_them():
    from headcount.papers.allocation.reproduce import E_128, FOUR_GRAM
    from headcount.papers.head_count.published import EXPONENTS, TABLE_2

    assert (E_128.origin, EXPONENTS.origin) == ("derived here", "derived here")
    assert (FOUR_GRAM.origin, TABLE_2.origin) == ("paper", "paper")


def test_nothing_in_common_is_undecided_and_statements_are_at_best_the_same_shape():
    assert compare(PLANTED, {(9, 8): [0.1]}).verdict.word == "undecided"
    assert judge_claims([Stated("a", "b", True)]).word == "same shape"
    assert judge_claims([Stated("a", "b", True), Stated("c", "d", False)]).word == "differs"


def test_a_ragged_table_is_refused():
    with pytest.raises(ValueError, match="2 rows and 1 columns"):
        Published("r", Source("headcount", "r"), "heads", (1, 2), "length", (8,), ((0.1,),))


def test_a_record_survives_its_file(tmp_path):
    found = Measured(
        {"planted": {(1, 8): (0.1, 0.2), ("x", "y"): (1e-7,)}}, (Stated("a", "b", True),), {"seeds": 2}, ("n",)
    )
    record = Record("head-count:table-2", True, "2026-01-01", "CPU", "headcount reproduce", 1.5, found)
    path = tmp_path / "r.json"
    path.write_text(record.to_json())
    assert Record.read(path) == record


@pytest.mark.parametrize("text", ["{}", "[1]", "nonsense", '{"name": 1}'])
def test_a_file_that_is_no_record_is_one_line(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"r\.json: "):
        Record.read(path)


def test_a_reading_of_ours_is_compared_with_nobodys_statement():
    ours = [Stated("it falls like 1/t", "0.3", holds, statement="ours") for holds in (True, False)]
    theirs = [replace(stated, statement="theirs") for stated in ours]
    assert judge_claims(ours).word == "not comparable" and judge_claims(theirs).word == "differs"
    assert '"it falls like 1/t"' in judge_claims(theirs).reason
