"""Information of lags: stationary laws that stay laws, chi-square information two ways, the set it chooses."""

from itertools import product

import numpy as np
import pytest

from headcount.papers.induction.bounds import (
    chi2_information,
    information_set,
    information_table,
    stationary_law,
    subsets,
)


def kernels(count: int, alpha: float, rows: int = 9, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet([alpha] * 3, (count, rows))


def mixed(kernel: np.ndarray, share: float = 1e-3) -> np.ndarray:
    return kernel * (1 - share) + share / kernel.shape[-1]


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01])
def test_the_stationary_law_is_positive_and_stays(alpha):
    p = mixed(np.random.default_rng(1).dirichlet([alpha] * 6, (50, 6)))
    law = stationary_law(p)
    assert (law > 0).all()
    np.testing.assert_allclose(law.sum(axis=-1), 1, atol=1e-14)
    np.testing.assert_allclose(np.einsum("bi,bij->bj", law, p), law, atol=1e-14)


def test_the_stationary_law_equals_least_squares_with_the_sum_as_an_equation():
    for p in mixed(np.random.default_rng(2).dirichlet([0.1] * 5, (20, 5))):
        system = np.vstack([p.T - np.eye(5), np.ones(5)])
        solved, *_ = np.linalg.lstsq(system, np.array([0.0] * 5 + [1.0]), rcond=None)
        np.testing.assert_allclose(stationary_law(p), solved, atol=1e-10)


def test_a_nearly_reducible_chain_keeps_its_exact_law():
    """Two states that are left with chances 1e-14 and 3e-14: the law is (3/4, 1/4)."""
    p = np.array([[1 - 1e-14, 1e-14], [3e-14, 1 - 3e-14]])
    np.testing.assert_allclose(stationary_law(p), [0.75, 0.25], rtol=1e-12)


def long_run(kernel, parents, lags, power) -> float:
    """The same from the definition: windows as states, powers of the transition, sums over dictionaries."""
    window = max(*parents, *lags, 1)
    states = list(product(range(3), repeat=window))  # lag 1 first
    number = {s: i for i, s in enumerate(states)}
    p = np.zeros((len(states), len(states)))
    rows = {s: kernel[sum(s[lag - 1] * 3**i for i, lag in enumerate(parents))] for s in states}
    for s, e in product(states, range(3)):
        p[number[s], number[(e, *s)[:window]]] += rows[s][e]
    law = np.linalg.matrix_power(p, 2**22)[0]
    pairs: dict[tuple, np.ndarray] = {}
    for s in states:
        z = tuple(s[lag - 1] for lag in lags)
        pairs[z] = pairs.get(z, np.zeros(3)) + law[number[s]] * rows[s]
    letters = sum(pairs.values())
    return sum(v.sum() ** power * (((v / v.sum()) ** 2 / letters).sum() - 1) for v in pairs.values())


@pytest.mark.parametrize(("parents", "lags"), [((1, 2), (1,)), ((1, 3), (2, 3)), ((2, 3), (1, 2, 3)), ((1, 2), (3,))])
@pytest.mark.parametrize("power", [1, 2])
def test_information_equals_its_definition(parents, lags, power):
    for kernel in kernels(3, 0.3):
        found = chi2_information(kernel, lags, power, parents=parents)
        assert float(found) == pytest.approx(long_run(mixed(kernel), parents, lags, power), rel=1e-8)


def test_plain_information_never_falls_when_a_lag_is_added_and_ties_above_the_parents():
    values = information_table(0.1, 3, (1, 2), 3, power=1, kernels=100)
    for small, large in product(values, values):
        if set(small) <= set(large):
            assert (values[large] >= values[small] - 1e-9).all()
    np.testing.assert_allclose(values[1, 2], values[1, 2, 3], rtol=1e-9)


TABLE = {  # 1500 kernels, window 3, parents {1,2}; good to some 2%
    0.1: (0.157, 0.181, 0.158, 0.214, 0.169, 0.182, 0.190),
    0.3: (0.109, 0.117, 0.076, 0.145, 0.095, 0.098, 0.108),
    1.0: (0.046, 0.045, 0.014, 0.061, 0.028, 0.027, 0.033),
}


@pytest.mark.parametrize("alpha", TABLE)
def test_the_modified_information_chooses_the_parents_alone(alpha):
    values = information_table(alpha, 3, (1, 2), 3, kernels=1500)
    means = [values[lags].mean() for lags in subsets(3)[1:]]
    errors = [values[lags].std() / 1500**0.5 for lags in subsets(3)[1:]]
    assert all(abs(m - t) < 4 * 2**0.5 * e + 0.0005 for m, t, e in zip(means, TABLE[alpha], errors, strict=True))
    best = information_set(alpha, 3, (1, 2), 3, kernels=1500)
    assert best.lags == (1, 2) and best.margin > 8 * best.margin_error


def test_the_margin_is_the_difference_to_the_runner_up():
    best = information_set(0.3, 3, (1, 3), 3)
    values = {lags: v.mean() for lags, v in information_table(0.3, 3, (1, 3), 3).items()}
    first, second = sorted(values.values(), reverse=True)[:2]
    assert values[best.lags] == first and values[best.runner_up] == second
    assert best.margin == pytest.approx(first - second) and 0 < best.margin_error < best.margin


def test_a_chain_that_needs_no_memory_has_no_information():
    kernel = np.tile([0.2, 0.3, 0.5], (9, 1))
    assert max(float(chi2_information(kernel, lags)) for lags in subsets(3)) < 1e-12


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: chi2_information(kernels(1, 1.0), (1,), parents=(1,)), "1 parents of 3 letters need 3 rows, got 9"),
        (lambda: information_set(-1, 3, (1,), 3), "concentration must be a finite number above 0"),
        (lambda: information_set(1, 3, (1,), 0), "window must be at least 1"),
        (lambda: information_set(1, 3, (0,), 3), "different lags from 1 on"),
        (lambda: information_set(1, 3, (1, 1), 3), "different lags from 1 on"),
        (lambda: information_set(1, 3, (), 3), "at least one of them"),
        (lambda: information_set(1, 1, (1,), 3), "needs 2 letters"),
        (lambda: information_set(1, 3, (4,), 3), "outside the window"),
        (lambda: information_set(1, 3, (1,), 2, kernels=1), "at least 2 kernels, got 1"),
    ],
)
def test_a_bad_question_is_refused_in_one_sentence(ask, says):
    with pytest.raises(ValueError, match=says):
        ask()
