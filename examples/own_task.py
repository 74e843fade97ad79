"""Add a task of your own: one frozen class. Run it with `python examples/own_task.py`.

`Spread` asks for the largest and the smallest token at once: two retrievals, so one layer should need two heads.
A spec can name it too: `[task] name = "examples.own_task:Spread"`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import headcount as hc
from headcount.structure import Retrieval, Structure


@dataclass(frozen=True)
class Spread:
    """y = max_t x_t - min_t x_t, tokens uniform on [0, 1]."""

    length: int

    @property
    def token_dim(self) -> int:
        return 1

    @property
    def structure(self) -> Structure:
        """What the target looks up, for the theory side: two maxima (a minimum is one of -x), both of linear scores."""
        return Structure(self.length, 1, (Retrieval("largest", score="linear"), Retrieval("smallest", score="linear")))

    @property
    def domain(self) -> str:
        return "tokens in [0, 1], sampled uniformly"

    def __call__(self, x: Tensor) -> Tensor:
        return x[:, :, 0].amax(dim=1) - x[:, :, 0].amin(dim=1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        x = torch.rand(batch, self.length, 1, generator=generator, dtype=torch.float64).to(dtype)
        return x, self(x)


def main(epochs: int = 100) -> None:
    archs = [hc.Architecture(layers=((heads, 4),), width=16) for heads in (1, 2, 3, 4)]
    recipe = hc.Recipe(samples=2000, validation=500, epochs=epochs, batch=100)
    study = hc.sweep(Spread(length=8), archs, seeds=6, recipe=recipe, lr=1e-2)
    for row in study:
        print(f"heads {row['heads']}  seed {row['seed']}  NMSE {row['nmse']:.1e}")
    print(hc.knee(study).sentence)


if __name__ == "__main__":
    main()
