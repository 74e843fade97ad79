"""The two max-margin problems: margins, duality, closed forms, infeasible choices, and what is refused."""

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.papers.attention_svm import (
    InfeasibleError,
    Selection,
    feasible,
    feasible_share,
    frobenius,
    max_margin,
    nuclear,
    rank_study,
    selection_feasible_from,
)
from headcount.papers.attention_svm.instance_files import SelectionFile
from headcount.papers.attention_svm.margins import constraint_rows
from headcount.papers.attention_svm.selection_answer import NoSelection

NORMS = pytest.mark.parametrize("norm", [frobenius, nuclear], ids=lambda n: n.name)


def drawn(n, length, d, seed=0):
    data = Selection(n, length, d).sample(1, generator=torch.Generator().manual_seed(seed))
    return *data.arrays(0), data.best[0].numpy()


def proved(solution, norm, rows):
    """Margins and the dual's promise, computed again from the rows alone."""
    assert (rows @ solution.weights.ravel()).min() >= 1 - 1e-8
    assert (solution.dual >= 0).all()
    assert norm.dual((solution.dual @ rows).reshape(solution.weights.shape)) <= 1 + 1e-12
    assert norm.of(solution.weights) <= solution.dual.sum() * (1 + 1e-6)
    assert norm.of(solution.weights) >= solution.dual.sum() * (1 - 1e-12)  # weak duality: no solver can beat it


@NORMS
@pytest.mark.parametrize("seed", range(3))
def test_margins_are_one_and_the_dual_proves_the_norm(norm, seed):
    problem = drawn(6, 8, 10, seed)
    proved(max_margin(*problem, norm), norm, constraint_rows(*problem)[0])


@NORMS
def test_large_problems_are_solved_to_the_same_gap(norm):
    problem = drawn(50, 20, 32)
    proved(max_margin(*problem, norm), norm, constraint_rows(*problem)[0])


@NORMS
def test_one_constraint_has_a_closed_form_of_rank_one(norm):
    g = np.random.default_rng(1)
    x, z = g.standard_normal((1, 2, 2)), g.standard_normal((1, 2))
    a = np.outer(x[0, 1] - x[0, 0], z[0])
    found = max_margin(x, z, [1], norm)
    assert np.allclose(found.weights, a / (a**2).sum(), atol=1e-8)
    assert found.rank == 1
    assert found.support == ((0, 0),)


@NORMS
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_the_tokens_changes_only_the_scale_of_the_answer(norm, scale):
    x, z, chosen = drawn(4, 5, 6)
    one, other = max_margin(x, z, chosen, norm), max_margin(scale * x, z, chosen, norm)
    assert other.gap < 1e-6
    assert np.allclose(other.weights * scale, one.weights, atol=1e-5 * np.abs(one.weights).max())


def test_rows_are_keys_and_columns_are_queries():
    x, z = np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([[0.0, 1.0, 0.0]])
    assert np.allclose(max_margin(x, z, [0]).weights, [[0, 1, 0], [0, 0, 0]])


def test_no_feasible_matrix_is_shorter():
    x, z, chosen = drawn(3, 4, 5)
    rows, _ = constraint_rows(x, z, chosen)
    g = np.random.default_rng(0)
    for norm in (frobenius, nuclear):
        best = max_margin(x, z, chosen, norm)
        for size in (0.01, 0.1, 1.0):
            other = best.weights + size * g.standard_normal(best.weights.shape)
            least = (rows @ other.ravel()).min()
            assert least <= 0 or norm.of(other / least) >= best.norm * (1 - 1e-6)


def test_each_norm_is_least_at_its_own_solution():
    problem = drawn(6, 8, 10)
    one, other = max_margin(*problem, frobenius), max_margin(*problem, nuclear)
    assert frobenius.of(one.weights) < 0.99 * frobenius.of(other.weights)
    assert nuclear.of(other.weights) < 0.99 * nuclear.of(one.weights)
    assert other.rank < one.rank


def test_an_infeasible_choice_carries_the_combination_that_proves_it():
    found = 0
    for seed in range(20):
        problem = drawn(10, 5, 2, seed)
        if feasible(*problem):
            continue
        found += 1
        with pytest.raises(InfeasibleError, match="nonnegative combination") as none:
            max_margin(*problem)
        rows, _ = constraint_rows(*problem)
        u = none.value.combination
        assert (u >= 0).all()
        assert u.sum() == pytest.approx(1)
        assert np.abs(u @ rows).max() < 1e-8
    assert found > 10


