"""What float64 may add: the lemma behind it from both sides, room that is planned for it, and true refusals."""

import copy
import importlib
import math

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.certificates import Certificate, Term, load
from headcount.certificates.arithmetic import fewest, smallest, up
from headcount.certificates.excess import sway
from headcount.certificates.network import ClassTokenNet, NetworkShape, ReluNet, refuse_too_large
from headcount.certificates.replanning import with_rounding
from headcount.certificates.rounding import moved_by
from headcount.papers.head_count import enough_heads, memorise
from headcount.papers.infoflow import gated_second_largest, kth_largest, opposite_pair, pair_max
from headcount.sources import Source
from headcount.tasks import Induction, KthLargest, LinearMax, OppositePair, PairMax, PositionSum, Wells
from tests.effort import lines_run

SOURCE = Source("headcount", "a test")


def two_levels(competitors, distance):
    """One score ahead of m equal ones by `distance`, at beta 1: its weight."""
    return 1 / (1 + competitors * np.exp(-distance))


@pytest.mark.parametrize("competitors", [1, 7, 63, 1023, 10**5 - 1])
def test_the_sway_of_a_softmax_is_attained_by_one_score_ahead_of_equals(competitors):
    """5.8 at length 10^5, where the lemma of before said twice."""
    d = np.linspace(0.0, 40.0, 400_001)
    p = two_levels(competitors, d)
    attained = (2 * p * (1 - p) * d).max()  # beta E|s - E s|
    assert attained <= sway(competitors) <= attained * (1 + 1e-6)


@pytest.mark.parametrize("length", [2, 8, 64, 1000])
def test_no_scores_at_random_sway_more(length):
    generator = torch.Generator().manual_seed(length)
    scale = 10 ** (3 * torch.rand(4000, 1, generator=generator, dtype=torch.float64) - 1)
    s = scale * torch.rand(4000, length, generator=generator, dtype=torch.float64)
    s[::2] = s[::2].round(decimals=0)
    s[::3, 0] += math.log(length)
    p = torch.softmax(s, 1)
    mean = (p * s).sum(1, keepdim=True)
    assert (p * (s - mean).abs()).sum(1).max() <= sway(length - 1)


@pytest.mark.parametrize("length", [2, 64, 10**5])
def test_scores_off_by_a_move_their_mean_by_the_sway_and_no_more(length):
    """The attained shift: at 10^5 tokens more than five times a, where twice a was promised."""
    beta, a = 30.0, 1e-6
    d = np.linspace(0.1, 40.0, 4001)
    p = two_levels(length - 1, d)
    d = d[(2 * p * (1 - p) * d).argmax()]
    s = np.append(0.0, np.full(length - 1, -d / beta))
    e = np.append(a, np.full(length - 1, -a))
    moved = abs(_mean(s, s + e, beta) - _mean(s, s, beta))
    assert moved <= moved_by(a, beta, length) * (1 + 1e-9)
    assert moved >= 0.99 * moved_by(a, beta, length)
    assert (moved > 5 * a) == (length == 10**5)


def test_what_a_gate_leaks_is_counted():
    """A third of the weight behind a gate of 2: the mean of the values moves by more than an ungated softmax allows."""
    beta, gate, a = 5.0, 2.0, 1e-5
    value = np.array([0.9, -1.0])  # the second is better by 1.9 and gated by 2
    score = -value - np.array([0.0, gate])
    weights = _softmax(beta * score)
    leak = 2 * beta * gate * float(weights[1])
    moved = abs(_mean(value, score + np.array([a, -a]), beta) - _mean(value, score, beta))
    assert moved_by(a, beta, 2) < moved <= moved_by(a, beta, 2, leak)


def _softmax(scores):
    w = np.exp((scores - scores.max()).astype(np.longdouble))
    return w / w.sum()


def _mean(values, scores, beta):
    return float(_softmax(beta * scores) @ values.astype(np.longdouble))


@pytest.mark.parametrize("change", [lambda n: n.float(), lambda n: n.half(), lambda n: n.to(torch.bfloat16)])
def test_a_network_with_a_certificate_refuses_to_become_less_than_float64(change):
    """Before: `net.float()` broke two certificates in silence (5.3 and 1.01 times the promise)."""
    net = opposite_pair(OppositePair(4), 0.1).net
    for part in (net, net.encoder, net.between[0], net.read_out):
        with pytest.raises(ValueError, match="holds a certificate for float64, which torch"):
            change(part)
    assert net.double() is net and net.to("cpu") is net
    assert all(p.dtype == torch.float64 for p in net.parameters())
    free = change(copy.deepcopy(net).without_certificate())
    assert free.cls.dtype != torch.float64
    with pytest.raises(ValueError, match="holds a certificate"):
        change(net)


def test_a_loaded_network_refuses_too_and_one_without_a_promise_does_not(tmp_path):
    built = enough_heads(Wells.random(2, 1, 4), 0.1)
    with pytest.raises(ValueError, match="holds a certificate"):
        load(built.save(tmp_path / "net.safetensors")).net.float()
    assert next(ReluNet((2, 3, 1)).float().parameters()).dtype == torch.float32


def test_up_smallest_and_fewest():
    assert 1.0 < up(1.0) < 1 + 2e-12
    assert smallest(lambda v: v >= 1e-5, start=1.0) == pytest.approx(1e-5, rel=1e-11)
    assert smallest(lambda v: v >= 1e5, start=1.0) == pytest.approx(1e5, rel=1e-11)
    assert [fewest(lambda n, k=k: n >= k) for k in (1, 2, 3, 1000)] == [1, 2, 3, 1000]


