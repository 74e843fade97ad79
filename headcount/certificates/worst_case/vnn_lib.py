"""A worst error as a problem for other verifiers: the error as ONNX, the domain and a threshold as VNN-LIB."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.domains import Box
from headcount.certificates.worst_case.sloped_targets import LookedUp, sloped
from headcount.files import write_text
from headcount.nets.exporting import traced, write_program
from headcount.tasks import Task


@dataclass(frozen=True, eq=False)
class ErrorProblem:
    """A network, its task and what is known of its worst error on a domain."""

    name: str
    net: nn.Module
    task: Task
    domain: Box
    lower: float
    upper: float


class ErrorGraph(nn.Module):
    """Tokens in a row, (1, length * token_dim), to network minus target, (1, 1), in float32."""

    def __init__(self, net: nn.Module, task: Task) -> None:
        super().__init__()
        target = sloped([task])
        if not isinstance(target, LookedUp):
            raise ValueError(f"the target of {type(task).__name__} is not known as a graph")
        self.net, self.shape, self.target = deepcopy(net).float(), (task.length, task.token_dim), target
        for name in ("curve", "vertex", "line"):
            self.register_buffer(name, getattr(target, name).float())

    def forward(self, x: Float[Tensor, "1 numbers"]) -> Float[Tensor, "1 1"]:
        tokens = x.view(1, *self.shape)
        target = replace(self.target, curve=self.curve, vertex=self.vertex, line=self.line)
        return (self.net(tokens) - target.value(tokens[None])[0])[:, None]


def vnn_property(numbers: int, low: float, high: float, threshold: float) -> str:
    """The question whether |error| reaches a threshold somewhere in the box: satisfiable means that it does.

    >>> print(vnn_property(1, 0.0, 1.0, 0.5))
    ; Is there an input in the box at which |network - target| >= 0.5?
    (declare-const X_0 Real)
    (declare-const Y_0 Real)
    (assert (>= X_0 0.0))
    (assert (<= X_0 1.0))
    (assert (or (and (>= Y_0 0.5)) (and (<= Y_0 -0.5))))
    <BLANKLINE>
    """
    lines = [f"; Is there an input in the box at which |network - target| >= {threshold!r}?"]
    lines += [f"(declare-const X_{i} Real)" for i in range(numbers)] + ["(declare-const Y_0 Real)"]
    for i in range(numbers):
        lines += [f"(assert (>= X_{i} {low!r}))", f"(assert (<= X_{i} {high!r}))"]
    lines.append(f"(assert (or (and (>= Y_0 {threshold!r})) (and (<= Y_0 {-threshold!r}))))")
    return "\n".join(lines) + "\n"


def write_problems(folder: Path, problems: Sequence[ErrorProblem]) -> list[Path]:
    """Write the errors of networks as ONNX, each with two questions: above the proof, and below what was met.

    A thousandth is left to the rounding of float32. `instances.csv` lists graph, question and seconds, as
    competitions of verifiers do; `answers.csv` what is known: unsat above `upper`, sat below `lower`.
    """
    written: list[Path] = []
    lists = {"instances.csv": "", "answers.csv": ""}
    for one in problems:
        onnx, questions = _write_problem(folder, one)
        written += [onnx, *questions.values()]
        lists["instances.csv"] += "".join(f"{onnx.name},{path.name},300\n" for path in questions.values())
        lists["answers.csv"] += "".join(f"{path.name},{answer}\n" for answer, path in questions.items())
    for file, text in lists.items():
        written.append(write_text(folder / file, text))
    return written


def _write_problem(folder: Path, one: ErrorProblem) -> tuple[Path, dict[str, Path]]:
    """The graph, and the questions by their answers."""
    numbers, low, high = one.task.length * one.task.token_dim, one.domain.low, one.domain.high
    onnx = folder / f"{one.name}.onnx"
    facts = {"worst_lower": one.lower, "worst_upper": one.upper, "low": low, "high": high}
    write_program(traced(ErrorGraph(one.net, one.task).eval(), (torch.zeros(1, numbers),), None), onnx, facts)
    questions = {}
    for answer, threshold in (("unsat", 1.001 * one.upper), ("sat", 0.999 * one.lower)):
        question = vnn_property(numbers, low, high, threshold)
        questions[answer] = write_text(folder / f"{one.name}_{answer}.vnnlib", question)
    return onnx, questions
