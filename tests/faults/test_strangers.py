"""Files of strangers steer nothing: no terminal, no spreadsheet, no page, no copy of what they do not hold, no code."""

import contextlib
import csv
import functools
import json
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import warnings

import pytest

from headcount.limits import memory_limit
from headcount.results import Store
from headcount.results.database import checksum
from tests.faults.sweep_specs import LIMIT, SPEC, start, wait_until, with_
from tests.faults.test_store import call, filled, row

STEERING = "\x1b]0;OWNED\x07\x1b[2J\x9b31m\u202eback\u2066\r\x00\x08"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def steered(folder):
    """A store in which every text that can be is one that steers a terminal or is a formula."""
    store = Store.open(folder, create=True)
    names = [f"={STEERING}{i}" for i in range(6)]
    store.state(f"{STEERING}name", {"toml": STEERING, "data": {"name": STEERING}}, names)
    cells = {"task": f"=cmd|' /C calc'!A0{STEERING}", "layers": f"@{STEERING}", f"+{STEERING}": "-1+1", "width": 8}
    cells |= {"final_nmse": 0.5, "train_nmse": 0.5}
    for i, name in enumerate(names):
        more = {"heads": 1 + i % 3, "seed": i // 3, "nmse": 0.5 / (i + 1)}
        store.add([(name, {"of": STEERING}, {**row(name)[2], **cells, **more})], {"device": STEERING})
    return store


@pytest.mark.parametrize(
    "command",
    ["runs", "fit", "fit --law heads", "runs export", "runs export --json", "report", "report --figure svg",
     "report --table markdown", "report --table latex", "runs verify", "runs merge", "report --attention",
     "runs repair"],
)  # fmt: skip
def test_no_control_character_of_a_store_reaches_a_terminal_or_a_page(tmp_path, capsys, command):
    steered(tmp_path / "s")
    first, *rest = command.split()
    words = [first, rest.pop(0)] if rest and first == "runs" else [first]
    words += [tmp_path / "merged"] if "merge" in words else []
    out = ["--out", tmp_path / "out"] if words[-1] in ("export", "report") and "--json" not in rest else []
    code, told, err = call(capsys, *words, tmp_path / "s", *rest, *out)
    assert code in (0, 2) and "not foreseen" not in err, err
    assert not HIDDEN.search(told) and not HIDDEN.search(err)
    for file in (tmp_path / "out").glob("*") if out else ():
        assert not HIDDEN.search(file.read_text(encoding="utf-8")), file


def test_no_cell_of_a_table_is_a_formula(tmp_path, capsys):
    store = steered(tmp_path / "s")
    call(capsys, "runs", "export", tmp_path / "s", "--out", tmp_path / "out")
    for text in ((tmp_path / "out" / "rows.csv").read_text(encoding="utf-8"), store.study().to_csv()):
        table = list(csv.reader(text.splitlines()))
        assert len(table) == 7 and all(len(line) == len(table[0]) for line in table)
        cells = [cell for line in table for cell in line]
        assert not [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell]
        assert any(cell.startswith("'=cmd") for cell in cells)
    kept = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert kept[0]["task"].startswith("=cmd")  # what programs read is as it was


ODD = ["x'fffe'", "NULL", "7", "2.5", "''", "'{'", "'[]'", "'null'", "x'7b7d'", "'\x1b[2J'"]


@pytest.mark.parametrize("column", ["row", "member", "environment", "checksum", "run", "status"])
@pytest.mark.parametrize("odd", [*ODD[:3], *(pytest.param(odd, marks=pytest.mark.soak) for odd in ODD[3:])])
@pytest.mark.parametrize("fitting", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_damaged_value_of_any_type_is_foreseen_by_every_reader(tmp_path, capsys, column, odd, fitting):
    store = filled(tmp_path)
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'rows'")
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.execute(f"UPDATE rows SET {column} = {odd} WHERE run = 'b'")
        if fitting and column != "checksum":
            db.create_function("fit", 4, lambda *t: checksum(*(x if isinstance(x, str) else "" for x in t)))
            db.execute("UPDATE rows SET checksum = fit(run, member, row, environment)")
    for words in (
        ["runs"],
        ["fit"],
        ["runs", "export", "--json"],
        ["runs", "verify"],
        ["runs", "merge", tmp_path / "m"],
    ):
        code, _, err = call(capsys, *words, tmp_path)
        assert code in (0, 2) and "not foreseen" not in err and err.count("\n") <= 2, (words, err)
    if not fitting:
        assert [r["run"] for r in store.study()][:1] == ["a"]
    code, _, err = call(capsys, "runs", "repair", tmp_path)
    assert code == 0, err
    code, _, err = call(capsys, "runs", "verify", tmp_path)
    assert code == 0, err


def test_flipped_bits_are_foreseen_by_every_reader_and_by_repair(tmp_path, capsys):
    import random

    content = filled(tmp_path / "s", [f"{i:03d}" for i in range(60)]).path.read_bytes()
    for seed in range(12):
        rng, changed = random.Random(seed), bytearray(content)
        for _ in range(rng.choice((1, 5, 40))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        (tmp_path / "s" / "rows.sqlite").write_bytes(changed)
        mending = (["runs", word] for word in ("verify", "repair", "verify"))
        for words in (["runs"], ["runs", "export", "--json"], *mending):
            code, _, err = call(capsys, *words, tmp_path / "s")
            assert code in (0, 2) and "not foreseen" not in err, (seed, words, err)


def test_a_link_that_leads_outside_a_models_folder_is_not_copied(tmp_path):
    from headcount.shrinking import checkpoint

    secret = tmp_path / "secret.json"
    secret.write_text("SECRET")
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (model / "token.json").symlink_to(secret)
    (model / "deep" / "up.txt").symlink_to("../../secret.json")
    (model / "twice.txt").symlink_to("token.json")
    (model / "folder").symlink_to(tmp_path)
    (model / "vocab.json").write_text("{}")
    (model / "merges.txt").symlink_to("vocab.json")
    scratch = tmp_path / "out"
    scratch.mkdir()

    class Config:
        def save_pretrained(self, folder):
            pass

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        checkpoint._settings(type("Model", (), {"config": Config()})(), scratch, model)
    assert sorted(p.name for p in scratch.rglob("*") if p.is_file()) == ["merges.txt", "vocab.json"]
    assert not [p for p in scratch.rglob("*") if p.is_file() and "SECRET" in p.read_text()]
    assert {str(t.message).split("/")[-1].split(" ")[0] for t in told} >= {"token.json", "up.txt", "twice.txt"}


def test_a_hubs_snapshot_links_to_its_blobs(tmp_path):
    from headcount.shrinking.checkpoint import _is_within

    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "rev", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True), blobs.mkdir()
    (blobs / "abc").write_text("{}")
    (snapshot / "vocab.json").symlink_to("../../blobs/abc")
    (snapshot / "other.json").symlink_to("../../../secret")
    assert _is_within(snapshot / "vocab.json", snapshot) and not _is_within(snapshot / "other.json", snapshot)


@pytest.mark.parametrize(
    "named",
    [
        {"_attn_implementation": "evil/kernel"},
        {"attn_implementation": "kernels-community/flash-attn"},
        {"attn_implementation": {"": "evil/kernel"}},
        {"_attn_implementation_internal": "evil/kernel"},
        {"experts_implementation": "evil/experts"},
        {"kernel_config": {"attention": "evil/kernel"}},
        {"auto_map": {"AutoModel": "evil--modeling.Evil"}},
        {"attn_implementation": "paged|evil/kernel"},
    ],
)
def test_code_that_a_configuration_names_is_dropped_with_a_line(tmp_path, named):
    transformers = pytest.importorskip("transformers")
    from headcount.nets.pretrained.folders import stated_config

    plain = {"model_type": "gpt2", "n_head": 2, "n_embd": 8, "n_layer": 1, "attn_pdrop": 0.25}
    (tmp_path / "config.json").write_text(json.dumps({**plain, **named}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        config = stated_config(str(tmp_path), "model")
    assert "evil" not in repr(vars(config)) and "community" not in repr(vars(config)), vars(config)
    assert config.attn_pdrop == 0.25
    assert "_attn_implementation_internal" in named or [t for t in told if "dropped" in str(t.message)]
    assert transformers


@pytest.mark.parametrize("field", ["num_attention_heads", "hidden_size"])
@pytest.mark.parametrize("value", [-4, 0, -0.5])
def test_a_count_below_one_is_refused_by_name(tmp_path, capsys, field, value):
    pytest.importorskip("transformers")
    config = {"model_type": "bert", "num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 1, field: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, _, err = call(capsys, "compress", tmp_path, "--measure", "weights", "--out", tmp_path / "out")
    assert code == 2 and err.count("\n") == 1 and "not foreseen" not in err, err


BIG = with_(('name = "KthLargest"\nrank = 1', 'name = "Wells"\nretrievals = 2147483648\ntoken_dim = 2'))


def test_a_tasks_own_sizes_are_refused_before_anything_is_made_of_them(tmp_path, capsys):
    (tmp_path / "big.toml").write_text(BIG.replace("2147483648", "1000000000000"))
    code, _, err = call(capsys, "sweep", tmp_path / "big.toml", "--store", tmp_path / "s")
    assert code == 2 and "retrievals = 1,000,000,000,000" in err and "GB" in err and err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_memory_that_is_refused_is_one_line_with_what_was_asked_for_and_the_limit(tmp_path):
    (tmp_path / "big.toml").write_text(with_(("samples = 64", "samples = 60000000"), ("batch = 32", "batch = 4")))
    limit = 3 * 2**30
    lower = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # noqa: E731
    process = start("sweep", tmp_path / "big.toml", "--store", tmp_path / "s", preexec_fn=lower)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and err.count("\n") == 1, (process.returncode, err)
    assert "GB" in err and "not foreseen" not in err


ALLOCATING = """
import json
import sys
import torch
from headcount.cli import door, failures
for code in sys.argv[1:]:
    try:
        eval(code)
        print("null")
    except BaseException as problem:
        print(json.dumps([failures.foreseen(problem), failures.sentence_of(problem)]))
"""
REFUSED = (
    "torch.zeros(2**36)", "bytearray(2**36)", "__import__('numpy').zeros(2**36)", "torch.randn(2**34).sort()",
    "torch.empty(2**61)", "[0] * 2**36",
)  # fmt: skip
MOST = 4 * 2**30


@functools.cache
def refusals():
    """What is said of each allocation, one after the other in a process that may not have so much."""
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATING, *REFUSED],
        capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST)),
    )  # fmt: skip
    assert done.returncode == 0, done
    return dict(zip(REFUSED, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.xdist_group("refused allocations")
@pytest.mark.parametrize("code", REFUSED)
def test_any_refused_allocation_is_foreseen(code):
    foreseen, said = refusals()[code]
    assert foreseen and said.startswith("there is not enough memory"), said
    assert "4.0 GB is ulimit -v" in said or memory_limit()[0] < MOST


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_export_that_is_ended_leaves_no_scratch_file_and_says_so(tmp_path, number):
    filled(tmp_path / "s", [f"{i:06d}" for i in range(30_000)])
    export = start("runs", "export", tmp_path / "s", "--out", tmp_path / "out")
    wait_until(lambda: list((tmp_path / "out").glob("*.part")), export)
    export.send_signal(number)
    _, err = export.communicate(timeout=LIMIT)
    assert export.returncode == 130 and err == "headcount: interrupted.\n", err
    assert not list((tmp_path / "out").glob("*.part"))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_by_whoever_started_us_stays_so(tmp_path, number):
    """As with nohup; and a script of the shell has Ctrl-C ignored by what it runs in the background."""
    filled(tmp_path / "s", [f"{i:06d}" for i in range(5000)])
    nohup = lambda: signal.signal(number, signal.SIG_IGN)  # noqa: E731
    export = start("runs", "export", tmp_path / "s", "--out", tmp_path / "out", preexec_fn=nohup)
    wait_until(lambda: list((tmp_path / "out").glob("*.part")), export)
    export.send_signal(number)
    assert export.communicate(timeout=LIMIT)[1] == "" and export.returncode == 0


MOMENTS = [0.0, 0.05, 0.2, 0.5, 1.0, 2.0]


@pytest.mark.parametrize("pair", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
@pytest.mark.parametrize("moment", [0.3, 1.5, *(pytest.param(m, marks=pytest.mark.soak) for m in MOMENTS)])
def test_a_sweep_asked_to_end_at_any_moment_says_one_line(tmp_path, pair, moment):
    import time

    (tmp_path / "spec.toml").write_text(with_(("epochs = 2", "epochs = 4000")))
    sweep = start("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", HEADCOUNT_COMPILED="0")
    time.sleep(0.2 + moment)
    for number in pair:
        sweep.send_signal(number)
        time.sleep(0.05)
    _, err = sweep.communicate(timeout=LIMIT)
    assert sweep.returncode == 130 and err.startswith("headcount: interrupted.") and err.count("\n") == 1, err


def test_a_store_that_must_be_copied_is_refused_in_words_where_no_copy_can_be_made(tmp_path, capsys, monkeypatch):
    import tempfile

    from tests.faults.test_threads import half_written

    store = filled(tmp_path / "s", [f"{i:04d}" for i in range(400)])
    half_written(store)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    code, _, err = call(capsys, "fit", tmp_path / "s")
    assert code == 2 and "let TMPDIR name a folder" in err and err.count("\n") == 1


def test_files_that_may_not_grow_are_not_a_disk_that_fails(tmp_path):
    filled(tmp_path / "s")
    (tmp_path / "x.toml").write_text(SPEC)

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, 45_000))

    sweep = start("sweep", tmp_path / "x.toml", "--store", tmp_path / "s", preexec_fn=small)
    _, err = sweep.communicate(timeout=LIMIT)
    assert (sweep.returncode == 2 and "ulimit -f" in err) or sweep.returncode == 0, err
