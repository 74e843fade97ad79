"""Lower bounds for one layer: the formula by hand, and where they are silent."""

import math

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.infoflow.lower import kth_largest_exponent, one_layer_bound, one_layer_bounds, pair_exponent
from headcount.structure import Retrieval, Structure
from headcount.tasks import KthLargest, LinearMax, OppositePair, PairMax, Wells
from headcount.tasks.intrinsic import kind_of


def test_pair_exponent_grows_linearly_with_length():
    """T_0 = floor((T - h)/2) - h over (n + 1) h + 1, less one."""
    assert pair_exponent(length=64, heads=1, head_dim=2).value == pytest.approx((31 - 1) / 4 - 1)
    assert pair_exponent(length=64, heads=2, head_dim=4).value == pytest.approx((31 - 2) / 11 - 1)
    slopes = [pair_exponent(length=n, heads=3, head_dim=8).value for n in (1000, 2000, 3000)]
    assert slopes[2] - slopes[1] == pytest.approx(slopes[1] - slopes[0]) == pytest.approx(500 / 28)


def test_kth_largest_exponent_needs_fewer_heads_than_the_rank():
    assert kth_largest_exponent(length=32, rank=2, heads=1, head_dim=2).value == pytest.approx(30 / 4 - 1)
    assert kth_largest_exponent(length=32, rank=2, heads=2, head_dim=2).vacuous


@pytest.mark.parametrize("seed", range(30))
def test_the_least_deviation_decides_every_form_that_is_negative_on_a_plane(seed):
    """The step of the proof: anchors in an arc, each with one token that varies where the form is largest for it."""
    rng = np.random.default_rng(seed)
    d = 2 + seed % 3
    matrix = rng.normal(size=(d, d))
    if seed % 2:
        matrix = matrix + matrix.T  # then the partner stands opposite
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if (values < -0.1).sum() < 2:
        matrix = matrix - 2 * (abs(values).max() + 0.1) * np.eye(d)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    assert kind_of(matrix.tolist()) == "opposite"
    plane = vectors[:, :2] / np.sqrt(-values[:2])  # in these coordinates the symmetric part is -I
    c = plane[:, 0] @ matrix @ plane[:, 1]
    p, m = math.pi - math.atan(abs(c)), 5
    arc = 0.5 * math.atan(abs(c)) if abs(c) > 1e-9 else 0.5
    anchors = np.arange(m) * arc / m
    task = PairMax([matrix.tolist()], 2 * m)
    for _ in range(20):
        deviations = rng.uniform(0.5, 1.0, m) * arc / (8 * m)
        angles = np.concatenate([anchors, anchors + p + deviations])
        x = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ plane.T
        best = math.sqrt(1 + c * c) * math.cos(deviations.min())
        assert float(task(torch.tensor(x[None]))) == pytest.approx(best, rel=1e-9)


def test_a_bound_is_silent_where_a_hypothesis_fails_and_says_which():
    """Before: exponents 9 (semidefinite), 1 (rank one, 4 heads), 6.5 (two random forms) at length 64."""
    one = Architecture(layers=((1, 2),))
    failing = {
        PairMax.random(2, 4, 64): "one retrieval, over pairs, and no other",
        PairMax([[[0, 1], [0, 0]]], 64): "a pair form negative definite on a plane",
        OppositePair(64, 1): "a pair form negative definite on a plane",
        KthLargest(1, 64): "heads < retrievals",
        LinearMax([[1, 0], [2, 0]], 64): "heads < retrievals",
    }
    for task, why in failing.items():
        assert one_layer_bound(task.structure, one) is None
        assert all(why in b.failed for b in one_layer_bounds(task.structure, one))
    assert one_layer_bound(PairMax([[[-1, 0], [0, -2]]], 64).structure, one).value == 6.5
    assert one_layer_bound(OppositePair(64).structure, one).value == 6.5


def test_a_prediction_rests_only_on_what_is_proved_for_its_scores():
    """Before: Theorem 2(2) beside linear scores, 2(1) at head_dim 1, and "one layer needs eps^-k" beside any form."""

    def names(task, *layers):
        return {s.source.name for s in hc.predict(task, Architecture(layers=layers)).statements}

    linear, other = LinearMax.random(4, 4, 64), PairMax([np.eye(3).tolist(), (np.eye(3) + 1).tolist()], 64)
    assert "Few heads on linear maxima (after Theorem 2(2))" in names(linear, (2, 4))
    assert "Theorem 2(2)" not in names(linear, (2, 4)) | names(other, (1, 4))
    assert "Theorem 2(2)" in names(Wells.random(4, 2, 64), (2, 4))
    assert "Theorem 2(1)" in names(linear, (4, 2))
    assert "Theorem 2(1)" not in names(linear, (4, 1))
    separation = "the abstract (depth separation)"
    assert separation in names(OppositePair(64), (1, 4))
    assert separation not in names(PairMax([[[0, 1], [0, 0]]], 64), (1, 4))


def test_what_is_assumed_is_part_of_the_sentence():
    """Before: Assumption 1 was not named beside pairs and ranks."""
    for task in (OppositePair(64), KthLargest(2, 64), LinearMax.random(4, 4, 64)):
        bound = one_layer_bound(task.structure, Architecture(layers=((1, 2),)))
        assert len(bound.assumed) in (1, 2)
        assert "if Assumption 1" in str(bound)


def test_the_bound_that_speaks_is_named_and_silence_is_none():
    one, two = Architecture(layers=((1, 4),)), Architecture(layers=((1, 4), (1, 4)))
    pair, wells = OppositePair(256), Wells.random(4, 2, 256)
    assert one_layer_bound(pair.structure, one).source.paper == "yu2026infoflow"
    assert one_layer_bound(pair.structure, two) is None
    assert one_layer_bound(wells.structure, one).source.name == "Theorem 2(2)"
    assert one_layer_bound(wells.structure, Architecture(layers=((4, 4),))) is None


def test_no_bound_speaks_where_its_hypotheses_are_not_known_to_hold():
    """Pairs under an indefinite form, pairs of numbers on a line, bare structures."""
    one = Architecture(layers=((1, 4),))
    for task in (PairMax([[[0, 1], [0, 0]]], 256), PairMax.random(2, 2, 256), OppositePair(256, token_dim=1)):
        assert one_layer_bound(task.structure, one) is None
    for retrieval in (Retrieval("pair", order=2), Retrieval("maxima", count=4), Retrieval("second", rank=2)):
        structure = Structure(256, 2, (retrieval,))
        assert one_layer_bound(structure, one) is None
