"""The matrix of least norm whose attention scores put the chosen tokens first, with a proof.

    minimise |W|  subject to  (x_{i,alpha_i} - x_it)^T W z_i >= 1  for all i and t != alpha_i

in the Frobenius or the nuclear norm. W multiplies tokens from the left and queries from the right. The dual is
max sum(lambda) over lambda >= 0 with |sum_k lambda_k A_k| <= 1 in the dual norm (Frobenius, or operator norm), A_k the
matrix (x_{i,alpha_i} - x_it) z_i^T of constraint k: any such lambda bounds the norm from below, so the gap between the
two is a certificate that needs no trust in the solver. Only the directions of the differences of tokens and of the
queries matter: W = P M Q^T, P and Q orthonormal bases of the two, and M is solved for. numpy and scipy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from headcount.sources import Checked, Source, implements

NOTHING = 1e-9  # the residual of the least-distance problem, rows of norm 1, below which there is no solution
ROUNDS = 20_000
LOOSE = 1e-3  # a duality gap above this is no answer
SMALLEST = 1e-70  # of tokens and queries: squares of their products stay inside float64


class InfeasibleError(ValueError):
    """No matrix puts the chosen tokens first; `combination` >= 0 sums to 1 and makes the constraint rows vanish."""

    def __init__(self, message: str, combination: Float[np.ndarray, " constraints"]) -> None:
        super().__init__(message)
        self.combination = combination


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """The solution: `weights` W, the active constraints as (sequence, token), the dual variables, and the gap.

    `gap` is primal / dual - 1: W is within that factor of the best there is.
    """

    weights: Float[np.ndarray, "token_dim query_dim"]
    norm: float
    support: tuple[tuple[int, int], ...]
    dual: Float[np.ndarray, " constraints"]
    gap: float
    margin: float

    @property
    def rank(self) -> int:
        """The rank of W, singular values below 1e-4 of the largest left out."""
        values = self.singular_values
        return int((values > 1e-4 * values[0]).sum())

    @property
    def singular_values(self) -> Float[np.ndarray, " values"]:
        """The singular values of W, the largest first."""
        return np.linalg.svd(self.weights, compute_uv=False)


Solved = tuple[Float[np.ndarray, "token_dim query_dim"], Float[np.ndarray, " constraints"]]


@dataclass(frozen=True)
class MarginNorm:
    """A norm of matrices as the problem needs it: itself, its dual, and how the problem is solved in it."""

    name: str
    of: Callable[[np.ndarray], Any]
    dual: Callable[[np.ndarray], Any]
    solve: Callable[[np.ndarray, np.ndarray, tuple[int, int]], Solved]


def constraint_rows(
    tokens: Float[np.ndarray, "sequences length token_dim"],
    queries: Float[np.ndarray, "sequences query_dim"],
    chosen: Int[np.ndarray, " sequences"],
) -> tuple[Float[np.ndarray, "constraints entries"], list[tuple[int, int]]]:
    """A row vec((x_{i,alpha_i} - x_it) z_i^T) for every sequence i and token t other than the chosen one."""
    differences, repeated, names = _differences(tokens, queries, chosen)
    return _products(differences, repeated), names


def _differences(x: np.ndarray, z: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """x_{i,alpha_i} - x_it and z_i, a row for each constraint, and the (i, t) of each."""
    names = [(i, t) for i, tokens in enumerate(x) for t in range(len(tokens)) if t != a[i]]
    if not names:
        return np.zeros((0, x.shape[2])), np.zeros((0, z.shape[1])), names
    i, t = np.array(names).T
    return x[i, a[i]] - x[i, t], z[i], names


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows; all directions where there are no fewer rows than those."""
    if len(rows) >= rows.shape[1]:
        return np.eye(rows.shape[1])
    return np.linalg.qr(rows.T)[0]


