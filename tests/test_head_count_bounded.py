"""Assumption 1: the same function, all entries at most 1, embeddings in the unit ball."""

import pytest
import torch

from headcount.papers.head_count import enough_heads, memorise
from headcount.papers.head_count.networks.bounded import largest_entry, weight_bounded
from headcount.tasks import Exponential, LinearMax, Ridges, Sine, Wells

CURVED = Ridges([[1.0, 1.0], [1.0, -0.5]], (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3)))
TASKS = [
    Wells.random(3, 2, 16, windows=True),
    LinearMax.random(2, 3, 16),
    Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=8, combine=CURVED),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda t: type(t).__name__)
def test_the_bounded_view_is_the_same_function(task):
    built = enough_heads(task, 1e-2)
    bounded = weight_bounded(built)
    x = built.domain.sample(64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(bounded.net(x), built.net(x), atol=1e-9)
    assert bounded.check().holds


@pytest.mark.parametrize("task", TASKS, ids=lambda t: type(t).__name__)
def test_every_entry_and_every_embedding_is_at_most_one(task):
    built = enough_heads(task, 1e-2)
    net = weight_bounded(built).net
    assert largest_entry(net) <= 1
    assert largest_entry(built.net) > 1 or isinstance(task, Wells)
    corners = torch.cat(
        [
            built.domain.sample(200, generator=torch.Generator().manual_seed(0)),
            torch.zeros(1, task.length, task.token_dim) + built.domain.low,
        ]
    )
    norms = net.encode(corners).norm(dim=-1)
    assert norms.max() <= 1
    assert norms.max() >= 0.3  # the scale is not thrown away
    assert net.cls.norm() <= 1 + 1e-12


def test_the_width_it_costs_does_not_grow_with_one_over_eps():
    task = Wells.random(3, 2, 16)
    widths = [weight_bounded(enough_heads(task, eps)).net.shape.read_out[1] for eps in (1e-2, 1e-4)]
    assert widths[1] <= widths[0] + 1


def test_other_networks_are_refused():
    with pytest.raises(ValueError, match="two-layer read-out"):
        weight_bounded(memorise(Wells.random(2, 1, 4), 0.3))
