"""Random specs, arguments and files: exit 0, 2 or 130, at most three lines on stderr, no traceback, bounded time."""

import contextlib
import io
import json
import random
import signal

import numpy as np
import pytest

from headcount.cli import failures, main
from headcount.measuring.loading import load
from headcount.refusals import RefusalError
from headcount.results import Store
from headcount.training import sweeps
from tests.faults.sweep_specs import SPEC

SMALL, FULL = 60, 2500
ODD_VALUES = (
    "0 -1 1 2 2.5 1e400 nan inf true false [] [[]] [1] [1,2.5] [true] [[1,2]] [[[1,2]]] {} {a=1} '' 'x' '../x' 'a:b' "
    "'LinearMax' 999999999999999999999 -9223372036854775809 1_000_000 1979-05-27 '1x4' '0x0' ''' [ ] = # [[a]] "
    "'os:system' 'json:JSONDecoder' 1e-400"
)
ODD_WORDS = (
    "runs fit report export store verify repair merge sweep tasks bound --spec --json --law --predicted --confidence "
    "--out --store --device --help -h --version nan -1 0 1e9 heads length x STORE JSON GARBAGE SPEC FOLDER cuda:99 "
    "cpu '' \udcff --nothing"
)
VALUES, WORDS = ODD_VALUES.split(), ODD_WORDS.split()
KEYS = ("lr", "layers", "shapes", "embed_dim", "positions", "x")


@contextlib.contextmanager
def within(seconds):
    """Fail when the block takes longer."""

    def late(number, frame):
        raise AssertionError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ended_well(words):
    out, err = io.StringIO(), io.StringIO()
    out.fileno = err.fileno = lambda: 1
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), within(60), pytest.raises(SystemExit) as end:
        main(words)
    said = err.getvalue()
    code = end.value.code or 0
    assert code in (0, 2, 130), f"{words}: {code}, {said}"
    assert said.count("\n") <= 3 or "Usage:" in said, f"{words}: {said}"
    assert "Traceback" not in said


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch, tmp_path):
    def stops(*rest, **more):
        raise RefusalError("this spec would be trained")

    monkeypatch.setattr(sweeps, "run", stops)
    monkeypatch.chdir(tmp_path)


def mutated(rng, text):
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        choice = rng.random()
        if choice < 0.6 and equals:
            lines[at] = f"{key} = {rng.choice(VALUES)}"
        elif choice < 0.7:
            del lines[at]
        elif choice < 0.8:
            lines.insert(at, rng.choice(lines))
        elif choice < 0.9:
            lines.insert(at, f"{rng.choice(KEYS)} = {rng.choice(VALUES)}")
        else:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + chr(rng.randrange(1, 0x2FF)) + lines[at][cut:]
        if not lines:
            return ""
    return "\n".join(lines)


def sizes():
    return [SMALL, pytest.param(FULL, marks=pytest.mark.soak)]


@pytest.mark.parametrize("count", sizes())
def test_random_specs(tmp_path, count):
    for seed in range(count):
        (tmp_path / "x.toml").write_text(mutated(random.Random(seed), SPEC), encoding="utf-8")
        ended_well(["sweep", "x.toml", "--store", "s"])


@pytest.mark.parametrize("count", sizes())
def test_random_arguments(tmp_path, count):
    places = stores(tmp_path)
    for seed in range(count):
        rng = random.Random(seed)
        words = [rng.choice(("runs", "fit", "report", "export", "store", "sweep", "tasks"))]
        words += [rng.choice(WORDS) for _ in range(rng.randint(0, 4))]
        ended_well([places.get(word, word) for word in words])


@pytest.mark.parametrize("count", sizes())
def test_random_bytes_in_stores_and_studies(tmp_path, count):
    stores(tmp_path)
    store, study = (tmp_path / "good" / "rows.sqlite").read_bytes(), (tmp_path / "study.json").read_bytes()
    (tmp_path / "bad").mkdir()
    for seed in range(count):
        rng = random.Random(seed)
        for name, content in (("bad/rows.sqlite", store), ("bad.json", study)):
            (tmp_path / name).write_bytes(spoilt(rng, content))
        command = rng.choice((["export", "--json"], ["fit"], ["store", "verify"], ["runs"]))
        ended_well([*command, str(tmp_path / "bad")])
        ended_well([rng.choice(("fit", "export")), str(tmp_path / "bad.json")])


@pytest.mark.parametrize("count", sizes())
def test_random_bytes_in_data(tmp_path, count):
    np.savez(tmp_path / "x.npz", x=np.ones((4, 3, 2)), y=np.arange(4.0))
    (tmp_path / "x.csv").write_text("s,a,target\n1,2,3\n1,2,3\n2,2,1\n")
    for seed in range(count):
        rng = random.Random(seed)
        for name in ("x.npz", "x.csv"):
            bad = tmp_path / f"bad{name[1:]}"
            bad.write_bytes(spoilt(rng, (tmp_path / name).read_bytes()))
            try:
                with within(60):
                    load(bad)
            except Exception as problem:
                assert failures.foreseen(problem), f"{name} {seed}: {problem!r}"


def spoilt(rng, content):
    """The bytes cut, or some of them changed."""
    content = bytearray(content)
    if rng.random() < 0.3:
        return bytes(content[: rng.randrange(len(content))])
    for _ in range(rng.choice((1, 5, 100))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


def stores(folder):
    """A sound store, a study as JSON, garbage and a spec, by the words that stand for them."""
    store = Store.open(folder / "good", create=True)
    store.state("good", {}, ["a", "b"])
    for run, heads in (("a", 1), ("b", 2)):
        row = {"run": run, "heads": heads, "length": 4, "seed": 0, "nmse": 0.5 / heads, "status": "done"}
        store.add([(run, {}, row)], {"torch": "2"})
    (folder / "study.json").write_text(store.study().to_json())
    (folder / "garbage").write_bytes(bytes(range(256)) * 8)
    (folder / "x.toml").write_text(SPEC)
    names = {"STORE": "good", "JSON": "study.json", "GARBAGE": "garbage", "SPEC": "x.toml", "FOLDER": ""}
    assert json.loads((folder / "study.json").read_text())
    return {word: str(folder / name) for word, name in names.items()}