def _products(differences: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return (differences[:, :, None] * queries[:, None, :]).reshape(len(differences), -1)


@implements(
    Source("tarzanagh2023svm", "Att-SVM and its nuclear form"),
    test="tests/test_attention_svm_margins.py::test_margins_are_one_and_the_dual_proves_the_norm",
    status="proved here",
    hypotheses=(Checked("the chosen tokens can be separated: else the vanishing combination is given"),),
)
def max_margin(tokens: ArrayLike, queries: ArrayLike, chosen: ArrayLike, norm: MarginNorm | None = None) -> MaxMargin:
    """The matrix of least norm with margin 1 for the chosen tokens, with its dual certificate.

    Infeasible problems are refused by an `InfeasibleError` that carries the combination of constraints that proves it.
    Source: Tarzanagh et al. 2023, Att-SVM and its nuclear form.

    >>> found = max_margin([[[1.0, 0.0], [0.0, 0.0]]], [[0.0, 2.0]], [0])
    >>> found.weights.tolist(), found.gap < 1e-9
    ([[0.0, 0.5], [0.0, 0.0]], True)
    """
    x, z, a = _checked(tokens, queries, chosen)
    norm = norm or frobenius
    differences, repeated, names = _differences(x, z, a)
    if not len(differences):
        raise ValueError("every sequence has one token: there is nothing to choose")
    left, right = _basis(differences), _basis(z)
    rows = _products(differences @ left, repeated @ right)
    if (vanishing := _vanishing(rows)) is not None:
        raise InfeasibleError(_twins(x, z, a), vanishing)
    sizes = np.linalg.norm(rows, axis=1)
    sides = sizes.min() / sizes  # rows of norm 1: no sequence is lost beside one of another scale
    small, dual = norm.solve(rows / sizes[:, None], sides, (left.shape[1], right.shape[1]))
    weights, dual = left @ small @ right.T, dual / sizes
    margins = np.einsum("kd,de,ke->k", differences, weights, repeated, optimize=True)
    if (least := float(margins.min())) <= 0:
        raise ValueError(f"the solver left a margin of {least:.3g}: the problem is too near an infeasible one")
    weights, margins = weights / least, margins / least  # every margin is 1 or more now
    reach = norm.dual(differences.T @ (dual[:, None] * repeated))
    primal, lower = float(norm.of(weights)), float(dual.sum()) / float(reach)
    if not primal <= lower * (1 + LOOSE):
        raise ValueError(
            f"the solver left a duality gap of {primal / lower - 1:.2g}: the sequences differ too much in scale, "
            f"constraints from {sizes.min():.0e} to {sizes.max():.0e}; bring them nearer to each other"
        )
    support = tuple(name for name, m in zip(names, margins, strict=True) if m < 1 + 1e-5)
    return MaxMargin(weights, primal, support, dual / reach, primal / lower - 1, float(margins.min()))


def separating(
    tokens: ArrayLike, queries: ArrayLike, chosen: ArrayLike, norm: MarginNorm | None = None
) -> MaxMargin | None:
    """The same matrix, or None where no matrix puts the chosen tokens first."""
    try:
        return max_margin(tokens, queries, chosen, norm)
    except InfeasibleError:
        return None


def feasible(tokens: ArrayLike, queries: ArrayLike, chosen: ArrayLike) -> bool:
    """Whether some matrix puts every chosen token strictly first.

    >>> feasible([[[1.0], [-1.0]], [[-1.0], [1.0]]], [[1.0], [1.0]], [0, 0])
    False
    """
    differences, repeated, _ = _differences(*_checked(tokens, queries, chosen))
    rows = (
        _products(differences @ _basis(differences), repeated @ _basis(repeated)) if len(differences) else differences
    )
    return not len(rows) or _vanishing(rows) is None


def _vanishing(rows: np.ndarray) -> np.ndarray | None:
    """A nonnegative combination of the rows, of sum 1, that vanishes (to 1e-9 of rows of norm 1); None: feasible."""
    sizes = np.linalg.norm(rows, axis=1)
    if not sizes.all():
        return (sizes == 0) / (sizes == 0).sum()
    u, residual, _ = _distance(rows / sizes[:, None], np.ones(len(rows)))
    return None if residual > NOTHING else u / sizes / (u / sizes).sum()


def _distance(rows: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Least-distance programming: u = argmin |E u - f| over u >= 0, E = [A^T; b^T], f = (0, .., 0, 1)."""
    from scipy.optimize import nnls

    e = np.vstack([rows.T, sides])
    f = np.zeros(len(e))
    f[-1] = 1.0
    u, residual = nnls(e, f, maxiter=50 * max(e.shape))
    return u, float(residual), e @ u - f


def least_norm(rows: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shortest w with A w >= b, and multipliers lambda >= 0 with w = A^T lambda.

    The least-distance solution gives the active rows; w is then solved again on them, which keeps the digits that the
    residual 1 / sqrt(1 + |w|^2) loses when w is long.
    """
    u, residual, r = _distance(rows, sides)
    if residual <= NOTHING:
        raise ValueError("no vector meets all constraints")
    w, dual = -r[:-1] / r[-1], u / -r[-1]
    active = np.flatnonzero(u > 1e-12 * u.max())
    again, *_ = np.linalg.lstsq(rows[active], sides[active], rcond=None)
    weights, *_ = np.linalg.lstsq(rows[active].T, again, rcond=None)
    slack = (rows @ again - sides).min()
    if slack > min(-1e-10, (rows @ w - sides).min()) and (weights > -1e-8 * abs(weights).max()).all():
        dual = np.zeros(len(rows))
        dual[active] = weights.clip(min=0)
        return again, dual
    return w, dual


def _frobenius(rows: np.ndarray, sides: np.ndarray, shape: tuple[int, int]) -> Solved:
    w, dual = least_norm(rows, sides)
    return w.reshape(shape), dual


def _nuclear(rows: np.ndarray, sides: np.ndarray, shape: tuple[int, int]) -> Solved:
    """Alternating directions on W = S, y = A S with over-relaxation 1.6; I + A^T A is inverted once."""
    inverse = _shifted_inverse(rows)
    s, u = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    v, rho = np.zeros(len(rows)), 1.0
    best = (np.inf, s, v)
    at = np.zeros(len(rows))
    for number in range(1, ROUNDS + 1):
        w = _shrunk(s - u, 1 / rho, shape)
        y = np.maximum(sides, at - v)
        ahead, reach = 1.6 * w - 0.6 * s, 1.6 * y - 0.6 * at
        before = s
        s = inverse(ahead + u + rows.T @ (reach + v))
        at = rows @ s
        u, v = u + ahead - s, v + reach - at
        if number % 50 == 0:
            gap = _nuclear_gap(rows, sides, w, np.maximum(v, 0), shape)
            best = min(best, (gap, w, np.maximum(v, 0)), key=lambda each: each[0])
            if gap < 1e-8:
                break
            primal = np.hypot(np.linalg.norm(w - s), np.linalg.norm(y - at))
            dual = rho * np.linalg.norm(s - before)
            change = (2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0) if number < ROUNDS / 2 else 1.0
            rho, u, v = rho * change, u / change, v / change
    return best[1].reshape(shape), best[2]


def _shifted_inverse(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """(I + A^T A)^-1 as a function: I - A^T (I + A A^T)^-1 A where there are fewer constraints than unknowns."""
    from scipy.linalg import cho_factor, cho_solve

    constraints, unknowns = rows.shape
    if constraints >= unknowns:
        factor = cho_factor(np.eye(unknowns) + rows.T @ rows)
        return lambda v: cho_solve(factor, v, check_finite=False)
    factor = cho_factor(np.eye(constraints) + rows @ rows.T)
    return lambda v: v - rows.T @ cho_solve(factor, rows @ v, check_finite=False)


def _shrunk(w: np.ndarray, by: float, shape: tuple[int, int]) -> np.ndarray:
    left, values, right = np.linalg.svd(w.reshape(shape), full_matrices=False)
    return (left * np.maximum(values - by, 0) @ right).ravel()


def _nuclear_gap(rows: np.ndarray, sides: np.ndarray, w: np.ndarray, dual: np.ndarray, shape: tuple[int, int]) -> float:
    least, reach = (rows @ w / sides).min(), np.linalg.norm((dual @ rows).reshape(shape), 2)
    if least <= 0 or reach == 0:
        return np.inf
    return float(np.linalg.norm(w.reshape(shape), "nuc") / least / (dual @ sides / reach) - 1)


frobenius = MarginNorm("frobenius", np.linalg.norm, np.linalg.norm, _frobenius)
nuclear = MarginNorm("nuclear", partial(np.linalg.norm, ord="nuc"), partial(np.linalg.norm, ord=2), _nuclear)


def _twins(x: np.ndarray, z: np.ndarray, a: np.ndarray) -> str:
    """Why there is no solution: a query of 0, a token equal to the chosen one, or a combination of constraints."""
    for i, (tokens, query, chosen) in enumerate(zip(x, z, a, strict=True)):
        if not query.any():
            return f"infeasible: the query of sequence {i} is 0, so that all its tokens score 0"
        same = [t for t in range(len(tokens)) if t != chosen and np.array_equal(tokens[t], tokens[chosen])]
        if same:
            return f"infeasible: in sequence {i} token {same[0]} equals the chosen token {chosen}"
    return "infeasible: a nonnegative combination of the constraints vanishes to 1e-9 (it is in .combination)"


def _checked(tokens: ArrayLike, queries: ArrayLike, chosen: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, z, a = np.asarray(tokens, dtype=float), np.asarray(queries, dtype=float), np.asarray(chosen)
    if x.ndim != 3 or z.ndim != 2 or len(x) != len(z) or a.shape != (len(x),) or not x.size:
        raise ValueError(
            "tokens must be (sequences, length, token_dim), queries (sequences, query_dim) and chosen (sequences,); "
            f"got {x.shape}, {z.shape} and {a.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise ValueError("tokens and queries must be finite numbers")
    for name, part in (("tokens", x), ("queries", z)):
        if (size := float(np.abs(part).max())) and not SMALLEST < size < 1 / SMALLEST:
            raise ValueError(f"the largest of the {name} is {size:.1e}: scale them to between 1e-70 and 1e70")
    if a.dtype.kind not in "iu" or not ((a >= 0) & (a < x.shape[1])).all():
        raise ValueError(f"chosen must be whole numbers from 0 to {x.shape[1] - 1}, one for each sequence")
    return x, z, a
