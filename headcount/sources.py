"""Where each result comes from: a citation is a value that travels with every bound and construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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
    "atad2026lens": Paper(
        "TensorLens: End-to-End Transformer Analysis via High-Order Attention Tensors",
        "I. A. Atad, I. Zimerman, S. Katz, L. Wolf",
        "arXiv 2601.17958",
    ),
    "alcalde2025exact": Paper(
        "Exact Sequence Interpolation with Transformers",
        "A. Alcalde, G. Fantuzzi, E. Zuazua",
        "Mathematical Foundations of Machine Learning 2 (2026) 2, arXiv 2502.02270",
    ),
    "tarzanagh2023svm": Paper(
        "Transformers as Support Vector Machines",
        "D. Ataee Tarzanagh, Y. Li, C. Thrampoulidis, S. Oymak",
        "arXiv 2308.16898",
    ),
    "chen2024induction": Paper(
        "Unveiling Induction Heads: Provable Training Dynamics and Feature Learning in Transformers",
        "S. Chen, H. Sheen, T. Wang, Z. Yang",
        "NeurIPS 2024, arXiv 2409.10559",
    ),
    "jobanputra2025born": Paper(
        "Born a Transformer - Always a Transformer?",
        "M. Jobanputra, Y. Veitsman, Y. Sarrof, A. Bakalova, V. Demberg, E. Pavlick, M. Hahn",
        "NeurIPS 2025, arXiv 2505.21785",
    ),
    "wang2023prompt": Paper(
        "Universality and Limitations of Prompt Tuning",
        "Y. Wang, J. Chauhan, W. Wang, C.-J. Hsieh",
        "NeurIPS 2023, arXiv 2305.18787",
    ),
    "zhou2026lr": Paper(
        "How to Set the Learning Rate for Large-Scale Pre-training?",
        "Y. Zhou, S. Xing, J. Huang, X. Qiu, Q. Guo",
        "Findings of ACL 2026, arXiv 2601.05049",
    ),
    "mehta2025icl": Paper(
        "Scaling Laws and In-Context Learning: A Unified Theoretical Framework",
        "S. Mehta, I. Gupta",
        "PriGM workshop at EurIPS 2025, arXiv 2511.06232",
    ),
    "ghosh2025consistent": Paper(
        "Transformers Are Universally Consistent",
        "S. Ghosh, K. Bose, S. Das",
        "arXiv 2505.24531",
    ),
    "yang2025kneedeep": Paper(
        "Knee-Deep in C-RASP",
        "A. Yang, M. Cadilhac, D. Chiang",
        "NeurIPS 2025, arXiv 2506.16055",
    ),
    "huang2025framework": Paper(
        "A Formal Framework for Understanding Length Generalization in Transformers",
        "X. Huang, A. Yang, S. Bhattamishra, Y. Sarrof, A. Krebs, H. Zhou, P. Nakkiran, M. Hahn",
        "ICLR 2025, arXiv 2410.02140",
    ),
    "bhojanapalli2020rank": Paper(
        "Low-Rank Bottleneck in Multi-head Attention Models",
        "S. Bhojanapalli, C. Yun, A. S. Rawat, S. Reddi, S. Kumar",
        "ICML 2020, arXiv 2002.07028",
    ),
    "amsel2024rank": Paper(
        "On the Benefits of Rank in Attention Layers",
        "N. Amsel, G. Yehudai, J. Bruna",
        "arXiv 2407.16153",
    ),
    "mahdavi2024memory": Paper(
        "Memorization Capacity of Multi-Head Attention in Transformers",
        "S. Mahdavi, R. Liao, C. Thrampoulidis",
        "ICLR 2024, arXiv 2306.02010",
    ),
    "headcount": Paper("headcount", "the authors of this package", "derived and checked here"),
}


@dataclass(frozen=True)
class Source:
    """One statement of one paper.

    >>> str(Source("yu2025heads", "Theorem 2(2)"))
    'Theorem 2(2) of Yu et al. 2025 (heads)'
    >>> Source("yu2099", "Theorem 1")
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
    "atad2026lens": "Atad et al. 2026 (TensorLens)",
    "alcalde2025exact": "Alcalde et al. 2025 (hardmax)",
    "tarzanagh2023svm": "Tarzanagh et al. 2023 (attention SVM)",
    "chen2024induction": "Chen et al. 2024 (induction heads)",
    "jobanputra2025born": "Jobanputra et al. 2025 (born a transformer)",
    "wang2023prompt": "Wang et al. 2023 (prompt tuning)",
    "zhou2026lr": "Zhou et al. 2026 (learning rate)",
    "mehta2025icl": "Mehta and Gupta 2025 (in-context scaling)",
    "ghosh2025consistent": "Ghosh et al. 2025 (consistency)",
    "yang2025kneedeep": "Yang et al. 2025 (knee-deep)",
    "huang2025framework": "Huang et al. 2025 (length framework)",
    "bhojanapalli2020rank": "Bhojanapalli et al. 2020 (low rank)",
    "amsel2024rank": "Amsel et al. 2024 (benefits of rank)",
    "mahdavi2024memory": "Mahdavi et al. 2024 (memorisation)",
    "headcount": "this package",
}


