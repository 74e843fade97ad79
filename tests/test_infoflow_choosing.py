"""Tokens that choose which pair they look for: fewer heads than look-ups, measured on the task's own samples."""

from __future__ import annotations

import pytest
import torch

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.infoflow.choosing import ENOUGH, shared_heads, sharings, with_shared_heads
from headcount.structure import Retrieval, Structure
from headcount.tasks import Gaussian, LinearMax, PairMax, UnitSphere


def shape(first: int, second: int, **more) -> Architecture:
    return Architecture(((first, 8), (second, 8)), **more)


def rotations(count: int, length: int) -> PairMax:
    """Forms without a favourite direction: every token may win every look-up."""
    drawn = torch.randn(count, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return PairMax(torch.linalg.qr(drawn)[0].tolist(), length, UnitSphere())


def routed(task: PairMax, sides: tuple[int, int], seed: int) -> float:
    """The other road: every token asks its one question, and what all of them find is added up, sample by sample."""
    x, y = task.sample(300, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    forms = [torch.tensor(m, dtype=torch.float64) for m in task.matrices]
    turned = [m if side == 0 else m.mT for m, side in zip(forms, sides, strict=True)]
    size = [torch.linalg.matrix_norm(m, 2) for m in forms]
    found = []
    for tokens in x:
        best = [-torch.inf, -torch.inf]
        for token in tokens:
            wins = [((token @ m).norm() / s).item() for m, s in zip(turned, size, strict=True)]
            k = int(wins[1] > wins[0])
            best[k] = max(best[k], (token @ turned[k] @ tokens.mT).max().item())
        found.append(sum(best))
    gap = y - torch.tensor(found, dtype=torch.float64)
    return (gap.var() / y.var()).item()


@pytest.mark.parametrize("draw", [0, *(pytest.param(n, marks=pytest.mark.kernels) for n in range(1, 5))])
def test_on_the_sphere_one_head_serves_two_pairs_and_misses_nothing_on_fresh_samples(draw):
    task = PairMax.random(2, 4, 64, draw, tokens=UnitSphere())
    assert [(c.heads, c.groups, c.nmse < 1e-3) for c in sharings(task)] == [(1, ((0, 1),), True)]
    assert min(routed(task, sides, seed=7) for sides in ((0, 0), (0, 1), (1, 0), (1, 1))) < 1e-3


def test_both_roads_miss_the_same_where_something_is_missed():
    task = PairMax.random(2, 4, 16, tokens=Gaussian())
    by_hand = min(routed(task, sides, seed=0) for sides in ((0, 0), (0, 1), (1, 0), (1, 1)))
    assert by_hand > 0.01 and abs(sharings(task)[0].nmse / by_hand - 1) < 0.5  # other samples


def test_without_a_favourite_direction_half_is_missed():
    (choice,) = sharings(rotations(2, 64))
    assert choice.nmse > 0.3 and shared_heads(rotations(2, 64)) == 2


def test_fewer_heads_miss_more_and_the_search_ends_where_it_is_too_much():
    for task in (PairMax.random(4, 4, 16, tokens=UnitSphere()), PairMax.random(6, 4, 64, tokens=UnitSphere())):
        found = sharings(task)
        missed = [c.nmse for c in found]
        assert [c.heads for c in found] == list(range(len(task.matrices) - 1, len(task.matrices) - 1 - len(found), -1))
        assert all(nmse <= ENOUGH for nmse in missed[:-1])
        assert all(sorted(k for g in c.groups for k in g) == list(range(len(task.matrices))) for c in found)


@pytest.mark.parametrize(
    "task",
    [
        PairMax([[[0, 1], [0, 0]], [[0, 0], [2, 0]]], 8),  # A and a multiple of A^T are one look-up
        PairMax.random(1, 3, 8),
        PairMax.random(2, 3, 1),  # of a single token all forms are one
        PairMax.random(9, 3, 8),  # more than are tried
        PairMax([[[1, 0], [0, 1]], [[2, 0], [0, 1]]], 8),  # single tokens, not pairs
    ],
)
def test_where_there_is_nothing_to_share_a_shape_is_counted_as_it_is(task):
    arch = shape(1, 2)
    assert with_shared_heads(task, arch) == arch


def test_a_head_short_in_the_first_layer_is_cheap_where_tokens_choose_and_says_on_what_that_rests():
    task = PairMax.random(2, 4, 64, tokens=UnitSphere())
    short = hc.predict(task, shape(1, 2))
    assert (short.verdict, short.warrant, short.exponent) == ("cheap", "calculus", 1.0)
    assert short.plan[0].heads == (1, 1) and short.plan[0].act == "choose" and short.plan[1].heads == (1, 2)
    (caution,) = short.cautions
    assert "1 head of layer 1 serves 2 look-ups" in str(caution) and "misses nothing" in str(caution)
    assert hc.predict(task, shape(2, 1)).verdict == "costly"  # the class token asks one question for all
    assert not any("look-ups" in str(c) for c in hc.predict(task, shape(2, 2)).cautions)
    assert hc.predict(PairMax.random(2, 4, 64), shape(1, 2)).verdict == "costly"  # large tokens win both
    bare = Structure(64, 4, (Retrieval("pairs", count=2, order=2),))
    assert hc.predict(bare, shape(1, 2)).verdict == "costly"  # nothing is known of where its tokens lie
    assert with_shared_heads(LinearMax.random(2, 4, 8), shape(1, 2)) == shape(1, 2)


def test_more_heads_never_make_a_cheap_shape_costly():
    for seed, tokens in ((0, UnitSphere()), (1, UnitSphere()), (0, Gaussian())):
        task = PairMax.random(4, 3, 48, seed, tokens=tokens)
        verdicts = [[hc.predict(task, shape(a, b)).cheap for b in range(1, 6)] for a in range(1, 6)]
        table = torch.tensor(verdicts, dtype=torch.int8)
        assert (table.diff(dim=0) >= 0).all() and (table.diff(dim=1) >= 0).all() and table[3, 3]


def test_a_fix_of_a_short_shape_is_the_fewest_heads_that_tokens_can_share():
    task = PairMax.random(4, 3, 16, tokens=UnitSphere())
    fixes = [f for f in hc.predict(task, shape(1, 4)).fixes if f.what == "heads" and f.layer == 1]
    assert fixes and fixes[0].wanted == shared_heads(task) == 3
    assert hc.predict(task, fixes[0].arch).cheap
