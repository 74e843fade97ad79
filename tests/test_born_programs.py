"""Counting programs: what they say is what a loop says, text goes round, and tasks state programs that are exact."""

import numpy as np
import pytest
import torch

from headcount.papers.born.equivalence import difference
from headcount.papers.born.experiments import TASKS
from headcount.sources import Source
from headcount.tasks import Alternation, Copy, Neighbour
from headcount.tasks.bigram_programs import copying, retrieval
from headcount.tasks.counting import (
    AllOf,
    AnyOf,
    AtLeast,
    Before,
    CountingProgram,
    Is,
    LengthVerdict,
    Negation,
    seen,
)
from headcount.tasks.counting_text import parse_condition, parse_program

YES = [("right", "only"), ("left", "only"), ("right", "first"), ("left", "first")]


def condition(draw, deep=3):
    """A random condition, at most so deep."""
    kind = int(draw.integers(0, 6)) if deep else 0
    inner = [condition(draw, deep - 1) for _ in range(int(draw.integers(2, 4)))] if kind else []
    if kind == 0:
        return Is(int(draw.integers(0, 3)))
    if kind in (1, 2):
        return (Negation, Before)[kind - 1](inner[0])
    if kind in (3, 4):
        return (AllOf, AnyOf)[kind - 3](tuple(inner))
    weights = draw.choice([-3, -1, 1, 2], len(inner)).tolist()
    return AtLeast(tuple(zip(weights, inner, strict=True)), int(draw.integers(-2, 4)))


def slowly(condition, word, i):
    """The truth of a condition at place i of one word, by its definition."""
    match condition:
        case Is(letter):
            return word[i] == letter
        case Negation(of):
            return not slowly(of, word, i)
        case AllOf(of):
            return all(slowly(part, word, i) for part in of)
        case AnyOf(of):
            return any(slowly(part, word, i) for part in of)
        case Before(of):
            return i > 0 and slowly(of, word, i - 1)
        case AtLeast(terms, least):
            return sum(w * sum(slowly(of, word, j) for j in range(i + 1)) for w, of in terms) >= least


def answered(task, batch, lengths, seed=0):
    """Strings up to what is read, with the places judged and what is to be said there."""
    strings = task.strings(batch, lengths, generator=torch.Generator().manual_seed(seed))
    return strings.ids.numpy(), strings.targets.numpy(), strings.judged.numpy()


@pytest.mark.parametrize("seed", range(40))
def test_the_interpreter_says_what_the_definition_says(seed):
    draw = np.random.default_rng(seed)
    made, word = condition(draw), draw.integers(0, 3, 6).tolist()
    fast = CountingProgram(((0, made),))(np.array([word]))[0, :, 0]
    assert fast.tolist() == [slowly(made, word, i) for i in range(len(word))]


def test_text_goes_round():
    draw = np.random.default_rng(0)
    for _ in range(100):
        made = condition(draw)
        program = CountingProgram(((3, made), (1, Negation(made))))
        assert parse_program(str(program)) == program


def test_depth_and_counts_are_those_written_down():
    program = parse_program("say 1 if #[x = 0 and (#[x = 1] >= 2)] - #[x = 1] >= 1")
    assert (program.depth, program.counts, program.letters) == (2, 2, (0, 1))
    assert parse_program("say 1 if before(before(x = 0))").depth == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "whole number"),
        ("x = 1 and x = 2 or x = 3", "brackets"),
        ("#[x = 1] > 2", "no word"),
        ("#[x = 1]", ">= was expected"),
        ("x = 1 x = 2", "nothing more"),
    ],
)
def test_text_that_is_no_condition_is_refused_with_its_place(text, says):
    with pytest.raises(ValueError, match=says):
        parse_condition(text)


def test_programs_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="each letter once"):
        CountingProgram(((1, Is(0)), (1, Is(1))))
    with pytest.raises(ValueError, match="two or more"):
        AllOf((Is(0),))
    with pytest.raises(ValueError, match="at least one count"):
        AtLeast((), 1)
    with pytest.raises(ValueError, match="say LETTER if"):
        parse_program("if x = 1")


@pytest.mark.parametrize(("side", "which"), YES)
def test_the_programs_of_four_retrievals_are_exact_on_ten_thousand_samples(side, which):
    task = Neighbour(side, which)
    ids, targets, judged = answered(task, 10_000, (4, 30))
    said = task.program().said(ids)
    assert (said[judged] == targets[judged]).all() and judged.sum() == 10_000


