"""Letter tasks asked in context: what a model that knows, one that matches, and one that says nothing score."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import one_hot

from headcount.cli.door import main
from headcount.papers.born.experiments import TASKS
from headcount.papers.born.in_context import Alphabet, ContextSetting, asked_in_context, context_task

ALPHABET = Alphabet(tuple(range(10, 62)), separator=1, end=2)
SMALL = ContextSetting(samples=20, shots=2, batch=8)


def knowing(ids):
    """Says the token that comes: every answer is right."""
    return one_hot(ids.roll(-1, dims=1), 64).double()


def matching(ids):
    """Says what came after the last earlier copy of the token, token 0 where there was none: an induction head."""
    said = torch.zeros_like(ids)
    for row, word in enumerate(ids.tolist()):
        for i, token in enumerate(word):
            copies = [j for j in range(i) if word[j] == token]
            said[row, i] = word[copies[-1] + 1] if copies else 0
    return one_hot(said, 64).double()


@pytest.mark.parametrize("code", TASKS)
def test_a_model_that_knows_what_comes_is_right_and_one_that_says_one_token_is_not(code):
    assert asked_in_context(knowing, ALPHABET, code, 8, SMALL)["strings"] == 1
    nothing = asked_in_context(lambda ids: one_hot(torch.zeros_like(ids), 64).double(), ALPHABET, code, 8, SMALL)
    assert nothing["strings"] == nothing["letters"] == 0


def test_an_induction_head_alone_copies_forwards_and_not_backwards():
    """Forwards it misses the first letter and the end; the last query to the right is its own question."""
    forward, backward = (asked_in_context(matching, ALPHABET, code, 10, SMALL) for code in ("UF", "UB"))
    assert forward["letters"] == pytest.approx(9 / 11, abs=0.03) and backward["letters"] < 0.1
    assert forward["strings"] == backward["strings"] == 0
    assert asked_in_context(matching, ALPHABET, "NRLast", 10, SMALL)["strings"] == 1
    assert asked_in_context(matching, ALPHABET, "NLLast", 10, SMALL)["strings"] < 0.3


def test_solved_strings_stand_before_the_one_that_is_asked_for():
    seen = []
    asked_in_context(lambda ids: seen.append(ids) or knowing(ids), ALPHABET, "UB", 5, ContextSetting(3, 2, 8))
    (ids,) = seen
    assert ids.shape == (3, 1 + 3 * 12)
    for word in ids.tolist():
        assert word[0] == word[12] == word[24] == word[36] == ALPHABET.end
        for k in range(3):
            source, copy = word[12 * k + 1 : 12 * k + 6], word[12 * k + 7 : 12 * k + 12]
            assert word[12 * k + 6] == ALPHABET.separator and copy == source[::-1] and len(set(source)) == 5


class Speaker:
    """A language model that knows what comes, and its tokenizer."""

    def __call__(self, input_ids):
        return SimpleNamespace(logits=one_hot(input_ids.roll(-1, dims=1), 128))

    def encode(self, text, add_special_tokens):
        return [ord(text[-1])]


def test_the_command_asks_a_model_and_concludes(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("headcount.nets.pretrained.packaged.model_and_tokenizer", lambda name: (Speaker(), Speaker()))
    with pytest.raises(SystemExit) as stop:
        main(["probe", "UB", "--model", "a-folder", "--length", "6", "--samples", "3", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert stop.value.code == 0
    assert "So: a-folder is right on 1.00 of the strings of UB at length 6" in " ".join(said.split())
    assert json.loads((tmp_path / "probe.json").read_text())["strings"] == 1


def test_the_command_refuses_another_task_in_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["probe", "UBB", "--model", "a-folder"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "did you mean 'UB'" in said and len(said.strip().splitlines()) == 1


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="52 letters, and 3 are one token"):
        asked_in_context(knowing, Alphabet((4, 5, 6), 1, 2), "UF", 3, SMALL)
    with pytest.raises(ValueError, match="one token each, and are"):
        Alphabet.of(lambda text: [1, 2])
    with pytest.raises(ValueError, match="shots must be at least 0"):
        ContextSetting(shots=-1)
    assert context_task("NLFirst").letters == 26
