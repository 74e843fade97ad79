"""What a task asks once redundant retrievals are merged: by brute force, and with a network of that many heads."""

import itertools

import pytest
import torch

import headcount as hc
from headcount.tasks import Gaussian, KthLargest, LinearMax, OppositePair, PairMax, UnitSphere
from headcount.tasks.intrinsic import kind_of, merged_directions


def tokens(task, seed=0, batch=300):
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)[0]


def padded(g, rows):
    """The rows with zero rows, repeats and positive multiples among them, in another order."""
    more = [row * torch.rand(1, generator=g, dtype=torch.float64) * 3 for row in rows] + [torch.zeros_like(rows[0])]
    mixed = torch.stack([*rows, *more])
    return mixed[torch.randperm(len(mixed), generator=g)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_merging_keeps_the_target_of_every_sequence(seed, length):
    g = torch.Generator().manual_seed(seed)
    d, retrievals = 1 + seed % 4, 1 + seed % 3
    task = LinearMax(padded(g, torch.randn(retrievals, d, generator=g, dtype=torch.float64)), length)
    x = tokens(task)
    torch.testing.assert_close(task.intrinsic()(x), task(x), rtol=1e-12, atol=1e-12)
    forms = torch.randn(retrievals, d, d, generator=g, dtype=torch.float64)
    more = padded(g, [*forms, *forms.mT])
    pairs = PairMax(more.tolist(), length)
    x = tokens(pairs)
    torch.testing.assert_close(pairs.intrinsic()(x), pairs(x), rtol=1e-12, atol=1e-12)
    assert pairs.structure.count <= 2 * retrievals
    assert len(pairs.intrinsic().matrices) <= retrievals


def test_directions_are_counted_by_rays():
    """Before: four retrievals, and exponent 6 by Theorem 2(2) at length 128, where one head does it."""
    task = LinearMax([[1, 0], [2, 0], [0, 0], [1, 0]], 128)
    assert task.structure.count == 1
    assert hc.predict(task, hc.Architecture(layers=((1, 2),))).cheap
    assert LinearMax([[1.0], [2.0], [-1.0], [-2.0]], 128).structure.count == 2  # one-dimensional tokens have two rays
    assert LinearMax([[1, 0], [-1, 0]], 8).structure.count == 2  # a maximum and a minimum are two
    assert LinearMax([[0.1, 0.3], [1, 3]], 8).structure.count == 1  # a tenth is not exact in binary
    assert LinearMax([[1, 0], [1, 1e-9]], 8).structure.count == 2  # nearly parallel is not parallel
    assert LinearMax([[1, 0], [0, 1], [1, 1]], 8).structure.count == 3  # inside the hull, and not redundant in a sum
    assert LinearMax([[0, 0]], 8).structure.count == 1  # a constant


@pytest.mark.parametrize("seed", range(30))
def test_different_intrinsic_forms_are_different_targets(seed):
    """From length 3 on the form is unique: by brute force, small whole directions never coincide unless they merge."""
    g = torch.Generator().manual_seed(seed)
    first, second = (torch.randint(-1, 2, (3, 2), generator=g).double() for _ in range(2))
    one, two = LinearMax(first, 3), LinearMax(second, 3)
    x = tokens(one, seed)
    alike = bool((one(x) - two(x)).abs().max() < 1e-9)
    assert alike == (one.intrinsic() == two.intrinsic())


def test_a_network_with_as_many_heads_as_intrinsic_retrievals_exists():
    task = LinearMax([[1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.0]], 6)
    built = hc.build(task.intrinsic(), eps=0.05)
    assert len(built.task.directions) == task.structure.count == 2
    x = tokens(task).clamp(-2, 2)
    assert float((built.net(x) - task(x)).detach().abs().max()) <= built.certificate.error


def one_head(scores, beta=1e6):
    """What one softmax head of dimension one returns that scores and carries the same number."""
    return (torch.softmax(beta * scores, dim=1) * scores).sum(dim=1)


@pytest.mark.parametrize("seed", range(20))
def test_a_semidefinite_pair_is_found_by_one_head_of_dimension_one(seed):
    """Before: exponent 9 for one layer of one head of dimension 1, length 64."""
    g = torch.Generator().manual_seed(seed)
    d = 1 + seed % 4
    b = torch.randn(1 + seed % d, d, generator=g, dtype=torch.float64)
    task = PairMax([(b.T @ b).tolist()], 64)
    assert kind_of(b.T @ b) == "single"
    (found,) = task.structure.retrievals
    assert (found.order, found.count) == (1, 1)
    x = tokens(task)
    torch.testing.assert_close(one_head((x @ b.T).square().sum(dim=-1)), task(x), rtol=0, atol=1e-3)
    prediction = hc.predict(task, hc.Architecture(layers=((1, 1),)))
    assert prediction.cheap
    assert prediction.lower is None


@pytest.mark.parametrize("seed", range(20))
def test_extremes_decide_a_pair_form_of_rank_one(seed):
    """Before: exponent 1 for one layer of four heads at length 64, where four heads are exact."""
    g = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, 3, generator=g, dtype=torch.float64)
    task = PairMax([torch.outer(u, v).tolist()], 64)
    x = tokens(task)
    along = [x @ w for w in (u, v)]
    extremes = [[p.amax(dim=1), p.amin(dim=1)] for p in along]
    best = torch.stack([a * b for a, b in itertools.product(*extremes)]).amax(dim=0)
    torch.testing.assert_close(best, task(x), rtol=1e-12, atol=1e-12)
    assert hc.predict(task, hc.Architecture(layers=((4, 2),))).lower is None
    negative = PairMax([(-torch.outer(u, u)).tolist()], 64)
    high, low = extremes[0]
    least = torch.stack([high * low, high * high, low * low]).amin(dim=0)
    torch.testing.assert_close(-least, negative(x), rtol=1e-12, atol=1e-12)
    (found,) = negative.structure.retrievals
    assert (found.order, found.count) == (1, 2)


