"""What a prompt and a notebook show: short words within 80 columns, small tables, and a bar where somebody looks."""

import ast
import contextlib
import functools
import inspect
import io
import json
import sys
import tempfile
import types
import typing
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.measuring import StudyPlan
from headcount.nets import Transformer
from headcount.notebook import AnswerInNotebook
from headcount.results import Result, read_study
from headcount.training.progress import automatic, in_notebook
from headcount.training.spec import Sweep

X = np.random.default_rng(0).normal(size=(120, 4, 2))
SMALL = StudyPlan(heads=(1, 2), layers=1, steps=10, splits=2, embed_dim=8, width=8, rates=(4e-3,))
TASK = hc.tasks.LinearMax(directions=[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], length=8)
VALUES = {
    "Prediction": lambda: hc.predict(TASK, hc.Architecture(layers=((2, 4),), width=16)),
    "Advice": lambda: hc.advise(TASK, eps=1e-2, max_layers=2),
    "Study": lambda: read_study(Path("docs/data/head_count.json")),
    "Knee": lambda: hc.knee(read_study(Path("docs/data/head_count.json"))),
    "Certificate": lambda: hc.build(TASK, eps=0.05).certificate,
    "Built": lambda: hc.build(TASK, eps=0.05),
    "Bound": lambda: hc.head_count.few_heads_exponent(length=128, retrievals=4, heads=1, head_dim=2),
    "Measurement": lambda: hc.measure(X, X[:, :, 0].max(axis=1), plan=SMALL),
    "FittedModel": lambda: fitted(),
    "Operator": lambda: hc.operator(
        Transformer(hc.Architecture(layers=((2, 4),), width=8), 2, seed=0).double().eval(),
        torch.ones(5, 2, dtype=torch.float64),
    ),
}


def fitted():
    with tempfile.TemporaryDirectory() as folder:
        hc.measure(X, X[:, :, 0].max(axis=1), plan=SMALL, model=Path(folder) / "mine.safetensors")
        return hc.load(Path(folder) / "mine.safetensors")


@functools.cache
def made(name):
    return VALUES[name]()


MODELS = ("FittedModel", "Certificate")  # a network that answers, and a part of `Built`
LONG = ("Bound",)  # a line of Python that makes it again


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.rows, self.pictures, self.words = [], 0, 0, []

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"
        self.pictures += tag == "svg"
        if tag != "br":
            self.open.append(tag)

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_short_at_a_prompt_and_a_table_in_a_notebook(name):
    value = made(name)
    shown = repr(value)
    assert name in shown and len(shown) < 1000
    assert max(map(len, shown.splitlines())) <= 80 or name in LONG
    page = Balanced()
    page.feed(value._repr_html_())
    assert not page.open and len(value._repr_html_()) < 20_000
    assert page.rows > 1 or page.pictures
    assert len("".join(page.words)) < 2000, "what is shown is read at a glance"


NOUNS = {"load", "task"}  # what these give is asked further, it is no answer
VERBS = [name for name in hc.__all__ if inspect.isfunction(getattr(hc, name)) and name not in NOUNS]
MEMBERS = ("rows", "sentence", "files", "_repr_html_")


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_gives_rows_a_sentence_files_and_a_picture(name):
    verb = inspect.unwrap(getattr(hc, name))
    answer = typing.get_type_hints(types.SimpleNamespace(__annotations__={"a": verb.__annotations__["return"]}),
                                   vars(sys.modules[verb.__module__]))["a"]  # fmt: skip
    for kind in typing.get_args(answer) or (answer,):
        missing = [m for m in MEMBERS if not hasattr(kind, m) and m not in kind.__dataclass_fields__]
        assert not missing, f"{kind.__name__}, which {name} gives, lacks {missing}"


def test_what_shows_itself_in_a_notebook_is_an_answer_whole():
    lacking = []
    for path in Path("headcount").rglob("*.py"):
        for kind in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
            has = {n.name for n in kind.body if isinstance(n, ast.FunctionDef)}
            has |= {n.target.id for n in kind.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            if any(isinstance(base, ast.Name) and base.id == AnswerInNotebook.__name__ for base in kind.bases):
                has.add("_repr_html_")
            if "_repr_html_" in has or {"sentence", "files"} <= has:
                lacking += [f"{path}: {kind.name} has no {m}" for m in MEMBERS if m not in has]
    assert not [line for line in lacking if line.split()[1] not in {*MODELS, AnswerInNotebook.__name__}]


@pytest.mark.parametrize("name", [name for name in VALUES if name not in MODELS])
def test_an_answer_writes_its_files_and_is_known_by_them(name, tmp_path):
    answer = made(name)
    written = answer.files(tmp_path / "new" / "folder")
    assert isinstance(answer, Result) and written and all(path.stat().st_size for path in written)
    assert answer.rows and all(map(dict, answer.rows)) and isinstance(answer.sentence, str) and answer.sentence
    for path in written:
        assert path.suffix != ".json" or json.loads(path.read_text(), parse_constant=pytest.fail)


def test_many_rows_are_cut_and_said():
    rows = tuple({"heads": 1, "length": n, "layers": "1x2", "width": 4, "seed": 0, "nmse": 0.5} for n in range(100))
    assert "and 60 rows more" in hc.Study(rows)._repr_html_()
    assert repr(hc.Study(())) == "<Study 'study': no networks yet>"


def small_sweep():
    recipe = hc.Recipe(samples=64, validation=32, epochs=2, batch=32)
    hc.sweep(
        hc.tasks.KthLargest(rank=1, length=4), [hc.Architecture(layers=((1, 4),), width=8)], seeds=2, recipe=recipe
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_python_shows_a_bar_on_a_terminal_and_nothing_elsewhere(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for stream, shows in ((Terminal(), True), (io.StringIO(), False)):
        with contextlib.redirect_stderr(stream):
            small_sweep()
        assert ("networks" in stream.getvalue()) == shows


def test_a_notebook_shows_one_line_that_is_cleared_at_the_end(monkeypatch):
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert in_notebook()
    recipe = hc.Recipe(samples=64, validation=32, epochs=10, batch=64, evaluations=1)
    arch = hc.Architecture(layers=((1, 4),), width=8)
    asked = Sweep.of(hc.tasks.KthLargest(rank=1, length=4), [arch], 2, recipe)
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), automatic(asked, [asked.members], 0) as progress:
        progress.every = 0.0
        progress(asked.recipe.steps // 2)
    assert "\r0/2 networks [############            ]  50%" in stream.getvalue()
    assert stream.getvalue().endswith(" \r")
