"""Warrants: no verdict against a certified network, none against a proof; more of anything never hurts; fixes fix."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.infoflow import blueprints
from headcount.papers.infoflow.analysis import is_cheap
from headcount.papers.infoflow.networks.build import NAMED
from headcount.papers.infoflow.predict import cheap_shape, structure_of
from headcount.structure import Retrieval, Structure
from headcount.tasks import Induction, KthLargest, LinearMax, OppositePair, PairMax, TriangleCentre, UnitSphere, Wells
from tests.infoflow_laws import LAWS, TASKS

EPS = {"Induction": 0.2, "OppositePair": 0.5, "KthLargest": 0.3, "PositionSum": 0.3}


@cache
def built(task, construction):
    """The network itself, built once."""
    return NAMED[construction](task, EPS.get(type(task).__name__, 1.0))


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_every_blueprint_is_the_shape_of_the_network_that_is_built(task):
    assert blueprints(task)
    for made in blueprints(task):
        result = built(task, made.construction)
        assert (result.net.shape.layers, result.net.shape.embed_dim) == (made.layers, made.embed_dim)
        assert result.certificate.error <= EPS.get(type(task).__name__, 1.0)


@pytest.mark.parametrize(
    ("law", "cases"), [("contradictions", 40), ("setbacks", 30), ("broken_fixes", 12), ("disagreements", 40)]
)
def test_predict_keeps_its_laws(law, cases):
    """No verdict against a certified network; a larger shape is never worse; fixes fix; two roads, one answer."""
    assert LAWS[law](cases) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "cases"), [("contradictions", 6000), ("setbacks", 10_000), ("broken_fixes", 1500), ("disagreements", 3000)]
)
def test_predict_keeps_its_laws_in_full(law, cases):
    command = [sys.executable, "-m", "tests.infoflow_laws", law, str(cases)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_build_returns_a_network_of_at_most_the_wanted_shape_or_says_that_there_is_none():
    """The table says which: a grid of shapes, every one of them asked for."""
    task, answers = LinearMax.random(3, 2, 4), set()
    for depth in (1, 2):
        for heads, head_dim in ((1, 1), (1, 2), (1, 3), (3, 2), (2, 2), (1, 8)):
            for positions, embed_dim in ((0, 0), (0, 12), (2, 14)):
                arch = Architecture(((heads, head_dim),) * depth, positions=positions, embed_dim=embed_dim)
                warrant = hc.predict(task, arch).warrant
                answers.add(warrant)
                if warrant != "constructed":
                    with pytest.raises(ValueError, match="no certified network is of at most this shape"):
                        hc.build(task, 1.0, arch=arch)
                    continue
                shape = hc.build(task, 1.0, arch=arch).net.shape
                assert shape.embed_dim <= arch.embed_dim and len(shape.layers) <= depth
                assert all(h <= heads and n <= head_dim for h, n in shape.layers)
    assert answers == {"constructed", "calculus"}
    with pytest.raises(ValueError, match="not both"):
        hc.build(task, 1.0, arch=Architecture(((3, 2),)), by=hc.infoflow.carried_retrievals)


def test_a_fix_says_the_least_that_is_enough():
    pairs = Structure(64, 4, (Retrieval("pairs", count=4, order=2),))
    arch = Architecture(((2, 8), (4, 8)))
    (fix,) = (f for f in hc.predict(pairs, arch).fixes if f.what == "heads")
    assert (fix.layer, fix.now, fix.wanted, str(fix)) == (1, 2, 4, "4 heads in layer 1 (now 2)")
    assert not cheap_shape(pairs, pairs, replace(fix.arch, layers=((3, 8), (4, 8))))


PROVED = [
    (KthLargest(2, 64), ((1, 8),), 0),
    (Wells.random(4, 2, 256), ((1, 8),), 0),
    (OppositePair(128), ((1, 4),), 0),
    (Induction(4, 16), ((1, 8), (1, 8)), 0),
]


@pytest.mark.parametrize(("task", "layers", "positions"), PROVED, ids=repr)
def test_a_lower_bound_whose_hypotheses_hold_makes_a_shape_costly_by_proof(task, layers, positions):
    prediction = hc.predict(task, Architecture(layers, positions=positions))
    assert (prediction.cheap, prediction.warrant) == (False, "proved")
    assert "by proof" in prediction.sentence
    bare = hc.predict(structure_of(task), Architecture(layers, positions=positions))
    assert not bare.cheap


def test_bare_structures_are_left_to_the_calculus_and_linear_maxima_rest_on_their_own_proof():
    """Assumption 2.3 of Theorem 2(2) fails for linear scores; of a bare structure nothing is known."""
    bare = hc.predict(Structure(256, 2, (Retrieval("maxima", count=4),)), Architecture(((1, 4),)))
    assert (bare.cheap, bare.warrant, bare.lower) == (False, "calculus", None)
    assert bare.sentence.startswith("costly by the calculus, unproved")
    linear = hc.predict(LinearMax.random(4, 2, 256), Architecture(((1, 4),)))
    assert (linear.cheap, linear.warrant) == (False, "proved")
    assert linear.lower is not None and linear.lower.source.paper == "headcount"


# A calculus that counts right.


def cheap(structure: Structure, layers: str, **fields) -> bool:
    parts = tuple((int(h), int(n)) for h, n in (part.split("x") for part in layers.split("+")))
    return is_cheap(structure, Architecture(parts, **fields))


def test_loads_of_a_head_that_serves_tokens_and_class_token_are_added():
    both = Structure(64, 1, (Retrieval("max g"), Retrieval("second f", rank=2)))
    assert not cheap(both, "1x1+1x1", embed_dim=8)
    assert cheap(both, "1x2+1x1", embed_dim=8) and cheap(both, "2x1+1x1", embed_dim=8)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (4, 2)])
def test_retrievals_ride_along_and_no_more_than_that(layers, heads):
    """(2L - 1) h with a class token in every layer, L h where it attends in the last alone."""
    for asks, most in (("every", (2 * layers - 1) * heads), ("last", layers * heads)):
        arch = Architecture(((heads, 16),) * layers, embed_dim=128, class_token=asks)
        least, more = (Structure(256, 4, (Retrieval("maxima", count=n),)) for n in (most, most + 1))
        assert is_cheap(least, arch) and not is_cheap(more, arch)


def test_what_rides_along_needs_dimensions():
    four = Structure(64, 1, (Retrieval("maxima", count=5),))
    assert cheap(four, "1x2+1x2+1x3", embed_dim=16) and not cheap(four, "1x2+1x2+1x2", embed_dim=16)


def test_a_sum_needs_the_dimension_of_the_sum():
    """Six numbers are read, one enters: position_sum has one dimension; without the sum six are needed."""
    summed, each = (Structure(10, 2, (Retrieval("places", positions=(0, 1, 2), summed=n),)) for n in (1, 0))
    assert cheap(summed, "1x1", positions=1, embed_dim=4)
    assert not cheap(each, "1x5", positions=1, embed_dim=8) and cheap(each, "1x6", positions=1, embed_dim=8)
    everything = Structure(4, 2, (Retrieval("all", positions=(0, 1, 2, 3), summed=2),))
    assert hc.predict(everything, Architecture(((1, 2),))).cheap, "the sum of all tokens needs no positions"


def test_a_rank_is_counted_from_the_nearer_end():
    for rank, same in ((64, 1), (63, 2), (62, 3)):
        low, high = (Structure(64, 1, (Retrieval("k-th", rank=r),)) for r in (rank, same))
        for layers in ("1x8", "1x8+1x8", "1x8+1x8+1x8"):
            assert cheap(low, layers) == cheap(high, layers)
    assert cheap(Structure(64, 1, (Retrieval("least", rank=64),)), "1x1")


@pytest.mark.parametrize("links", [1, 2, 3, 4, 7, 8, 15, 16])
def test_a_chain_of_k_equal_links_takes_floor_log2_k_plus_2_layers(links):
    names = ["last", *(f"hop {i}" for i in range(links))]
    hops = [Retrieval(name, after=(before,), offset=1) for before, name in pairwise(names)]
    chain = Structure(64, 4, (Retrieval("last", positions=(63,)), *hops))
    least = next(L for L in range(1, 9) if is_cheap(chain, Architecture(((1, 16),) * L, positions=2, embed_dim=256)))
    assert least == links.bit_length() + 1  # floor(log2 k) + 2


def test_pairs_need_their_heads_in_both_layers_wherever_the_class_token_attends():
    pairs = Structure(64, 4, (Retrieval("pairs", count=2, order=2),))
    for asks in ("every", "last"):
        fields = {"embed_dim": 64, "class_token": asks}
        assert cheap(pairs, "2x16+2x16", **fields)
        assert not cheap(pairs, "1x16+2x16", **fields) and not cheap(pairs, "2x16+1x16", **fields)


def test_a_class_token_of_the_last_layer_leaves_the_match_to_the_tokens():
    """Its query cannot use what was found: every token reads the last letter, which takes a head more in layer 1."""
    induction = Induction(4, 16).structure
    fields = {"positions": 2, "embed_dim": 64, "class_token": "last"}
    assert not cheap(induction, "1x16+1x16", **fields) and cheap(induction, "2x16+1x16", **fields)
    assert cheap(induction, "1x16+1x16", **(fields | {"class_token": "every"}))


def test_triples_are_costly_with_their_exponent_and_not_impossible():
    """A state of 16 dimensions holds 8 points of the plane: what is left is the read-out's work."""
    holds = hc.predict(TriangleCentre(8), Architecture(((1, 16),), positions=2))
    assert (holds.verdict, holds.exponent, holds.warrant, holds.limit.kind) == (
        "costly",
        1.0,
        "calculus",
        "comparisons",
    )
    assert hc.predict(TriangleCentre(16), Architecture(((1, 16),), positions=2)).exponent == 2.0
    assert hc.advise(TriangleCentre(3)).best.prediction.cheap
    assert not hc.advise(TriangleCentre(64)).best.prediction.cheap


