"""Whether training still gives the very same numbers: an older commit and this tree, losses compared bit for bit.

    python -m benchmarks.same_bits COMMIT [--threads 1]

Class-token banks, decoders, readers in context and standard encoders, by products and in compiled C++, each trained for
a few steps in a process of its own with fixed threads. What is compared is the text of every loss in hexadecimal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.race_commits import exported

HERE = Path(__file__).resolve().parents[1]
# Every case is a few lines that leave its losses in `losses`; what the older commit calls otherwise is said there.
BEFORE = {
    "class token": """
from headcount.nets import Architecture
from headcount.tasks import KthLargest, LinearMax
from headcount.training import Member, Recipe, train
from headcount.training.backends.choice import eager
shapes = [Architecture(((h, 4),) * depth, width=8 * h) for depth in (1,) for h in (1, 2, 3)]
recipe = Recipe(samples=256, validation=64, epochs=4, batch=32, evaluations=4)
members = [Member(KthLargest(1, 8), a, seed=s) for a in shapes for s in (0, 1)]
members += [Member(KthLargest(1, 5), shapes[1], base=shapes[0])]
losses = [row[k] for row in train(members, recipe, path=eager).rows for k in ("nmse", "final_nmse", "train_nmse")]
deep = [Architecture(((h, 4), (2, 3)), width=8, embed_dim=12) for h in (1, 2)]
members = [Member(KthLargest(1, 8), a, seed=s) for a in deep for s in (0, 1)]
losses += [row[k] for row in train(members, recipe, path=eager).rows for k in ("nmse", "final_nmse", "train_nmse")]
""",
    "class token in C++": """
from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe, train
recipe = Recipe(samples=256, validation=64, epochs=150, batch=32, evaluations=5)
losses = []
for depth in (1, 2):
    shapes = [Architecture(((h, 4),) * depth, width=8 * h) for h in (1, 2, 3)]
    members = [Member(KthLargest(1, 8), a, seed=s) for a in shapes for s in (0, 1)]
    out = train(members, recipe)
    assert "C++" in out.backend or "cpp" in out.backend, out.backend
    losses += [row[k] for row in out.rows for k in ("nmse", "final_nmse", "train_nmse")]
""",
    "decoders": """
from headcount.nets.causal import DecoderShape
from headcount.tasks import Neighbour
from headcount.training.decoding import DecoderMember, DecoderRecipe, train_decoders
task = Neighbour("right", "only")
shape = DecoderShape(((2, 8), (1, 8)), 16, 32, task.vocab, context=task.longest(12))
recipe = DecoderRecipe(steps=48, batch=8, lengths=(4, 8), evaluations=3, samples=32)
out = train_decoders([DecoderMember(task, s, s, 3e-3) for s in (0, 1)], shape, recipe, tests=[(9, 12)])
losses = [t["loss"] for row in out.rows for t in row["tests"]] + [c[1] for row in out.rows for c in row["curve"]]
""",
    "decoders in C++": """
from headcount.nets.causal import DecoderShape
from headcount.tasks import Neighbour
from headcount.training.decoding import DecoderMember, DecoderRecipe, train_decoders
task = Neighbour("right", "only")
shape = DecoderShape(((2, 8), (1, 8)), 16, 32, task.vocab, context=task.longest(12))
recipe = DecoderRecipe(steps=1008, batch=8, lengths=(4, 8), evaluations=3, samples=32)
out = train_decoders([DecoderMember(task, s, s, 3e-3) for s in (0, 1)], shape, recipe, tests=[(9, 12)])
assert "C++" in out.rows[0]["backend"]
losses = [t["loss"] for row in out.rows for t in row["tests"]] + [c[1] for row in out.rows for c in row["curve"]]
""",
    "readers": """
from dataclasses import replace
from headcount.papers.icl.experiments import EXPONENTS, ReaderRecipe, tiny, train_readers
losses = []
for cell in (EXPONENTS[0], EXPONENTS[-1]):
    rows = train_readers(tiny(cell), ReaderRecipe(steps=50, batch=8, seeds=(0, 1), contexts=64))
    losses += [x for row in rows for k in ("validation", "nmse") for line in row[k] for x in line]
