"""One head with constant scores and a logarithm: what Assumption 1 carries, shown by leaving it."""

import pytest
import torch

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.head_count import log_mean_exp
from headcount.tasks import LinearMax

TASKS = [LinearMax([[1.0], [-1.0]], 128), LinearMax([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], 32), LinearMax([[2.0]], 8)]


def inputs(net, task):
    g, R = torch.Generator().manual_seed(0), net.radius
    x = (torch.rand(400, task.length, task.token_dim, generator=g, dtype=torch.float64) * 2 - 1) * R
    one = -R * torch.ones_like(x)
    one[:, 0] = x[:, 0]
    yield from (
        x,
        x[:, :1].expand_as(x),
        x.sign() * R,
        one,
        x * torch.rand(400, 1, 1, generator=g, dtype=torch.float64),
    )


@pytest.mark.parametrize("task", TASKS, ids=repr)
@pytest.mark.parametrize("eps", [1.2, 0.6])
def test_the_error_stays_within_its_promise_and_comes_near_it(task, eps):
    net = log_mean_exp(task, eps, radius=1.0)
    worst = max((net(x) - task(x)).abs().max().item() for x in inputs(net, task))
    assert eps / 3 < worst <= net.error == eps


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_halving_the_error_doubles_the_parameters_where_bounded_weights_pay_an_exponent(task):
    sizes = [log_mean_exp(task, eps, radius=1.0).feedforward_parameters for eps in (1.2, 0.6)]
    assert 1.6 < sizes[1] / sizes[0] < 2.2


def test_it_is_outside_the_hypotheses_and_said_to_be():
    task = TASKS[0]
    p = hc.predict(task, Architecture(((1, 2),)))
    assert p.warrant == "proved" and p.outside is not None and p.outside.value == 1.0
    assert "weights at most 1" in p.sentence and "weights that grow" in str(p.outside)
    assert log_mean_exp(task, 0.6, radius=1.0).largest_weight > 1e6
    with pytest.raises(ValueError, match="leaves float64"):
        log_mean_exp(task, 1e-4)
