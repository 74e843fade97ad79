"""Many networks certified as banks: those of one shape and one form of target together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headcount.certificates.worst_case.branching import Progress, SearchLimits
from headcount.certificates.worst_case.folded import fold, plain_net
from headcount.certificates.worst_case.proofs import prove
from headcount.certificates.worst_case.sloped_targets import looked_up, sloped
from headcount.certificates.worst_case.worst_error import domain_of
from headcount.results import Study
from headcount.tasks import Task


@dataclass(frozen=True)
class CertifiedRow:
    """The worst error of one network among many."""

    worst_lower: float
    worst_upper: float
    boxes: int
    open: int


def certify_all(
    networks: Sequence[tuple[nn.Module, Task]],
    *,
    ratio: float = 1.5,
    box: tuple[float, float] | None = None,
    budget: SearchLimits | None = None,
    device: torch.device | str = "cpu",
    on_progress: Progress | None = None,
) -> list[CertifiedRow]:
    """The worst errors of one-layer networks, each on the own domain of its task or on `box`, in their order.

    >>> from headcount.nets import Architecture, Transformer
    >>> from headcount.tasks import Wells
    >>> nets = [Transformer(Architecture(layers=((h, 2),), width=4), token_dim=1, seed=h) for h in (1, 2, 1)]
    >>> rows = certify_all([(net, Wells([[0.25]], length=2)) for net in nets])
    >>> [row.open for row in rows], rows[0].worst_lower == rows[2].worst_lower
    ([0, 0, 0], True)
    """
    groups: dict[object, list[int]] = defaultdict(list)
    for k, (net, task) in enumerate(networks):
        plain, _, _ = plain_net(net)
        statistics, outer = looked_up(task)
        form = tuple((s.places, s.rank) for s in statistics)
        groups[plain.arch, task.length, task.token_dim, form, outer].append(k)
    rows: dict[int, CertifiedRow] = {}
    for at in groups.values():
        nets, tasks = zip(*(networks[k] for k in at), strict=True)
        low, high = box or _ends(tasks[0])
        folded = fold(nets, tasks[0].length, max(abs(low), abs(high))).to(device)
        target = sloped(tasks).to(device)
        proofs = prove(folded, target, low, high, ratio=ratio, budget=budget, on_progress=on_progress)
        columns = (proofs.lower, proofs.upper, proofs.boxes, proofs.open)
        for k, *numbers in zip(at, *(c.tolist() for c in columns), strict=True):
            rows[k] = CertifiedRow(*numbers)
    return [rows[k] for k in range(len(networks))]


def certified_study(study: Study, found: Sequence[CertifiedRow]) -> Study:
    """The study with the worst error of each row, which `fit` reads as it reads the mean ones.

    >>> study = certified_study(Study(rows=({"heads": 1, "nmse": 0.1},)), [CertifiedRow(0.2, 0.3, 9, 0)])
    >>> study.rows[0]["worst_upper"]
    0.3
    """
    rows: Any = tuple(
        {**row, "worst_lower": worst.worst_lower, "worst_upper": worst.worst_upper}
        for row, worst in zip(study, found, strict=True)
    )
    return replace(study, rows=rows)


def _ends(task: Task) -> tuple[float, float]:
    own = domain_of(task)
    return own.low, own.high
