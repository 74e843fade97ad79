"""Chains of letters with a kernel of their own: the sampler, and the exact law of what comes next."""

import math
from collections import Counter
from itertools import product

import pytest
import torch
from torch.nn.functional import one_hot

from headcount.tasks import NGram
from headcount.tasks.ngrams import dirichlet_posterior, following_counts


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def evidence(letters, parents, vocab, alpha) -> float:
    """log of the Dirichlet integral of a sequence: a product of Gamma functions over the contexts."""
    rows: dict[tuple, Counter] = {}
    for t in range(max(parents), len(letters)):
        rows.setdefault(tuple(letters[t - p] for p in parents), Counter())[letters[t]] += 1
    total = 0.0
    for row in rows.values():
        total += math.lgamma(vocab * alpha) - math.lgamma(vocab * alpha + row.total())
        total += sum(math.lgamma(alpha + c) - math.lgamma(alpha) for c in row.values())
    return total


@pytest.mark.parametrize("parents", [(1, 2), (1, 3), (2,)])
def test_the_call_is_the_ratio_of_two_dirichlet_integrals(parents):
    task = NGram(parents=parents, length=15, concentration=0.3)
    x = task.sample(40, generator=seeded(), dtype=torch.float64).x
    for letters, law in zip(x.argmax(dim=-1).tolist(), task(x), strict=True):
        before = evidence(letters, parents, 3, 0.3)
        ways = [math.exp(evidence([*letters, e], parents, 3, 0.3) - before) for e in range(3)]
        torch.testing.assert_close(law, torch.tensor(ways, dtype=torch.float64), atol=1e-13, rtol=0)


@pytest.mark.parametrize("lags", [(), (1,), (1, 3), (2, 3)])
def test_counts_equal_a_loop_over_places(lags):
    x = NGram(length=12, concentration=1.0).sample(30, generator=seeded(1), dtype=torch.float64).x
    for letters, found in zip(x.argmax(dim=-1).tolist(), following_counts(x, lags).tolist(), strict=True):
        counts = [0.0] * 3
        for t in range(max(lags, default=0), 12):
            if all(letters[t - lag] == letters[12 - lag] for lag in lags):
                counts[letters[t]] += 1
        assert found == counts


def test_letters_follow_the_kernel_of_their_sequence():
    """One very peaked kernel is known by its letters: after a pattern seen twice, nearly always the same letter."""
    x, following, row = NGram(concentration=1e-3).sample(400, generator=seeded(2), dtype=torch.float64)
    assert x.shape == (400, 100, 3) and torch.equal(x.sum(dim=2), torch.ones(400, 100, dtype=torch.float64))
    assert float((row.argmax(dim=1) == following).double().mean()) > 0.99
    torch.testing.assert_close(row.sum(dim=1), torch.ones(400, dtype=torch.float64))


@pytest.mark.parametrize(("parents", "other"), [((1, 3), (1, 2)), ((2,), (1,))])
def test_the_sampler_reads_its_own_parents(parents, other):
    """The law from the true parents says what came next; the same law from other lags says less."""
    task = NGram(parents=parents)
    x, following, row = task.sample(1500, generator=seeded(3), dtype=torch.float64)

    def entropy(law):
        return -float(law.gather(1, following[:, None]).log().mean())

    assert entropy(row) < entropy(task(x)) < entropy(dirichlet_posterior(x, other, 0.1)) - 0.05


def test_rows_are_drawn_with_the_concentration():
    """The variance of a Dirichlet(alpha) coordinate of V is (V - 1) / (V^2 (V alpha + 1))."""
    for alpha in (0.1, 1.0):
        kernel = NGram(concentration=alpha).kernels(4000, generator=seeded(4))
        assert kernel.shape == (4000, 9, 3)
        assert float(kernel.var()) == pytest.approx(2 / (9 * (3 * alpha + 1)), rel=0.02)


def test_the_same_seed_gives_the_same_sequences_in_every_precision():
    task = NGram(length=20)
    assert torch.equal(
        task.sample(5, generator=seeded()).x.double(), task.sample(5, generator=seeded(), dtype=torch.float64).x
    )


def test_the_structure_reads_the_parents_and_then_matches():
    read, match = NGram(parents=(1, 3), length=10).structure.retrievals
    assert read.positions == (9, 7) and match.after == ("parents",) and match.offset == 1


def test_a_pattern_without_earlier_copy_gives_the_uniform_law():
    x = one_hot(torch.tensor([[0, 1, 2]]), 3).double()
    torch.testing.assert_close(NGram(length=3)(x), torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_all_short_strings_have_laws_that_sum_to_one():
    x = one_hot(torch.tensor(list(product(range(2), repeat=6))), 2).double()
    law = NGram(vocab=2, length=6)(x)
    torch.testing.assert_close(law.sum(dim=1), torch.ones(64, dtype=torch.float64))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"parents": ()}, "parents must be distinct lags"),
        ({"parents": (0, 1)}, "parents must be distinct lags"),
        ({"parents": (1, 1)}, "parents must be distinct lags"),
        ({"vocab": 1}, "vocab must be at least 2, got 1"),
        ({"concentration": 0.0}, "concentration must be a finite number above 0"),
        ({"length": 1}, "length must be at least 2, got 1"),
    ],
)
def test_a_bad_chain_is_refused_in_one_sentence(given, says):
    with pytest.raises(ValueError, match=says):
        NGram(**given)