def test_rounding_gets_the_room_it_asks_for_and_a_refusal_names_it():
    def planned(budget):
        terms = (Term("proved", budget, ""), Term("rounding", 1e-3 / budget, ""))
        return budget, Certificate(terms, SOURCE)

    # b + 1e-3/b <= eps has a solution from eps = 2 sqrt(1e-3) = 0.0632 on.
    budget, certificate = with_rounding(0.08, planned)
    assert certificate.error <= 0.08 and budget > 0.05
    with pytest.raises(ValueError, match=r"eps 0\.06 is below what float64 can certify here: rounding alone may add"):
        with_rounding(0.06, planned)
    with pytest.raises(ValueError, match=r"one rounding of a number near 1 is 1\.1e-16"):
        with_rounding(1e-300, planned)


LADDERS = {
    "induction": (lambda eps: hc.build(Induction(5, 5), eps), (1e-12, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)),
    "wells": (lambda eps: enough_heads(Wells.random(2, 2, 16, windows=True), eps), (1e-11, 1e-6, 1e-3, 1.0, 1e3)),
    "linear": (lambda eps: enough_heads(LinearMax.random(3, 2, 16), eps), (1e-13, 1e-9, 1e-7, 1.0, 1e3)),
    "memory": (lambda eps: memorise(Wells.random(1, 1, 4), eps), (1e-5, 0.1, 1.0, 1e3)),
    "opposite": (lambda eps: opposite_pair(OppositePair(4), eps), (1e-6, 1e-3, 1e-2, 0.3, 1.0)),
    "pairs": (lambda eps: pair_max(PairMax.random(2, 3, 8), eps), (1e-9, 1e-2, 1.0, 100.0)),
    "third": (lambda eps: kth_largest(KthLargest(3, 12), eps), (1e-13, 1e-7, 1e-5, 0.05, 0.9, 1.0)),
    "sixth": (lambda eps: kth_largest(KthLargest(6, 16), eps), (1e-13, 1e-6, 0.05, 0.5, 0.9, 1.0)),
    "gated": (lambda eps: gated_second_largest(KthLargest(2, 9), eps), (1e-14, 1e-6, 0.1, 1.0)),
    "places": (lambda eps: hc.build(PositionSum((0, 1), 6), eps), (1e-15, 1e-8, 1e-3, 1.0, 1e3)),
}


@pytest.mark.parametrize("name", LADDERS)
def test_a_larger_eps_is_never_refused_where_a_smaller_one_is_served(name):
    """Before: Induction(5, 5) was refused at 0.9, 0.7 and 0.5 ("below what float64 can certify") and built at 0.3."""
    build, ladder = LADDERS[name]
    served = [_served(build, eps) for eps in ladder]
    assert served == sorted(served) and served[-1]
    assert not served[0]


def _served(build, eps):
    try:
        built = build(eps)
    except ValueError as refusal:
        assert any(part in str(refusal) for part in ("float64 can certify", "float64 cannot certify", "parameters"))
        return False
    return built.certificate.error <= eps


@pytest.mark.parametrize(
    ("build", "size", "fits"),
    [
        (lambda eps: opposite_pair(OppositePair(4), eps), "4.8e+08", 2.5e-5),
        (lambda eps: enough_heads(Wells.random(8, 8, 8), eps), None, None),
        (lambda eps: pair_max(PairMax.random(2, 4, 16), eps), None, None),
    ],
)
def test_what_would_be_too_large_is_refused_at_once_with_its_size_and_the_eps_that_fits(build, size, fits):
    """Before: the opposite pair ended in MemoryError at 1e-6 and never at 1e-8. At once: some 10,000 lines are run."""
    for eps in (1e-6 if size else 1e-15, 1e-18):
        with pytest.raises(ValueError, match=r"would take .* parameters, .*; eps .* would fit in size") as refusal:
            lines_run(lambda eps=eps: build(eps), most=200_000)
        assert eps != 1e-6 or (size in str(refusal.value) and f"eps {fits:g} would fit" in str(refusal.value))


def test_the_predicted_size_is_the_size():
    pair = importlib.import_module("headcount.papers.infoflow.networks.pair")
    largest_pairs = importlib.import_module("headcount.papers.infoflow.networks.pair_max")
    task = OppositePair(4)
    plan = pair._plan(task, 0.05)
    assert pair._parameters(task, plan) == pair._assemble(task, plan).feedforward_parameters
    for D, d in ((1, 2), (3, 4)):
        many = PairMax.random(D, d, 6)
        wide = largest_pairs._plan(many, 0.01, 6.0)
        real = largest_pairs._assemble(many, wide).feedforward_parameters
        assert 0.9 * real <= largest_pairs._parameters(many, wide) <= real


def test_a_shape_beyond_memory_is_refused_before_it_is_made():
    shape = NetworkShape(encoder=(3, 10**9, 4), layers=((2, 2),), betas=(50.0,), read_out=(4, 8, 1))
    assert shape.feedforward_parameters > 8 * 10**9
    with pytest.raises(ValueError, match=r"this shape would take 8e\+09 feed-forward parameters"):
        ClassTokenNet(shape)
    refuse_too_large(10.0, "nothing", eps=1.0)
