"""A Ray cluster loses workers, nodes and its head: rows are kept, one line is said, and the same command goes on."""

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from headcount.results import Store
from headcount.results.upkeep import verify_store
from headcount.training import Sweep
from headcount.training.ray_workers import LogAside, _is_loopback
from headcount.training.sweeps import run
from tests.faults.sweep_specs import LIMIT, rows_of, start, with_

SPEC = with_(("lengths = [4, 6]", "lengths = [4, 5, 6, 7]"), ("heads = [1, 2]", "heads = [1]"))
LONG = SPEC.replace("epochs = 2", "epochs = 3000")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `ray` is not installed")

# Two nodes, each as a machine of its own: a home and a cache that the other does not see.
CLUSTER = """
import os, sys
from pathlib import Path
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
def home(name):
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True)
    return {"HOME": str(folder), "HEADCOUNT_CACHE": str(folder / "cache")}
os.environ.update(home("one"))
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
os.environ.update(home("two"))
cluster.add_node(**small)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class RayCluster:
    """A cluster of two nodes, for the time of a test."""

    def __init__(self, folder):
        here = os.path.join(os.path.dirname(__file__), "..", "..")  # noqa: PTH118, PTH120
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        known = {**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1", "HEADCOUNT_COMPILED": "0"}
        self.process = subprocess.Popen([sys.executable, "-c", CLUSTER, str(folder)], env=known, **pipes)
        self.address = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.stdout.close()
        for pid in self.pids(""):
            os.kill(pid, signal.SIGKILL)

    def pids(self, name):
        """Processes below the cluster whose command line holds this name."""
        return [pid for pid in _below(self.process.pid) if name in _command(pid)]


def _below(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [one for child in map(int, found) for one in (child, *_below(child))]


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def alone(folder, spec):
    run(Sweep.from_toml(spec), Store.open(folder, create=True))
    return rows_of(folder)


@needs_ray
@pytest.mark.soak
def test_a_cluster_whose_head_is_killed_is_one_line_and_the_same_command_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADCOUNT_COMPILED", "0")  # of whoever trains alone, as of the cluster
    (tmp_path / "spec.toml").write_text(LONG)
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", "--backend", "ray", "--address")
    with RayCluster(tmp_path / "a") as cluster:
        sweep = start(*words, cluster.address, HEADCOUNT_COMPILED="0")
        until = time.monotonic() + 200
        while time.monotonic() < until and not kept(tmp_path / "s"):
            time.sleep(0.5)
        for pid in cluster.pids("gcs_server"):
            os.kill(pid, signal.SIGKILL)
        _, said = sweep.communicate(timeout=LIMIT)
    before = kept(tmp_path / "s")
    assert sweep.returncode == 2 and said.splitlines()[-1].startswith("headcount: the head of the Ray cluster"), said
    assert "rpc_client" not in said and before > 0
    with RayCluster(tmp_path / "b") as cluster:
        again = start(*words, cluster.address, HEADCOUNT_COMPILED="0")
        _, said = again.communicate(timeout=LIMIT)
    assert again.returncode == 0, said
    assert rows_of(tmp_path / "s") == alone(tmp_path / "alone", LONG)


def kept(folder):
    return verify_store(folder).rows if (folder / "rows.sqlite").exists() else 0


@needs_ray
@pytest.mark.soak
@pytest.mark.parametrize(("seeds", "every"), [(125, 20.0)])
def test_rows_of_a_cluster_whose_workers_are_killed_are_those_of_one_process(tmp_path, seeds, every):
    spec = with_(
        ("seeds = 2", f"seeds = {seeds}"), ("lengths = [4, 6]", "lengths = [4, 5, 6, 7]"), ("epochs = 2", "epochs = 60")
    )
    (tmp_path / "spec.toml").write_text(spec)
    rng, kills = random.Random(0), 0
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", "--backend", "ray", "--address")
    with RayCluster(tmp_path / "c") as cluster:
        code = None
        for _ in range(20):  # a bank that was lost three times ends a sweep: the same command goes on
            sweep = start(*words, cluster.address, HEADCOUNT_COMPILED="0")
            while sweep.poll() is None:
                try:
                    sweep.wait(every)
                except subprocess.TimeoutExpired:
                    if busy := cluster.pids("ray::_train"):
                        os.kill(rng.choice(busy), signal.SIGKILL)
                        kills += 1
            sweep.communicate()
            code = sweep.returncode
            assert code in (0, 2)
            if code == 0:
                break
    assert code == 0 and kills
    assert rows_of(tmp_path / "s") == alone(tmp_path / "alone", spec)
    assert verify_store(tmp_path / "s").rows == 8 * seeds


@needs_ray
@pytest.mark.soak
def test_a_node_whose_processes_are_all_killed_costs_a_bank_and_no_row(tmp_path, monkeypatch):
    """The head stays; the other machine is gone, with its raylet and its workers."""
    monkeypatch.setenv("HEADCOUNT_COMPILED", "0")
    (tmp_path / "spec.toml").write_text(LONG)
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", "--backend", "ray", "--address")
    with RayCluster(tmp_path / "a") as cluster:
        sweep = start(*words, cluster.address, HEADCOUNT_COMPILED="0")
        of_second = [pid for pid in cluster.pids("") if _home(pid).endswith("/two")]
        assert any("raylet" in _command(pid) for pid in of_second)
        until = time.monotonic() + 200
        while time.monotonic() < until and not any("ray::_train" in _command(pid) for pid in of_second):
            of_second = [pid for pid in cluster.pids("") if _home(pid).endswith("/two")]
            time.sleep(0.2)
        for pid in of_second:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, said = sweep.communicate(timeout=LIMIT)
        code = sweep.returncode
        if (
            code != 0
        ):  # a bank that was lost too often, in one line; the same command goes on with the node that is left
            assert code == 2 and said.splitlines()[-1].startswith("headcount: "), said
            again = start(*words, cluster.address, HEADCOUNT_COMPILED="0")
            _, said = again.communicate(timeout=LIMIT)
            code = again.returncode
    assert code == 0, said
    assert "Traceback" not in said and rows_of(tmp_path / "s") == alone(tmp_path / "alone", LONG)


@needs_ray
@pytest.mark.soak
def test_two_drivers_on_one_cluster_and_one_store_train_each_bank_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADCOUNT_COMPILED", "0")
    (tmp_path / "spec.toml").write_text(LONG)
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", "--backend", "ray", "--address")
    with RayCluster(tmp_path / "a") as cluster:
        both = [start(*words, cluster.address, HEADCOUNT_COMPILED="0") for _ in range(2)]
        ended = [(one.communicate(timeout=LIMIT)[1], one.returncode) for one in both]
    assert [code for _, code in ended] == [0, 0], ended
    assert rows_of(tmp_path / "s") == alone(tmp_path / "alone", LONG)


def _home(pid):
    """The home of a process: what makes it one of a machine of its own here."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            known = dict(line.partition(b"=")[::2] for line in file.read().split(b"\0"))
    except OSError:
        return ""
    return known.get(b"HOME", b"").decode(errors="replace")


def test_a_loopback_address_is_known():
    assert _is_loopback("127.0.0.1") and _is_loopback("::1") and not _is_loopback("10.0.0.1") and not _is_loopback("x")


ASIDE = """
import os, sys
from headcount.training.ray_workers import LogAside
log = LogAside()
os.write(2, b"of a library\\n")
print("ours", file=sys.stderr)
log.close()
os.write(2, b"again\\n")
print(log.path.read_text(), end="")
log.path.unlink()
"""


def test_what_libraries_write_on_stderr_goes_into_a_file_and_ours_does_not():
    done = start(program=("-c", ASIDE))
    out, err = done.communicate(timeout=LIMIT)
    assert (out, err) == ("of a library\n", "ours\nagain\n")


def test_a_log_that_stays_empty_is_removed(capsys):
    log = LogAside()
    log.close()
    assert not log.path.exists()