""",
    "encoders": """
import torch
from headcount.papers.head_count.encoders import EncoderPlan, EncoderRun, EncoderShape, train
class Labelled:
    count = 64
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.x, self.y = torch.randn(64, 4, 3, generator=g), torch.randint(5, (64,), generator=g)
    def begin(self, epoch, seeds): pass
    def batch(self, rows): return self.x[rows], self.y[rows]
import headcount.papers.head_count.encoders as e
shape = EncoderShape(features=3, heads=2, head_dim=4, layers=2, marks=tuple(range(5)), outputs=5)
run = e._Run(shape, [EncoderRun(0), EncoderRun(1, 3e-3)], Labelled(), EncoderPlan(epochs=3, batch=16), "cpu")
for epoch in range(3):
    run.begin(epoch)
    for _ in range(run.steps): run.step()
losses = run.bank.theta.flatten()[::97].tolist()
""",
}
DECODERS = """
from headcount.nets.causal import DecoderShape
from headcount.tasks import Neighbour
from headcount.tasks.letters import OnLengths
from headcount.training import Member, train
from headcount.training.strings import string_recipe
task = OnLengths(Neighbour("right", "only"), (4, 8), ((9, 12),))
shape = DecoderShape(((2, 8), (1, 8)), 16, 32, task.task.vocab, context=task.longest)
recipe = string_recipe({steps}, 8, evaluations=3, samples=32)
out = train([Member(task, shape, s, s, 3e-3, 1e-2) for s in (0, 1)], recipe)
assert out.backend.name == "{backend}"
losses = [t["loss"] for row in out.rows for t in row["tests"]] + [c["loss"] for row in out.rows for c in row["curve"]]
"""
NOW: dict[str, str] = {
    "class token": BEFORE["class token"]
    .replace("headcount.training.backends.choice", "headcount.kernels.backend")
    .replace("path=eager", "backend=eager"),
    "class token in C++": BEFORE["class token in C++"].replace(
        'assert "C++" in out.backend or "cpp" in out.backend, out.backend', 'assert out.backend.name == "cpp"'
    ),
    "decoders": DECODERS.replace("{steps}", "48").replace("{backend}", "products"),
    "decoders in C++": DECODERS.replace("{steps}", "1008").replace("{backend}", "cpp"),
    "encoders": """
from functools import partial
import torch
from studies.head_count.encoders import LabelledExamples, MarkedShape, encoder_members
from headcount.training import Recipe, train
class Labelled:
    count = 64
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.x, self.y = torch.randn(64, 4, 3, generator=g), torch.randint(5, (64,), generator=g)
    def begin(self, epoch, seeds): pass
    def batch(self, rows): return self.x[rows], self.y[rows]
shape = MarkedShape(features=3, heads=2, head_dim=4, depth=2, marks=tuple(range(5)), outputs=5)
recipe = Recipe(64, epochs=3, batch=16, evaluations=1, stop="never", keep="last")
members = encoder_members(shape, [(0, 1e-3), (1, 3e-3)])
out = train(members, recipe, data=partial(LabelledExamples, Labelled(), Labelled()))
losses = out.bank.theta.flatten()[::97].tolist()
""",
}
LAST = "\nimport json; print(json.dumps([float(x).hex() for x in losses]))"


def losses_of(tree: Path, case: str, threads: int) -> list[str]:
    """The losses of a case in a tree, as hexadecimal text."""
    code = NOW.get(case, BEFORE[case]) if tree == HERE else BEFORE[case]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(tree)}
    first = f"import torch; torch.set_num_threads({threads})\n"
    command = [sys.executable, "-c", first + code + LAST]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case} in {tree}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Compare every case; exit 1 where a number differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--threads", type=int, default=1)
    options, differ = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as folder:
        older = exported(options.commit, Path(folder) / "older")
        for case in BEFORE:
            old, new = (losses_of(tree, case, options.threads) for tree in (older, HERE))
            same = sum(a == b for a, b in zip(old, new, strict=True))
            differ += same < len(old)
            print(f"{case}: {same} of {len(old)} numbers the same", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main())
