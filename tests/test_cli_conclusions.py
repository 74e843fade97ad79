"""Every command ends with one plain sentence that begins "So:", and only the doors speak of flags."""

import ast
import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.cli.door import main
from headcount.measuring.tables import Reading
from headcount.nets import Transformer, save_net
from headcount.results.claim import MOST_WORDS
from studies.site.calls import called
from tests.app_commands import commands
from tests.test_cli_allocation import folder, text  # noqa: F401
from tests.test_training_sweeps import SPEC

ROOT = Path(__file__).parent.parent
STUDY = str(ROOT / "docs/data/head_count.json")
SIZES = ("--with", "retrievals=2", "--with", "token_dim=2", "--length", "6")

# What each command is called with: a small case, in a folder that `prepared` has filled.
CASES = {
    "demo": ("--out", "look"),
    "tasks": (),
    "doctor": ("kept",),
    "theory bound": ("--table",),
    "build": ("--retrievals", "2", "--length", "8", "--eps", "0.1", "--out", "net"),
    "theory collide": ("--free", "4", "--out", "pictures"),
    "theory interpolate": ("labels.npz", "--out", "memory"),
    "predict": ("LinearMax", "--layers", "2x4", "--length", "32", "--out", "pictures"),
    "advise": ("KthLargest", "--length", "8", "--max-layers", "1", "--out", "pictures"),
    "probe": ("LinearMax", *SIZES, "--layers", "1x2", "--epochs", "1", "--save", "net.safetensors", "--out", "p"),
    "lens": ("--own-run", "own.safetensors", "--length", "4", "--out", "pictures"),
    "sweep": ("small.toml",),
    "runs list": ("kept",),
    "certify": ("nets", "--box=-1,1", "--ratio", "3", "--seconds", "5"),
    "runs export": ("kept/small", "--out", "given"),
    "fit": (STUDY,),
    "report": (STUDY, "--out", "page"),
    "measure": (
        "mine.npz",
        "--heads",
        "1-2",
        "--layers",
        "1",
        "--splits",
        "2",
        "--embed-dim",
        "8",
        "--width",
        "8",
        "--steps",
        "20",
        "--out",
        "found",
        "--model",
        "m.safetensors",
    ),
    "apply": ("mine.safetensors", "mine.npz"),
    "theory allocate": ("--curve",),
    "saturation": ("MODEL", "--text", "TEXT", "--lengths", "8", "--samples", "1"),
    "compress": ("MODEL", "--measure", "weights", "--out", "smaller"),
    "shape": ("10M", "--context", "128", "--vocab", "1000", "--experiment", "settle.toml", "--out", "shaped"),
    "theory margin": ("chosen.npz", "--out", "pictures", "--steps", "20"),
    "theory prompt": ("--tokens", "1", "--starts", "1"),
    "reproduce": ("allocation:e-128", "--out", "made"),
    "runs verify": ("kept/small",),
    "runs repair": ("kept/small",),
    "runs merge": ("both", "kept/small"),
    "ssm deepen": ("system.json", "--depth", "2", "--out", "deep"),
    "ssm export": ("deep.json", "--to", "sos", "--out", "flat"),
    "ssm flatten": ("deep.json", "--out", "flat"),
    "ssm depth": ("10", "3"),
    "ssm table": ("--depths", "1,2"),
    "ssm quantise": ("system.json", "--bits", "8", "--out", "pictures"),
    "ssm train": ("--sizes", "1x2", "--clips", "2", "--seeds", "1", "--steps", "2"),
}
# More ways of a command that end on other lines.
ALSO = [
    ("theory bound", ()),
    ("runs", ("kept",)),
    ("report", ("nets", "--attention")),
    ("report", (STUDY, "--out", "page", "--figure", "svg")),
    ("report", ("letters",)),
    ("reproduce", ()),
    ("fit", (STUDY, "--law", "length")),
    ("ssm depth", ()),
    ("ssm deepen", ("small.json", "--max-entry", "2", "--out", "small")),
    ("ssm deepen", ("small.json", "--depth", "2", "--out", "small")),
    ("report", ("kept/small",)),
    ("shape", ("--evidence", "--out", "shaped")),
    ("shape", ("10M", "--encoder", "--context", "64", "--task", "LinearMax")),
    ("shape", ("1B", "--cache-per-token", "16kB", "--vocab", "128256", "--context", "4096")),
    ("sweep", ("trial.toml", "--store", "kept/trial")),
]
TRIAL = """
[trial]
text = "letters.txt"
length = 16
rates = [1e-2]
seeds = [1, 2]
batch = 4
steps = 8

[[trial.shapes]]
name = "2 x 8"
embed_dim = 16
vocab = 256
layers = [[2, 8, 2, 32]]

[[trial.shapes]]
name = "2 (1) x 8"
embed_dim = 16
vocab = 256
layers = [[2, 8, 1, 40]]

[promise]
half_width = 1.0
low = 0.5
high = 2.0
finds = 1.5
noise = 0.5
free = 10
"""
LETTERS = """
name = "letters"
seeds = 2
[task]
name = "Neighbour"
side = "right"
which = "only"
train = [4, 6]
tests = [[7, 8], [9, 10]]
[grid]
shapes = ["1x4"]
embed_dim = [8]
[training]
epochs = 2
samples = 32
validation = 32
batch = 4
evaluations = 1
"""
# Text that a program or a manuscript takes as it is: a sentence in it would be a mistake.
RAW = [("report", (STUDY, "--table", "latex")), ("report", (STUDY, "--table", "markdown"))]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    here = tmp_path_factory.mktemp("conclusions")
    g = np.random.default_rng(0)
    x = g.standard_normal((60, 4, 2))
    np.savez(here / "mine.npz", x=x, y=x[:, :, 0].max(axis=1))
    np.savez(here / "labels.npz", x=g.standard_normal((4, 3, 2)), y=np.array(list("abca")))
    np.savez(here / "chosen.npz", tokens=g.normal(size=(3, 4, 3)), queries=g.normal(size=(3, 3)), chosen=np.arange(3))
    (here / "small.toml").write_text(SPEC)
    (here / "trial.toml").write_text(TRIAL)
    (here / "letters.toml").write_text(LETTERS)
    (here / "letters.txt").write_bytes(bytes(g.integers(97, 105, 17 * 60).tolist()))
    system = hc.ssm.DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0])
    hc.ssm.save(system, here / "system.json")
    hc.ssm.save(system.deepen(2), here / "deep.json")
    hc.ssm.save(hc.ssm.DiagonalSSM([0.9], [1.0]), here / "small.json")
    save_net(Transformer(hc.Architecture(layers=((2, 4),), width=8), 2, seed=0), here / "own.safetensors")
    with contextlib.chdir(here):
        said("sweep", ("small.toml", "--store", "kept/small"))
        said("sweep", ("small.toml", "--store", "nets", "--save", "best"))
        said("sweep", ("letters.toml", "--store", "letters"))
        said(
            "measure",
            (
                "mine.npz",
                "--heads",
                "1-2",
                "--layers",
                "1",
                "--splits",
                "2",
                "--embed-dim",
                "8",
                "--width",
                "8",
                "--steps",
                "20",
                "--out",
                "m",
                "--model",
                "mine.safetensors",
            ),
        )
    return here


