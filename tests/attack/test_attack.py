"""No bad input breaks a promise, and on every construction some input comes near it."""

import pytest

from tests.attack.cases import CASES, attack

NEAR = {  # the least ratio of gap to promise that a small attack must reach: a promise ten times too loose fails
    "wells": 0.1,
    "linear": 0.1,
    "memory": 0.1,
    "bounded": 0.1,
    "pairs": 0.05,
    "opposite": 0.05,
    "largest": 0.1,
    "second": 0.1,
    "third": 0.1,
    "sixth": 0.1,
    "gated": 0.1,
    "places": 0.5,
    "induction": 0.3,
    "carried": 0.1,
    "routed": 0.1,
}


@pytest.mark.parametrize("name", CASES)
def test_no_bad_input_breaks_a_promise(name):
    assert attack(name, 120, steps=5).broken == 0


@pytest.mark.parametrize("kind", NEAR)
def test_some_input_comes_near_every_kind_of_promise(kind):
    names = [n for n in CASES if n.startswith(kind) and "1x1x1" not in n and "length 1" not in n]
    assert max(attack(n, 300, steps=10).ratio for n in names[:2]) >= NEAR[kind]


@pytest.mark.slow
@pytest.mark.soak
def test_a_hundred_thousand_bad_inputs_break_nothing():
    outcomes = [attack(name, 2000) for name in CASES]
    assert sum(o.inputs for o in outcomes) >= 100_000
    assert [o for o in outcomes if o.broken] == []