@pytest.mark.parametrize(("side", "share"), [("right", 0.025), ("left", 0.05)])
def test_the_same_programs_are_ambiguous_on_last(side, share):
    """The note's figures: one answer in 2.5 and 5.0% of samples of the published lengths, else several."""
    task = Neighbour(side, "last")
    assert task.program() is None
    ids, targets, judged = answered(task, 4000, (4, 49))
    said = retrieval(side, task.letters).said(ids)[judged]
    assert (said != -2).mean() == pytest.approx(share, abs=0.025)
    assert (said[said >= 0] == targets[judged][said >= 0]).mean() > 0.9 and (said == -1).sum() == 0


def test_first_said_by_the_program_without_first_is_ambiguous_too():
    ids, _, judged = answered(Neighbour("right", "first"), 1000, (20, 49))
    assert (retrieval("right", 5).said(ids)[judged] == -2).mean() > 0.9


@pytest.mark.parametrize("backward", [False, True])
def test_copies_of_distinct_letters_are_exact_and_of_repeats_ambiguous(backward):
    task = Copy(backward, letters=12)
    ids, targets, judged = answered(task, 10_000, (3, 11))
    said = task.program().said(ids)
    assert (said[judged] == targets[judged]).all()
    repeats = Copy(backward, distinct=False, letters=5)
    assert repeats.program() is None
    ids, _, judged = answered(repeats, 300, (20, 50))
    said = copying(5, backward=backward).said(ids)
    assert (said[judged] == -2).mean() > 0.9
    assert ((said == -2) & judged).any(axis=1).all()  # in every string


@pytest.mark.parametrize("blocks", range(1, 13))
def test_the_program_of_an_alternation_is_exact_and_as_deep_as_proved(blocks):
    task = Alternation(blocks)
    program = task.program()
    ids, targets, judged = answered(task, 10_000 if 3 <= blocks <= 6 else 500, (20, 60))
    assert (program.said(ids)[judged] == targets[judged]).all()
    assert program.depth == task.depth.value == max(0, blocks - 2)
    assert task.depth.side == "exact" and task.depth.source.paper == "yang2025kneedeep"


def test_verdicts_are_proved_where_a_program_exists_and_never_false():
    proved = {code for code, task in TASKS.items() if task.length_verdict.proved}
    assert proved == {"UR", "UL", "NRFirst", "NLFirst", "UF", "UB"}
    for code, task in TASKS.items():
        assert task.length_verdict.proved in (True, None)
        assert task.length_verdict.source.paper == "jobanputra2025born"
        if code not in ("UF", "UB"):
            assert (task.program() is not None) == (task.length_verdict.proved is True)
    with pytest.raises(ValueError, match="got False"):
        LengthVerdict(False, Source("headcount", "x"), "no")


def test_left_and_right_programs_are_as_deep_as_each_other():
    """Theorem 2 of the paper: a difference of sides in a trained network is learnt."""
    for first in (False, True):
        right, left = retrieval("right", 4, first=first), retrieval("left", 4, first=first)
        assert (right.depth, right.counts) == (left.depth, left.counts)


def test_programs_are_told_apart_by_a_shortest_string_and_equal_ones_are_not():
    twice = parse_program("say 1 if #[x = 0] >= 2")
    assert difference(twice, parse_program("say 1 if #[x = 0 and before(x = 0)] >= 1")).tolist() in (
        [0, 1, 0],
        [0, 2, 0],
    )
    assert difference(twice, parse_program("say 1 if #[x = 0 and (#[x = 0] >= 2)] >= 1")) is None
    late = parse_program("say 1 if #[x = 0] >= 25"), parse_program("say 1 if #[x = 0] >= 26")
    assert len(difference(*late, alphabet=(0, 1))) >= 25  # random strings reach what exhaustion does not
    with pytest.raises(ValueError, match="different letters"):
        difference(twice, parse_program("say 2 if x = 0"))


@pytest.mark.parametrize(("side", "which"), [*YES, ("right", "last"), ("left", "last")])
def test_the_ordinary_task_and_the_strings_ask_the_same(side, which):
    task = Neighbour(side, which, letters=4, length=9)
    x, y = task.sample(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    letters = x.argmax(dim=-1).tolist()
    assert x.shape == (200, 9, 4) and torch.equal(y, task.answer_letters(x).double() / 3)
    for word, wanted in zip(letters, task.answer_letters(x).tolist(), strict=True):
        *context, query = word
        copies = [j for j, letter in enumerate(context) if letter == query]
        assert (len(copies) == 1) == (which == "only")
        place = copies[-1] if which == "last" else copies[0]
        assert context[place + (1 if side == "right" else -1)] == wanted
    retrieved = task.structure.retrievals[1]
    assert retrieved.offset == (1 if side == "right" else -1) and retrieved.after == ("last letter",)


def test_seen_counts_here_too():
    assert CountingProgram(((0, seen(Is(1), 2)),))(np.array([[1, 1]])).tolist() == [[[False], [True]]]