def test_advice_names_what_can_be_built_and_builds_it():
    task = LinearMax.random(3, 2, 8)
    advice = hc.advise(task, eps=0.5, max_layers=2, max_heads=3)
    assert {c.prediction.construction.construction for c in advice.buildable} >= {"enough_heads"}
    for choice in advice.buildable:
        assert hc.build(task, 0.5, arch=choice.architecture).certificate.error <= 0.5
    assert len(repr(advice)) < 200 and len(repr(advice.best.prediction)) < 100
    assert advice._repr_html_().count("<tr>") == 1 + len(advice.ranked)
    assert "by construction" in hc.predict(task, Architecture(((3, 2),)))._repr_html_()


def test_tokens_that_enter_by_one_matrix_cannot_choose():
    task = PairMax.random(2, 4, 64, tokens=UnitSphere())
    short = Architecture(((1, 16), (2, 16)), embed_dim=64, class_token="last")
    chosen, linear = (hc.predict(task, replace(short, embedding=e)) for e in ("feed-forward", "linear"))
    assert chosen.cheap and [c.name for c in chosen.cautions] == ["tokens choose"]
    assert not linear.cheap and linear.warrant == "calculus" and not linear.cautions
    assert [str(fix) for fix in linear.fixes[:2]] == [
        "tokens that enter through a feed-forward, and may choose (now by one matrix)",
        "2 heads in layer 1 (now 1)",
    ]
    assert hc.predict(task, replace(short, layers=((2, 16), (2, 16)), embedding="linear")).cheap
    assert hc.predict(LinearMax.random(2, 4, 8), Architecture(((2, 4),), embedding="linear")).cheap


