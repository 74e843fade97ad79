"""A promised error as a sum of named terms, each with the reason that bounds it, and where the promise holds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from headcount.certificates.attack import Check, Trial
from headcount.certificates.coverage import Coverage, coverage_of
from headcount.certificates.domains import Domain
from headcount.frozen import checked, decode, field_of, plain, rebuilt
from headcount.notebook import html_answer, within_columns
from headcount.numerals import outward
from headcount.results import Basis, Claim, Hypothesis, Predicate
from headcount.sources import Source

SHORT_DOMAIN = 6  # words up to which a domain is named in a sentence


@dataclass(frozen=True)
class Term:
    """One part of a promised error: how much, and why no more."""

    name: str
    value: float
    why: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"term {self.name!r} of a certificate must be a finite number >= 0, got {self.value}")


@dataclass(frozen=True, repr=False)
class Certificate:
    """What a construction promises: |net(x) - task(x)| <= error for every x that the domain covers.

    `error` is the sum of the terms, rounded up. A certificate that belongs to a `Built` knows its network, its task
    and its domain; `coverage` is how many of the task's own samples the domain holds, and `check()` tries to break it.

    >>> c = Certificate((Term("softmax", 0.5, "W(m/e)/beta"), Term("outer", 0.25, "h^2/8")), Source("headcount", "x"))
    >>> round(c.error, 12), c["outer"].value
    (0.75, 0.25)
    >>> c
    Certificate(error <= 0.750001)
    """

    terms: tuple[Term, ...]
    source: Source
    hypotheses: tuple[str, ...] = ()
    trial: Trial | None = field(default=None, compare=False)
    domain: Domain | None = None
    measured: Coverage | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        names = [t.name for t in self.terms]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a certificate needs terms with distinct names, got {names}")

    @property
    def error(self) -> float:
        """The promise: the sum of the terms, rounded up."""
        return math.nextafter(math.fsum(t.value for t in self.terms), math.inf)

    @cached_property
    def coverage(self) -> Coverage | None:
        """How many of the task's own samples the domain holds, measured once; None where no task is known."""
        if self.measured is not None or self.trial is None or not hasattr(self.trial.target, "sample"):
            return self.measured
        return coverage_of(self.trial.domain, self.trial.target)

    def __getitem__(self, name: str) -> Term:
        for term in self.terms:
            if term.name == name:
                return term
        raise KeyError(f"no term {name!r}; there are: {', '.join(t.name for t in self.terms)}")

    @property
    def headline(self) -> str:
        """The promise in one line; a domain that is smaller than the task's own is named so before anything else."""
        promise = f"error <= {outward(self.error, 6, 'upper'):.6g}, by {self.source}"
        if self.coverage is not None and not self.coverage.whole:
            return f"for {100 * self.coverage.share:.3g}% of the task's own samples only: {promise}"
        return promise

    @property
    def where(self) -> str:
        """The domain in one line, with the share of samples in it; empty where no domain is known."""
        if self.domain is None:
            return ""
        return f"on {self.domain}" + (f": {self.coverage}" if self.coverage is not None else "")

    def __repr__(self) -> str:
        error = f"error <= {outward(self.error, 6, 'upper'):.6g}"
        inside = ", ".join(p for p in (error, self.where) if p)
        return within_columns(f"Certificate({inside})")

    def __str__(self) -> str:
        wide = max(len(t.name) for t in self.terms)
        lines = [f"  {t.name:<{wide}}  {t.value:.3e}  {t.why}" for t in self.terms]
        return "\n".join([self.headline, *([self.where] if self.where else []), *lines])

    def _repr_html_(self) -> str:
        return html_answer("; ".join(filter(None, (self.headline, self.where))), self.rows)

    @property
    def rows(self) -> list[dict[str, object]]:
        """The terms of the error, each with why it is no more."""
        return [{"term": t.name, "at most": t.value, "because": t.why} for t in self.terms]

    def about(self, trial: Trial) -> Certificate:
        """The same promise, made of this network and task, on this domain."""
        return replace(self, trial=trial, domain=trial.domain, measured=None)

    def check(self, *, seed: int = 0) -> Check:
        """Try to break the promise with every attempt of the trial; the answer keeps the worst input found."""
        if self.trial is None:
            raise ValueError("this certificate is about no network yet; use the one that a Built carries")
        return self.trial.run(self.error, seed=seed)

    def claim(self, subject: str = "the network", check: Check | None = None) -> Claim:
        """The promise as a claim on its domain, and what trying to break it found.

        >>> c = Certificate((Term("outer", 0.25, "h^2/8"),), Source("headcount", "x"), ("tokens in [0, 1]",))
        >>> print(c.claim())
        the network is within 0.2501 of the target by construction, given tokens in [0, 1]: nobody tried to break it
        """
        conditions = [self._domain] if self.domain is not None else []
        # What it is built for is so by building; what its inputs and its arithmetic are is not.
        conditions += [
            Hypothesis(text, "assumed" if self.domain is None or "arithmetic" in text else "holds")
            for text in self.hypotheses
            if text != str(self.domain)
        ]
        conditions = conditions or [Hypothesis("the domain of the construction", short="its domain")]
        word = Predicate.WITHIN if check is None or check.holds else Predicate.BROKEN
        reason = "nobody tried to break it" if check is None else f"worst gap {check.gap:.4g} of {self.error:.4g}"
        return Claim(subject, word, self.error, Basis("constructed"), self.source, tuple(conditions), reason=reason)

    @property
    def _domain(self) -> Hypothesis:
        """The domain as a condition; one that leaves out some of the task's own samples says so in short too."""
        named = str(self.domain)
        shortly = named if len(named.split()) <= SHORT_DOMAIN else "its domain"
        if self.coverage is not None and not self.coverage.whole:
            shortly += f" ({100 * self.coverage.share:.3g}% of the task's samples)"
        return Hypothesis(self.where, short=shortly)

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary; numbers survive exactly."""
        return {
            "error": self.error,
            "terms": [asdict(t) for t in self.terms],
            "source": asdict(self.source),
            "hypotheses": list(self.hypotheses),
            "domain": plain(self.domain),
            "where": self.where,
            "coverage": None if self.coverage is None else {**asdict(self.coverage), "share": self.coverage.share},
        }

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """The certificate that `to_json` wrote."""
        kinds = {"terms": tuple[Term, ...], "source": Source, "hypotheses": tuple[str, ...]}
        where = "the certificate"
        parts = [checked(kind, field_of(data, key, where), key, where) for key, kind in kinds.items()]
        coverage = data.get("coverage")
        measured = decode(Coverage, coverage, "the coverage", also=("share",)) if coverage else None
        return cls(
            *parts, domain=rebuilt(data["domain"], "the domain") if data.get("domain") else None, measured=measured
        )
