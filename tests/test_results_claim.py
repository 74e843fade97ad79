"""Claims: no word outruns its evidence, no condition is lost on the way to its sentence, one file writes verdicts."""

import ast
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.nets import Architecture, Transformer
from headcount.numerals import outward, power
from headcount.papers.head_count import few_heads_exponent, linear_max_exponent
from headcount.papers.head_count.steepness import GELU_SLOPE, steepness_width
from headcount.results import Basis, Bound, Claim, Comparison, Evidence, Hypothesis, Predicate
from headcount.results.claim import MOST_WORDS
from headcount.results.verdicts import BESIDE, DECIDING, FINAL, has_verdict_word, objections, strongest
from headcount.sources import STATUSES, Source
from headcount.structure import Retrieval, Structure
from headcount.tasks import KthLargest, LinearMax, OppositePair, PairMax, PositionSum, UnitSphere, Wells
from tests.claim_roads import Replay, counted, replayed
from tests.infoflow_laws import TASKS, drawn_shape, drawn_structure

ROOT = Path(__file__).parent.parent / "headcount"
# Files whose every verdict word is a claim's, everyday uses of these words left out as well.
SPOKEN_BY_CLAIMS = (
    "cli/allocation.py",
    "cli/bounding.py",
    "cli/building.py",
    "cli/colliding.py",
    "cli/infoflow.py",
    "cli/measuring.py",
    "measuring/answer.py",
    "measuring/contest.py",
    "measuring/head_counts.py",
    "measuring/measured_page.py",
    "measuring/measurement.py",
    "measuring/paired_ratios.py",
    "measuring/sides.py",
    "fits/broken_law.py",
    "fits/cells.py",
    "fits/failing_seeds.py",
    "fits/knee.py",
    "fits/power_law.py",
    "fits/verdict.py",
    "papers/allocation/bounds.py",
    "papers/head_count/collisions/collision.py",
    "papers/head_count/networks/log_mean.py",
    "papers/infoflow/advise.py",
    "papers/infoflow/prediction.py",
    "papers/lr_law/rate_page.py",
    "papers/ssm/depths.py",
    "report/page.py",
    "reproduction/index.py",
    "reproduction/side_by_side.py",
    "reproduction/theorems.py",
    "sizing/expectation.py",
    "sizing/ranked_shapes.py",
    "sizing/shape_page.py",
)
# Everywhere else: words in which a sentence decides, and not "a file holds rows" or "enough memory".
DECIDES = re.compile(
    r"\b(?:by proof|proved|refuted|same shape|consistent|worth it|(?:is|are) enough|never (?:does?|cheap|needs?)"
    r"|holds(?=$|[.,;:!)]| (?:here|in|for|everywhere|only|true|whatever)\b)"
    r"|matches(?= the (?:paper|published|prediction)|$|[.,;]))\b",
    re.IGNORECASE,
)
# The files that may: the builder of the words and the rule for them, and the title of a paper that has one of them.
SPEAKS_ITSELF = {
    "results/claim.py": 7,  # every sentence of a predicate, and the headline of a count
    "results/verdicts.py": 6,  # the words themselves, how a basis is said, two reasons of the rule
    "sources.py": 1,  # "Transformers Are Universally Consistent"
}
WORDS = {word.value for word in Predicate}
SOURCE = Source("yu2025heads", "Theorem 2(2)")


