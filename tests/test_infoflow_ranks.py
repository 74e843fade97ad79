"""The k-th largest by masking and by gates: certificates from both sides, and where masking stops."""

import pytest
import torch

from headcount.papers.infoflow import gated_second_largest, kth_largest
from headcount.papers.infoflow.networks.kth_largest import Spaced
from headcount.tasks import KthLargest


@pytest.mark.parametrize(("rank", "length"), [(1, 8), (2, 8), (2, 24), (3, 10), (4, 8)])
def test_masking_keeps_its_certificate_and_comes_near_it(rank, length):
    built = kth_largest(KthLargest(rank, length), eps=0.05)
    check = built.check()
    assert check.holds
    assert check.gap > built.certificate.error / 2
    assert built.net.shape.layers == ((1, 2),) * (rank - 1) + ((1, 1),)


def test_masking_has_the_same_parameters_for_every_eps():
    sizes = {kth_largest(KthLargest(2, 8), eps).feedforward_parameters for eps in (0.2, 0.05, 0.01)}
    assert len(sizes) == 1


def test_the_third_largest_is_lost_at_a_tie_for_the_first_place():
    """Repeated masking needs a winner: two equal leaders mask nobody, in both masking layers."""
    task = KthLargest(3, 6)
    built = kth_largest(task, eps=0.05)
    x = torch.tensor([0.9, 0.9, 0.2, 0.2, 0.1, 0.1], dtype=torch.float64)[None, :, None]
    assert abs(built.net(x) - task(x)) > 0.6
    assert any("apart" in hypothesis for hypothesis in built.certificate.hypotheses)


def test_spaced_sequences_are_spaced_and_stay_where_they_are():
    domain = Spaced(length=7, lead=0.1, rank=4)
    x = domain.sample(200, generator=torch.Generator().manual_seed(0))
    top = x[:, :, 0].topk(3, dim=1).values
    assert (-top.diff(dim=1) >= 0.1 - 1e-12).all()
    assert torch.equal(domain.project(x), x)
    assert x.min() >= 0 and x.max() <= 1


@pytest.mark.parametrize("length", [2, 8, 13])
def test_gated_heads_keep_their_certificate_and_come_near_it(length):
    built = gated_second_largest(KthLargest(2, length), eps=0.05)
    check = built.check()
    assert check.holds
    assert length == 2 or check.gap > built.certificate.error / 2
    assert built.net.shape.layers == ((2 * (length - 1).bit_length(), 1),)


def test_the_second_largest_is_the_best_of_the_lesser_maxima_over_bits():
    x = torch.rand(2000, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    best = torch.full((2000,), -1.0, dtype=torch.float64)
    for b in range(4):
        side = torch.tensor([(t >> b) & 1 for t in range(13)]).bool()
        best = torch.maximum(best, torch.minimum(x[:, side].amax(1), x[:, ~side].amax(1)))
    assert torch.equal(best, x.topk(2, dim=1).values[:, 1])


def test_other_ranks_are_refused_by_the_gated_layer():
    with pytest.raises(ValueError, match="rank is 3"):
        gated_second_largest(KthLargest(3, 8))
