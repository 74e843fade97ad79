"""Generalized D-retrieval with quadratic wells: the class the head-count theorems speak about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.limits import refuse_sizes
from headcount.structure import Retrieval, Structure
from headcount.tasks.ridges import Ridges
from headcount.tasks.task import Table, check_length, matrix, uniform


@dataclass(frozen=True)
class Wells:
    """Deepest visits to D wells: H(X) = F_0(z), z_i = min over t in S_i of |x_t - x_i|^2 / d, tokens in [0,1]^d.

    `windows` are the position sets S_i (None: every position), each with at least a quarter of the positions,
    which is where the lower bound takes its free positions from. `combine` is F_0; None: the sum.
    Assumption 2 of the paper is checked: distinct centres, and no zero in the gradient of F_0 at the minima z = 0.
    Source: Yu et al. 2025 (heads), Equations 8 and 9.

    >>> task = Wells(centres=[[0.0], [1.0]], length=4)
    >>> task(torch.tensor([[[0.5], [0.25], [0.5], [0.5]]]))
    tensor([0.3125])
    """

    centres: Table
    length: int
    windows: Sequence[Sequence[int]] | None = None
    combine: Ridges | None = None

    domain = "tokens in [0,1]^d, sampled uniformly"

    def __post_init__(self) -> None:
        check_length(self.length)
        refuse_sizes({"places": self.length}, "a window of Wells")  # each is listed
        object.__setattr__(self, "centres", matrix(self.centres, "centres"))
        if self.windows is None:
            object.__setattr__(self, "windows", (tuple(range(self.length)),) * len(self.centres))
        object.__setattr__(self, "windows", tuple(tuple(sorted(set(w))) for w in self.windows or ()))
        if self.combine is None:
            object.__setattr__(self, "combine", Ridges.sum(len(self.centres)))
        self._check_centres()
        self._check_windows()
        self._check_combine()

    @classmethod
    def random(cls, retrievals: int, token_dim: int, length: int, seed: int = 0, *, windows: bool = False) -> Wells:
        """Centres drawn uniformly from the cube; with `windows`, consecutive halves of the sequence in turn."""
        refuse_sizes({"places": length}, "a window of Wells")
        g = torch.Generator().manual_seed(seed)
        centres = uniform((retrievals, token_dim), generator=g, dtype=torch.float64)
        halves = (tuple(range((length + 1) // 2)), tuple(range(length // 2, length)))
        chosen = tuple(halves[i % 2] for i in range(retrievals)) if windows else None
        return cls(matrix(centres, "centres"), length, chosen)

    @property
    def token_dim(self) -> int:
        return len(self.centres[0])

    @property
    def structure(self) -> Structure:
        parts = tuple(
            Retrieval(f"well {i + 1}", window=None if len(w) == self.length else len(w), score="wells")
            for i, w in enumerate(self.windows or ())
        )
        return Structure(self.length, self.token_dim, parts)

    def depths(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch retrievals"]:
        """The minima z_i themselves."""
        centres = torch.tensor(self.centres, dtype=x.dtype, device=x.device)
        wells = (x[:, :, None, :] - centres).square().mean(dim=-1)
        return torch.stack([wells[:, list(w), i].amin(dim=1) for i, w in enumerate(self.windows or ())], dim=1)

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return self._outer(self.depths(x))

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = uniform((batch, self.length, self.token_dim), generator=generator, dtype=dtype)
        return x, self(x)

    @property
    def _outer(self) -> Ridges:
        assert self.combine is not None  # set in __post_init__
        return self.combine

    def _check_centres(self) -> None:
        for i, c in enumerate(self.centres):
            if not all(0 <= v <= 1 for v in c):
                raise ValueError(f"centre {i} lies outside [0,1]^{self.token_dim}: {c}")
            if c in self.centres[:i]:
                raise ValueError(f"centres {self.centres.index(c)} and {i} coincide (against Assumption 2.2)")

    def _check_windows(self) -> None:
        windows = self.windows or ()
        if len(windows) != len(self.centres):
            raise ValueError(f"{len(self.centres)} centres but {len(windows)} windows")
        for i, w in enumerate(windows):
            if w and not (w[0] >= 0 and w[-1] < self.length):
                raise ValueError(f"window {i} reaches outside positions 0..{self.length - 1}")
            if 4 * len(w) < self.length:
                raise ValueError(f"window {i} holds {len(w)} of {self.length} positions; at least a quarter is needed")

    def _check_combine(self) -> None:
        if self._outer.arguments != len(self.centres):
            raise ValueError(f"combine takes {self._outer.arguments} arguments but there are {len(self.centres)} wells")
        gradient = self._outer.gradient((0.0,) * len(self.centres))
        for i, g in enumerate(gradient):
            if g == 0:
                raise ValueError(f"the gradient of combine is zero in well {i} at the minima (Assumption 2.4)")