@pytest.mark.parametrize("seed", range(12))
def test_hidden_units_before_attention_never_hurt(seed):
    g = torch.Generator().manual_seed(seed)

    def up_to(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=g))

    for _ in range(6):
        D, d, T = up_to(3), 1 + up_to(3), up_to(24)
        task = (PairMax if up_to(2) == 1 else LinearMax).random(D, d, T, seed)
        if any(r.order < 2 for r in task.structure.retrievals) and isinstance(task, PairMax):
            continue
        layers = tuple((up_to(3), up_to(8)) for _ in range(up_to(2)))
        arch = Architecture(layers, class_token=("every", "last")[up_to(2) - 1])
        linear, hidden = (hc.predict(task, replace(arch, embedding=e)) for e in ("linear", "feed-forward"))
        assert hidden.cheap or not linear.cheap
        assert all(hc.predict(task, fix.arch).cheap for fix in linear.fixes)


@pytest.mark.parametrize(
    "task", [KthLargest(1, length=8), PairMax([[[1.0, 0.0], [0.0, 1.0]]], 8), LinearMax.random(2, 4, 8).structure]
)
def test_one_matrix_is_not_counted_where_a_score_may_need_hidden_units(task):
    with pytest.raises(ValueError, match="counted where every score is linear"):
        hc.predict(task, Architecture(((2, 4), (2, 4)), embedding="linear"))


def test_what_is_built_or_proved_for_relu_is_not_said_of_gelu():
    cases = (LinearMax.random(2, 4, 8), Architecture(((2, 4),))), (OppositePair(64), Architecture(((1, 4),)))
    for (task, arch), warrant in zip(cases, ("constructed", "proved"), strict=True):
        smooth = hc.predict(task, replace(arch, activation="gelu"))
        assert hc.predict(task, arch).warrant == warrant
        assert smooth.warrant == "calculus" and smooth.lower is None and smooth.construction is None


def test_an_architecture_without_residuals_is_not_counted():
    arch = Architecture(layers=((2, 8), (2, 8)), residual=False)
    with pytest.raises(ValueError, match="rides along with residuals"):
        hc.predict(KthLargest(2, length=8), arch)
