"""Markov chains over letters, a fresh kernel for every sequence: what comes next must be learnt from the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from headcount.refusals import at_least, positive
from headcount.structure import Retrieval, Structure
from headcount.tasks.task import check_length


class ChainSample(NamedTuple):
    """Sequences, the letter that follows each, and the row of the kernel it was drawn from."""

    x: Float[Tensor, "batch length vocab"]
    following: Int[Tensor, " batch"]
    row: Float[Tensor, "batch vocab"]


@dataclass(frozen=True)
class NGram:
    """The law of the next letter of a chain whose kernel is not known: its posterior given the sequence.

    Every sequence has its own kernel, each row Dirichlet(concentration); a letter is drawn from the row that the
    letters `parents` places before it choose, the first ones uniformly. With N(z, e) times that e followed the pattern
    z of the last place, P(e | x) = (N(z, e) + alpha) / (N(z) + V alpha). The place after the end is not counted, nor
    one that needs a letter before the first.
    Source: Chen et al. 2024 (induction heads), the data of the runs.
    Departs: there the target is the random next letter; a task is a function of its input: here, the posterior.

    >>> x = one_hot(torch.tensor([[0, 1, 0, 1, 0]]), 2).double()
    >>> NGram(parents=(1,), vocab=2, length=5, concentration=0.5)(x)  # twice 1 after 0
    tensor([[0.1667, 0.8333]], dtype=torch.float64)
    """

    parents: tuple[int, ...] = (1, 2)
    vocab: int = 3
    length: int = 100
    concentration: float = 0.1

    domain = "one-hot letters of a chain with its own random kernel"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", tuple(sorted(self.parents)))
        if not self.parents or len(set(self.parents)) < len(self.parents) or self.parents[0] < 1:
            raise ValueError(f"parents must be distinct lags of at least 1, one or more, got {self.parents}")
        at_least(2, vocab=self.vocab)
        positive(concentration=self.concentration)
        check_length(self.length, least=self.parents[-1])

    @property
    def token_dim(self) -> int:
        return self.vocab

    @property
    def structure(self) -> Structure:
        read = Retrieval("parents", positions=tuple(self.length - lag for lag in self.parents))
        match = Retrieval("their earlier copies", after=("parents",), offset=1 if self.length > 1 else 0)
        return Structure(self.length, self.vocab, (read, match))

    def __call__(self, x: Float[Tensor, "batch length vocab"]) -> Float[Tensor, "batch vocab"]:
        return dirichlet_posterior(x, self.parents, self.concentration)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> ChainSample:
        """One-hot sequences, the next letter, and the row it was drawn from."""
        V, first = self.vocab, self.parents[-1]
        device = generator.device if generator is not None else None
        kernel = self.kernels(batch, generator=generator)
        bounds = kernel.cumsum(dim=-1)[..., :-1].contiguous()
        letters = torch.empty(batch, self.length + 1, dtype=torch.int64, device=device)
        letters[:, :first] = torch.randint(V, (batch, first), generator=generator, device=device)
        drawn = torch.rand((batch, self.length + 1), generator=generator, dtype=torch.float64, device=device)
        each = torch.arange(batch, device=device)
        row = kernel[:, 0]
        for t in range(first, self.length + 1):
            code = sum(letters[:, t - lag] * V**i for i, lag in enumerate(self.parents))
            letters[:, t] = (drawn[:, t, None] >= bounds[each, code]).sum(dim=1)
            row = kernel[each, code] if t == self.length else row
        return ChainSample(one_hot(letters[:, :-1], V).to(dtype), letters[:, -1], row.to(dtype))

    def kernels(self, batch: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "batch contexts vocab"]:
        """Random kernels; the letter at the i-th parent counts V^i in the number of a row.

        A row is Gamma(alpha) variates over their sum. G U^(1/alpha), with G of Gamma(alpha + 1), is one of them; taken
        by logarithms, none is lost to underflow, however small alpha is.
        """
        device = generator.device if generator is not None else None
        size = (batch, self.vocab ** len(self.parents), self.vocab)
        above = torch.full(size, self.concentration + 1.0, dtype=torch.float64, device=device)
        logs = torch._standard_gamma(above, generator=generator).log()  # type: ignore[attr-defined]
        drawn = 1.0 - torch.rand(size, generator=generator, dtype=torch.float64, device=device)  # never 0
        return (logs + drawn.log() / self.concentration).softmax(dim=-1)


def following_counts(x: Float[Tensor, "batch length vocab"], lags: Sequence[int]) -> Float[Tensor, "batch vocab"]:
    """How often each letter followed the pattern that stands at `lags` before the end.

    >>> following_counts(one_hot(torch.tensor([[0, 1, 0, 2, 0]]), 3).double(), (1,))
    tensor([[0., 1., 1.]], dtype=torch.float64)
    """
    first = max(lags, default=0)
    if x.shape[1] < first:
        raise ValueError(f"lag {first} needs at least so many letters, got {x.shape[1]}")
    letters, places = x.argmax(dim=-1), x.shape[1] + 1 - first
    same = torch.ones(len(x), places - 1, dtype=torch.bool, device=x.device)
    for lag in lags:
        read = letters[:, first - lag : first - lag + places]
        same &= read[:, :-1] == read[:, -1:]
    return torch.einsum("bl,blv->bv", same.to(x.dtype), x[:, first:])


def dirichlet_posterior(
    x: Float[Tensor, "batch length vocab"], lags: Sequence[int], concentration: float
) -> Float[Tensor, "batch vocab"]:
    """The law of the next letter where the letters at `lags` choose a row of a Dirichlet(concentration) kernel.

    >>> dirichlet_posterior(one_hot(torch.tensor([[0, 1, 2]]), 3).double(), (1,), 0.1)  # never seen: uniform
    tensor([[0.3333, 0.3333, 0.3333]], dtype=torch.float64)
    """
    counts = following_counts(x, lags) + concentration
    return counts / counts.sum(dim=1, keepdim=True)
