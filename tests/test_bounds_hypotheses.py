"""Random tasks, degenerate ones among them, and random shapes: no lower bound is printed whose hypotheses fail.

What is allowed is worked out again here, in exact fractions and from the task's own numbers.
"""

import random
from fractions import Fraction
from itertools import pairwise

import pytest

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.infoflow.lower import one_layer_bound
from headcount.tasks import (
    Induction,
    KthLargest,
    LinearMax,
    OppositePair,
    PairMax,
    PositionSum,
    TriangleCentre,
    UnitSphere,
    Wells,
)

HERE = "Few heads on linear maxima (after Theorem 2(2))"


def ray(vector):
    """A vector of whole numbers up to positive multiples, exactly."""
    lead = next((abs(v) for v in vector if v), None)
    return None if lead is None else tuple(Fraction(v) / Fraction(lead) for v in vector)


def negative_eigenvalues(matrix):
    """Of a symmetric matrix of fractions, by the signs of its characteristic polynomial (Descartes; all roots real)."""
    d = len(matrix)
    power, coefficients = [[Fraction(int(i == j)) for j in range(d)] for i in range(d)], [Fraction(1)]
    for k in range(1, d + 1):  # Faddeev and LeVerrier
        power = [[sum(matrix[i][l] * power[l][j] for l in range(d)) for j in range(d)] for i in range(d)]
        c = -sum(power[i][i] for i in range(d)) / k
        coefficients.append(c)
        power = [[power[i][j] + (c if i == j else 0) for j in range(d)] for i in range(d)]
    mirrored = [c * (-1) ** (d - k) for k, c in enumerate(coefficients)]
    signs = [c > 0 for c in mirrored if c]
    return sum(a != b for a, b in pairwise(signs))


def rays_of(matrices):
    """Forms up to transposes and positive multiples."""
    flat = [
        [tuple(v for row in m for v in row), tuple(v for row in zip(*m, strict=True) for v in row)] for m in matrices
    ]
    return {max(rays) for rays in ([ray(f) for f in both] for both in flat) if rays[0] is not None}


def allowed(task, heads):
    """The source whose hypotheses hold for this task and one layer of so many heads, with its free tokens, or None."""
    length = task.length
    match task:
        case LinearMax():
            distinct = len({ray(row) for row in task.directions} - {None})
            return (HERE, length - heads - distinct + 1) if heads < distinct else None
        case Wells():
            wells = len(task.centres)
            return ("Theorem 2(2)", Fraction(length, 4) - heads - wells + 1) if heads < wells else None
        case KthLargest():
            rank = min(task.rank, length - task.rank + 1)
            return ("Theorem 2 (k-th largest)", length - heads - rank + 1) if heads < rank else None
        case OppositePair() | PairMax() if cancels(task):
            return "depth separation (one layer)", (length - heads) // 2 - heads
    return None


def cancels(task):
    """Whether it is one look-up of a pair whose form is negative definite on a plane of the domain."""
    if isinstance(task, OppositePair):
        return task.token_dim > 1
    if len(rays_of(task.matrices)) != 1:
        return False
    d = task.token_dim
    m = next(m for m in task.matrices if any(v for row in m for v in row))
    symmetric = [[Fraction(m[i][j] + m[j][i]) / 2 for j in range(d)] for i in range(d)]
    even = d > 2 or (symmetric[0][0] == symmetric[-1][-1] and (d == 1 or symmetric[0][1] == 0))
    return negative_eigenvalues(symmetric) >= 2 and (even or not isinstance(task.tokens, UnitSphere))


def some_task(rng):
    length, d, count = rng.choice((4, 16, 64, 200)), rng.randint(1, 4), rng.randint(1, 5)
    entry = lambda: rng.choice((-2, -1, -1, 0, 0, 1, 1, 2))  # noqa: E731
    vector = lambda: [entry() for _ in range(d)]  # noqa: E731
    match rng.randrange(9):
        case 0 | 1:
            rows = [vector() for _ in range(count)]
            return LinearMax([*rows, [rng.choice((1, 2, 3)) * v for v in rng.choice(rows)]], length)
        case 2 | 3:
            kind, forms = rng.randrange(5), []
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                u, v = vector(), vector()
                m = [vector() for _ in range(d)]
                square = [[sum(m[k][i] * m[k][j] for k in range(d)) for j in range(d)] for i in range(d)]
                minus = [[-w for w in row] for row in square]
                one = [[a * b for b in v] for a in u]
                forms.append((m, square, minus, one, [[m[i][j] + m[j][i] for j in range(d)] for i in range(d)])[kind])
            again = [list(map(list, zip(*forms[0], strict=True)))] if rng.random() < 0.3 else []
            return PairMax(forms + again, length, *([UnitSphere()] if rng.random() < 0.3 else []))
        case 4:
            return Wells.random(count, d, length, seed=rng.randrange(99), windows=rng.random() < 0.5)
        case 5:
            return KthLargest(rng.randint(1, length), length)
        case 6:
            return OppositePair(length, d)
        case 7:
            return rng.choice((TriangleCentre(length), PositionSum((0, 2), length), Induction(3, length)))
    return LinearMax.random(count, d, length, seed=rng.randrange(99))


def expected(task, layers):
    """(source, exponent) of the bound that must be printed, or None."""
    found = allowed(task, layers[0][0]) if len(layers) == 1 else None
    if found is None:
        return None
    (name, free), (heads, head_dim) = found, layers[0]
    k = Fraction(free) / ((head_dim + 1) * heads + 1) - 1
    return (name, pytest.approx(float(k), abs=1e-12)) if k > 0 else None


def check(seeds):
    """How many bounds were printed; each is the one that is allowed, and none that is allowed is missing."""
    printed = 0
    for seed in seeds:
        rng = random.Random(seed)
        task = some_task(rng)
        layers = tuple((rng.randint(1, 5), rng.choice((1, 2, 4, 8))) for _ in range(rng.choice((1, 1, 1, 2))))
        bound = one_layer_bound(task.structure, Architecture(layers=layers))
        shown = None if bound is None else (bound.source.name, bound.value)
        assert shown == expected(task, layers), (seed, task, layers, str(bound))
        assert bound is None or bound.holds
        printed += bound is not None
    return printed


def test_no_bound_is_printed_whose_hypotheses_fail():
    """Before: 1,948 were printed for the ten thousand pairs below, 1,027 of them against their hypotheses."""
    assert check(range(500)) > 50


@pytest.mark.slow
def test_no_bound_is_printed_whose_hypotheses_fail_in_ten_thousand_pairs():
    assert check(range(10_000)) > 1_000


def test_a_prediction_prints_the_same_bound():
    for seed in range(60):
        rng = random.Random(seed)
        task, shape = some_task(rng), Architecture(layers=((rng.randint(1, 4), 2),))
        if task.length <= 64:
            prediction = hc.predict(task, shape)
            shown = prediction.lower and (prediction.lower.source.name, prediction.lower.value)
            assert shown == (None if prediction.cheap else expected(task, shape.layers))


def test_the_oracle_counts_negative_eigenvalues():
    assert negative_eigenvalues([[Fraction(-1), Fraction(0)], [Fraction(0), Fraction(-2)]]) == 2
    assert negative_eigenvalues([[Fraction(0), Fraction(1)], [Fraction(1), Fraction(0)]]) == 1
    assert negative_eigenvalues([[Fraction(1), Fraction(1)], [Fraction(1), Fraction(1)]]) == 0
