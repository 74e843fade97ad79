"""More retrievals than layers times heads, without positions: a certificate against Conjecture 1's count."""

import pytest
import torch

from headcount.nets import Architecture
from headcount.papers.infoflow import carried_retrievals, predict
from headcount.tasks import LinearMax


def test_two_layers_of_one_head_solve_three_retrievals_without_positions():
    built = carried_retrievals(LinearMax.random(3, 3, 8), eps=0.1)
    check = built.check()
    assert built.net.shape.layers == ((1, 2), (1, 2))
    assert check.holds
    assert check.gap > built.certificate.error / 2


@pytest.mark.parametrize(("retrievals", "heads"), [(1, 1), (2, 1), (4, 2), (6, 2)])
def test_three_retrievals_a_head_and_fewer(retrievals, heads):
    built = carried_retrievals(LinearMax.random(retrievals, 3, 6), eps=0.2, heads=heads)
    assert built.check().holds
    assert built.net.shape.layers == ((heads, 2), (heads, 2))


def test_the_network_uses_no_positions():
    task = LinearMax.random(3, 3, 8)
    net = carried_retrievals(task, eps=0.1).net
    x = task.sample(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    shuffled = x[:, torch.randperm(8, generator=torch.Generator().manual_seed(1))]
    assert torch.allclose(net(x), net(shuffled), atol=1e-9)


def test_a_fourth_retrieval_is_refused():
    with pytest.raises(ValueError, match="3 x 1 retrievals, and the task has 4"):
        carried_retrievals(LinearMax.random(4, 3, 8), heads=1)


def test_the_calculus_counts_what_rides_along_and_no_more():
    arch = Architecture(((1, 8), (1, 8)), embed_dim=16)
    three, four = (predict(LinearMax.random(D, 4, 64), arch) for D in (3, 4))
    assert (three.verdict, three.warrant) == ("cheap", "constructed")
    assert {"hold", "ride"} <= {step.act for step in three.plan}
    assert (four.verdict, four.warrant) == ("costly", "calculus")
