"""The memory model against the peak of a process, and what it refuses before anything is trained."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.nets import Architecture
from headcount.tasks import LinearMax
from headcount.training import Member, Recipe, Sweep
from headcount.training import memory as model
from headcount.training.sweeps import banks, sweep

PEAK = """
import json, sys
from headcount.nets import Architecture
from headcount.tasks import LinearMax
from headcount.training import Member, Recipe, train
from headcount.training.memory import bank_memory
def status(key): return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
def held(): return status("VmHWM")
layers, members, length, samples = json.loads(sys.argv[1])
arch = Architecture(tuple(map(tuple, layers)), 32)
train([Member(LinearMax.random(2, 4, 4), arch)], Recipe(64, 32, 1, 32))
open("/proc/self/clear_refs", "w").write("5")  # the peak from here on
before, recipe = status("VmRSS"), Recipe(samples, 500, 1, 100, evaluations=1)
bank = [Member(LinearMax.random(2, 4, length), arch, seed=seed) for seed in range(members)]
train(bank, recipe)
print(json.dumps([bank_memory(bank, recipe, "cpu").total, held() - before]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux counts it")
@pytest.mark.parametrize("sizes", [[[[4, 8]], 32, 32, 500], [[[4, 8]] * 2, 8, 64, 500], [[[1, 4]], 1, 64, 30_000]])
def test_the_estimate_holds_the_measured_peak_and_is_at_most_half_as_much_again(sizes):
    # Activations of one layer, of two, and data: each alone makes nearly all of its case. Blocks that are freed are
    # given back at once: kept, they make the peak of one run 70% higher than that of another.
    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(sizes)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    estimate, peak = json.loads(done.stdout)
    assert peak <= estimate <= 1.5 * peak


def test_a_network_that_cannot_fit_is_refused_with_its_bytes_before_training(monkeypatch):
    monkeypatch.setattr(model, "capacity", lambda device: 2**20)
    recipe = Recipe(samples=100_000, validation=100, epochs=1, batch=100)
    with pytest.raises(
        ValueError, match=r"1x4 at length 64 takes \d+ MB \(\d+ MB for data, .* and cpu has 1 MB; take fewer"
    ):
        sweep(LinearMax([[1.0]], 64), [Architecture(((1, 4),), 8)], seeds=1, recipe=recipe)


def test_banks_are_cut_where_their_data_would_not_fit(monkeypatch):
    recipe = Recipe(samples=1000, validation=100, epochs=1, batch=10)
    members = tuple(Member(LinearMax([[1.0]], 32), Architecture(((1, 4),), 8), seed=s, data_seed=s) for s in range(8))
    asked = Sweep(members, recipe)
    assert [len(bank) for bank in banks(asked, "cpu")] == [8]
    three = 2 * model.bank_memory(members[:3], recipe, "cpu").total
    monkeypatch.setattr("headcount.training.sweeps.capacity", lambda device: three)
    assert [len(bank) for bank in banks(asked, "cpu")] == [3, 3, 2]


def test_what_a_device_has_is_read():
    assert model.capacity("cpu") > 2**20
