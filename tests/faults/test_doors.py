"""Bad input at every door: one line and exit code 2, and nothing that a stranger's file says is run."""

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from headcount.cli import failures, main
from headcount.files import atomic_write
from headcount.measuring.tables import read_csv
from headcount.refusals import RefusalError
from headcount.results import Store, Study, read_study
from headcount.training import Sweep
from headcount.training.sweeps import run
from headcount.training.task_source import source_of
from studies.head_count.images import read_cifar
from tests.faults.sweep_specs import LIMIT, SPEC, start, wait_until, with_, without_progress


def call(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return end.value.code, told.out, told.err


# What a folder holds -------------------------------------------------------------------------------------------------


def bert(folder, **changes):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=20, max_position_embeddings=8, **sizes))
    model.save_pretrained(folder)
    if changes:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def rewritten(folder, change):
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def lose(tensors):
    del tensors["encoder.layer.1.attention.self.query.weight"]


def spoil(tensors):
    tensors["encoder.layer.0.output.dense.weight"][0, 0] = float("nan")


@pytest.mark.parametrize(
    ("changes", "change", "says"),
    [
        ({}, lose, "lack 'encoder.layer.1.attention.self.query.weight'"),
        ({"num_hidden_layers": 3}, None, "lack 'encoder.layer.2."),
        ({"num_hidden_layers": 1}, None, "its config.json says 1 layers"),
        ({"num_hidden_layers": 10**7}, None, "says 10000000 layers, and its weights are"),
        ({"hidden_size": 32}, None, "is (16,), and its config.json asks for (32,)"),
        ({"vocab_size": 10**12}, None, "is (20, 16), and its config.json asks for (1000000000000, 16)"),
        ({"hidden_size": "wide"}, None, "can be read from"),
        ({}, spoil, "'encoder.layer.0.output.dense.weight' holds NaN"),
    ],
)
def test_weights_that_do_not_fill_their_model_are_refused_by_name(tmp_path, capsys, changes, change, says):
    pytest.importorskip("transformers")
    folder = bert(tmp_path, **changes)
    if change:
        rewritten(folder, change)
    capsys.readouterr()  # the library's bar
    code, _, err = call(capsys, "compress", folder, "--keep", "0.5", "--measure", "weights")
    assert code == 2 and says in err and err.count("\n") == 1


def vocabulary(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


def short(tensors):
    name = "encoder.layer.1.attention.self.query.weight"
    tensors[name] = tensors[name][:8].clone()


def no_pooler(tensors):
    for name in [name for name in tensors if name.startswith("pooler.")]:
        del tensors[name]


@pytest.mark.parametrize(
    ("changes", "change", "says"),
    [
        ({}, lose, "lack 'encoder.layer.1.attention.self.query.weight'"),
        ({"num_hidden_layers": 3}, None, "lack 'encoder.layer.2."),
        ({}, spoil, "'encoder.layer.0.output.dense.weight' holds NaN"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}, None, "no model can be read"),
        ({}, short, "'encoder.layer.1.attention.self.query.weight' is (8, 16), and its config.json asks for (16, 16)"),
        ({}, no_pooler, ""),
    ],
)
def test_a_lens_looks_at_no_weights_that_were_filled_in(tmp_path, capsys, changes, change, says):
    pytest.importorskip("transformers")
    folder = vocabulary(bert(tmp_path, **changes))
    if change:
        rewritten(folder, change)
    capsys.readouterr()  # the library's bar
    code, _, err = call(capsys, "lens", folder, "--text", "a b")
    assert code == (2 if says else 0) and says in err and err.count("\n") == bool(says)