def sentences(tree):
    """String literals of several words that are no docstrings, parts of f-strings among them."""
    bodies = (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef))
    docs = {id(n.body[0].value) for n in bodies if n.body and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
        if isinstance(text, str) and " " in text:
            yield text


def verdicts_in(text):
    return [words for words in sentences(ast.parse(text)) if has_verdict_word(words) and words not in STATUSES]


def deciding(text):
    found = [words for words in sentences(ast.parse(text)) if DECIDES.search(words)]
    return [words for words in found if words not in STATUSES and words not in WORDS]


def test_no_file_of_the_package_has_more_sentences_that_decide_than_are_known():
    found = {str(path.relative_to(ROOT)): deciding(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    more = {file: words for file, words in found.items() if len(words) > SPEAKS_ITSELF.get(file, 0)}
    assert more == {}, "end with a Claim: its text is made in results/claim.py alone"
    assert set(SPEAKS_ITSELF) <= {file for file, words in found.items() if words}, "take out what is done"


@pytest.mark.parametrize("file", ["fits/agreement.py", "cli/measuring.py", "papers/icl/reproduce.py"])
@pytest.mark.parametrize("planted", ['f"{n} heads are enough"', 'f"the law holds for {n}"', 'f"refuted by {n} runs"'])
def test_a_planted_sentence_is_found_in_any_file(file, planted):
    text = (ROOT / file).read_text(encoding="utf-8")
    grown = deciding(f"{text}\n\ndef so(n):\n    return {planted}\n")
    assert len(grown) == len(deciding(text)) + 1 > SPEAKS_ITSELF.get(file, 0)


@pytest.mark.parametrize("file", SPOKEN_BY_CLAIMS)
def test_no_literal_of_these_rooms_decides_anything(file):
    assert verdicts_in((ROOT / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted", ['f"{n} heads are enough"', '"it holds, as measured"', 'f"refuted by {x} runs"', 'f"{n} is never cheap"']
)
def test_a_planted_sentence_is_found(planted):
    assert verdicts_in(f'def so(n, x):\n    """It holds."""\n    return {planted}\n')


def measured(word, **fields):
    seen = Evidence(planned=8, entered=8, interval=(0.5, 0.9), level=0.95)
    whole = {"basis": Basis("measured", n=8), "evidence": seen, "compared": Comparison("Table 2", "printed"), **fields}
    return Claim("our table", word, **whole)


CLEAN = sorted(DECIDING - {Predicate.NEVER}, key=str)  # in one order: workers must agree on it


@pytest.mark.parametrize("word", CLEAN)
def test_clean_evidence_allows_every_word_that_a_measurement_can_earn(word):
    assert objections(measured(word)) == []


SPOILT = [
    (FINAL - {Predicate.NEVER}, {"entered": 7}, "not all that was planned"),
    (set(CLEAN), {"at_edge": True}, "end of what was tried"),
    (FINAL - {Predicate.NEVER}, {"settled": False}, "did not settle"),
    (BESIDE | {Predicate.HOLDS}, {"diverged": 4}, "diverged"),
    ({Predicate.REFUTED}, {"diverged": 1}, "diverged"),
    ({Predicate.WORTH_IT}, {"interval": (0.0, 0.9)}, "reaches nothing"),
]


@pytest.mark.parametrize(("words", "change", "reason"), SPOILT)
def test_spoilt_evidence_forbids_the_words_that_it_does_not_carry(words, change, reason):
    spoilt = replace(measured(Predicate.DIFFERS).evidence, **change)
    for word in words:
        with pytest.raises(ValueError, match=reason):
            measured(word, evidence=spoilt)
    measured(Predicate.UNRESOLVED, evidence=spoilt)  # the modest word is always there


@pytest.mark.parametrize("side", ["typed", "ours"])
def test_what_we_typed_in_is_neither_matched_nor_refuted(side):
    beside = Comparison("1/(2(h+1))", side)
    for word in (*BESIDE, Predicate.REFUTED):
        with pytest.raises(ValueError):
            measured(word, compared=beside)
    offered = (Predicate.MATCHES, Predicate.CONSISTENT)
    assert strongest(offered, lambda w: measured(w, compared=beside)).predicate is Predicate.CONSISTENT


def test_a_statement_of_ours_is_not_refuted_but_does_not_hold():
    ours = Comparison("a rate", "printed", statement="ours")
    offered = (Predicate.REFUTED, Predicate.FAILS)
    assert strongest(offered, lambda w: measured(w, compared=ours)).predicate is Predicate.FAILS


def test_words_that_decide_cannot_come_in_by_subject_or_reason():
    for fields in ({"subject": "four heads are enough"}, {"reason": "it was proved"}):
        with pytest.raises(ValueError, match="words that decide"):
            Claim(**{"subject": "x", "predicate": Predicate.CHEAP, **fields})


def test_a_proof_has_a_source_every_condition_and_none_that_fails():
    bound = Bound("k", 6.0, "lower", SOURCE, ("weights at most 1", Hypothesis.checked("heads < retrievals", True)))
    whole = Claim("x", Predicate.COSTLY, bound, Basis("proved"), SOURCE, bound.given)
    for change in ({"source": None}, {"conditions": bound.given[1:]}):
        with pytest.raises(ValueError):
            replace(whole, **change)
    failing = (*bound.given, Hypothesis.checked("one layer", False))
    with pytest.raises(ValueError, match="a condition fails"):
        replace(whole, conditions=failing)
    with pytest.raises(ValueError, match="assumed"):
        replace(whole, predicate=Predicate.NEVER)


def test_joined_claims_have_both_conditions_and_the_weaker_basis():
    one = Claim("a", Predicate.CHEAP, basis=Basis("constructed"), conditions=(Hypothesis("p"),))
    other = Claim("b", Predicate.CHEAP, conditions=(Hypothesis("q"), Hypothesis("p")))
    both = one & other
    assert both.basis.kind == "calculus" and [h.says for h in both.conditions] == ["p", "q"]
    assert str(both) == "a and b is cheap by the calculus, unproved, given p and q"
    with pytest.raises(ValueError, match="no single sentence"):
        one & replace(other, predicate=Predicate.COSTLY)


def check(claim):
    """What every claim owes: few words, every assumed condition in them, the same in JSON."""
    said = str(claim)
    assert len(said.split()) <= MOST_WORDS, said
    for h in claim.assumed:
        assert h.brief in said, (h.brief, said)
        assert any(h.says in line for line in claim.lines)
    row = json.loads(json.dumps(claim.to_json(), default=str))
    assert row["sentence"] == said and len(row["conditions"]) == len(claim.conditions)


def random_claims(cases, seed=0):
    rng = random.Random(seed)
    for _ in range(cases):
        kind = rng.random()
        if kind < 0.15:  # few heads of one layer at a length at which the lower bound speaks
            D = rng.randint(2, 5)
            task = LinearMax.random(D, rng.randint(2, 3), rng.choice([32, 64, 128]), seed=rng.randrange(99))
            yield task, hc.predict(task, Architecture(((rng.randint(1, D - 1), rng.randint(1, 2)),)))
            continue
        task = rng.choice(TASKS) if kind < 0.55 else drawn_structure(rng)
        yield task, hc.predict(task, drawn_shape(rng))


def sees_no_order(arch, length, token_dim):
    """Whether a network of this shape, with weights of its own, answers the same for tokens in another order."""
    net = Transformer(replace(arch, width=4), token_dim, seed=0).double()
    x = torch.randn(4, length, token_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return torch.allclose(net(x), net(x.flip(1)), atol=1e-9)


def roads(cases, seed=0, attacked=False):
    """Claims whose basis its road denies: proofs by their hypotheses, constructions by building and attacking them."""
    wrong, kinds = [], set()
    for task, p in random_claims(cases, seed):
        claim = p.claim("the task")
        check(claim)
        kinds.add((claim.word, claim.basis.kind))
        if claim.basis.kind == "proved" and p.lower is not None:
            good = p.lower.proved and p.lower.holds and not p.cheap and "weights at most 1" in str(claim)
            wrong += [] if good else [p]
        if claim.basis.kind == "proved" and not p.feasible:
            wrong += [] if sees_no_order(p.arch, p.structure.length, p.structure.token_dim) else [p]
        if claim.basis.kind == "calculus" and not p.cheap and p.feasible:
            wrong += [] if "bounded weights" in str(claim) else [p]
        if claim.basis.kind == "constructed":
            made = hc.build(task, 0.9, arch=p.arch)
            wrong += [] if made.certificate.error <= 1.0 and made.certificate.claim().assumed else [p]
            wrong += [p] if attacked and not made.certificate.check().holds else []
    return wrong, kinds


def test_claims_of_random_tasks_and_shapes_are_true_by_their_own_road():
    wrong, kinds = roads(60)
    assert wrong == [] and {kind for _, kind in kinds} >= {"calculus", "constructed", "proved"}
    assert ("costly", "proved") in kinds and ("infeasible", "proved") in kinds


@pytest.mark.soak
def test_five_hundred_claims_are_true_by_their_own_road():
    assert roads(500, seed=1, attacked=True)[0] == []


@pytest.mark.parametrize("digits", [3, 4, 6])
def test_no_rounding_makes_more_of_a_bound(digits):
    rng = random.Random(digits)
    for _ in range(200):
        value = 10 ** rng.uniform(-6, 12)
        assert outward(value, digits, "lower") <= value <= outward(value, digits, "upper")
        assert float(power(value, "lower").replace(",", "")) <= value <= float(power(value, "upper").replace(",", ""))
        for side, word in (("lower", Predicate.AT_LEAST), ("upper", Predicate.AT_MOST)):
            bound = Bound("k", value, side, SOURCE)
            said = Claim("k", word, bound, Basis("proved"), SOURCE)
            number = float(str(said).split(word.value)[1].split()[0].replace(",", ""))
            assert (number <= value) if side == "lower" else (number >= value)


def test_a_prediction_by_proof_rests_on_a_statement_that_is_proved():
    for task, arch in (
        (KthLargest(2, 64), ((1, 8),)),
        (OppositePair(128), ((1, 4),)),
        (LinearMax.random(4, 2, 256), ((1, 4),)),
    ):
        p = hc.predict(task, Architecture(arch))
        assert p.warrant == "proved" and "proved" in {statement.status for statement in p.statements}


SIZES = [
    (T, D, h, n) for T in (1, 32, 128, 1025) for D, h, n in ((4, 1, 2), (4, 3, 8), (2, 1, 1), (1, 1, 2), (9, 8, 4))
]


@pytest.mark.parametrize(("length", "retrievals", "heads", "head_dim"), SIZES)
def test_every_lower_bound_states_the_bound_on_the_weights_or_nothing(length, retrievals, heads, head_dim):
    sizes = {"length": length, "retrievals": retrievals, "heads": heads, "head_dim": head_dim}
    for made in (few_heads_exponent, linear_max_exponent):
        claim = made(**sizes).claim()
        check(claim) if claim.predicate is not Predicate.NOTHING else None
        assert ("weights at most 1" in str(claim)) == (claim.predicate is not Predicate.NOTHING)


def test_lemma_4_holds_of_gelu_with_its_own_slope_and_not_with_one():
    z = torch.linspace(-4, 4, 80_001, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(torch.nn.functional.gelu(z).sum(), z)
    assert 1.0 < slopes.max() <= GELU_SLOPE < slopes.max() + 1e-6
    assert steepness_width(1.0, 1e-3, 4, GELU_SLOPE).value == pytest.approx(500 / GELU_SLOPE)


@pytest.mark.parametrize("rank", [*range(3, 10), 40, 41, 60, 100, 800])
def test_ranks_of_any_size_have_a_prediction(rank):
    assert hc.predict(KthLargest(rank, 2 * rank), Architecture(((1, 2),))).verdict in ("cheap", "costly")


@pytest.mark.parametrize(
    "task",
    [
        OppositePair(1),
        OppositePair(1, token_dim=1),
        PairMax.random(2, 3, 1),
        PairMax([[[1.0]]], 1),
        LinearMax([[1.0]], 1),
        LinearMax.random(5, 2, 1),
        KthLargest(1, 1),
        Wells.random(2, 2, 1),
        PositionSum((0,), 1),
        Structure(1, 3, (Retrieval("both", count=2), Retrieval("pair", order=2))),
    ],
)
@pytest.mark.parametrize("layers", [((1, 1),), ((1, 1), (1, 1))])
def test_of_a_single_token_the_encoder_computes_the_number(task, layers):
    assert hc.predict(task, Architecture(layers)).cheap


FORMS = [[[0, 1], [0, 0]], [[1, 2], [2, 4.5]], [[0, 3], [0, 6]], [[1, -1], [2, -2]]]


@pytest.mark.parametrize("form", [FORMS[0], FORMS[2], FORMS[3]])
@pytest.mark.parametrize("length", [8, 64, 128])
def test_four_heads_of_one_layer_find_a_pair_of_rank_one_and_the_identity_behind_it_is_exact(form, length):
    task = PairMax([form], length)
    assert hc.predict(task, Architecture(((4, 1),))).cheap
    x, y = task.sample(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(torch.tensor(form, dtype=torch.float64))
    a, b = x @ (u[:, 0] * s[0]), x @ v[0]
    ends = [[p.amax(1), p.amin(1)] for p in (a, b)]
    assert torch.allclose(torch.stack([p * q for p in ends[0] for q in ends[1]]).amax(0), y)


@pytest.mark.parametrize("length", [1023, 1024, 1025, 2000])
def test_no_verdict_flips_at_a_constant_of_ours(length):
    task = PairMax.random(2, 4, length, tokens=UnitSphere())
    assert hc.predict(task, Architecture(((1, 8), (2, 8)))).verdict == "cheap"


@pytest.mark.parametrize("eps", [0.3, 0.1, 1e-2, 1e-4])
def test_advice_shares_heads_only_where_no_sample_is_missed_by_more(eps):
    task = PairMax.random(2, 3, 64)
    advice = hc.advise(task, eps)
    assert all(c.name != "tokens choose" for choice in advice.ranked for c in choice.prediction.cautions)
    check(advice.claim("PairMax"))


def test_a_shape_that_shares_says_below_which_error_it_does_not():
    task = PairMax.random(2, 3, 64)
    p = hc.predict(task, Architecture(((1, 4), (2, 4))))
    shared = [c for c in p.cautions if c.name == "tokens choose"]
    assert not shared or not shared[0].share or "an NMSE above" in str(p.claim("x"))


def test_a_score_of_neighbours_can_be_stated_and_two_layers_find_it():
    for beside in ((1,), (-1,), (2,)):
        task = Structure(64, 1, (Retrieval("sums", beside=beside),))
        two = Architecture(((1, 2), (1, 2)), positions=3, embed_dim=4)
        assert hc.predict(task, two).cheap
        assert not hc.predict(task, Architecture(((1, 2),), positions=3)).cheap
        assert not hc.predict(task, replace(two, positions=0)).feasible
    several = Structure(64, 1, (Retrieval("sums", beside=(-1, 1)),))
    for heads in (1, 2):  # two heads of one layer would do, and are not counted: the sentence says so
        said = str(hc.predict(several, Architecture(((heads, 2), (1, 2)), positions=3, embed_dim=8)).claim("x"))
        assert "one look aside per layer" in said
    assert hc.predict(several, Architecture(((1, 2),) * 3, positions=3, embed_dim=8)).cheap
    assert "the next token" in str(hc.predict(Structure(64, 1, (Retrieval("s", beside=(1,)),)), two).plan[0])
    for wrong in ({"beside": (0,)}, {"beside": (1, 1)}, {"beside": (1,), "order": 2}):
        with pytest.raises(ValueError, match="beside"):
            Retrieval("s", **wrong)


def test_an_order_that_was_only_sampled_is_a_condition_of_the_sentence():
    class Rare:
        length, token_dim = 8, 1
        structure = Structure(8, 1, (Retrieval("first", positions=(0,)),))

        def sample(self, batch, *, generator, dtype):
            x = torch.rand(batch, 8, 1, generator=generator, dtype=dtype)
            return x, self(x)

        def __call__(self, x):
            return x.sum((1, 2)) + (x[:, 0, 0] > 1).double()  # an order that no sample shows

    p = hc.predict(Rare(), Architecture(((1, 8),)))
    assert p.cheap and "an order that does not matter" in str(p.claim("x"))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.5], [2.0, 1.0, 1.0]])
@pytest.mark.parametrize("token_dim", [8, 100])
def test_the_error_of_a_division_is_a_worst_case_only_where_nothing_is_projected_away(weights, token_dim):
    found = hc.allocation.allocate(weights, token_dim=token_dim, budget=4 * token_dim)
    cut = any(0 < n < token_dim for n in found.head_dims)
    said = str(found.bound.claim())
    assert ("root mean square" in said or "nothing follows" in said) if cut else "root mean square" not in said


def test_every_claim_of_the_calculus_has_a_second_road_and_none_is_false_by_it():
    """Cheap plans are carried out on numbers, costly shapes stand between all assignments, smaller ones and fixes."""
    table, wrong = counted(40, seed=5)
    assert wrong == []
    calculus = {key: n for key, n in table.items() if key[1] == "calculus"}
    assert sum(n for (*_, road), n in calculus.items() if road == "none") <= 0.1 * sum(calculus.values())
    assert {road for *_, road in calculus} >= {"replayed", "enumerated"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_five_hundred_claims_have_second_roads(seed):
    table, wrong = counted(500, seed)
    assert wrong == [] and sum(n for (*_, road), n in table.items() if road == "none") == 0


def spoilt_plans(plan):
    """A plan without one of its steps, with a step a layer later, or with two duties of the class token on one head."""
    for i, step in enumerate(plan):
        yield plan[:i] + plan[i + 1 :]
        if step.layer > 1:
            yield (*plan[:i], replace(step, layer=step.layer - 1), *plan[i + 1 :])


def test_a_plan_that_is_spoilt_does_not_find_what_it_says():
    two = Structure(16, 2, (Retrieval("a", count=2), Retrieval("second", rank=2), Retrieval("pair", order=2)))
    p = hc.predict(two, Architecture(((2, 4), (4, 4)), embed_dim=16))
    assert p.cheap and replayed(p)
    assert [step for plan in spoilt_plans(p.plan) if Replay(p.structure, p.arch, 0).right(plan) for step in plan] == []


def test_a_printed_plan_gives_no_head_more_than_its_dimensions_hold():
    """The class token takes heads that the tokens leave, and gathers where there is room."""
    twice = Structure(16, 1, (Retrieval("r0", count=2), Retrieval("r1"), Retrieval("r2", count=2, after=("r0",))))
    p = hc.predict(twice, Architecture(((3, 1), (1, 1), (1, 1)), positions=2, embed_dim=2))
    first = {step.at: step.heads for step in p.plan if step.layer == 1}
    assert p.cheap and first == {"tokens": (1, 2), "cls": (3, 3)}
    places = Structure(8, 2, (Retrieval("p", positions=(0, 1)), Retrieval("w", window=5), Retrieval("q", 2, order=2)))
    gather = hc.predict(places, Architecture(((1, 4), (2, 4), (2, 4)), positions=2, embed_dim=8)).plan
    assert [(s.layer, s.heads) for s in gather if s.act == "gather"] == [(3, (2, 2))]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.995, 0.9999, 0.999999])
def test_no_level_of_confidence_is_rounded(level):
    seen = Evidence(planned=8, entered=8, interval=(3, 4), level=level)
    said = str(Claim("3 heads", Predicate.ENOUGH, (3, 4), Basis("measured"), evidence=seen))
    assert float(re.search(r"\(([\d.]+)% interval", said)[1]) == pytest.approx(100 * level, rel=1e-12)


def test_no_file_of_the_package_rounds_a_level_of_confidence_by_hand():
    rounded = re.compile(r"(?:confidence|level)['\"\]]*:\.\d%")
    assert [str(p) for p in ROOT.rglob("*.py") if rounded.search(p.read_text(encoding="utf-8"))] == []
