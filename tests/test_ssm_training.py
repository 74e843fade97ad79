"""Training under a bound: the kernel agrees with the values, the bound holds, and depth helps as it should."""

import math

import numpy as np
import pytest
import torch

from headcount.papers.ssm import DiagonalSSM, TrainableSSM
from headcount.papers.ssm.depth_tables import depth_rows, example_teacher, minimal_depth_rows
from headcount.papers.ssm.experiments import (
    StudentRecipe,
    best_rows,
    from_construction,
    from_nearby,
    from_random,
    from_wiring,
    parameters,
    train_bank,
    train_table,
)
from headcount.papers.ssm.responses import gap
from headcount.papers.ssm.trainable import clip_, kernel

SYSTEMS = {
    "real layer": DiagonalSSM([0.9, -0.5, 0.0], [1, -2, 3]),
    "complex layer": DiagonalSSM([0.9, 0.5j], [1, 2 - 1j]),
    "real deep": example_teacher().deepen(4, 4),
    "complex deep": DiagonalSSM([0.9, 0.5j, 0.2], [1, 2 - 1j, 3]).deepen(2, 2),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_module_and_value_have_one_response(name):
    system = SYSTEMS[name]
    net = TrainableSSM(system)
    assert net.kernel(64).is_complex() == name.startswith("complex")
    assert gap(net.kernel(64).detach().numpy(), system.impulse(64)) < 1e-12
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, y in zip(x.numpy(), net(x).detach().numpy(), strict=True):
        assert gap(y, system.scan(row)) < 1e-12
    assert gap(net.system().impulse(64), system.impulse(64)) < 1e-12


@pytest.mark.parametrize("name", SYSTEMS)
def test_entries_stay_within_the_bound_and_poles_within_the_circle(name):
    net = TrainableSSM(SYSTEMS[name], max_entry=0.7)
    assert net.system().largest_entry <= 0.7 * (1 + 1e-12)
    optimiser = torch.optim.SGD(net.parameters(), lr=10.0)
    net.kernel(8).abs().sum().backward()
    optimiser.step()
    net.clip()
    assert net.system().largest_entry <= 0.7 * (1 + 1e-12)
    assert net.poles.abs().max() <= 0.999 + 1e-12


def test_gradients_are_right_at_zero_poles_too():
    def loss(poles, first, between, readout):
        return kernel(poles, first, between, readout, 5).square().sum()

    parts = from_random(3, 2, seed=0)
    parts[0][0, 0] = 0.0
    assert torch.autograd.gradcheck(loss, [p.requires_grad_() for p in parts])


def test_a_bank_gives_each_member_what_it_gets_alone():
    teacher, recipe = example_teacher(), StudentRecipe(steps=30)
    together = train_bank(teacher, (2, 7), [1, 3], [0, 1], recipe=recipe)
    alone = train_bank(teacher, (2, 7), [3], [1], recipe=recipe)
    (same,) = [row for row in together if row["max_entry"] == 3 and row["seed"] == 1]
    assert same["nmse"] == pytest.approx(alone[0]["nmse"], rel=1e-9)


def test_students_of_more_depth_learn_more_under_a_bound():
    teacher = example_teacher()
    rows = best_rows(
        train_table(teacher, [(1, 25), (2, 7), (4, 4)], [1.0], [0], recipe=StudentRecipe(steps=400, lr=0.03))
    )
    errors = [row["best nmse"] for row in rows]
    assert errors[0] > 0.8 > errors[1] > 0.6 > errors[2]
    # One layer of width n with entries up to 1 has |rho(0)| <= n, and the teacher starts with -300.
    assert errors[0] > (300 - 25) ** 2 / np.square(teacher.impulse(64).real).sum() * 0.9


def test_the_construction_starts_where_training_should_end():
    teacher, recipe = example_teacher(), StudentRecipe(steps=1)
    exact = train_bank(teacher, (4, 4), [3.0, 1.0], [0], from_construction(teacher), recipe)
    assert exact[0]["nmse"] < 1e-25  # its entries of 2.79 fit below 3
    assert exact[1]["nmse"] > 0.1  # and not below 1


def test_a_start_near_the_construction_leaves_the_local_minimum_behind():
    teacher = example_teacher()
    rows = train_bank(teacher, (4, 4), [3.0], [0, 1], from_nearby(teacher, 0.1), StudentRecipe(steps=300))
    assert max(row["nmse"] for row in rows) < 1e-3  # random starts stay at 0.087 for some seeds


@pytest.mark.parametrize("start", [from_random, from_wiring, from_nearby(example_teacher(), 0.1)])
def test_starts_are_of_the_right_size_and_follow_their_seed(start):
    for depth, width in ((1, 13), (3, 5), (6, 3)):
        a, b, c = start(depth, width, 0), start(depth, width, 0), start(depth, width, 1)
        assert [tuple(p.shape) for p in a] == [(depth, width), (width,), (depth - 1, width, width), (width,)]
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert not torch.equal(a[0], c[0])
        assert sum(p.numel() for p in a) == parameters(depth, width)


def test_clipping_keeps_the_direction_of_complex_weights():
    w = torch.tensor([3 + 4j, 0.1j], dtype=torch.complex128)
    clip_(w, 1.0)
    assert torch.allclose(w, torch.tensor([0.6 + 0.8j, 0.1j], dtype=torch.complex128))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: StudentRecipe(steps=0), "must be positive"),
        (lambda: TrainableSSM(DiagonalSSM([0.5], [1]), max_entry=0), "above 0"),
        (lambda: train_bank(DiagonalSSM([0.5j], [1]), (1, 2), [1], [0]), "teacher must be"),
        (lambda: TrainableSSM(mixed_widths()), "widths"),
    ],
)
def test_nonsense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def mixed_widths():
    from headcount.papers.ssm import DeepSSM, Layer

    return DeepSSM([Layer([0.5], [[1]]), Layer([0.1, 0.2], [[1], [1]])], [1, 1])


def test_table_of_thirteen_modes_is_that_of_the_notes():
    rows = depth_rows(example_teacher())
    assert [(row["depth"], row["width"]) for row in rows] == [(1, 13), (2, 7), (3, 5), (4, 4), (6, 3), (12, 2)]
    entries = [row["largest entry"] for row in rows]
    assert np.allclose(entries, [10.00, 5.19, 3.29, 2.79, 2.02, 1.545], atol=0.005)
    assert [row["parameters"] for row in rows] == [39, 77, 75, 72, 69, 72]
    assert all(row["gap"] < 1e-14 and row["largest entry"] <= row["sharper bound"] for row in rows)


def test_minimal_depth_rows_hold_a_bound_each():
    row = minimal_depth_rows([10], [1], modes=13)[0]
    assert row == {
        "from": 10,
        "to": 1,
        "paper": None,
        "sharper": None,
        "positive_real": None,
        "padded": None,
        "gain_stages": 3,
        "lower": 3,
    }
    assert math.isfinite(minimal_depth_rows()[0]["paper"])
