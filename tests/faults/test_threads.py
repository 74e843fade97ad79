"""Threads on one store, beside other processes: SQLite is the one owner of its file, and readers disturb no writer."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headcount.results import Store
from headcount.results.database import writing
from headcount.results.upkeep import verify_store
from tests.faults.sweep_specs import SPEC, start
from tests.faults.test_store import filled, row

# Everything that reads or writes a store, in one process that notes whoever opens the store's file by hand.
WATCHED = """
import contextlib, io, json, sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "shutil.copyfile") else None)
from headcount.cli import main
from headcount.results import Store
from headcount.results.upkeep import merge_stores, repair_store, verify_store
folder = Path(sys.argv[1])
def call(*words):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told), contextlib.suppress(SystemExit):
        main([str(word) for word in words])
for store in sorted(folder.iterdir()):
    for words in ("fit", "runs export", "report", "report --figure svg"):
        call(*words.split(), store, *(() if words == "fit" else ("--out", folder.parent / "out")))
    call("runs", store), call("runs", "verify", store), call("runs", "repair", store)
    call("runs", "merge", folder.parent / "merged", store)
    call("sweep", folder.parent / "spec.toml", "--store", store)
print(json.dumps([name for name in opened if "rows.sqlite" in name]))
"""


def test_nothing_but_sqlite_opens_a_stores_file(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    filled(tmp_path / "stores" / "sound")
    damaged = filled(tmp_path / "stores" / "damaged", [f"{i:04d}" for i in range(400)])
    content = bytearray(damaged.path.read_bytes())
    content[4096 * 6 : 4096 * 7] = bytes(4096)
    damaged.path.write_bytes(content)
    half_written(filled(tmp_path / "stores" / "half", [f"{i:04d}" for i in range(400)]))
    (tmp_path / "stores" / "old").mkdir()
    shutil.copy(Path(__file__).parents[1] / "data" / "written_by_0_1_0" / "rows.sqlite", tmp_path / "stores" / "old")
    process = start(tmp_path / "stores", program=("-c", WATCHED))
    out, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert json.loads(out) == []


def half_written(store):
    """Leave what a writer leaves that is killed with half of its transaction on the disk."""
    child = os.fork()
    if child == 0:
        db = sqlite3.connect(store.path, isolation_level=None)
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE rows SET row = replace(row, '0.5', '0.4')")
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)


OTHER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0.2, isolation_level=None)
try:
    db.execute("BEGIN IMMEDIATE")
    print("wrote")
except sqlite3.OperationalError as refused:
    print(refused)
"""


@pytest.mark.parametrize("read", ["specs", "study", "missing", "snapshot", "verify", "open", "heads"])
def test_a_reader_in_another_thread_lets_no_other_process_into_a_transaction(tmp_path, read):
    store = filled(tmp_path)
    reads = {
        "specs": store.specs,
        "study": store.study,
        "missing": lambda: store.missing(["a"]),
        "snapshot": lambda: list(store.snapshot().rows()),
        "verify": lambda: verify_store(tmp_path),
        "open": lambda: Store.open(tmp_path),
        "heads": store.heads,
    }
    with writing(store.path) as db:
        db.execute("UPDATE specs SET name = 'under way'")
        thread = threading.Thread(target=reads[read])
        thread.start()
        thread.join()
        other = subprocess.run([sys.executable, "-c", OTHER, store.path], capture_output=True, text=True)
        assert other.stdout == "database is locked\n", other
    assert store.specs()[0].name == "under way"


def test_a_reader_that_stops_halfway_keeps_no_writer_waiting(tmp_path):
    names = [f"{i:05d}" for i in range(2500)]
    store = filled(tmp_path, names)
    rows = store.snapshot().rows()
    first = next(rows)
    store.wait = 0.0  # a writer that cannot write at once is refused
    with writing(store.path, 0.0) as db:
        db.execute("UPDATE specs SET name = 'written meanwhile'")
    store.add([row("new")], {})
    assert [first[0]["run"], *(r["run"] for r, *_ in rows)] == names


def write_for(seconds, folder, who, acknowledged, errors):
    store, number, end = Store.open(folder), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        names = [f"{who}-{number}-{i}" for i in range(20)]
        try:
            store.add([row(name, pad="y" * 600) for name in names], {"torch": who})
            acknowledged.extend(names)
        except Exception as problem:
            errors.append(f"{who}: {problem!r}")
        number += 1


WRITER = """
import json, sys
from tests.faults.test_threads import write_for
acknowledged, errors = [], []
write_for(float(sys.argv[2]), sys.argv[1], sys.argv[3], acknowledged, errors)
print(json.dumps([acknowledged, errors]))
"""


@pytest.mark.parametrize(
    ("seconds", "readers", "writers"),
    [pytest.param(4, 3, 1, marks=pytest.mark.kernels), pytest.param(600, 8, 2, marks=pytest.mark.soak)],
)
def test_no_acknowledged_row_is_lost_where_threads_read_and_write_beside_another_process(
    tmp_path, seconds, readers, writers
):
    Store.open(tmp_path, create=True).state("threads", {}, ["none"])
    other = start(tmp_path, seconds, "other", program=("-c", WRITER))
    stop, reads, errors = threading.Event(), [], []
    acknowledged = [[] for _ in range(writers)]

    def read():
        store = Store.open(tmp_path)
        while not stop.is_set():
            try:
                reads.append((len(store.specs()), len(store.missing(["none", "thread0-0-0"])), len(store.study())))
            except Exception as problem:
                errors.append(f"reader: {problem!r}")
            time.sleep(0.001)

    threads = [threading.Thread(target=read) for _ in range(readers)]
    threads += [
        threading.Thread(target=write_for, args=(seconds, tmp_path, f"thread{i}", acknowledged[i], errors))
        for i in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads[readers:]:
        thread.join()
    stop.set()
    for thread in threads[:readers]:
        thread.join()
    out, said = other.communicate(timeout=seconds + 300)
    theirs, more = json.loads(out)
    assert errors + more == [] and said == ""
    kept = [name for names in (*acknowledged, theirs) for name in names]
    assert len(reads) > 10 and all(acknowledged) and theirs
    assert Store.open(tmp_path).missing(kept) == [] and verify_store(tmp_path).sound
    assert verify_store(tmp_path).rows == len(kept) == len(set(kept))