@NORMS
def test_sequences_of_other_scales_are_solved_and_proved_alike(norm):
    x, z, chosen = drawn(3, 4, 5)
    x = x * np.array([1e-3, 1.0, 1e3])[:, None, None]
    assert feasible(x, z, chosen)
    proved(max_margin(x, z, chosen, norm), norm, constraint_rows(x, z, chosen)[0])
    near = x.copy()
    near[1, (chosen[1] + 1) % 4] = near[1, chosen[1]] + 1e-6  # hardly another token, but another
    assert max_margin(near, z, chosen, norm).gap < 1e-6


@NORMS
def test_feasibility_does_not_depend_on_the_scale_of_a_sequence_and_what_is_not_solved_is_said(norm):
    for seed in range(4):
        x, z, chosen = drawn(3, 4, 5, seed)
        far = x * np.array([1e-8, 1.0, 1e8])[:, None, None]
        assert feasible(far, z, chosen)
        try:
            assert max_margin(far, z, chosen, norm).gap < 1e-3
        except ValueError as said:
            assert not isinstance(said, InfeasibleError)
            assert "left a" in str(said)


def test_one_token_has_nothing_to_separate():
    assert feasible(np.ones((3, 1, 2)), np.ones((3, 2)), [0, 0, 0])


def test_a_query_of_nothing_is_named():
    x = np.random.default_rng(0).standard_normal((2, 3, 2))
    with pytest.raises(InfeasibleError, match="query of sequence 1 is 0"):
        max_margin(x, [[1.0, 1.0], [0.0, 0.0]], [0, 0])


def test_a_token_equal_to_the_chosen_one_is_named():
    x = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    with pytest.raises(InfeasibleError, match="sequence 0 token 2 equals the chosen token 0"):
        max_margin(x, [[1.0, 0.0]], [0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"chosen": [0, 9]}, "from 0 to 2"),
        ({"chosen": [0.0, 1.0]}, "whole numbers"),
        ({"queries": np.ones((3, 2))}, "got"),
        ({"tokens": np.full((2, 3, 2), np.nan)}, "finite"),
        ({"tokens": 1e-200 * np.random.default_rng(0).standard_normal((2, 3, 2))}, "between 1e-70 and 1e70"),
        ({"queries": 1e200 * np.eye(2)}, "between 1e-70 and 1e70"),
        ({"tokens": np.ones((2, 1, 2)), "chosen": [0, 0]}, "nothing to choose"),
    ],
)
def test_bad_problems_are_refused(change, says):
    given = {"tokens": np.random.default_rng(0).standard_normal((2, 3, 2)), "queries": np.eye(2), "chosen": [0, 1]}
    with pytest.raises(ValueError, match=says):
        max_margin(**(given | change))


def test_the_sufficient_dimension_suffices_and_is_far_from_needed():
    for n, length in ((3, 4), (5, 5)):
        enough = int(selection_feasible_from(n, length).value)
        assert feasible_share(n, length, enough, instances=10) == 1
    assert selection_feasible_from(5, 10).value == 9
    assert feasible_share(5, 10, 5, instances=10) == 1
    assert feasible_share(5, 5, 1, instances=10) == 0


def test_the_nuclear_solution_has_the_smaller_rank_and_infeasible_draws_are_counted_apart():
    one, other, lost = rank_study(5, 5, 10, instances=4)
    assert lost == 0
    assert set(one) == {5}
    assert max(other) < 5
    one, other, lost = rank_study(5, 5, 1, instances=4)
    assert (one, other, lost) == ([], [], 4)


def test_the_front_door_shows_the_paper():
    assert hc.attention_svm.max_margin is max_margin
    with pytest.raises(AttributeError):
        _ = hc.attention_svm.max_margins


@pytest.mark.parametrize("missed", [0.0, 1e-9, 1e-10, 1e-13])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_hull_that_is_nearly_met_is_denied_only_below_a_norm_that_no_matrix_reaches(missed, scale):
    """Tokens at -1 and 1 and the chosen one `missed` above their middle: e_2 z^T / (missed |z|^2) puts it first."""
    tokens, asked = scale * np.array([[[0.0, missed], [1.0, 0.0], [-1.0, 0.0]]]), np.array([[1.0, 1.0]])
    with pytest.raises(InfeasibleError) as none:
        max_margin(tokens, asked, np.array([0]), norm=frobenius)
    found = NoSelection(SelectionFile(tokens, asked, np.array([0])), none.value)
    bound = float(found.sentence.split("below ")[1].split()[0])
    assert bound <= found.least_norm
    if missed:
        weights = np.outer([0.0, 1.0], asked[0]) / (scale * missed * 2)
        margins = constraint_rows(tokens, asked, np.array([0]))[0] @ weights.ravel()
        assert np.allclose(margins, 1) and found.least_norm <= np.linalg.norm(weights) * (1 + 1e-9)
        assert found.least_norm >= 0.5 * min(np.linalg.norm(weights), 1e13 / scale)
