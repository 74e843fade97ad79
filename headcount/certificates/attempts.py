"""Attempts that any task and network must survive; constructions add those that know their weak spot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.attack import Attempt, Trial
from headcount.certificates.domains import Box


@dataclass(frozen=True)
class Random:
    """Random members of the domain."""

    count: int = 256
    name: str = "random inputs"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        return trial.domain.sample(self.count, generator=generator)


@dataclass(frozen=True)
class AllEqual:
    """One random token at every position: every score ties with every other."""

    count: int = 32
    name: str = "all tokens equal"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = trial.domain.sample(self.count, generator=generator)
        return x[:, :1].expand_as(x).clone()


@dataclass(frozen=True)
class Ties:
    """Few distinct tokens (1 to 4 of them) in random order: exact ties within each score."""

    count: int = 64
    name: str = "ties"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = trial.domain.sample(self.count, generator=generator)
        few = torch.arange(self.count)[:, None] % 4 + 1
        place = (torch.rand(x.shape[:2], generator=generator) * few).long().clamp(max=x.shape[1] - 1)
        return x.gather(1, place[:, :, None].expand_as(x))


@dataclass(frozen=True)
class NearTies:
    """One token, and the others around it at distances from a tenth of the domain down to 1e-12."""

    count: int = 64
    name: str = "near-ties"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = trial.domain.sample(self.count, generator=generator)
        scale = 10.0 ** -torch.linspace(1, 12, self.count, dtype=x.dtype)[:, None, None]
        return trial.domain.project(x[:, :1] + scale * (x - x[:, :1]))


@dataclass(frozen=True)
class Boundary:
    """Tokens at corners and faces of a box: every coordinate low, high or, one time in three, free."""

    count: int = 128
    name: str = "boundary tokens"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        box = trial.domain
        assert isinstance(box, Box)
        x = box.sample(self.count, generator=generator)
        which = torch.randint(3, x.shape, generator=generator)
        return torch.where(which == 0, box.low, torch.where(which == 1, box.high, x))


@dataclass(frozen=True)
class FewValued:
    """Sequences of one or two different tokens from a grid with the corners, in every proportion.

    Where trained networks were proved to be worst, nearly all of their tokens were one and the same.
    """

    count: int = 256
    name: str = "few-valued sequences"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        box = trial.domain
        assert isinstance(box, Box)
        x = box.sample(2 * self.count, generator=generator).view(2, self.count, box.length, box.token_dim)[:, :, :1]
        rounded = (4 * (x - box.low) / (box.high - box.low)).round() / 4 * (box.high - box.low) + box.low
        one, two = torch.where(torch.rand(x.shape[:2], generator=generator)[..., None, None] < 0.5, rounded, x)
        many = torch.randint(0, box.length + 1, (self.count, 1), generator=generator)
        return torch.where((torch.arange(box.length) < many)[..., None], one, two)


@dataclass(frozen=True, eq=False)
class FromLeaves:
    """Sequences that a proof of the worst error points at, as `Worst.starts` gives them, and their neighbourhoods."""

    starts: Float[Tensor, "count length token_dim"]
    around: int = 8
    name: str = "leaves of a proof"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = self.starts.repeat(self.around, 1, 1)
        size = 10.0 ** (-6 * torch.rand(len(x), 1, 1, generator=generator, dtype=x.dtype))
        moved = x + size * (2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 1)
        return torch.cat([self.starts, trial.domain.project(moved)])


@dataclass(frozen=True)
class Ascent:
    """Gradient ascent on the gap from the worst inputs so far, inside the domain.

    Each step moves by `step` in the largest coordinate of the gradient; a step that does not widen the gap is
    taken back and halved, so the search reaches the scale 1/beta on which sharp softmax lives.
    """

    steps: int = 60
    step: float = 0.05
    name: str = "gradient ascent"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x, gaps = worst, trial.gaps(worst)
        length = torch.full((len(x), 1, 1), self.step, dtype=x.dtype)
        for _ in range(self.steps):
            moved = trial.domain.project(x + length * self._direction(trial, x))
            moved_gaps = trial.gaps(moved)
            better = (moved_gaps > gaps)[:, None, None]
            x, gaps = torch.where(better, moved, x), torch.maximum(moved_gaps, gaps)
            length = torch.where(better, 1.5 * length, 0.4 * length)
        return x

    def _direction(self, trial: Trial, x: Tensor) -> Tensor:
        x = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(trial.signed_gaps(x).abs().sum(), x)
        largest = slope.abs().amax(dim=(1, 2), keepdim=True)
        return torch.nan_to_num(slope / largest.clamp(min=1e-300))


def in_box(*special: Attempt) -> tuple[Attempt, ...]:
    """The attempts for a task on a box, with a construction's `special` ones before the ascent."""
    return (Random(), AllEqual(), Ties(), NearTies(), Boundary(), FewValued(), *special, Ascent())


def on_samples(*special: Attempt) -> tuple[Attempt, ...]:
    """The attempts for a domain known only by its samples: nothing may be moved or mixed."""
    return (Random(1024), *special)
