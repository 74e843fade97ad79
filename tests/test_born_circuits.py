"""Softmax circuits of retrieval: within eps with the stated weights, wrong on planted contexts with smaller ones."""

import dataclasses
import math

import pytest
import torch

from headcount.papers.born.circuits import CircuitShape, NeighbourCircuit, content_weight, neighbour, planted
from headcount.tasks import Neighbour

ALL = [(side, which) for side in ("right", "left") for which in ("only", "first", "last")]


def right(net, task, x):
    return (net.shares(x).argmax(dim=1) == task.answer_letters(x)).double().mean().item()


@pytest.mark.parametrize(("side", "which"), ALL)
def test_a_circuit_keeps_and_nears_its_certificate(side, which):
    task = Neighbour(side, which, letters=5, length=40)
    built = neighbour(task, eps=0.02)
    check = built.check()
    assert built.certificate.error <= 0.02
    assert check.holds and check.gap > 0.8 * 0.02


@pytest.mark.parametrize(("side", "which"), ALL)
@pytest.mark.parametrize("length", [12, 121])
def test_a_circuit_is_right_on_samples_and_on_planted_contexts(side, which, length):
    task = Neighbour(side, which, length=length)
    net = neighbour(task, eps=0.1).net
    x, _ = task.sample(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert right(net, task, x) == 1 and right(net, task, planted(task)) == 1


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("which", ["first", "last"])
def test_with_a_smaller_weight_planted_contexts_fail_which_random_ones_do_not_show(side, which):
    """B = c length / 4: at length 121 all random samples are right, and every planted context is wrong."""
    task = Neighbour(side, which, length=121)
    B, c = content_weight(task, 0.1)
    weak = NeighbourCircuit(CircuitShape(side, which, task.letters, B / 4, c))
    x, _ = task.sample(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert right(weak, task, x) > 0.99
    assert right(weak, task, planted(task)) == 0


def test_planted_contexts_are_samples_of_their_task():
    for side, which in ALL:
        task = Neighbour(side, which, length=20)
        for word in planted(task).argmax(dim=-1).tolist():
            *context, query = word
            copies = [j for j, letter in enumerate(context) if letter == query]
            place = copies[-1] if which == "last" else copies[0]
            assert (len(copies) == 1) == (which == "only") and len(copies) > 0
            assert 0 <= place + (1 if side == "right" else -1) < len(context)
            assert place < 4 if which == "last" else place > 14


def test_a_slope_below_log_two_is_not_enough():
    """Half of the attention on the copies after the first: the right letter need not win."""
    task = Neighbour("right", "first", letters=3, length=40)
    letters = torch.tensor([[0, 1] + [0, 2] * 18 + [0, 0]])[:, :40]
    letters[:, -1] = 0
    x = torch.nn.functional.one_hot(letters, 3).double()
    for slope, wins in ((0.2, False), (1.01 * math.log(2), True)):
        net = NeighbourCircuit(CircuitShape("right", "first", 3, slope * 40, slope))
        assert (net.shares(x).argmax().item() == task.answer_letters(x).item()) == wins


def test_eps_is_refused_where_the_right_letter_need_not_win():
    with pytest.raises(ValueError, match=r"eps must lie in \(0, 1/2\)"):
        neighbour(Neighbour(), eps=0.5)
    with pytest.raises(ValueError, match="below what float64 can certify"):
        neighbour(dataclasses.replace(Neighbour("right", "last"), length=400), eps=1e-11)
