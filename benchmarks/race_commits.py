"""An older commit against this tree, the same banks in turn on one device: `python -m benchmarks.race_commits`.

    python -m benchmarks.race_commits --before 6213e9b --export .gpu/before       # where git is: 4 MB of the older tree
    python -m benchmarks.race_commits --before .gpu/before --device cuda --seconds 150 --json race.json
    python -m benchmarks.race_commits --take race.json                            # into docs/data/race_one_bank.json

Every shape of the committed tables of a GPU. Each tree has processes of its own that make its banks ready, by the
backend which that tree's own chooser takes, and then wait; when all are ready, the two of a shape are timed one after
the other, again and again, and whoever came second comes first in the next round. The ratio is the median over rounds;
losses after the same steps are compared. Results are written as they come.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bank_speed import CELLS
from benchmarks.decoder_speed import CASES, TINY
from benchmarks.deep_race import DEEP, GROWTH, WIDE
from benchmarks.problem import Size
from headcount.numerals import now

HERE = Path(__file__).resolve().parents[1]
INTO = HERE / "docs/data/race_one_bank.json"
LANES = 6  # processes of each tree
SLOWER = 0.97  # a ratio below this is more than 3% slower
# What a process does: `ready` makes one turn of a shape (a function, its model-steps, the backend's name, a loss).
COMMON = """
import json, sys, time
import torch
device = sys.argv[1]
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
turns = {}
def rate(turn, steps, seconds):
    wait()
    begun = time.perf_counter()
    turn()
    wait()
    many = max(1, int(0.02 / (time.perf_counter() - begun)))
    begun, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        for _ in range(many):
            turn()
        wait()
        done += many
    return done * steps / spent