def test_a_cut_file_of_weights_and_an_index_that_leads_outside_are_one_line(tmp_path, capsys):
    pytest.importorskip("transformers")
    folder = bert(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    assert call(capsys, "compress", folder, "--keep", "0.5", "--measure", "weights")[0] == 2
    folder = bert(tmp_path / "outside")
    index = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "../cut/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    code, _, err = call(capsys, "compress", folder, "--keep", "0.5", "--measure", "weights")
    assert code == 2 and "weights must stand beside it" in err


class Opened:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def test_pickled_weights_that_want_a_program_run_are_refused_without_advice_to_run_it(tmp_path, capsys):
    pytest.importorskip("transformers")
    folder = bert(tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    torch.save({"x": Opened(tmp_path / "ran")}, folder / "pytorch_model.bin")
    capsys.readouterr()  # the library's bar
    code, _, err = call(capsys, "compress", folder, "--keep", "0.5", "--measure", "weights")
    assert code == 2 and "more than tensors" in err and "weights_only" not in err and err.count("\n") == 1
    assert not (tmp_path / "ran").exists()


def certified(folder, change):
    """The file of a network with a certificate, whose text was changed."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with pytest.raises(SystemExit):
        words = "build --retrievals 2 --length 8 --eps 0.1 --no-check --out"
        main([*words.split(), str(folder)])
    file = folder / "net.safetensors"
    with safe_open(file, framework="pt") as read:
        text = read.metadata()["headcount"]
    changed = folder / "changed.safetensors"
    save_file(load_file(file), changed, {"headcount": change(text)} if change else None)
    return changed


def huge(text):
    content = json.loads(text)
    content["net"]["shape"]["layers"] = [[10**9, 10**9]]
    return json.dumps(content)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (None, "holds weights but no certificate; `headcount build` writes both"),
        (lambda text: "headcount.cli:main", "its certificate is not readable JSON"),
        (lambda text: text.replace('"Wells"', '"headcount.cli:main"'), "no value that a file may hold"),
        (huge, "there is not enough memory"),
    ],
)
def test_a_network_of_a_strangers_is_read_or_refused_in_a_line(tmp_path, capsys, change, says):
    file = certified(tmp_path, change)
    capsys.readouterr()
    code, _, err = call(capsys, "theory", "collide", "--net", file)
    assert code == 2 and says in err and err.count("\n") == 1


def test_a_batch_of_images_that_wants_a_program_run_is_refused(tmp_path):
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Opened(tmp_path / "ran"), b"labels": []}))
    (tmp_path / "data_batch_1").write_bytes((tmp_path / "test_batch").read_bytes())
    with pytest.raises(ValueError, match=r"not a CIFAR-10 python batch: it names \w+.system, which"):
        read_cifar(tmp_path)
    assert not (tmp_path / "ran").exists()
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}
    for name in ("test_batch", "data_batch_1"):
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    assert read_cifar(tmp_path)[0].labels.tolist() == [1, 2]


def test_a_table_may_begin_with_a_mark_and_may_not_name_a_column_twice(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufeffx,target\n1,2\n".encode())
    assert list(read_csv(tmp_path / "a.csv")) == ["x", "target"]
    (tmp_path / "b.csv").write_text("x,x,target\n1,2,3\n")
    with pytest.raises(ValueError, match="two columns are called 'x'"):
        read_csv(tmp_path / "b.csv")


# What a spec says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("heads = [1, 2]\nhead_dim = 4", "shapes = [[2, 4], [1, 8]]"),
        ("heads = [1, 2]\nhead_dim = 4", "heads = [0]\nembed_dim = 8"),
        ("heads = [1, 2]", "heads = [1.0]"),
        ("heads = [1, 2]", "heads = [true]"),
        ("seeds = 2", "seeds = true"),
        ("seeds = 2", "seeds = 1_000_000_000_000"),
        ("width = 8", "width = 1e400"),
        ("epochs = 2", "epochs = 2.0"),
        ("epochs = 2", "epochs = true"),
        ("rank = 1", "rank = [[1]]"),
        ("rank = 1", "rank = " + "[" * 3000 + "]" * 3000),
        ('name = "small"', 'name = "../../outside"'),
        ('name = "small"', 'name = "/etc/passwd"'),
        ('name = "small"', f'name = "{"n" * 5000}"'),
        ('name = "small"', 'name = "a\\u0000b"'),
        ("head_dim = 4", "layers = 1_000_000_000"),
    ],
)
def test_a_strange_spec_is_one_line_and_makes_nothing(tmp_path, capsys, monkeypatch, old, new):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(with_((old, new)))
    code, _, err = call(capsys, "sweep", "x.toml")
    assert code == 2 and err.count("\n") == 1 and len(err) < 700
    assert [p.name for p in tmp_path.iterdir()] == ["x.toml"]


def test_shapes_one_bracket_short_are_told_so():
    with pytest.raises(ValueError, match=r"one bracket short, got \[\[2, 4\], \[1, 8\]\]; each shape is a list"):
        Sweep.from_toml(with_(("heads = [1, 2]\nhead_dim = 4", "shapes = [[2, 4], [1, 8]]")))


def test_what_a_grid_says_twice_is_trained_once():
    asked = Sweep.from_toml(with_(("heads = [1, 2]\nhead_dim = 4", 'shapes = ["1x4", "1x4"]\nlr = [1e-3, 1e-3]')))
    assert len(asked.members) == 2 * 2


OWN = """
from dataclasses import dataclass
import torch
from headcount.tasks import KthLargest

@dataclass(frozen=True)
class Mine(KthLargest):
    '''The largest, scaled.'''
    def __call__(self, x):
        return SCALE * super().__call__(x)
"""


def test_an_edited_task_of_ones_own_is_found_beside_the_spec_and_gets_rows_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "x.toml").write_text(with_(('"KthLargest"', '"own_edited:Mine"')))
    addresses = []
    for scale in (1, 2):
        (tmp_path / "own_edited.py").write_text(textwrap.dedent(OWN).replace("SCALE", f"{scale}.0"))
        sys.modules.pop("own_edited", None)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        asked = Sweep.read(tmp_path / "x.toml")
        sys.dont_write_bytecode = before
        study = run(asked, Store.open(tmp_path / "store", create=True))
        assert all(row["source"] for row in study)
        addresses.append({row["run"] for row in study})
    sys.modules.pop("own_edited", None)
    assert not addresses[0] & addresses[1]
    assert "source" not in Sweep.from_toml(SPEC).members[0].row(Sweep.from_toml(SPEC).recipe)


def test_what_a_task_of_ones_own_imports_from_beside_it_is_part_of_its_source(tmp_path, monkeypatch):
    """However far away, and whether it is found by its name or from within its package; what is installed is not."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "task.py").write_text(textwrap.dedent(OWN).replace("SCALE", "scale()") + "from .near import scale\n")
    (package / "near.py").write_text("def scale():\n    from own_far import SCALE\n    return SCALE\n")
    (tmp_path / "own_beside.py").write_text("raise ValueError('nobody imports it')")

    def source():
        for name in ("own_package", "own_package.task", "own_package.near", "own_far"):
            sys.modules.pop(name, None)
        return source_of(importlib.import_module("own_package.task").Mine)

    sources = []
    for text in ("SCALE = 2", "SCALE = 3", "SCALE = 2"):
        (tmp_path / "own_far.py").write_text(text)
        sources.append(source())
    assert sources[0] == sources[2] != sources[1]
    (tmp_path / "own_beside.py").write_text("")
    assert source() == sources[0]


# What comes out ------------------------------------------------------------------------------------------------------


def test_exported_json_holds_null_for_what_is_no_number_and_is_read_back_as_infinity(tmp_path, capsys):
    store = Store.open(tmp_path, create=True)
    store.state("x", {}, ["r"])
    row = {"run": "r", "heads": 1, "length": 4, "nmse": float("inf"), "final_nmse": float("nan"), "status": "diverged"}
    store.add([("r", {}, row)], {"torch": "2"})
    assert call(capsys, "runs", "export", tmp_path)[0] == 0

    def strictly(text):
        return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    assert strictly((tmp_path / "study.json").read_text())["rows"][0]["nmse"] is None
    assert strictly((tmp_path / "rows.jsonl").read_text())["final_nmse"] is None
    assert read_study(tmp_path / "study.json").rows[0]["nmse"] == float("inf")
    text = (tmp_path / "study.json").read_text()  # a row a line, where `to_json` has a column a line
    assert strictly(text) == strictly(Study.from_json(text).to_json())


def test_scratch_files_have_names_that_nobody_can_foresee(tmp_path):
    names = set()
    for _ in range(2):
        with atomic_write(tmp_path / "x.txt") as scratch:
            names.add(scratch.name)
            scratch.write_text("whole")
    assert len(names) == 2 and not any(str(os.getpid()) == name.split(".")[-2] for name in names)


def test_a_bug_is_one_line_with_the_traceback_in_a_file(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("headcount.cli.tasks.listed", lambda kind: 1 / 0)
    code, _, err = call(capsys, "tasks")
    assert code == 1 and err.count("\n") == 1 and "ZeroDivisionError" in err
    (file,) = tmp_path.iterdir()
    assert str(file) in err and "Traceback" in file.read_text()


def test_an_error_of_a_library_is_no_refusal_and_one_of_ours_is():
    def caught(make):
        try:
            make()
        except Exception as problem:
            return failures.foreseen(problem)

    assert not caught(lambda: np.zeros(3).reshape(2))
    assert caught(lambda: Sweep.from_toml("x = 1"))
    assert caught(lambda: open("nowhere"))  # noqa: PTH123, SIM115


ODD_PLACES = {  # what is typed after `python -m headcount`, and how that must end
    "nobody takes the output": ("tasks >&-", 0),
    "the output ends early": ("tasks | head -n 1 > /dev/null", 0),
    "the output ends at once": ("tasks --json | true", 0),
    "the output is full": ("tasks > /dev/full", 2),
    "nobody hears a refusal": ("fit nowhere 2>&-", 2),
    "the refusal is full": ("fit nowhere 2> /dev/full", 2),
    "neither is there": ("fit nowhere >&- 2>&- <&-", 2),
}
ODD_SURROUNDINGS = {
    "no home": ("env -u HOME", "tasks", 0),
    "nothing at all": ("env -i OMP_NUM_THREADS=1", "tasks", 0),
    "a dumb terminal": ("env TERM=dumb COLUMNS=1", "tasks", 0),
    "no scratch folder": ("env TMPDIR=/nowhere", "runs nowhere", 2),
    "ASCII alone": ("env LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii:strict", "tasks", 0),
    "ASCII and a name": ("env LC_ALL=C PYTHONUTF8=0 PYTHONIOENCODING=ascii:strict", "fit $'ü\\xff'", 2),
    "a folder that is gone": ("mkdir gone; cd gone; rmdir ../gone; env", "tasks", 2),
}


def ended(command, cwd):
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )
    said = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in said and "Exception" not in said and said.count("\n") <= 1, said
    return done.returncode, said


@pytest.mark.parametrize("place", ODD_PLACES)
def test_output_that_nobody_takes_is_no_traceback(tmp_path, place):
    words, code = ODD_PLACES[place]
    assert ended(f"{sys.executable} -m headcount {words}", tmp_path)[0] == code


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n.startswith(("a f", "ASCII and")) else pytest.mark.soak) for n in ODD_SURROUNDINGS],
)
def test_odd_surroundings_are_no_traceback(tmp_path, name):
    before, words, code = ODD_SURROUNDINGS[name]
    path = f"PYTHONPATH={Path(__file__).parents[2]}"
    found, said = ended(f"{before} {path} {sys.executable} -m headcount {words}", tmp_path)
    assert found == code and (code == 0) == (said == ""), said
    if "gone" in name:
        assert "the folder you are in is gone" in said


