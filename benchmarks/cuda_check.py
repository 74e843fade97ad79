"""Check on a CUDA device that the faster banks are the plain one: `python -m benchmarks.cuda_check`."""

from __future__ import annotations

import torch

from headcount.nets import Architecture
from headcount.tasks import LinearMax
from headcount.training import Bank, Member, Recipe, train
from headcount.training.forward import Batch
from headcount.training.paths import Path, eager, layered, recorded, reference


def trained(path: Path, device: str, shapes: list[tuple[tuple[int, int], ...]]) -> torch.Tensor:
    """The parameters of a small mixed bank after 50 steps in float64."""
    recipe = Recipe(samples=640, validation=64, epochs=5, batch=64, dtype="float64", evaluations=1)
    members = [
        Member(LinearMax.random(2, 4, 6 + k), Architecture(layers=s, width=8 + 4 * k), seed=k, data_seed=k)
        for k, s in enumerate(shapes)
    ]
    return train(members, recipe, device=device, path=path).bank.theta.cpu()


def slopes(path: Path, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of a bank of two-layer members of several shapes, tokens all present."""
    archs = [Architecture(layers=s, width=24) for s in (((3, 8), (2, 8)), ((1, 5), (4, 5)))]
    bank = Bank(archs, 4, [0, 1], dtype=dtype, device="cuda")
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(1, 96, 40, 4, generator=generator, dtype=torch.float64).to("cuda", dtype)
    rows = torch.arange(96, device="cuda").expand(2, -1)
    target = torch.randn(2, 96, generator=generator, dtype=torch.float64).to("cuda", dtype)
    return path.gradient(bank, Batch(data, torch.zeros(2, dtype=torch.int64, device="cuda"), rows), target).double()


def main() -> None:
    truth = slopes(reference, torch.float64)
    for path, most in ((reference, 1e-5), (recorded, 1e-5), (layered("ieee"), 1e-5), (layered(), 1e-2)):
        gap = ((slopes(path, torch.float32) - truth).norm() / truth.norm()).item()
        print(f"2 layers, {path.name}, float32: relative gap of the gradient {gap:.1e}")
        assert gap < most
    for shapes in ([((1, 4),), ((3, 5),), ((4, 8),)], [((1, 4), (2, 3)), ((3, 5), (1, 7))]):
        truth = trained(reference, "cpu", shapes)
        for path in (reference, eager, recorded):
            gap = (trained(path, "cuda", shapes) - truth).abs().max().item()
            print(f"{len(shapes[0])} layers, {path.name}: largest parameter gap {gap:.1e}")
            assert gap < 1e-7


if __name__ == "__main__":
    main()
