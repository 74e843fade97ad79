"""Questions that every task must answer; a new task is one more line in TASKS."""

import itertools
import math

import pytest
import torch

from headcount.tasks import (
    Exponential,
    Induction,
    KthLargest,
    LinearMax,
    OppositePair,
    PairMax,
    PositionSum,
    Ridges,
    Sine,
    Square,
    Task,
    TriangleCentre,
    UnitSphere,
    Wells,
    catalogue,
    describe,
    named,
)

TASKS = [
    LinearMax.random(3, 4, 9),
    Wells.random(2, 3, 8, windows=True),
    Wells([[0.2], [0.7]], 8, combine=Ridges([[1.0, 0.5], [0.0, 1.0]], (Sine(), Exponential()))),
    PairMax.random(2, 3, 6),
    PairMax.random(2, 3, 6, tokens=UnitSphere()),
    OppositePair(6),
    TriangleCentre(5),
    KthLargest(2, 7),
    PositionSum((0, 3), 6),
    Induction(4, 9),
]
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda t: type(t).__name__)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def brute_force(task, x: torch.Tensor) -> float:
    """The target of one sequence, straight from its definition, by loops."""
    places = range(task.length)
    match task:
        case LinearMax():
            return sum(
                max(sum(a * b for a, b in zip(row, x[t], strict=True)) for t in places) for row in task.directions
            )
        case Wells():
            z = [
                min(float(((x[t] - torch.tensor(c, dtype=x.dtype)) ** 2).sum()) / len(c) for t in w)
                for c, w in zip(task.centres, task.windows, strict=True)
            ]
            return float(task.combine(torch.tensor([z], dtype=x.dtype)))
        case PairMax():
            mats = [torch.tensor(m, dtype=x.dtype) for m in task.matrices]
            return sum(max(float(x[s] @ m @ x[t]) for s in places for t in places) for m in mats)
        case OppositePair():
            return min(float((x[s] + x[t]).norm()) for s, t in itertools.product(places, repeat=2))
        case TriangleCentre():
            return min(float((x[r] + x[s] + x[t]).norm()) for r, s, t in itertools.product(places, repeat=3))
        case KthLargest():
            return sorted(x[:, 0].tolist(), reverse=True)[task.rank - 1]
        case PositionSum():
            return sum(float(x[p].sum()) for p in task.positions)
        case Induction():
            letters = x.argmax(dim=1).tolist()
            for t in range(task.length - 2, -1, -1):
                if letters[t] == letters[-1]:
                    return letters[t + 1] / (task.vocab - 1)
            return 0.0
    raise AssertionError(task)


@each_task
def test_the_target_equals_its_definition_written_as_loops(task):
    x, y = task.sample(20, generator=generator(), dtype=torch.float64)
    loops = torch.tensor([brute_force(task, row) for row in x], dtype=torch.float64)
    torch.testing.assert_close(y, loops, atol=1e-12, rtol=1e-12)


@each_task
def test_a_task_is_a_frozen_value_that_answers_the_protocol(task):
    assert isinstance(task, Task)
    assert hash(task) == hash(task) and task == task
    with pytest.raises(AttributeError):
        task.length = 3
    assert task.structure.length == task.length
    assert task.structure.token_dim == task.token_dim
    assert task.domain
    assert describe(task)["is"].endswith(type(task).__name__)


@each_task
def test_the_same_generator_gives_the_same_sample_in_every_dtype(task):
    x32, _ = task.sample(5, generator=generator(7))
    x64, _ = task.sample(5, generator=generator(7), dtype=torch.float64)
    assert x32.dtype == torch.float32 and x64.dtype == torch.float64
    torch.testing.assert_close(x32.double(), x64, atol=1e-6, rtol=1e-6)


@each_task
def test_the_target_varies_over_its_samples(task):
    _, y = task.sample(200, generator=generator())
    assert y.std() > 0.01


@pytest.mark.parametrize(
    "task",
    [t for t in TASKS if isinstance(t, LinearMax | PairMax | OppositePair | TriangleCentre | KthLargest)],
    ids=repr,
)
def test_a_target_without_places_ignores_the_order_of_tokens(task):
    x, y = task.sample(30, generator=generator())
    torch.testing.assert_close(task(x.flip(1)), y)