def test_a_matrix_and_its_transpose_are_one_retrieval():
    """Before: two. Equal symmetric parts alone are not: [[0, 1], [0, 0]] and its symmetric part differ."""
    up, down = [[0, 1], [0, 0]], [[0, 0], [1, 0]]
    assert PairMax([up, down], 8).structure.count == 1
    half, whole = PairMax([[[0, 0.5], [0.5, 0]]], 8), PairMax([up], 8)
    assert half.intrinsic() != whole.intrinsic()
    x = tokens(whole)
    assert float((half(x) - whole(x)).abs().max()) > 0.1


def test_kinds_of_forms_do_not_depend_on_their_size_and_know_a_rounded_zero():
    for scale in (1e-150, 1.0, 1e150):
        assert kind_of(scale * torch.eye(3, dtype=torch.float64)) == "single"
        assert kind_of(-scale * torch.eye(3, dtype=torch.float64)) == "opposite"
        assert kind_of(scale * torch.diag(torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64))) == "extremes"
        assert kind_of(scale * torch.diag(torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64))) == "pair"
    b = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float64)
    assert kind_of(b.T @ b) == "single"
    assert kind_of(b.T @ b - 1e-6 * torch.eye(3, dtype=torch.float64)) == "opposite"


def test_the_score_says_whose_lower_bound_is_proved():
    minus, squeezed = (-torch.eye(2)).tolist(), torch.diag(torch.tensor([-1.0, -2.0])).tolist()
    score = lambda task: task.structure.retrievals[0].score  # noqa: E731
    assert score(PairMax([minus], 8)) == score(PairMax([squeezed], 8)) == "opposite"
    assert score(PairMax([minus], 8, UnitSphere())) == "opposite"
    assert score(PairMax([squeezed], 8, UnitSphere())) == "other"
    assert score(PairMax([(-torch.diag(torch.arange(1.0, 4))).tolist()], 8, UnitSphere())) == "opposite"
    assert score(PairMax([minus, squeezed], 8, Gaussian())) == "other"
    assert (score(OppositePair(8, 2)), score(OppositePair(8, 1))) == ("opposite", "other")


def test_a_rank_counts_from_the_nearer_end():
    """Before: the least of 32 tokens was the 32nd largest, and costly for one head."""
    for rank, length in itertools.product(range(1, 9), (8, 9)):
        task = KthLargest(rank, length)
        x = tokens(task)
        mirrored = 1 - KthLargest(length - rank + 1, length)(1 - x)
        torch.testing.assert_close(task(x), mirrored, rtol=0, atol=1e-15)
        assert task.structure.retrievals[0].rank == min(rank, length - rank + 1)
    assert hc.predict(KthLargest(32, 32), hc.Architecture(layers=((1, 2),))).cheap


def test_an_intrinsic_form_is_its_own():
    task = LinearMax.random(3, 3, 8)
    assert task.intrinsic().intrinsic() == task.intrinsic()
    assert merged_directions([[2, 0], [0, 3]], 8) == ((2.0, 0.0), (0.0, 3.0))
