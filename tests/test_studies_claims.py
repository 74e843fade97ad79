"""The study of trained claims: cases as the rule says, rows judged both ways, a page from rows, one small training."""

import json
from itertools import islice

import pytest

import headcount as hc
from headcount.nets import parameters
from studies.claims.cases import WIDTH, drawn_cases
from studies.claims.judged import Row, agreement, confirmed, learnt, table
from studies.claims.look_ups import PairOf
from studies.claims.page import DATA, PAGE, cause, page, unsettled
from studies.claims.training_cases import Form, learned


@pytest.fixture(scope="module")
def cases():
    return drawn_cases(4)


def test_cases_are_claims_of_the_calculus_beside_a_reference_that_is_cheap_by_looking_up(cases):
    assert [case.said for case in cases].count("cheap") == 4 == len(cases) / 2
    for case in cases:
        reference = hc.predict(case.task, case.reference)
        assert case.now.warrant == "calculus" and reference.cheap and reference.limit.kind == "score"
        own, other = (parameters(arch, case.task.token_dim).total for arch in (case.shape, case.reference))
        assert own >= 0.98 * other and case.shape.width >= WIDTH
        x, _ = case.task.sample(4000)
        assert (case.task.found(x).var(0) - 1).abs().max() < 0.3
    assert drawn_cases(4) == cases


def test_no_case_is_drawn_again_when_the_calculus_learns_from_it():
    kept = json.loads(DATA.read_text(encoding="utf-8"))
    drawn = {case.name: case for case in drawn_cases()}
    assert len(drawn) == 60 and set(kept["rows"]) <= set(drawn)
    for name, found in kept["rows"].items():
        case = drawn[name]
        assert (found["said"], found["reference"], found["width"]) == (
            case.said, case.reference.name, case.shape.width
        )  # fmt: skip
        assert (found["now"], found["exponent"]) == (case.now.verdict, round(case.now.exponent, 3))


def test_the_page_gives_every_unconfirmed_claim_a_cause():
    kept = json.loads(DATA.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(kept)
    unconfirmed = [row for row in kept["rows"].values() if unsettled(row)]
    assert unconfirmed
    for found in unconfirmed:
        assert len(cause(found, kept).split()) > 5


def row(said, own, reference):
    about = {"exponent": 3.0, "claim": "", "limit": "", "bound_from": None}
    made = {"shape": "1x2", "width": 8, "reference": "2x8", "nmse": own, "reference_nmse": reference, "seconds": 1.0}
    return Row(case="7: c", said=said, now=said, **about, **made)


def test_a_claim_is_confirmed_by_best_and_by_median_apart():
    lucky = row("costly", [2e-3, 0.2, 0.2, 0.2], [1e-3, 2e-3, 2e-3, 3e-3])
    assert (confirmed(lucky, "best"), confirmed(lucky, "median")) == (False, True)
    blank = row("cheap", [0.02] * 4, [0.011] * 4)
    assert not learnt(blank) and agreement([blank, lucky], "best") == (0, 1)
    assert "1 of 2 cases left out" in table({"a": blank, "b": lucky})
    about = {"date": "d", "each": 30, "device": "cpu", "steps": 10, "batch": 8, "seeds": 4}
    assert "| costly | 0 of 1 | 1 of 1 |" in page({"about": about, "rows": {"a": blank, "b": lucky}})


def test_a_case_is_trained_with_its_reference(cases):
    found = learned(next(islice(cases, 1)), Form(steps=4, samples=64, seeds=2, wider=2))
    assert len(found["nmse"]) == len(found["reference_nmse"]) == 2 and json.dumps(found)
    assert found["width"] == 2 * next(islice(cases, 1)).shape.width


def test_a_look_up_of_a_strangers_class_is_no_certified_one():
    task = hc.tasks.Lookups((PairOf(((-1.0, 0.0), (0.0, -1.0))),), 32, hc.tasks.Ridges.sum(1))
    said = hc.predict(task, hc.Architecture(((1, 2),)))
    assert (said.verdict, said.warrant, said.construction) == ("costly", "calculus", None)
