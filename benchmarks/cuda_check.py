"""Check on a CUDA device that a recorded bank trains like the plain one, and kernels have its gradient on random banks.

python -m benchmarks.cuda_check [--fuzz 300 --limit 150 --json docs/data/fuzz.json]
"""

from __future__ import annotations

import argparse
from pathlib import Path as File

import torch

from benchmarks import fuzz
from headcount.nets import Architecture
from headcount.tasks import LinearMax
from headcount.training import Member, Recipe, train
from headcount.training.backends.choice import Path, eager, recorded, reference


def trained(path: Path, device: str, shapes: list[tuple[tuple[int, int], ...]]) -> torch.Tensor:
    """The parameters of a small mixed bank after 50 steps in float64."""
    recipe = Recipe(samples=640, validation=64, epochs=5, batch=64, dtype="float64", evaluations=1)
    members = [
        Member(LinearMax.random(2, 4, 6 + k), Architecture(layers=s, width=8 + 4 * k), seed=k, data_seed=k)
        for k, s in enumerate(shapes)
    ]
    return train(members, recipe, device=device, path=path).bank.theta.cpu()


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--fuzz", type=int, default=300, help="random mixed banks")
    ask.add_argument("--limit", type=float, default=150.0, help="seconds for them")
    ask.add_argument("--json", type=File, default=File("fuzz.json"))
    asked = ask.parse_args()
    for shapes in ([((1, 4),), ((3, 5),), ((4, 8),)], [((1, 4), (2, 3)), ((3, 5), (1, 7))]):
        truth = trained(reference, "cpu", shapes)
        for path in (reference, eager, recorded):
            gap = (trained(path, "cuda", shapes) - truth).abs().max().item()
            print(f"{len(shapes[0])} layers, {path.name}: largest parameter gap {gap:.1e}")
            assert gap < 1e-7
    if asked.fuzz:
        fuzz.run(asked.json, asked.fuzz, 14, asked.limit)


if __name__ == "__main__":
    main()
