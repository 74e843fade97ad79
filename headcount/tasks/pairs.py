"""Targets that compare tokens jointly: pairs, which two layers can do, and triples, which no fixed network can."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.intrinsic import even_plane, kind_of, merged_forms
from headcount.tasks.task import Matrix, Table, by_parts, check_length, gaussian


@runtime_checkable
class Tokens(Protocol):
    """How tokens are drawn."""

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype) -> Tensor: ...


@dataclass(frozen=True)
class Gaussian:
    """Independent N(0, variance) coordinates."""

    variance: float = 1.0

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        return self.variance**0.5 * gaussian(shape, generator=generator, dtype=dtype)


@dataclass(frozen=True)
class UnitSphere:
    """Uniform on the unit sphere."""

    def __call__(self, shape: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        x = gaussian(shape, generator=generator, dtype=torch.float64)
        return (x / x.norm(dim=-1, keepdim=True)).to(dtype)


@dataclass(frozen=True)
class PairMax:
    """Sum of D maxima over ordered pairs: y = sum_i max_{s,t} x_s^T A_i x_t (s = t allowed).

    Source: Yu et al. 2026 (InfoFlow), the intrinsic-dimension experiment (token_dim 4, length 64).

    >>> task = PairMax(matrices=[[[0, 1], [0, 0]]], length=2)
    >>> task(torch.tensor([[[3.0, 0.0], [0.0, 5.0]]]))
    tensor([15.])
    """

    matrices: Table
    length: int
    tokens: Tokens = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        a = torch.as_tensor(self.matrices, dtype=torch.float64)
        if a.ndim != 3 or a.numel() == 0 or a.shape[1] != a.shape[2]:
            raise ValueError(f"matrices must be a list of square tables, got shape {tuple(a.shape)}")
        if not torch.isfinite(a).all():
            raise ValueError("matrices holds a number that is not finite")
        object.__setattr__(self, "matrices", tuple(tuple(tuple(row) for row in m) for m in a.tolist()))
        check_length(self.length)

    @classmethod
    def random(
        cls, retrievals: int, token_dim: int, length: int, seed: int = 0, *, tokens: Tokens | None = None
    ) -> PairMax:
        """Matrices with independent N(0, 1/d) entries."""
        g = torch.Generator().manual_seed(seed)
        a = gaussian((retrievals, token_dim, token_dim), generator=g, dtype=torch.float64) / token_dim**0.5
        return cls(tuple(tuple(tuple(row) for row in m) for m in a.tolist()), length, tokens or Gaussian())

    @property
    def token_dim(self) -> int:
        return len(self.matrices[0])

    @property
    def structure(self) -> Structure:
        """What it looks up, counted on the intrinsic form: pairs, single tokens and extremes along a direction."""
        forms = merged_forms(self.matrices, self.length)
        kinds = [kind_of(m) for m in forms]
        single, extremes = kinds.count("single"), kinds.count("extremes")
        parts = (
            ("pairs", len(kinds) - single - extremes, 2, self._score(forms)),
            ("single tokens", single, 1, "other"),
            ("extremes", 2 * extremes, 1, "other"),
        )
        retrievals = tuple(Retrieval(name, count=n, order=order, score=score) for name, n, order, score in parts if n)
        return Structure(self.length, self.token_dim, retrievals)

    def intrinsic(self) -> PairMax:
        """The same target with as few forms as can be: zero forms dropped, A and A^T one, positive multiples added up.

        >>> PairMax([[[0, 1], [0, 0]], [[0, 0], [2, 0]]], 8).intrinsic().matrices
        (((0.0, 3.0), (0.0, 0.0)),)
        """
        return PairMax(merged_forms(self.matrices, self.length), self.length, self.tokens)

    def _score(self, forms: tuple[Matrix, ...]) -> str:
        """The lower bound is proved for one form, negative definite on a plane whose tokens the domain holds."""
        form, *others = forms
        if others or kind_of(form) != "opposite":
            return "other"
        if isinstance(self.tokens, Gaussian):
            return "opposite"
        return ("opposite" if even_plane(form) else "other") if isinstance(self.tokens, UnitSphere) else ""

    @property
    def domain(self) -> str:
        return "tokens in R^d, sampled " + ("on the unit sphere" if self.tokens == UnitSphere() else "N(0, I)")

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return by_parts(self._sum_of_best, x, self.length**2)

    def _sum_of_best(self, x: Tensor) -> Tensor:
        a = torch.tensor(self.matrices, dtype=x.dtype, device=x.device)
        best = [(x @ m @ x.mT).flatten(1).amax(dim=1) for m in a]
        return torch.stack(best).sum(dim=0)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = self.tokens((batch, self.length, self.token_dim), generator, dtype)
        return x, self(x)


@dataclass(frozen=True)
class TriangleCentre:
    """The triple whose sum is nearest the origin: y = min_{r,s,t} |x_r + x_s + x_t|, repeats allowed.

    Tokens are N(0, 2 I) in the plane with their norms clamped to [0.2, 4].
    Source: Yu et al. 2026 (InfoFlow), the triangle-centre experiment.
    Departs: the source says "norm clamped" without saying of what; here it is each token's norm.

    >>> task = TriangleCentre(length=3)
    >>> round(task(torch.tensor([[[1.0, 0.0], [-0.5, 1.0], [-0.5, -1.0]]])).item(), 6)
    0.0
    """

    length: int

    token_dim = 2
    domain = "tokens in R^2 with norm in [0.2, 4], sampled N(0, 2 I) and clamped"

    def __post_init__(self) -> None:
        check_length(self.length)

    @property
    def structure(self) -> Structure:
        return Structure(self.length, 2, (Retrieval("triple", order=3),))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return by_parts(self._nearest, x, self.length**3 // 2)

    def _nearest(self, x: Tensor) -> Tensor:
        first, second = torch.triu_indices(self.length, self.length, device=x.device)
        # |p + x|^2 = |p|^2 + 2 <p, x> + |x|^2 as one product finds the triple; its own sum then gives the exact norm.
        pairs = x[:, first] + x[:, second]
        squares = (x * x).sum(dim=-1)[:, None] + (pairs * pairs).sum(dim=-1, keepdim=True)
        best = torch.baddbmm(squares, pairs, x.mT, alpha=2).flatten(1).argmin(dim=1)
        row = torch.arange(len(x), device=x.device)
        return (pairs[row, best // self.length] + x[row, best % self.length]).norm(dim=-1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = 2**0.5 * gaussian((batch, self.length, 2), generator=generator, dtype=torch.float64)
        norm = x.norm(dim=-1, keepdim=True)
        x = (x * (norm.clamp(0.2, 4.0) / norm)).to(dtype)
        return x, self(x)
