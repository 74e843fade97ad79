"""A promised error as a sum of named terms, each with the reason that bounds it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headcount.certificates.attack import Check, Trial
from headcount.frozen import checked, field_of
from headcount.sources import Source

__all__ = ["Certificate", "Term"]


@dataclass(frozen=True)
class Term:
    """One part of a promised error: how much, and why no more."""

    name: str
    value: float
    why: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"term {self.name!r} of a certificate must be a finite number >= 0, got {self.value}")


@dataclass(frozen=True)
class Certificate:
    """What a construction promises: |net(x) - task(x)| <= error for every x that meets the hypotheses.

    `error` is the sum of the terms, rounded up. A certificate that belongs to a `Built` knows its network and
    its task, and `check()` tries to break it.

    >>> c = Certificate((Term("softmax", 0.5, "W(m/e)/beta"), Term("outer", 0.25, "h^2/8")), Source("headcount", "x"))
    >>> round(c.error, 12), c["outer"].value
    (0.75, 0.25)
    """

    terms: tuple[Term, ...]
    source: Source
    hypotheses: tuple[str, ...] = ()
    trial: Trial | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [t.name for t in self.terms]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a certificate needs terms with distinct names, got {names}")

    @property
    def error(self) -> float:
        """The promise: the sum of the terms, rounded up."""
        return math.nextafter(math.fsum(t.value for t in self.terms), math.inf)

    def __getitem__(self, name: str) -> Term:
        for term in self.terms:
            if term.name == name:
                return term
        raise KeyError(f"no term {name!r}; there are: {', '.join(t.name for t in self.terms)}")

    def __str__(self) -> str:
        wide = max(len(t.name) for t in self.terms)
        lines = [f"  {t.name:<{wide}}  {t.value:.3e}  {t.why}" for t in self.terms]
        return "\n".join([f"error <= {self.error:.6g}, by {self.source}", *lines])

    def about(self, trial: Trial) -> Certificate:
        """The same promise, made of this network and task."""
        return replace(self, trial=trial)

    def check(self, *, seed: int = 0) -> Check:
        """Try to break the promise with every attempt of the trial; the answer keeps the worst input found."""
        if self.trial is None:
            raise ValueError("this certificate is about no network yet; use the one that a Built carries")
        return self.trial.run(self.error, seed=seed)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; numbers survive exactly."""
        return {
            "error": self.error,
            "terms": [asdict(t) for t in self.terms],
            "source": asdict(self.source),
            "hypotheses": list(self.hypotheses),
        }

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """The certificate that `to_json` wrote."""
        kinds = {"terms": tuple[Term, ...], "source": Source, "hypotheses": tuple[str, ...]}
        where = "the certificate"
        return cls(*(checked(kind, field_of(data, key, where), key, where) for key, kind in kinds.items()))
