"""Trying to break a promise: attempts propose sequences, the trial measures the gap on every one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.domains import Domain

TOKENS_AT_ONCE = 4096  # a chunk of sequences holds about so many tokens: tens of megabytes in a wide encoder


@runtime_checkable
class Attempt(Protocol):
    """A way to look for a bad input: proposes sequences of the domain, perhaps starting from the worst so far."""

    @property
    def name(self) -> str: ...

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]: ...


@dataclass(frozen=True)
class Tried:
    """What one attempt found: the largest gap over so many inputs."""

    name: str
    inputs: int
    gap: float


@dataclass(frozen=True)
class Check:
    """The outcome of a trial: the promise, the worst gap found, the input that gave it, and every attempt's share."""

    error: float
    gap: float
    worst: Float[Tensor, "1 length token_dim"]
    tried: tuple[Tried, ...]

    @property
    def holds(self) -> bool:
        """Whether no input broke the promise."""
        return self.gap <= self.error

    def __str__(self) -> str:
        inputs = sum(t.inputs for t in self.tried)
        by = max(self.tried, key=lambda t: t.gap).name
        verdict = "holds" if self.holds else "is BROKEN"
        return f"the promise {self.error:.4g} {verdict}: worst gap {self.gap:.4g} over {inputs} inputs, found by {by}"

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary, without the worst input."""
        tried = [asdict(t) for t in self.tried]
        return {"error": self.error, "gap": self.gap, "holds": self.holds, "tried": tried}


@dataclass(frozen=True)
class Trial:
    """A network, the target it should equal, where, and the attempts to show that it does not."""

    net: nn.Module
    target: Callable[..., Tensor]
    domain: Domain
    attempts: tuple[Attempt, ...]

    def signed_gaps(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        """net(x) - target(x), with gradients where x has them; a target that is a set says itself how far one is."""
        apart = getattr(self.target, "apart", None)
        return self.net(x) - self.target(x) if apart is None else apart(self.net(x), x)

    @torch.no_grad()
    def gaps(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        """|net(x) - target(x)|; a number that is not finite counts as an infinite gap."""
        chunk = max(1, TOKENS_AT_ONCE // x.shape[1])
        gaps = torch.cat([self.signed_gaps(part).abs() for part in x.split(chunk)])
        return torch.where(torch.isfinite(gaps), gaps, torch.inf)

    def run(self, error: float, *, seed: int = 0) -> Check:
        """Every attempt in turn, each seeing the worst inputs of those before it."""
        generator = torch.Generator().manual_seed(seed)
        worst = self.domain.sample(4, generator=generator)
        gaps = self.gaps(worst)
        tried = []
        for attempt in self.attempts:
            x = attempt(self, worst, generator)
            trial_gaps = self.gaps(x)
            tried.append(Tried(attempt.name, len(x), float(trial_gaps.max())))
            worst, gaps = _keep_largest(torch.cat([worst, x]), torch.cat([gaps, trial_gaps]), 4)
        return Check(error, float(gaps[0]), worst[:1], tuple(tried))


def _keep_largest(x: Tensor, gaps: Tensor, count: int) -> tuple[Tensor, Tensor]:
    order = gaps.argsort(descending=True)[:count]
    return x[order], gaps[order]
