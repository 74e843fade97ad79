"""Every reproduction by its name, `paper:table`."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.papers.allocation.reproduce import ALLOCATION
from headcount.papers.attention_svm.reproduce import ATTENTION_SVM
from headcount.papers.born.reproduce import BORN
from headcount.papers.consistency.reproduce import CONSISTENCY
from headcount.papers.hardmax.reproduce import HARDMAX
from headcount.papers.head_count.reproduce import CIFAR, SYNTHETIC, TEXT
from headcount.papers.icl.reproduce import ICL
from headcount.papers.induction.reproduce import INDUCTION
from headcount.papers.infoflow.reproduce import INFOFLOW
from headcount.papers.prompts.reproduce import PROMPTS
from headcount.papers.ssm.reproduce import SSM
from headcount.refusals import nearest
from headcount.results.record import Reproduction

REPRODUCTIONS: tuple[Reproduction, ...] = (
    *SYNTHETIC,
    CIFAR,
    TEXT,
    *INFOFLOW,
    *ALLOCATION,
    *SSM,
    *ICL,
    *CONSISTENCY,
    *BORN,
    *INDUCTION,
    *HARDMAX,
    *ATTENTION_SVM,
    *PROMPTS,
)


def named(name: str) -> Reproduction:
    """The reproduction of this name.

    >>> named("allocation:e-128").paper
    'allocation'
    >>> named("head-count:table-9")
    Traceback (most recent call last):
    ...
    ValueError: no reproduction 'head-count:table-9'; did you mean 'head-count:table-...'?
    """
    by_name = {r.name: r for r in REPRODUCTIONS}
    if name not in by_name:
        raise ValueError(f"no reproduction {name!r}; {nearest(name, by_name)}")
    return by_name[name]


def listing() -> list[dict[str, object]]:
    """Every reproduction: what it makes again, what it takes, and the files in which its results would be.

    >>> listing()[0]["name"]
    'head-count:table-2'
    """
    return [
        {
            "name": r.name,
            "reproduces": r.says,
            **dict(zip(("quick", "CPU", "GPU"), r.times, strict=True)),
            "needs": r.needs or None,
            "files": [r.file(quick=quick) for quick in (True, False)],
        }
        for r in REPRODUCTIONS
    ]


def chosen(names: Sequence[str]) -> list[Reproduction]:
    """The reproductions asked for: names, a paper's name for all of its own, or `all`.

    >>> [r.name for r in chosen(["ssm"])]
    ['ssm:norms', 'ssm:learning']
    """
    papers = {r.paper for r in REPRODUCTIONS}
    selected: dict[str, Reproduction] = {}
    for name in names:
        wanted = [r for r in REPRODUCTIONS if name in ("all", r.paper)] if name in {"all", *papers} else [named(name)]
        selected |= {r.name: r for r in wanted}
    return list(selected.values())