def test_wells_only_look_through_their_windows():
    task = Wells([[0.0], [1.0]], 8, windows=[[0, 1, 2, 3], [4, 5, 6, 7]])
    x = torch.full((1, 8, 1), 0.5)
    x[0, 6] = 0.0  # inside the second window only, near the first centre
    assert float(task(x)) == pytest.approx(0.5)
    x[0, 1] = 0.0
    assert float(task(x)) == pytest.approx(0.25)


def test_induction_takes_the_latest_copy_and_zero_where_there_is_none():
    task = Induction(4, 5)

    def y(*letters):
        return float(task(torch.nn.functional.one_hot(torch.tensor([letters]), 4).float()))

    assert y(1, 2, 1, 3, 1) == pytest.approx(1.0)
    assert y(0, 2, 3, 3, 1) == 0.0


@pytest.mark.parametrize("profile", [Square(1.5), Sine(2.0, 3.0, 0.5), Exponential(0.7, -2.0)], ids=repr)
def test_the_derivative_bounds_of_a_profile_hold_and_are_attained(profile):
    low, high = -1.0, 2.0
    s = torch.linspace(low, high, 30001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(profile(s).sum(), s, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), s)
    assert slope.detach()[0].item() == pytest.approx(profile.slope(low))
    for measured, bound in ((slope, profile.steepest(low, high)), (bend, profile.curvature(low, high))):
        worst = measured.detach().abs().max().item()
        assert worst <= bound * (1 + 1e-12)
        assert worst >= bound * 0.999


def test_the_gradient_of_ridges_equals_autograd():
    ridges = Ridges([[1.0, -2.0], [0.5, 0.25]], (Sine(1.0, 2.0, 0.3), Square()))
    z = torch.tensor([[0.4, 0.7]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ridges(z).sum(), z)
    assert ridges.gradient((0.4, 0.7)) == pytest.approx(tuple(gradient[0].tolist()))
    assert all(abs(g) <= b for g, b in zip(gradient[0].tolist(), ridges.partial_bounds(), strict=True))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LinearMax([[1.0]], 0), "length must be at least 1, got 0"),
        (lambda: LinearMax([[math.nan]], 4), "directions holds a number that is not finite"),
        (lambda: LinearMax([], 4), "directions must be a non-empty table"),
        (lambda: Wells([[0.5], [0.5]], 8), "centres 0 and 1 coincide"),
        (lambda: Wells([[1.5]], 8), "centre 0 lies outside"),
        (lambda: Wells([[0.5]], 8, windows=[[0]]), "window 0 holds 1 of 8 positions; at least a quarter"),
        (lambda: Wells([[0.5]], 8, combine=Ridges([[1.0]], (Square(),))), "gradient of combine is zero in well 0"),
        (lambda: KthLargest(9, 8), r"rank must lie in 1\.\.8"),
        (lambda: PositionSum((0, 9), 8), r"positions must lie in 0\.\.7"),
        (lambda: Induction(1, 8), "vocab must be at least 2"),
        (lambda: named("Wells", 8, centers=[[0.1]]), "did you mean 'centres'"),
        (lambda: named("nowhere:Task", 8), "cannot be imported"),
        (lambda: named("PairMax", 8, retrievals=1, token_dim=2, tokens="spere"), "must be one of gaussian, sphere"),
    ],
)
def test_a_bad_task_is_refused_in_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_the_catalogue_lists_every_task_with_its_structure():
    rows = catalogue()
    assert {
        "LinearMax",
        "Wells",
        "PairMax",
        "OppositePair",
        "TriangleCentre",
        "KthLargest",
        "PositionSum",
        "Induction",
    } == {row["task"] for row in rows}
    assert [row["structure"]["retrievals"][0]["order"] for row in rows] == [1, 1, 2, 2, 3, 1, 0, 0]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("LinearMax", {}, "needs directions, or retrievals and token_dim to draw one"),
        ("LinearMax", {"retrievals": 3}, "needs token_dim; it takes retrievals, token_dim, seed"),
        ("Induction", {}, "needs vocab; it takes vocab"),
    ],
)
def test_a_task_that_lacks_a_field_names_it(name, given, says):
    with pytest.raises(ValueError, match=says):
        named(name, length=8, **given)
