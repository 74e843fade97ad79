"""Sentences about a task and a shape say no more than is known: prices, orders of tokens, ranks from below, counts."""

import json

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.cli import main
from headcount.cli.printing import Listing, Printout, show
from headcount.files import arrays_in
from headcount.nets import Architecture
from headcount.papers.infoflow import kth_largest
from headcount.structure import Retrieval
from headcount.tasks import Induction, KthLargest, LinearMax, Lookups, MaxOf, PlaceOf, PositionSum, Ridges, Wells

ONE = Architecture(((4, 4),))


def printed(capsys, *words: str) -> str:
    return " ".join(output(capsys, *words).split())


def output(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 0
    return capsys.readouterr().out


def test_a_costly_shape_says_what_is_proved_and_what_the_calculus_adds(capsys):
    prediction = hc.predict(LinearMax.random(4, 2, 32), Architecture(((2, 4),)))
    assert prediction.warrant == "proved" and prediction.lower.value < 2 < prediction.exponent
    assert prediction.cost == "at least eps^-1.45, eps^-8 by the calculus"
    text = printed(capsys, "predict", "LinearMax", "--layers", "2x4", "--length", "32")
    assert "COSTLY, parameters at least eps^-1.45, eps^-8 by the calculus" in text
    assert "no network of this shape does better" not in text


@pytest.mark.parametrize(
    "task",
    [
        Lookups((PlaceOf(0, (1.0,)), PlaceOf(1, (1.0,))), 2, Ridges.sum(2)),
        Lookups((MaxOf((1.0,)), PlaceOf(0, (1.0,))), 3, Ridges([[1.0, 0.0]], Ridges.sum(1).profiles)),
        hc.tasks.task(lambda x: x.sum(), length=4, retrievals=[Retrieval("all", positions=(0, 1, 2, 3))]),
        PositionSum((0, 1), 2),
    ],
)
def test_a_target_that_no_order_changes_is_not_called_infeasible(task):
    x = task.sample(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[0]
    assert torch.allclose(task(x), task(x.flip(1)))
    prediction = hc.predict(task, ONE)
    assert prediction.feasible and prediction.known[-1].cls == task.length
    assert all(step.mode == "global" for step in prediction.plan)
    assert "fixed" not in {statement.name for statement in prediction.statements}


@pytest.mark.parametrize("task", [Induction(4, 8), Wells.random(2, 1, 6, windows=True), PositionSum((0,), 4)])
def test_a_target_that_an_order_changes_is_infeasible_by_proof(task):
    prediction = hc.predict(task, ONE)
    assert (prediction.feasible, prediction.warrant) == (False, "proved")


@pytest.mark.parametrize(("rank", "length"), [(2, 2), (3, 3), (2, 3), (3, 4), (7, 8), (8, 8), (17, 17)])
def test_ranks_from_below_are_built_from_below(rank, length):
    task = KthLargest(rank, length)
    built = kth_largest(task, eps=0.05)
    nearer = min(rank, length - rank + 1)
    assert built.net.shape.layers == ((1, 2),) * (nearer - 1) + ((1, 1),)
    assert built.check().holds and built.certificate.error <= 0.05 and built.certificate.coverage.whole
    x = torch.rand(2000, length, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[:1000] = 0.3 + 0.2 * x[:1000]
    x[500:700] = (3 * x[500:700]).round() / 3
    exact = np.sort(x.numpy().astype(np.longdouble)[:, :, 0], axis=1)[:, -rank]
    gap = np.abs(built.net(x).detach().numpy() - exact).max()
    assert 0.05 * built.certificate.error < gap <= built.certificate.error
    assert hc.predict(task, Architecture(built.net.shape.layers, positions=3, embed_dim=7)).warrant == "constructed"


def test_a_term_names_the_formula_that_was_used():
    third, second = (kth_largest(KthLargest(rank, 8), 0.05).certificate for rank in (3, 2))
    assert "log(8 V)/beta" in third["masking or softmax"].why
    assert "log(4 V)/beta" in second["masking or softmax"].why


def test_advice_on_prices_beyond_any_number_of_digits_is_given(capsys):
    text = printed(capsys, "advise", "TriangleCentre", "--length", "100000", "--eps", "1e-3")
    assert "10^1,1" in text and "Nothing tried is cheap for TriangleCentre" in text
    assert "e+0" not in text


def test_the_least_heads_name_their_dimension(capsys):
    text = printed(capsys, "advise", "Induction", "--max-layers", "1")
    assert "best 8x64 (cheap)" in text
    assert "Least heads per layer that are cheap, of dimension 16" in text
    answer = json.loads(output(capsys, "advise", "Induction", "--max-layers", "1", "--json"))
    assert {row["head_dim"] for row in answer["frontier"]} == {16}


def test_what_is_known_is_never_an_empty_list(capsys):
    text = printed(capsys, "predict", "LinearMax", "--layers", "1x1", "--length", "4", "--with", "retrievals=1")
    assert "How we know claimed one head fetches the token of largest score" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("theory", "bound", "--retrievals", "1", "--heads", "1"),
            "1 head for 1 retrieval is not too few: Theorem 2(1) applies",
        ),
        (
            ("theory", "bound", "--heads", "3", "--length", "64"),
            "the bound says nothing at length 64; it bites from length 65",
        ),
        (
            ("theory", "bound", "--table"),
            "So: the exponent of one head at length 1,024 is at least 62 by proof, given",
        ),
        (("theory", "allocate", "--budget", "100"), "3, 4 have too few heads for the bound."),
        (("theory", "allocate", "--budget", "1000000"), "1,000,000 of 1,000,000 spent"),
    ],
)
def test_last_sentences_count_and_promise_what_they_may(capsys, words, sentence):
    text = printed(capsys, *words)
    assert sentence in text
    assert "nothing follows" not in text or "is at most" not in text


def test_names_in_a_table_are_never_broken(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"name": "attention-svm:feasibility", "what": "many words " * 12}]
    show(Printout(rows, [Listing(rows, ("name", "what"))]), as_json=False)
    assert "attention-svm:feasibility" in capsys.readouterr().out


def test_brackets_in_a_table_are_text_and_no_markup(capsys):
    rows = [{"part [bold]": "[hf]", "found": "[2, 3] [red]x[/red]"}]
    show(Printout(rows, [Listing(rows, ("part [bold]", "found"), "of [this]")]), as_json=False)
    out = capsys.readouterr().out
    assert all(words in out for words in ("part [bold]", "[hf]", "[2, 3] [red]x[/red]", "of [this]"))


def test_a_file_of_words_is_not_said_to_be_a_pickle(tmp_path):
    (tmp_path / "not.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"not\.npz is not a readable \.npz file of plain arrays$"):
        arrays_in(tmp_path / "not.npz")