Status = Literal["proved in the paper", "proved here", "derived", "measured", "conjectured", "refuted here", ""]

# How a statement is known. The empty word is for one whose status nobody stated yet: a test names those.
STATUSES: dict[Status, str] = {
    "proved in the paper": "with this constant; read and, where marked, repaired",
    "proved here": "the proof stands beside the code, or the function is the construction and carries a certificate",
    "derived": "an argument or formula worked out here or second-hand, checked in numbers, without a full proof",
    "measured": "a definition or a fit: nothing to prove",
    "conjectured": "claimed or predicted, without a proof that we know",
    "refuted here": "false as published; the counterexample and the form that holds stand beside the code",
}


class Checked(str):
    """A hypothesis that the program itself checks, or refuses to go without."""

    __slots__ = ()


@dataclass(frozen=True)
class Implementation:
    """A statement, the function that makes it executable, and the test that holds it to its word.

    `hypotheses` are what it needs; those that the program checks are `Checked`, the others must be known otherwise.
    """

    source: Source
    code: str
    says: str
    test: str
    status: Status = ""
    hypotheses: tuple[str, ...] = ()

    @property
    def checked(self) -> tuple[str, ...]:
        """The hypotheses that the program checks."""
        return tuple(h for h in self.hypotheses if isinstance(h, Checked))

    @property
    def assumed(self) -> tuple[str, ...]:
        """The hypotheses that it takes on trust."""
        return tuple(h for h in self.hypotheses if not isinstance(h, Checked))


_IMPLEMENTATIONS: list[Implementation] = []


def implements(
    source: Source, *, test: str, status: Status = "", hypotheses: tuple[str, ...] = ()
) -> Callable[[Code], Code]:
    """Mark a function or class as the executable form of a published statement.

    `test` names the test, as `tests/file.py::name`, that would fail if a constant of it were changed; `status` is how
    the statement is known, `hypotheses` what it needs (`Checked(...)` where the program checks it).
    The first line of the docstring is what `docs/theorems.md` prints.
    """
    if status and status not in STATUSES:
        raise ValueError(f"unknown status {status!r} of {source}; known: {', '.join(STATUSES)}")

    def mark(code: Code) -> Code:
        says = (code.__doc__ or "").strip().splitlines()
        if not says:
            raise ValueError(f"{code.__qualname__} implements {source} and has no docstring to say how")
        _IMPLEMENTATIONS.append(
            Implementation(source, f"{code.__module__}.{code.__qualname__}", says[0], test, status, hypotheses)
        )
        return code

    return mark


def implementations() -> tuple[Implementation, ...]:
    """Every marked result of the rooms imported so far, paper by paper."""
    order = list(PAPERS)
    return tuple(sorted(_IMPLEMENTATIONS, key=lambda r: (order.index(r.source.paper), r.source.name, r.code)))
