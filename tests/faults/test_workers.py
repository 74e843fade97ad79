"""Many processes and many machines: rows bit for bit those of one process, whatever is killed on the way."""

import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from headcount.cli import main
from headcount.nets.saved import load_net
from headcount.refusals import RefusalError
from headcount.results import Store
from headcount.results.upkeep import verify_store
from headcount.training import Sweep, bank_jobs
from headcount.training.bank_jobs import BankJob, train_bank_job
from headcount.training.kept_networks import network_of
from headcount.training.sharing import RETRIES
from headcount.training.sweeps import banks, run
from headcount.training.workers import LocalWorkers, Lost, ProcessPool
from tests.faults.sweep_specs import LIMIT, rows_of, start, wait_until, with_

SPEC = with_(("lengths = [4, 6]", "lengths = [4, 5, 6, 7]"), ("heads = [1, 2]", "heads = [1]"))
ASKED = Sweep.from_toml(SPEC)
ONE = with_(("epochs = 2", "epochs = 12"), ("lengths = [4, 6]", "lengths = [4]"), ("heads = [1, 2]", "heads = [1]"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(ASKED, Store.open(folder, create=True), save="all")
    return folder


class FakeWorkers:
    """Workers that train here, and lose what they are told to lose."""

    def __init__(self, losses=0, lengths=()):
        self.losses, self.lengths, self.jobs, self.taken, self.closed = losses, lengths, [], [], False

    def free(self):
        return 2 - len(self.jobs)

    def submit(self, job):
        self.jobs.append(job)
        self.taken.append(job.members[0].task.length)

    def finished(self, timeout):
        job = self.jobs.pop()
        lost = self.losses > 0 and job.members[0].task.length in self.lengths
        self.losses -= lost
        return [(job, Lost("it was pulled out") if lost else train_bank_job(job))]

    def close(self):
        self.closed = True


def squares():
    def square(number, termination):
        if number == 3:
            raise ValueError("three is refused")
        if number == 5:
            os._exit(7)
        return number**2

    return square


def test_a_pool_does_any_job_in_order_and_says_what_was_refused_and_lost():
    with contextlib.closing(ProcessPool(squares, [{}, {}], parting=0.0)) as pool:
        assert list(pool.in_order([2, 1, 4])) == [4, 1, 16]
        for wrong, words in ((3, "three is refused"), (5, "its worker ended with exit code 7; all that was finished")):
            with pytest.raises(RefusalError, match=words):
                list(pool.in_order([wrong]))
        assert list(pool.in_order([6])) == [36]


UNGUARDED_SCRIPT = """
from functools import partial
from headcount.training.workers import ProcessPool
from tests.faults.test_workers import larger_than_a_pipe

pool = ProcessPool(partial(larger_than_a_pipe, bytes(10**6)), [{}], parting=0.0)
print(list(pool.in_order([1])))
"""


def larger_than_a_pipe(data):
    return lambda number, termination: number + len(data)


def test_a_script_without_a_guard_is_told_and_does_not_wait_for_ever(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED_SCRIPT)
    script = start(program=("-u", str(tmp_path / "script.py")))
    said = script.communicate(timeout=LIMIT)
    assert script.returncode == 1 and "behind `if __name__" in said[1] and "ended with exit code 1" in said[1]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_several_processes_have_the_rows_and_networks_of_one(tmp_path, alone, count):
    run(ASKED, Store.open(tmp_path, create=True), workers=lambda: LocalWorkers(count), save="all", checkpoint=600)
    assert rows_of(tmp_path) == rows_of(alone) and verify_store(tmp_path).sound
    for row in rows_of(alone):
        mine, theirs = network_of(tmp_path, row).state_dict(), network_of(alone, row).state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_the_longest_bank_goes_first_and_a_lost_one_is_tried_again(tmp_path, alone):
    workers = FakeWorkers(losses=RETRIES, lengths=(6,))
    run(ASKED, Store.open(tmp_path, create=True), workers=lambda: workers)
    assert workers.taken[:2] == [7, 6] and workers.taken.count(6) == 1 + RETRIES and workers.closed
    assert rows_of(tmp_path) == rows_of(alone)


def test_a_bank_lost_too_often_is_named_and_all_others_are_kept(tmp_path, alone):
    workers = FakeWorkers(losses=99, lengths=(6,))
    with pytest.raises(RefusalError, match=r"length 6\) was lost 3 times, the last because it was pulled out"):
        run(ASKED, Store.open(tmp_path, create=True), workers=lambda: workers)
    assert rows_of(tmp_path) == [row for row in rows_of(alone) if row["length"] != 6]


def test_a_worker_that_is_killed_is_lost_and_its_seat_is_taken_anew():
    workers = LocalWorkers(1)
    members = tuple(next(iter(banks(ASKED, "cpu"))))
    long = BankJob(members, replace(ASKED.recipe, epochs=1_000_000))
    try:
        workers.submit(long)
        process = workers.seats[0].process
        os.kill(process.pid, signal.SIGKILL)
        ((job, result),) = workers.finished(LIMIT)
        assert job == long and result == Lost("its worker ended with signal 9")
        workers.submit(BankJob(members, ASKED.recipe))
        ((_, again),) = workers.finished(LIMIT)
        assert [row["run"] for row in again.rows] == [member.run(ASKED.recipe) for member in members]
    finally:
        workers.close()


DRIVER = """
import os, signal, sys
from headcount.training.workers import LocalWorkers
from tests.faults.test_workers import long_job

if __name__ == "__main__":
    workers = LocalWorkers(1)
    workers.submit(long_job(sys.argv[1]))
    print(workers.seats[0].process.pid, flush=True)
    sys.stdin.read()
"""


def long_job(states):
    return BankJob(
        tuple(next(iter(banks(ASKED, "cpu")))), replace(ASKED.recipe, epochs=10**7), "cpu", Path(states), 0.1
    )


def test_a_worker_whose_driver_is_killed_keeps_its_state_and_ends(tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER)
    states = tmp_path / "states"
    driver = start(program=(str(tmp_path / "driver.py"), str(states)), stdin=subprocess.PIPE)
    wait_until(lambda: states.is_dir() and list(states.glob("*.safetensors")), driver)  # it trains, and not to the end
    worker = int(driver.stdout.readline())
    ended = os.pidfd_open(worker)
    driver.kill()
    in_time = select.select([ended], [], [], LIMIT)[0]
    if not in_time:
        os.kill(worker, signal.SIGKILL)
    driver.communicate(timeout=LIMIT)
    os.close(ended)
    assert in_time, "it trains on, for nobody"


@pytest.mark.parametrize(
    "refused",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        MemoryError(),
    ],
)
def test_a_bank_that_does_not_fit_is_trained_in_halves_and_says_so(monkeypatch, refused):
    members = tuple(next(iter(banks(ASKED, "cpu"))))
    whole, true_train = train_bank_job(BankJob(members, ASKED.recipe)), bank_jobs.train

    def small(bank, *rest, **more):
        if len(bank) > 1:
            raise refused
        return true_train(bank, *rest, **more)

    monkeypatch.setattr(bank_jobs, "train", small)
    halved = train_bank_job(BankJob(members, ASKED.recipe))
    assert halved.notes == ("out of memory: a bank of 2 is trained as 1 and 1",)
    assert [row["run"] for row in halved.rows] == [row["run"] for row in whole.rows]
    one, other = ([row["nmse"] for row in bank.rows] for bank in (halved, whole))
    assert one == pytest.approx(other, rel=1e-4)
    monkeypatch.setattr(bank_jobs, "train", lambda *a, **k: (_ for _ in ()).throw(torch.OutOfMemoryError("still")))
    with pytest.raises(torch.OutOfMemoryError, match="still"):
        train_bank_job(BankJob(members[:1], ASKED.recipe))


def test_of_each_shape_the_best_network_alone_is_kept(tmp_path):
    study = run(ASKED, Store.open(tmp_path, create=True), save="best")
    best = {min((r for r in study if r["length"] == n), key=lambda r: r["nmse"])["run"] for n in (4, 5, 6, 7)}
    files = list((tmp_path / "networks").iterdir())
    assert {file.stem for file in files} == best
    assert all(load_net(file).arch.width == 8 for file in files)
    with pytest.raises(FileNotFoundError, match="`save` is best or all"):
        network_of(tmp_path, next(row for row in study if row["run"] not in best))


ASKED_TO_END = """
import os, signal, sys
from headcount.cli import main
from headcount.training.checkpoints import Checkpoint

def write(self, content, state, true_write=Checkpoint.write):
    os.kill(os.getpid(), signal.SIGTERM)
    return true_write(self, content, state)

Checkpoint.write = write
main(sys.argv[1:])
"""


def test_asked_to_end_a_sweep_keeps_its_bank_and_goes_on_from_there(tmp_path):
    (tmp_path / "spec.toml").write_text(ONE)
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "cut", "--checkpoint", "0.001s")
    first = start(*words, program=("-c", ASKED_TO_END))  # the signal comes while it trains, however slow it is
    state = tmp_path / "cut" / "checkpoints"
    _, said = first.communicate(timeout=LIMIT)
    assert first.returncode == 130 and "run the same command to go on" in said
    assert list(state.glob("*.safetensors"))
    run(Sweep.from_toml(ONE), Store.open(tmp_path / "cut", create=True), checkpoint=600)
    assert not list(state.iterdir())
    run(Sweep.from_toml(ONE), Store.open(tmp_path / "whole", create=True))
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--save", "some"), "--save is none, best or all"),
        (("--workers", "0"), "workers must be at least 1"),
        (("--backend", "slurm"), "--backend is local or ray"),
        (("--address", "auto"), "goes with --backend ray"),
        (("--workers", "1", "--device", "8"), "device must be cpu or cuda"),
    ],
)
def test_a_wrong_option_is_one_line_and_leaves_no_store(tmp_path, capsys, words, says):
    (tmp_path / "spec.toml").write_text(SPEC)
    with pytest.raises(SystemExit) as end:
        main(["sweep", str(tmp_path / "spec.toml"), "--store", str(tmp_path / "store"), *words])
    said = capsys.readouterr().err
    assert end.value.code == 2 and says in said and said.count("\n") == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:1", "no Ray cluster at '127.0.0.1:1': connection refused"),
        ("ray://127.0.0.1:1", "connection refused"),
        ("somewhere", "is host:port or auto"),
        ("127.0.0.1:99999", "is host:port or auto"),
        ("auto", "no Ray cluster at 'auto': none runs here"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line_and_leaves_no_store(tmp_path, capsys, monkeypatch, address, says):
    def init(**settings):
        raise ConnectionError("none runs here\nand more")

    ray = ModuleType("ray")
    monkeypatch.setattr(ray, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    (tmp_path / "spec.toml").write_text(SPEC)
    words = ["sweep", tmp_path / "spec.toml", "--store", tmp_path / "store", "--backend", "ray", "--address", address]
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
    said = capsys.readouterr().err
    assert end.value.code == 2 and says in said and said.count("\n") == 1
    assert not (tmp_path / "store").exists()


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
cluster.add_node(**small)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `ray` is not installed")
def test_a_ray_cluster_of_two_nodes_has_the_rows_of_one_process(tmp_path, alone):
    (tmp_path / "spec.toml").write_text(SPEC)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], **pipes) as cluster:
        address = cluster.stdout.readline().strip()
        words = ("--backend", "ray", "--address", address, "--save", "all")
        swept = start("sweep", tmp_path / "spec.toml", "--store", tmp_path / "store", *words)
        out, said = swept.communicate(timeout=LIMIT)
        cluster.stdin.close()
        cluster.wait(timeout=LIMIT)
    assert swept.returncode == 0, out + said
    assert rows_of(tmp_path / "store") == rows_of(alone)
    assert len(list((tmp_path / "store" / "networks").iterdir())) == len(ASKED.members)
