"""The answer to one instance of token selection: the solution with its proof, or the proof that there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from headcount.files import write_json, write_text
from headcount.notebook import AnswerInNotebook
from headcount.numerals import outward
from headcount.papers.attention_svm.head_instances import ChoiceRow
from headcount.papers.attention_svm.instance_files import SelectionFile, trained_gaps, write_solution
from headcount.papers.attention_svm.margins import (
    InfeasibleError,
    MarginNorm,
    MaxMargin,
    constraint_rows,
    frobenius,
    max_margin,
    nuclear,
)
from headcount.papers.attention_svm.path_picture import SolutionRow, margin_page, solution_rows
from headcount.refusals import nearest

ROUNDING = 1e-14  # of sums of products in float64, beside the largest of them
NORMS = {"frobenius": frobenius, "nuclear": nuclear}


@dataclass(frozen=True, eq=False)
class SelectionAnswer(AnswerInNotebook):
    """The matrices of least norm that put the chosen tokens first, the one of `norm` among them."""

    instance: SelectionFile
    norm: str
    solved: dict[str, MaxMargin]

    @property
    def one(self) -> MaxMargin:
        """The solution in the norm that was meant."""
        return self.solved[self.norm]

    @property
    def rows(self) -> list[SolutionRow]:
        """A row for each norm."""
        return solution_rows(self.solved)

    @property
    def sentence(self) -> str:
        """How small a matrix suffices, and how much smaller none does."""
        off = outward(max(self.one.gap, ROUNDING), 1, "upper")
        least = f"none with a norm smaller by {off:.0e} of it does"
        return f"a matrix of {self.norm} norm {self.one.norm:.6g} puts every chosen token first by 1; {least}"

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        (row,) = solution_rows({self.norm: self.one})
        facts = row | {"feasible": True, "chosen": self.instance.chosen.tolist()}
        return facts | {"support": self.one.support, "singular values": self.one.singular_values.tolist()}

    def files(
        self, out: Path, command: str = "", *, steps: int = 2000, choices: Sequence[ChoiceRow] = ()
    ) -> list[Path]:
        """The page, with a path trained for so many steps where the instance has labels, and the solution."""
        lead = f"{self.sentence[:1].upper()}{self.sentence[1:]}."
        paths = trained_gaps(self.instance, steps)
        page = margin_page(self.solved, self.instance.sizes, paths, lead, command, choices)
        return [
            write_text(out / "margin.html", page),
            write_solution(out / "margin.npz", self.instance, self.one),
        ]


class ConstraintRow(TypedDict):
    """That the chosen token comes before another one, and its weight in the sum that vanishes."""

    weight: float
    sequence: int
    chosen: int
    token: int


@dataclass(frozen=True, eq=False)
class NoSelection(AnswerInNotebook):
    """No matrix: weights of constraints that add up to nothing, so that no margins can all be positive (Farkas)."""

    instance: SelectionFile
    reason: InfeasibleError

    @property
    def rows(self) -> list[ConstraintRow]:
        """The constraints of the combination, the heaviest first."""
        instance = self.instance
        _, names = constraint_rows(instance.tokens, instance.queries, instance.chosen)
        rows: list[ConstraintRow] = [
            {"weight": float(w), "sequence": i, "chosen": int(instance.chosen[i]), "token": t}
            for w, (i, t) in zip(self.reason.combination, names, strict=True)
            if w > 1e-12
        ]
        return sorted(rows, key=lambda row: -row["weight"])

    @property
    def least_norm(self) -> float:
        """The norm, Frobenius or nuclear, below which no matrix has margins 1: one over what the constraints leave.

        Weighted, of sum 1, they add up to v: margins of 1 and more give <W, v> >= 1, and so |W| >= 1/|v|.
        """
        instance = self.instance
        rows, _ = constraint_rows(instance.tokens, instance.queries, instance.chosen)
        left = float(np.linalg.norm(self.reason.combination @ rows))
        size = left + ROUNDING * float(np.linalg.norm(rows, axis=1).max())
        return 1 / size if size else math.inf  # all tokens are the same

    @property
    def sentence(self) -> str:
        if math.isinf(self.least_norm):
            return "no matrix puts these tokens first: every other token is the same as the one chosen"
        least = f"{outward(self.least_norm, 2, 'lower'):.1e}"
        cancel = f"{len(self.rows)} of the constraints, so weighted, cancel as far"
        return f"no matrix of a norm below {least} puts these tokens first by 1: {cancel}"

    def files(self, out: Path) -> list[Path]:
        """All of it in `no-margin.json`."""
        return [write_json(out / "no-margin.json", self.to_json())]

    def to_json(self) -> dict[str, bool | float | list[ConstraintRow]]:
        """A JSON-ready dictionary."""
        return {"feasible": False, "combination": self.rows, "least norm": self.least_norm}


def margin_norm(name: str) -> MarginNorm:
    """The norm of this name.

    >>> margin_norm("nuclera")
    Traceback (most recent call last):
    ...
    ValueError: unknown norm 'nuclera'; did you mean 'nuclear'?
    """
    if name not in NORMS:
        raise ValueError(f"unknown norm {name!r}; {nearest(name, NORMS)}")
    return NORMS[name]


def answer_selection(
    instance: SelectionFile, norm: str = "frobenius", *, both: bool = False
) -> SelectionAnswer | NoSelection:
    """Solve an instance in one norm, or in `both`, or prove that nothing solves it."""
    names = tuple(NORMS) if both else (norm,)
    arrays = instance.tokens, instance.queries, instance.chosen
    try:
        solved = {name: max_margin(*arrays, margin_norm(name)) for name in names}
    except InfeasibleError as none:
        return NoSelection(instance, none)
    return SelectionAnswer(instance, norm, solved)