out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    asked = json.loads(line)
    try:
        if "seconds" in asked:
            turn, steps = turns[asked["number"]]
            said = {"rate": rate(turn, steps, asked["seconds"])}
        else:
            begun = time.perf_counter()
            turn, steps, backend, loss = ready(asked["kind"], asked["shape"])
            turns[asked["number"]] = (turn, steps)
            said = {"backend": backend, "loss": loss, "seconds to start": round(time.perf_counter() - begun, 2)}
    except Exception as error:
        said = {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"}
    print(json.dumps(said), file=out, flush=True)
"""
READY = """
def ready(kind, shape):
    if kind == "decoder":
        run, models = decoders(Case(**shape))
        first(run)
        wait()
        return run.advance, models * STEPS, name(run), float(lost(run).mean())
    problem = Problem(Size(**shape), device)
    way = chosen(problem)
    epoch, theta = trained(problem, way)
    epoch(), epoch()
    wait()
    loss = problem.losses(theta().detach()).median().item()
    return epoch, problem.size.steps, way.name, loss
"""
BEFORE = """
from types import SimpleNamespace
from benchmarks.decoder_speed import DECAY, LR, WARMUP, Case
from benchmarks.problem import Problem, Size, of_path as trained
from headcount.tasks.neighbours import Neighbour
from headcount.training.backends.choice import choose, proved
from headcount.training.backends.plain import Batch
from headcount.training.decoder_bank import answer_loss
from headcount.training.decoding import STRETCH as STEPS, DecoderMember, DecoderRecipe, _DecoderRun
def chosen(problem):
    size = problem.size
    path, rows = choose([SimpleNamespace(arch=size.arch)], device), problem.order[:, : size.batch].contiguous()
    batch = Batch(problem.x, problem.which, rows, None, path.pack(problem.x))
    return proved(path, problem.bank(), batch, problem.y[0][rows])
def decoders(case):
    recipe = DecoderRecipe(12 * STEPS, case.batch, (case.length, case.length), WARMUP, offsets=False)
    members = [DecoderMember(Neighbour(), seed=k, data_seed=k, lr=LR, weight_decay=DECAY) for k in range(case.models)]
    return _DecoderRun(members, case.shape, recipe, (), device), case.models
def first(run): run.stretch(0)
def name(run): return run.path.name
def lost(run):
    with torch.no_grad():
        return answer_loss(run.bank.logits(run.bank.named(), run.ids[0]), run.targets[0], run.judged[0])
"""
AFTER = """
from benchmarks.decoder_speed import DECAY, LR, WARMUP, Case
from benchmarks.problem import Problem, Size, of_backend as trained
from headcount.kernels.class_token import ClassToken
from headcount.kernels.next_letter import answer_loss, logits
from headcount.kernels.plain import Batch
from headcount.kernels.preference import best
from headcount.tasks.letters import OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training import Member
from headcount.training.loop import _Run
from headcount.training.strings import CHUNK as STEPS, LetterStrings, string_recipe
def chosen(problem):
    rows = problem.order[:, : problem.size.batch].contiguous()
    def batch(pack): return Batch(problem.x, problem.which, rows, problem.y[0][rows], None, pack(problem.x))
    return best(ClassToken(), problem.bank(), batch, 0)
def decoders(case):
    task = OnLengths(Neighbour(), (case.length, case.length), offsets=False)
    members = [Member(task, case.shape, k, k, LR, DECAY) for k in range(case.models)]
    recipe = string_recipe(12 * STEPS, case.batch, warmup=WARMUP)
    return _Run(members, recipe, device, None, LetterStrings, None), case.models
def first(run): run.round(0)
def name(run): return run.backend.name
def lost(run):
    with torch.no_grad():
        said = logits(run.bank.net, run.bank.named(), run.source.ids[0])
        return answer_loss(said, run.source.targets[0], run.source.judged[0])
"""


def shapes(tiny: bool = False) -> list[tuple[str, dict[str, int]]]:
    """Those of the committed tables, steps of eight in one graph: the tables' own first, then how they grow."""
    if tiny:
        return [("class token", asdict(Size(3, 4, batch=8, steps_per_epoch=2))), ("decoder", asdict(TINY[0]))]
    axes = {"models": (256, 1024, 2048, 4096), "length": (8, 16, 64, 256), "heads": (1, 2, 8, 16)}
    axes |= {"batch": (64, 128, 512, 1024)}
    grown = [Size(**({"models": 512, "length": 32} | {axis: n})) for axis, many in axes.items() for n in many]
    listed = [("class token", {**asdict(size), "steps_per_epoch": 8}) for size in (*CELLS, *WIDE, *DEEP)]
    listed += [("decoder", asdict(case)) for case in CASES[:3]]  # the fourth is in no committed table
    return listed + [("class token", {**asdict(size), "steps_per_epoch": 8}) for size in (*GROWTH, *grown)]


class Runner:
    """A process of one tree, to which shapes are given by number."""

    def __init__(self, tree: Path, code: str, device: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code + READY + COMMON, device]
        self.process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        """What it says to a line; that it ended, where it did."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        try:
            print(json.dumps(asked), file=process.stdin, flush=True)
            reply = process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        return json.loads(reply) if reply else {"failed": f"the process ended with {process.wait()}"}

    def end(self) -> None:
        """No more shapes."""
        self.process.kill()
        self.process.wait()


def make_ready(lanes: list[dict[str, Runner]], asked: list[tuple[str, dict[str, int]]], until: float) -> dict[int, Any]:
    """Every shape in both trees at once, lane by lane, until the time is over; what each said."""
    replies: dict[int, dict[str, Any]] = {n: {} for n in range(len(asked))}

    def prepare(lane: int, side: str) -> None:
        for n in range(lane, len(asked), len(lanes)):
            if time.perf_counter() < until:
                kind, shape = asked[n]
                replies[n][side] = lanes[lane][side].ask(number=n, kind=kind, shape=shape)

    threads = [threading.Thread(target=prepare, args=(k, side)) for k, lane in enumerate(lanes) for side in lane]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def timed(runners: dict[str, Runner], number: int, rounds: int, seconds: float) -> dict[str, list[float]] | None:
    """Model-steps per second of both sides in every round, the order turned about from round to round; None where a
    process ended."""
    rates: dict[str, list[float]] = {side: [] for side in runners}
    for k in range(rounds):
        for side in list(runners)[:: -1 if k % 2 else 1]:
            reply = runners[side].ask(number=number, seconds=seconds)
            if "rate" not in reply:
                return None
            rates[side].append(reply["rate"])
    return rates


def row_of(kind: str, shape: dict[str, int], said: dict[str, Any], rates: dict[str, list[float]]) -> dict[str, Any]:
    """What was measured of a shape."""
    ratios = [b / a for a, b in zip(rates["before"], rates["after"], strict=True)]
    row: dict[str, Any] = {"kind": kind, **shape, "ratio": round(median(ratios), 4)}
    row |= {"lowest ratio": round(min(ratios), 4), "highest ratio": round(max(ratios), 4)}
    row["loss gap"] = abs(said["after"]["loss"] / said["before"]["loss"] - 1)
    for side, measured in rates.items():
        middle = median(measured)
        row[side] = {"rate": round(middle), "spread": round((max(measured) - min(measured)) / middle, 4), **said[side]}
    return row


def race(options: argparse.Namespace, trees: dict[str, Path]) -> dict[str, Any]:
    """All shapes that time allows."""
    begun, planned = time.perf_counter(), shapes(options.tiny)
    lanes = [
        {side: Runner(tree, BEFORE if side == "before" else AFTER, options.device) for side, tree in trees.items()}
        for _ in range(min(options.lanes, len(planned)))
    ]
    content: dict[str, Any] = {
        "date": now(),
        **_about(options.device),
        "command": " ".join(["python -m benchmarks.race_commits", *sys.argv[1:]]),
        **{side: f"{named}, sources {_digest(trees[side])}" for side, named in zip(trees, options.names, strict=True)},
        "unit": "model-steps/s, steps of eight in one CUDA graph; medians of rounds in turn, data and starts of seed 0",
        "rows": [],
        "left out": [],
    }
    watch = threading.Timer(options.seconds + 30, _end, (lanes,))  # one that hangs does not hold up the rest
    watch.start()
    try:
        replies = make_ready(lanes, planned, begun + 0.6 * options.seconds)
        content["seconds to make ready"] = round(time.perf_counter() - begun, 1)
        for n, (kind, shape) in enumerate(planned):
            reply = replies[n]
            failed = [f"{side}: {one['failed']}" for side, one in reply.items() if "failed" in one]
            late = time.perf_counter() > begun + options.seconds
            rates = (
                None
                if failed or len(reply) < 2 or late
                else timed(lanes[n % len(lanes)], n, options.rounds, options.turn)
            )
            if rates:
                content["rows"].append(row_of(kind, shape, reply, rates))
                print(json.dumps(content["rows"][-1]), flush=True)
            else:
                content["left out"].append({"kind": kind, **shape, "why": "; ".join(failed) or "no time left"})
            content["slower by more than 3%"] = [r for r in content["rows"] if r["ratio"] < SLOWER]
            content["largest gap of losses"] = max((r["loss gap"] for r in content["rows"]), default=None)
            if options.json:
                options.json.write_text(json.dumps(content, indent=1) + "\n")
    finally:
        watch.cancel()
        _end(lanes)
    return content


def _end(lanes: list[dict[str, Runner]]) -> None:
    for lane in lanes:
        for runner in lane.values():
            runner.end()


def exported(commit: str, folder: Path, *parts: str) -> Path:
    """The tree of a commit, or parts of it, in a folder."""
    archive_bytes = subprocess.run(["git", "-C", HERE, "archive", commit, *parts], check=True, capture_output=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive_bytes.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _digest(tree: Path) -> str:
    """Of a tree's package: which sources ran, where no commit says it."""
    digest = hashlib.sha256()
    for file in sorted((tree / "headcount").rglob("*")):
        if file.suffix in {".py", ".cu", ".cuh", ".h", ".cpp"}:
            digest.update(str(file.relative_to(tree)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _about(device: str) -> dict[str, str]:
    import torch

    if device == "cpu":
        return {"device": "CPU", "torch": torch.__version__}
    import triton  # pyright: ignore[reportMissingImports]

    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}


def main() -> int:
    """Exit 1 where a shape is slower by more than 3%."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="6213e9b", help="a commit, or a folder with its headcount and benchmarks")
    parser.add_argument("--export", type=Path, help="only write the older tree there")
    parser.add_argument("--names", nargs=2, default=("6213e9b", "this tree"), help="of the two trees, for the record")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=150.0, help="in all")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of one side in a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--tiny", action="store_true", help="two small shapes: does it run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--take", type=Path, help="put a file that was written elsewhere beside the earlier race")
    options = parser.parse_args()
    if options.take:
        INTO.write_text(
            json.dumps(json.loads(INTO.read_text()) | {"again": json.loads(options.take.read_text())}) + "\n"
        )
        return 0
    if options.export:
        print(exported(options.before, options.export, "headcount", "benchmarks"))
        return 0
    content = race(options, {"before": Path(options.before).resolve(), "after": HERE})
    slow, out = content["slower by more than 3%"], content["left out"]
    print(f"{len(content['rows'])} shapes raced, {len(out)} left out, {len(slow)} slower by more than 3%")
    return int(bool(slow))


if __name__ == "__main__":
    raise SystemExit(main())
