"""The independent checker in ball arithmetic agrees with the certificate, and notices a tampered weight."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("flint")

from headcount.certificates import Certificate, Term
from headcount.certificates.enclosure import enclose
from headcount.papers.head_count import enough_heads, memorise
from headcount.papers.head_count.networks.term_recheck import recheck
from headcount.tasks import Exponential, KthLargest, LinearMax, Ridges, Sine, Square, Wells

CURVED = Ridges(
    [[1.0, 1.0], [1.0, -0.5], [0.5, 1.0]],
    (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3), Square(scale=0.3)),
)
TASKS = [
    Wells.random(3, 2, 16, windows=True),
    Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=12, windows=((0, 3, 4, 8), tuple(range(12))), combine=CURVED),
    LinearMax.random(3, 2, 16),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{type(t).__name__}-{t.structure.count}")
@pytest.mark.parametrize("eps", [1e-1, 1e-4])
def test_every_term_is_confirmed_and_none_is_ten_times_too_large(task, eps):
    built = enough_heads(task, eps)
    rows = {r.name: r for r in recheck(built)}
    assert all(r.holds for r in rows.values()), rows
    assert set(rows) >= {t.name for t in built.certificate.terms} - {"rounding"}
    for name in ("features", "softmax excess", "outer function"):
        assert rows[name].recomputed >= 0.1 * rows[name].claimed - built.certificate["rounding"].value


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{type(t).__name__}-{t.structure.count}")
def test_the_output_is_enclosed_and_rounding_stays_below_its_term(task):
    built = enough_heads(task, 1e-3)
    worst = built.check().worst
    inputs = torch.cat([worst, built.domain.sample(2, generator=torch.Generator().manual_seed(0))])
    found = enclose(built, inputs)
    assert all(e.holds for e in found)
    assert found[0].gap == pytest.approx(built.check().gap, rel=1e-6)


def test_one_head_that_memorises_is_enclosed_too():
    built = memorise(Wells.random(2, 1, 6), 0.2)
    assert all(e.holds for e in enclose(built, built.domain.sample(3, generator=torch.Generator().manual_seed(0))))


def test_a_tampered_weight_is_noticed():
    built = enough_heads(TASKS[0], 1e-3)
    with torch.no_grad():
        built.net.encoder.maps[1].weight[0, 3] *= 1.5
    rows = {r.name: r.holds for r in recheck(built)}
    assert not rows["features"]
    assert rows["softmax excess"]


def test_a_claim_that_is_too_small_is_noticed():
    built = enough_heads(TASKS[0], 1e-3)
    for name in ("features", "softmax excess"):
        terms = tuple(replace(t, value=0.9 * t.value) if t.name == name else t for t in built.certificate.terms)
        small = replace(built, certificate=replace(built.certificate, terms=terms))
        assert [r.name for r in recheck(small) if not r.holds] == [name, "sum, with the rounding claimed"]


def test_what_it_cannot_check_is_refused():
    with pytest.raises(ValueError, match="networks of enough_heads"):
        recheck(memorise(Wells.random(2, 1, 6), 0.2))
    built = enough_heads(TASKS[0], 1e-2)
    other = replace(built, task=KthLargest(1, 16))
    with pytest.raises(ValueError, match="KthLargest is not written"):
        enclose(other, built.domain.sample(1, generator=torch.Generator().manual_seed(0)))
    bare = replace(built, certificate=Certificate((Term("rounding", 1.0, ""),), built.certificate.source))
    with pytest.raises(KeyError, match="no term"):
        recheck(bare)
