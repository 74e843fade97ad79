"""Random mixed banks for the compiled backend: shapes, kinds, masks, outputs and losses drawn by a seed."""

from dataclasses import dataclass, replace

import torch

from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.loss import Loss, cross_entropy, squared
from headcount.kernels.plain import Batch
from headcount.nets import Architecture


@dataclass
class Case:
    """A bank with a batch in float64, and the same in float32."""

    archs: list[Architecture]
    token_dim: int
    data: torch.Tensor
    which: torch.Tensor
    rows: torch.Tensor
    present: torch.Tensor | None
    target: torch.Tensor
    loss: Loss = squared

    def bank(self, dtype: torch.dtype) -> Bank:
        nets = [arch.reading(self.token_dim) for arch in self.archs]
        return Bank(nets, range(len(nets)), dtype=dtype)

    def batch(self, dtype: torch.dtype) -> Batch:
        return Batch(self.data.to(dtype), self.which, self.rows, self.target.to(dtype), self.present)

    @property
    def problem(self) -> ClassToken:
        return ClassToken(self.loss)

    def member(self, k: int) -> "Case":
        """One member by itself."""
        present = None if self.present is None else self.present[k : k + 1]
        part = (self.which[k : k + 1], self.rows[k : k + 1], present, self.target[k : k + 1])
        return Case([self.archs[k]], self.token_dim, self.data, *part, self.loss)


def mixed_bank(seed: int) -> Case:
    """Members of one depth and any shape; some members' or samples' tokens are absent, some answers are classes."""
    generator = torch.Generator().manual_seed(seed)

    def up_to(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=generator))

    depth, length, token_dim, positions, models, batch = (
        up_to(3),
        up_to(20),
        up_to(5),
        up_to(4) - 1,
        up_to(5),
        up_to(90),
    )
    outputs, every, samples = max(1, up_to(4) - 1), ("every", "last")[up_to(2) - 1], 60
    archs = [
        Architecture(
            layers=tuple((up_to(5), up_to(9)) for _ in range(depth)),
            width=up_to(40),
            positions=positions,
            outputs=outputs,
            embed_dim=up_to(40) * (up_to(2) - 1),
            class_token=every,
        )
        for _ in range(models)
    ]
    data = torch.randn(2, samples, length, token_dim + positions, generator=generator, dtype=torch.float64)
    which = torch.randint(0, 2, (models,), generator=generator)
    rows = torch.randint(0, samples, (models, batch), generator=generator)
    lengths = torch.randint(1, length + 1, (models, batch), generator=generator)
    of_samples, of_members = torch.arange(length) < lengths[..., None], torch.arange(length) < lengths[:, :1]
    present = (None, of_members, of_samples)[up_to(3) - 1]
    target = torch.randn(models, batch, outputs, generator=generator, dtype=torch.float64)
    loss = cross_entropy if outputs > 1 and up_to(2) == 1 else squared
    target = target.softmax(-1) if loss is cross_entropy else target
    embedding, activation = ("feed-forward", "linear")[up_to(2) - 1], ("relu", "gelu")[up_to(2) - 1]
    archs = [replace(arch, embedding=embedding, activation=activation) for arch in archs]
    return Case(archs, token_dim, data, which, rows, present, target[..., 0] if outputs == 1 else target, loss)


def usual_bank(archs: list[Architecture], length: int, batch: int, token_dim: int = 3) -> Case:
    """All tokens there, one answer, numbers of a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    features = token_dim + archs[0].positions
    data = torch.randn(1, batch, length, features, generator=generator, dtype=torch.float64)
    target = torch.randn(len(archs), batch, generator=generator, dtype=torch.float64)
    which, rows = torch.zeros(len(archs), dtype=torch.int64), torch.arange(batch).repeat(len(archs), 1)
    return Case(archs, token_dim, data, which, rows, None, target)
