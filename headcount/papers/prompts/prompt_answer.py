"""What prompts of some lengths reach before given sequences: floors, prompts built and trained, and their page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from headcount.drawing.svg import Figure
from headcount.files import write_text
from headcount.notebook import AnswerInNotebook
from headcount.papers.prompts.experiments import tuning_rows
from headcount.papers.prompts.head_problems import LookedRow
from headcount.papers.prompts.layer_files import PromptProblem, write_problem
from headcount.papers.prompts.prompted_layer import random_layer
from headcount.papers.prompts.reaching import reach
from headcount.papers.prompts.strip import in_range, strip_of
from headcount.papers.prompts.strip_picture import prompt_page, strip_figure
from headcount.papers.prompts.traps import prompt_trap
from headcount.papers.prompts.tuning import fit_prompt

NOTHING = 1e-9  # a floor below this excludes nothing
TRAP = 1.0  # what every prompt leaves of the hard pair, at least


class PromptRow(TypedDict):
    """A length of prompt, or "any": no loss is below `floor`, some prompt reaches `least`; those built and trained."""

    tokens: int | str
    floor: float
    least: float
    built: float | None
    trained: float | None


@dataclass(frozen=True, eq=False)
class PromptAnswer(AnswerInNotebook):
    """A row for each length of prompt and one for any, the prompts built, and those trained from every start.

    `closed` is a floor under every prompt that is known in closed form, as of the hard pair; 0 where none is.
    """

    problem: PromptProblem
    rows: list[PromptRow]
    built: dict[int, np.ndarray]
    trained: dict[int, list[np.ndarray]]
    closed: float = 0.0

    @property
    def short_rows(self) -> list[dict[str, object]]:
        """The rows with the digits in which floor and losses differ."""
        return [{k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in self.rows]

    @property
    def sentence(self) -> str:
        """The floor under every prompt, or the prompt that comes nearest."""
        *lengths, every = self.rows
        if self.closed > every["floor"] > NOTHING:
            left = f"more than {self.closed:g} of loss on these targets, in closed form"
            return f"every prompt of any length leaves {left}"
        if every["floor"] > NOTHING:
            met = f"{every['floor']:.6g}" == f"{every['least']:.6g}"
            least = f"{every['floor']:.6g}" + ("" if met else f" (the least lies there or up to {every['least']:.6g})")
            return f"no prompt of any length brings the loss on these targets below {least}"
        near = min(lengths, key=lambda row: math.inf if row["built"] is None else row["built"])
        if near["floor"] > NOTHING:
            return f"prompts of these lengths cannot fit: {near['tokens']} tokens leave at least {near['floor']:.6g}"
        return f"nothing excludes a prompt: one of {near['tokens']} leaves {near['built']:.2g}"

    def files(
        self, out: Path, command: str = "", *, wanted: Sequence[LookedRow] = (), tuned_seed: int | None = None
    ) -> list[Path]:
        """The page, and the problem with the prompts built; `tuned_seed` adds low-rank updates of that hard pair."""
        facts = {"sequences": len(self.problem.contexts), "token dim": self.problem.layer.token_dim}
        tuned = [] if tuned_seed is None else tuning_rows(self.problem.layer.token_dim, seed=tuned_seed)
        lead = f"{self.sentence[:1].upper()}{self.sentence[1:]}."
        page = prompt_page(lead, self.short_rows, self._figures(), facts, tuned, command, wanted)
        written = write_text(out / "prompt.html", page)
        return [written, write_problem(out / "prompt.npz", self.problem, self.built)]

    def _figures(self) -> tuple[Figure, ...] | None:
        """The strip, wide and narrow, where the head has one."""
        layer, last = self.problem.layer, self.problem.last
        full = in_range(layer, self.problem.targets)[0].value.shape == layer.value.shape
        if not full or strip_of(layer, last).slope is None:
            return None
        shown = dict(list(self.trained.items())[:4])
        return tuple(strip_figure(layer, last, shown, width) for width in (640, 360))


def answer_problem(
    problem: PromptProblem, lengths: Sequence[int], starts: int = 4, seed: int = 0, *, closed: float = 0.0
) -> PromptAnswer:
    """What prompts of these lengths, and of any, reach: by calculation, by construction, and by training."""
    arguments = (problem.layer, problem.last, problem.contexts, problem.targets)
    answer = PromptAnswer(problem, [], {}, {}, closed)
    for m in lengths:
        reached, tuned = reach(*arguments, m), fit_prompt(*arguments, m, starts, seed)
        answer.rows.append({"tokens": m, "floor": reached.floor, "least": reached.error, "built": reached.prompt_loss,
                           "trained": tuned.loss})  # fmt: skip
        if reached.prompt is not None:
            answer.built[m] = reached.prompt
        answer.trained[m] = [values.reshape(m, -1) for values in tuned.every]
    every = reach(*arguments, None)
    answer.rows.append({"tokens": "any", "floor": every.floor, "least": every.error, "built": None, "trained": None})
    return answer


def hard_pair(token_dim: int = 6, seed: int = 3) -> PromptProblem:
    """A random layer with two sequences that no prompt memorises.

    >>> len(hard_pair(4, seed=0).contexts)
    2
    """
    if token_dim < 3 or seed < 0:
        raise ValueError(f"`token_dim` must be at least 3 and `seed` at least 0, got {token_dim} and {seed}")
    layer = random_layer(token_dim, np.random.default_rng(seed))
    trap = prompt_trap(layer, TRAP, seed)
    return PromptProblem(layer, trap.last, trap.contexts, trap.targets)
