"""Two layers and pairs: two networks held to their certificates from both sides."""

from itertools import pairwise

import pytest
import torch

from headcount.certificates.excess import gibbs_excess
from headcount.papers.infoflow import opposite_pair, pair_max
from headcount.papers.infoflow.networks.pair import root
from headcount.tasks import OppositePair, PairMax


@pytest.mark.parametrize("eps", [0.2, 1e-2, 1e-3])
def test_opposite_pair_keeps_its_certificate_and_comes_near_it(eps):
    built = opposite_pair(OppositePair(length=8), eps=eps)
    check = built.check()
    assert built.certificate.error <= eps and check.holds
    assert check.gap > built.certificate.error / 10


def test_rounding_is_a_small_part_of_what_opposite_pair_promises():
    terms = {term.name: term.value for term in opposite_pair(OppositePair(length=64), eps=1e-2).certificate.terms}
    assert 1e-12 < terms["rounding"] < 1e-4 * terms["squared distance"]


def test_an_error_below_what_float64_can_certify_is_refused():
    with pytest.raises(ValueError, match=r"eps 0\.0001 is below what float64 can certify"):
        opposite_pair(OppositePair(length=4), eps=1e-4)


@pytest.mark.parametrize("competitors", [1, 7, 63])
def test_scores_off_by_a_cost_the_mean_at_most_twice_a_beyond_the_softmax(competitors):
    """E s <= min s + W(m/e)/beta + 2 a under the softmax of -(s + e), |e| <= a: never exceeded, and come near."""
    generator, beta, a = torch.Generator().manual_seed(0), 50.0, 0.1
    bound = gibbs_excess(competitors, beta).value + 2 * a
    s = torch.rand(4000, competitors + 1, generator=generator, dtype=torch.float64)
    e = a * (2 * torch.rand(s.shape, generator=generator, dtype=torch.float64) - 1)
    near = 2 * a + torch.linspace(-4, 4, 81, dtype=torch.float64) / beta
    s[:81], e[:81] = near[:, None], -a  # every competitor looks better than it is,
    s[:81, 0], e[:81, 0] = 0.0, a  # and the minimum worse
    excess = (torch.softmax(-beta * (s + e), -1) * s).sum(-1) - s.min(-1).values
    assert excess.max() <= bound + 1e-12
    assert excess.max() > 0.6 * bound


def test_opposite_pair_needs_parameters_like_one_over_eps():
    sizes = [opposite_pair(OppositePair(length=8), eps=eps).feedforward_parameters for eps in (0.2, 0.1, 0.05)]
    ratios = [b / a for a, b in pairwise(sizes)]
    assert all(1.8 < ratio < 2.1 for ratio in ratios)


def test_carrying_the_token_alone_fails_at_ties_where_carrying_the_score_does_not():
    """Two partners on opposite sides of the cancelling place: their mean cancels, they do not."""
    x = torch.zeros(1, 4, 2, dtype=torch.float64)
    x[0, 0], x[0, 1], x[0, 2], x[0, 3] = torch.tensor([[0.8, 0.0], [-0.8, 0.3], [-0.8, -0.3], [0.9, 0.9]])
    task, built = OppositePair(length=4), opposite_pair(OppositePair(length=4), eps=0.1)
    scores = -(x[0, 0] + x[0]).square().sum(-1)
    averaged = torch.softmax(1e4 * scores, 0) @ x[0]
    assert abs((x[0, 0] + averaged).norm() - task(x)) > 0.25
    assert abs(built.net(x) - task(x)) < built.certificate.error


def test_the_root_is_off_by_a_quarter_step_and_no_more():
    s = torch.linspace(0, 9, 20001, dtype=torch.float64)
    gap = (root(9.0, 0.5)(s) - s.sqrt()).abs().max().item()
    assert 0.99 * 0.125 < gap <= 0.125 + 1e-12


@pytest.mark.parametrize(("retrievals", "length"), [(1, 8), (3, 6)])
def test_pair_max_keeps_its_certificate_and_comes_near_it(retrievals, length):
    built = pair_max(PairMax.random(retrievals, 3, length), eps=0.3)
    check = built.check()
    assert check.holds
    assert check.gap > built.certificate.error / 3
    assert built.net.shape.layers == ((retrievals, 3), (retrievals, 1))


def test_pair_max_gets_better_with_beta_on_the_notes_range():
    task = PairMax.random(1, 4, 64)
    x = task.sample(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0].clamp(-2, 2)
    gaps = [(pair_max(task, eps).net(x) - task(x)).abs().max().item() for eps in (1.0, 0.2)]
    assert gaps[0] < 1.0 and gaps[1] < 0.2 and gaps[1] < gaps[0]


@pytest.mark.parametrize(
    "build", [lambda: pair_max(PairMax.random(1, 2, 4), 0.0), lambda: opposite_pair(OppositePair(4), 2.0)]
)
def test_nonsense_eps_is_refused_by_name(build):
    with pytest.raises(ValueError, match="eps must"):
        build()
