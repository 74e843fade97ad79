"""A worst error as a problem for other verifiers: the error as ONNX, the domain and a threshold as VNN-LIB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.worst_case.sloped_targets import LookedUp, sloped
from headcount.certificates.worst_case.worst_error import Worst
from headcount.files import whole
from headcount.nets.exporting import traced, write_program
from headcount.tasks import Task

__all__ = ["ErrorGraph", "vnn_property", "write_problems"]


class ErrorGraph(nn.Module):
    """Tokens in a row, (1, length * token_dim), to network minus target, (1, 1), in float32."""

    def __init__(self, net: nn.Module, task: Task) -> None:
        super().__init__()
        target = sloped([task])
        if not isinstance(target, LookedUp):
            raise ValueError(f"the target of {type(task).__name__} is not known as a graph")
        self.net, self.shape, self.target = net.float(), (task.length, task.token_dim), target
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


def write_problems(folder: Path, name: str, net: nn.Module, task: Task, worst: Worst) -> list[Path]:
    """Write the error of a network as ONNX with two questions of known answer: above the proof, and below what was met.

    A thousandth is left to the rounding of float32. `instances.csv` lists graph, question and seconds, as
    competitions of verifiers do; `answers.csv` what is known: unsat above `upper`, sat below `lower`.
    """
    graph = ErrorGraph(net, task).eval()
    numbers = task.length * task.token_dim
    onnx = folder / f"{name}.onnx"
    facts = {"worst_lower": worst.lower, "worst_upper": worst.upper, "low": worst.domain.low, "high": worst.domain.high}
    write_program(traced(graph, (torch.zeros(1, numbers),), None), onnx, facts)
    written = [onnx]
    for answer, threshold in (("unsat", 1.001 * worst.upper), ("sat", 0.999 * worst.lower)):
        path = folder / f"{name}_{answer}.vnnlib"
        with whole(path) as scratch:
            scratch.write_text(vnn_property(numbers, worst.domain.low, worst.domain.high, threshold), encoding="utf-8")
        written.append(path)
    lists = {
        "instances.csv": "".join(f"{onnx.name},{path.name},300\n" for path in written[1:]),
        "answers.csv": "".join(f"{path.name},{path.stem.rpartition('_')[2]}\n" for path in written[1:]),
    }
    for file, text in lists.items():
        with whole(folder / file) as scratch:
            scratch.write_text(text, encoding="utf-8")
        written.append(folder / file)
    return written
