"""Languages as letter tasks: answers are those of a loop over prefixes, programs say the same, one's own goes in."""

import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from headcount.cli import main
from headcount.papers.born.compiler import compile
from headcount.papers.born.length_study import SMALL, LengthStudy, generalise, letter_task
from headcount.tasks.catalogue import on_lengths
from headcount.tasks.languages import Dyck, Majority, Parity, Recognition, Spoken, letter_task_of
from headcount.training import Member, Recipe
from headcount.training.spec import Sweep

CHANGES = "say 1 if #[x = 1 and before(x = 0)] - #[x = 2] >= 1"


def balanced(word):
    while "01" in (text := "".join(map(str, word))):
        word = [int(c) for c in text.replace("01", "", 1)]
    return not len(word)


BY_HAND = {
    Majority(): lambda word: word.count(1) > word.count(0),
    Dyck(): balanced,
    Parity(): lambda word: word.count(1) in range(1, 99, 2),
    Spoken("say 1 if #[x = 1] >= 2"): lambda word: word.count(1) >= 2,
}


@pytest.mark.parametrize("language", BY_HAND, ids=lambda v: type(v).__name__)
def test_the_answer_after_every_letter_is_that_of_a_loop_over_prefixes(language):
    task = letter_task_of(language)
    strings = task.strings(60, (3, 9), generator=torch.Generator().manual_seed(1))
    seen = set()
    for ids, targets, judged in zip(strings.ids, strings.targets, strings.judged, strict=True):
        size = int(judged.sum())
        assert int(ids[0]) == task.vocab - 1 and judged[1 : size + 1].all() and 3 <= size <= 9
        word = ids[1:].tolist()
        for n in range(1, size + 1):
            right = BY_HAND[language](word[:n])
            assert (tuple(word[:n]) in language) == right and int(targets[n]) == language.letters + right
            seen.add(right)
    assert seen == {True, False}


@pytest.mark.parametrize("language", [Majority(), Dyck()], ids=["majority", "brackets"])
def test_the_program_of_a_language_says_what_the_language_says_and_so_does_its_network(language):
    words = np.concatenate([Dyck().words(200, 30, torch.Generator().manual_seed(0)).numpy(),
                            np.random.default_rng(0).integers(0, 2, (200, 30))])  # fmt: skip
    program = language.program()
    assert (program(words)[..., 1] == language.answers(words)).all()
    assert (compile(program, 30)(words) == program(words)).all()
    assert Recognition(language).length_verdict.proved


def test_parity_has_no_program_and_that_predicts_nothing():
    task = letter_task("PARITY")
    assert task.program() is None and task.length_verdict.proved is None


def test_a_program_of_ones_own_is_trained_and_judged_by_its_layers():
    name, task = "the program", Recognition(Spoken(CHANGES))
    assert (task.language.letters, task.vocab) == (3, 6)
    deep = LengthStudy(name, task, SMALL, ())
    assert deep.verdict.proved and "place before" in deep.verdict.why
    from dataclasses import replace

    assert LengthStudy(name, task, replace(SMALL, depth=1), ()).verdict.proved is None
    study = generalise(name, replace(SMALL, steps=16, seeds=(0,), batch=4), task=task)
    assert len(study.curve) == 4


def test_several_answers_are_told_apart_and_none_is_an_answer_too():
    spoken = Spoken("say 0 if x = 0\nsay 1 if x = 1 and #[x = 0] >= 1\nsay 2 if x = 2")
    assert spoken.answers(np.array([[1, 0, 1, 2]])).tolist() == [[3, 0, 1, 2]] and spoken.replies == 4


OWN = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Squares:
        '''As many ones as a square number.'''

        most: int = 9

        @property
        def letters(self):
            return 2

        def __contains__(self, word):
            return sum(word) in [n * n for n in range(self.most)]
"""
SPEC = """
    seeds = 1
    [task]
    name = "squares_of_my_own:Squares"
    most = 5
    train = [3, 6]
    tests = [[7, 9]]
    [grid]
    heads = 1
    head_dim = 4
    [training]
    epochs = 1
    samples = 64
    batch = 16
    validation = 32
"""


def run(arguments):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def test_a_language_of_ones_own_goes_through_a_sweep_to_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "squares_of_my_own.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "own.toml").write_text(textwrap.dedent(SPEC))
    assert run(["sweep", "own.toml"]) == 0 and run(["report", "runs/own"]) == 0
    page = (tmp_path / "runs/own/report.html").read_text()
    assert "Squares" in page and "As many ones as a square number" in page
    assert "no counting program of it is known" in (tmp_path / "runs/own/lengths.html").read_text()


def test_an_edited_language_gets_rows_of_its_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    runs = []
    for name, text in (("one_version", OWN), ("two_version", OWN.replace("n * n", "n * n * n"))):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        task = on_lengths(f"{name}:Squares", train=(3, 6))
        member = Sweep.from_toml(textwrap.dedent(SPEC).replace("squares_of_my_own", name)).members[0]
        assert member.task.name == "Squares" == task.name
        runs.append(member.row(Recipe())["source"])
    assert runs[0] != runs[1]
    shipped = Member(on_lengths("Majority", train=(3, 6)), member.net)
    assert "source" not in shipped.content(Recipe())


@dataclass(frozen=True)
class NoLanguage:
    letters: int = 2


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ('name = "Parrity"', "did you mean 'Parity'"),
        ('name = "Spoken"', "'text'"),
        ('name = "Spoken"\ntext = "tell 1 if x = 1"', "reads `say LETTER if CONDITION`"),
        ('name = "nowhere:B"', "cannot be imported"),
        (f'name = "{__name__}:NoLanguage"', "is no language"),
    ],
)
def test_what_is_no_language_is_one_line(task, said, capsys, tmp_path):
    lines = [*SPEC.strip().splitlines()]
    kept = [line for line in map(str.strip, lines) if not line.startswith(('name = "squares', "most"))]
    (tmp_path / "own.toml").write_text("\n".join(kept).replace("[task]", f"[task]\n{task}"))
    assert run(["sweep", str(tmp_path / "own.toml"), "--store", str(tmp_path / "s")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and said in lines[0], lines


def test_a_program_of_ones_own_is_swept(tmp_path):
    program = 'text = "say 1 if #[x = 1] >= 2"'
    text = textwrap.dedent(SPEC).replace('"squares_of_my_own:Squares"', '"Spoken"').replace("most = 5", program)
    (tmp_path / "own.toml").write_text(text)
    assert run(["sweep", str(tmp_path / "own.toml"), "--store", str(tmp_path / "s")]) == 0
    assert run(["report", str(tmp_path / "s")]) == 0
    assert "in the limit holds, given an idealised learner" in (tmp_path / "s/lengths.html").read_text()