def said(command, arguments):
    found = called([*command.split(), *arguments])
    assert not found.exit_code, found.stderr
    return found.stdout


def test_every_command_has_a_case():
    assert set(CASES) == set(commands())


@pytest.mark.parametrize(
    ("command", "arguments"), [*CASES.items(), *ALSO], ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_command_ends_with_one_plain_sentence(command, arguments, prepared, monkeypatch, request):
    monkeypatch.chdir(prepared)
    if "MODEL" in arguments:
        given = {"MODEL": "folder", "TEXT": "text"}
        arguments = [str(request.getfixturevalue(given[a])) if a in given else a for a in arguments]
    if command == "demo":
        monkeypatch.setattr("headcount.papers.head_count.first_study.SPEC", SPEC)
    torch.manual_seed(0)
    out = said(command, arguments)
    assert out.count("So: ") == 1, out
    last = out[out.rindex("So: ") :]
    assert last.startswith("So: ") and last.rstrip().endswith("."), last
    assert out[: out.rindex("So: ")].endswith(("\n", "")) and "\n\n" not in last
    assert len(last.split()) <= 1 + MOST_WORDS, last


@pytest.mark.parametrize(("command", "arguments"), RAW, ids=["latex", "markdown"])
def test_text_for_a_program_stands_alone(command, arguments, prepared, monkeypatch):
    monkeypatch.chdir(prepared)
    assert "So:" not in said(command, arguments)


def strings(path):
    """Every text of a module that is no docstring."""
    tree = ast.parse(path.read_text())
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


# Where a whole command is put together (a page's, or pip's), or -- begins a variable of a stylesheet.
ELSEWHERE = {"page.py", "record.py", "palette.py", "lens_pages.py", "interpolation_page.py", "model_places.py"}


def test_the_library_speaks_of_arguments_and_the_doors_of_flags():
    paths = [p for p in (ROOT / "headcount").rglob("*.py") if p.parent.name != "cli" and p.name not in ELSEWHERE]
    assert [(p.name, s) for p in paths for s in strings(p) if re.search(r"(?<![\w-])--[a-z]", s)] == []


def test_the_doors_translate_what_the_library_says(prepared, monkeypatch, capsys):
    monkeypatch.chdir(prepared)
    (prepared / "table.csv").write_text("id,a,target\n1,2,3\n3,4,5\n")
    with pytest.raises(SystemExit):
        main(["measure", "table.csv", "--sequence", "id", "--window", "2"])
    assert "give --sequence for a long table or --window for a series" in capsys.readouterr().err
    with pytest.raises(ValueError, match="give `sequence` for a long table or `window`"):
        hc.measure("table.csv", reading=Reading(sequence="id", window=2))


def test_what_measure_says_on_the_way_names_flags(monkeypatch, capsys):
    def remark(*_, say, **__):
        say("Every column is a token, 3 in all; `sequence` or `window` reads rows as tokens.")
        raise ValueError("that is all")

    monkeypatch.setattr("headcount.measuring.measure", remark)
    with pytest.raises(SystemExit):
        main(["measure", "table.csv"])
    assert "; --sequence or --window reads rows as tokens." in capsys.readouterr().out
