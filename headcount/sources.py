"""Where each result comes from: a citation is a value that travels with every bound and construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["PAPERS", "Paper", "Result", "Source", "implements", "results"]

Code = TypeVar("Code", bound=Callable[..., Any])


@dataclass(frozen=True)
class Paper:
    """A paper whose results this package makes executable."""

    title: str
    authors: str
    where: str


PAPERS = {
    "yu2025heads": Paper(
        "The Effect of Attention Head Count on Transformer Approximation",
        "P. Yu, H. Jiang, Z. Bao, R. Yu, Q. Li",
        "ICLR 2026, arXiv 2510.06662",
    ),
    "yu2026infoflow": Paper(
        "InfoFlow: A Framework for Multi-Layer Transformer Analysis",
        "P. Yu, H. Jiang, Z. Bao, Q. Li",
        "arXiv 2605.17930",
    ),
    "yu2025allocation": Paper(
        "Allocation of Parameters in Transformers",
        "R. Yu, H. Jiang, J. Cheng, P. Yu, Q. Li, Z. Li",
        "arXiv, October 2025",
    ),
    "ssm2025depth": Paper(
        "Effect of Depth on the Expressivity of Deep Linear State-Space Models",
        "ICLR 2026 submission 17007",
        "arXiv, June 2025",
    ),
    "zhou2026lr": Paper(
        "How to Set the Learning Rate for Large-Scale Pre-training?",
        "Y. Zhou, S. Xing, J. Huang, X. Qiu, Q. Guo",
        "arXiv 2601.05049",
    ),
    "headcount": Paper("headcount", "the authors of this package", "derived and checked here"),
}


@dataclass(frozen=True)
class Source:
    """One statement of one paper.

    >>> str(Source("yu2025heads", "Theorem 2(2)"))
    'Theorem 2(2) of Yu et al. 2025 (heads)'
    >>> Source("yu2099", "Theorem 1")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: unknown paper 'yu2099'; known: yu2025heads, yu2026infoflow, ...
    """

    paper: str
    name: str

    def __post_init__(self) -> None:
        if self.paper not in PAPERS:
            raise ValueError(f"unknown paper {self.paper!r}; known: {', '.join(PAPERS)}")

    def __str__(self) -> str:
        return f"{self.name} of {SHORT[self.paper]}"


SHORT = {
    "yu2025heads": "Yu et al. 2025 (heads)",
    "yu2026infoflow": "Yu et al. 2026 (InfoFlow)",
    "yu2025allocation": "Yu et al. 2025 (allocation)",
    "ssm2025depth": "the depth paper on linear SSMs",
    "zhou2026lr": "Zhou et al. 2026 (learning rate)",
    "headcount": "this package",
}


@dataclass(frozen=True)
class Result:
    """A statement, the function that makes it executable, and the test that holds it to its word."""

    source: Source
    code: str
    says: str
    test: str


_RESULTS: list[Result] = []


def implements(source: Source, *, test: str) -> Callable[[Code], Code]:
    """Mark a function or class as the executable form of a published statement.

    `test` names the test, as `tests/file.py::name`, that would fail if a constant of it were changed.
    The first line of the docstring is what `docs/theorems.md` prints.
    """

    def mark(code: Code) -> Code:
        says = (code.__doc__ or "").strip().splitlines()
        if not says:
            raise ValueError(f"{code.__qualname__} implements {source} and has no docstring to say how")
        _RESULTS.append(Result(source, f"{code.__module__}.{code.__qualname__}", says[0], test))
        return code

    return mark


def results() -> tuple[Result, ...]:
    """Every marked result of the rooms imported so far, paper by paper."""
    order = list(PAPERS)
    return tuple(sorted(_RESULTS, key=lambda r: (order.index(r.source.paper), r.source.name, r.code)))