def test_a_traceback_that_cannot_be_kept_is_still_one_line(capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    monkeypatch.setattr("headcount.cli.tasks.listed", lambda kind: 1 / 0)
    code, _, err = call(capsys, "tasks")
    assert code == 1 and err.count("\n") == 1 and "could not be kept" in err


def test_warnings_of_a_library_are_one_line_each_and_two_at_most(capsys, monkeypatch):
    def warns(kind):
        for number in range(5):
            warnings.warn(f"number {number}\nand more", RuntimeWarning, stacklevel=1)
        return []

    monkeypatch.setattr("headcount.cli.tasks.listed", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, err = call(capsys, "tasks")
    assert code == 0 and err.splitlines() == [f"headcount: warning: number {n} and more" for n in (0, 1)]


CUT_AT_IMPORT = """
import os, signal, sys

class Counting:
    seen = 0

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.startswith("headcount.cli") or cls.seen:
            cls.seen += 1
            if cls.seen == {at}:
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Counting)
"""


@pytest.mark.parametrize("at", [2, 400, *(pytest.param(n, marks=pytest.mark.soak) for n in range(50, 900, 50))])
def test_control_c_at_any_import_is_130_and_one_line(tmp_path, at):
    (tmp_path / "sitecustomize.py").write_text(CUT_AT_IMPORT.format(at=at))
    (tmp_path / "x.toml").write_text(SPEC)
    here = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    process = start("sweep", "x.toml", cwd=tmp_path, PYTHONPATH=here)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and err.startswith("headcount: interrupted.") and err.count("\n") == 1, err
    assert not (tmp_path / "runs").exists() or at > 400


def test_control_c_in_training_is_130_and_one_line_that_says_what_is_kept(tmp_path):
    (tmp_path / "x.toml").write_text(with_(("epochs = 2", "epochs = 100000")))
    process = start("sweep", "x.toml", "--checkpoint", "0.05s", cwd=tmp_path)
    states = tmp_path / "runs" / "small" / "checkpoints"
    wait_until(lambda: states.is_dir() and any(states.iterdir()), process)  # it trains, and not to the end
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    err = without_progress(err)
    assert process.returncode == 130 and err.startswith("headcount: interrupted. 0 of 8") and err.count("\n") == 1


DELETED = """
import os, signal, sys, time
import headcount.cli.tasks as door_of_tasks
from headcount.__main__ import main

class Deleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the signal is met in here, where Python ignores whatever is raised
            pass

def listed(kind):
    sys.settrace(met)
    deleted = Deleted()
    del deleted
    sys.settrace(None)
    time.sleep(60)  # a signal ends it
    print("went on")
    return []

events = 0

def met(frame, event, argument):  # the interpreter's steps in the hook that hears of what is ignored, and below it
    global events
    hook = getattr(sys.unraisablehook, "func", sys.unraisablehook)
    above = frame
    while above is not None and above.f_code is not hook.__code__:
        above = above.f_back
    if above is not None:
        events += 1
        if events == {again}:
            os.kill(os.getpid(), signal.SIGINT)
    return met

door_of_tasks.listed = listed
sys.argv = ["headcount", "tasks"]
main()
"""


@pytest.mark.parametrize("again", [0, 2, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 3, 4, 5))])
def test_an_interruption_that_python_can_only_ignore_comes_again(again):
    """So does a second one, wherever in the hook that heard of the first it comes; 0: there is none."""
    process = start(program=("-c", DELETED.replace("{again}", str(again))))
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and err == "headcount: interrupted.\n" and out == ""


TWICE = """
import os, signal, sys
import headcount.cli.door as door
import headcount.cli.tasks as door_of_tasks
from headcount.__main__ import main

def listed(kind):
    os.kill(os.getpid(), signal.SIGINT)
    return []

def say(line):
    sys.stderr.write(line)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGINT)

door._say = say
door_of_tasks.listed = listed
sys.argv = ["headcount", "tasks"]
main()
"""


def test_a_second_interruption_as_the_first_is_told_is_no_second_line():
    process = start(program=("-c", TWICE))
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and err == "headcount: interrupted.\n" and out == ""


@pytest.mark.parametrize("length", [10**12, 2**63, 10**20, 10**400], ids=["12", "63", "20", "400"])
def test_a_length_whose_places_are_listed_is_refused_before_they_are(length):
    from headcount.tasks import Wells

    for make in (lambda: Wells(((0.5,),), length), lambda: Wells.random(2, 1, length)):
        with pytest.raises(RefusalError, match="places = "):
            make()
