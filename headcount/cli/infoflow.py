"""`headcount predict` and `advise`: what an architecture computes cheaply, and which one to take."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import Embedding, Layers, Length, Out, TaskOrFile, With, fields_of
from headcount.cli.printing import Listing, Printout
from headcount.numerals import magnitude, power

if TYPE_CHECKING:
    from headcount.papers.infoflow import Advice, Prediction
    from headcount.structure import Structure
    from headcount.tasks import Task

BASES = {
    "constructed": "a certified network of this shape exists; `build` with this architecture returns it",
    "proved": "under the conditions below, a network of this shape pays at least what stands at 'At least'",
    "impossible": "no network of this shape computes it, at any price",
    "calculus": "InfoFlow's counting; no proof either way",
}


@dataclass(frozen=True)
class PredictOptions:
    """What `headcount predict` takes."""

    task: TaskOrFile
    layers: Layers
    length: Length = 64
    fields: With = None
    positions: Annotated[int, typer.Option(help="Position features (0: none).")] = 0
    embed_dim: Annotated[int, typer.Option(help="Width of a state (0: the widest layer).")] = 0
    class_token: Annotated[str, typer.Option(help="Where it attends: in every layer, or in the last.")] = "every"
    embedding: Embedding = "feed-forward"
    out: Out = None


def predict(options: PredictOptions) -> Printout:
    """Say whether an architecture computes a task cheaply.

    On what basis, by which plan, and what limits it.
    """
    from headcount.nets import Architecture
    from headcount.papers.infoflow import predict as infoflow_predict

    kind = {name: getattr(options, name) for name in ("positions", "embed_dim", "class_token", "embedding")}
    arch, described = Architecture.parse(options.layers, **kind), (options.task, options.length, options.fields or [])
    prediction, title = infoflow_predict(task_described(*described), arch), _title(options.task)
    row = prediction.as_row()
    files = prediction.files(options.out, title) if options.out else ()
    lines = _prediction_lines(title, prediction, _assumed(*described))
    return Printout(row, lines, prediction.claim(f"{title} by {arch.name}"), files)


def advise(
    task: TaskOrFile,
    eps: Annotated[float, typer.Option(help="The error wanted.")] = 1e-2,
    length: Length = 64,
    fields: With = None,
    max_layers: Annotated[int, typer.Option(help="Most layers to consider.")] = 4,
    max_heads: Annotated[int, typer.Option(help="Most heads in a layer.")] = 8,
    out: Out = None,
) -> Printout:
    """Rank architectures for a task by predicted parameters.

    And say which cannot compute it, and why.
    """
    from headcount.papers.infoflow import advise as infoflow_advise

    target, title = task_described(task, length, fields or []), _title(task)
    advice = infoflow_advise(target, eps, max_layers=max_layers, max_heads=max_heads)
    files = advice.files(out, title) if out else ()
    lines = _advice_lines(title, advice, _assumed(task, length, fields or []))
    return Printout(advice.as_row(), lines, advice.claim(title), files)


def task_described(task: str, length: int, fields: list[str]) -> Task | Structure:
    """A shipped task, or the structure of the one a TOML file describes."""
    from headcount.papers.infoflow import read_structure

    if task.endswith(".toml"):
        if fields:
            raise ValueError(f"{task} describes the task itself; --with is for tasks by name")
        return read_structure(task)
    from headcount.tasks.catalogue import named, typical

    return named(task, length, **typical(task, fields_of(fields)))


def _assumed(task: str, length: int, fields: list[str]) -> str:
    """What the catalogue took for what was left open, with the option that says otherwise; empty where nothing was."""
    from headcount.tasks.catalogue import SHIPPED, typical

    if task not in {cls.__name__ for cls in SHIPPED}:
        return ""
    stated = fields_of(fields)
    taken = [f"{name}={_plain(value)}" for name, value in typical(task, stated).items() if name not in stated]
    return f"Taken: {', '.join([f'length={length}', *taken])}; --with NAME=VALUE takes others." if taken else ""


def _plain(value: Any) -> str:
    return json.dumps(value).replace(" ", "")


def _title(task: str) -> str:
    return Path(task).stem if task.endswith(".toml") else task


def _prediction_lines(title: str, p: Prediction, assumed: str) -> list[str | Listing]:
    arch = p.arch
    places = f"{arch.positions} position features" if arch.positions else "no positions"
    places += ", class token in the last layer only" if arch.class_token == "last" else ""
    places += ", tokens enter by one matrix" if arch.embedding == "linear" else ""
    about = "" if p.warrant == "proved" else "about "
    cost = f"parameters {about}{p.cost}" if p.feasible else p.cost
    lines = [f"{title} by {arch.name} ({places}): {p.verdict.upper()}, {cost}"]
    lines += [assumed] if assumed else []
    lines.append(_labelled("Basis", f"{p.basis.kind}: {BASES[p.basis.kind if p.feasible else 'impossible']}"))
    lines.append(_labelled("Limit", p.limiting))
    lines += [_labelled("Would do", "; or ".join(map(str, p.fixes)))] if p.fixes else []
    lines += [_labelled("At least", str(p.lower))] if p.lower is not None else []
    lines += [_labelled("Outside", str(p.outside))] if p.outside is not None else []
    return [*lines, *_cautions(p), *_plan(p), "\nHow we know", *_statements(p), ""]


def _plan(p: Prediction) -> Iterable[str]:
    if not p.plan:
        return
    yield "\nPlan"
    for step in p.plan:
        yield _labelled(f"  layer {step.layer}", f"{step.who} at {step.place}: {step.attends} ({step.retrieval})")
        price = f"carries {step.carries:,}, eps^-{power(step.exponent)}"
        yield _labelled("", f"{step.mode}, score: {step.score}, {price}; {step.knows}")
    if grown := ", ".join(f"layer {k.layer}: {k.token:,} and {k.cls:,}" for k in p.known):
        yield _labelled("  known", f"tokens a token and the class token can depend on, {grown}")


def _statements(p: Prediction) -> Iterable[str]:
    if not p.statements:
        yield _labelled("  calculus", "the counting alone; no statement speaks of this shape", indent=16)
    for s in p.statements:
        yield _labelled(f"  {s.status}", f"{s.says} ({s.source})", indent=16)


def _cautions(p: Prediction) -> list[str]:
    return [_labelled("Caution", str(caution)) for caution in p.cautions]


def _labelled(label: str, words: str, indent: int = 11) -> str:
    return textwrap.fill(words, 80, initial_indent=f"{label:<{indent}}", subsequent_indent=" " * indent)


def _advice_lines(title: str, advice: Advice, assumed: str) -> list[str | Listing]:
    best = advice.best
    lines: list[str | Listing] = [
        f"{title}, error {advice.eps:g}: best {best.architecture.name} ({best.prediction.verdict})"
    ]
    lines += [assumed] if assumed else []
    for step in best.prediction.plan:
        lines.append(_labelled(f"  layer {step.layer}", f"{step.who} at {step.place}: {step.attends} ({step.mode})"))
    columns = ("layers", "E", "pos", "parameters", "exponent", "basis", "reason")
    lines += [*_cautions(best.prediction), "", Listing(_ranked(advice), columns)]
    lines += [f"\nLeast heads per layer that are cheap, of dimension {advice.head_dim}", *_frontier(advice), ""]
    lines += _next(advice)
    return lines if best.prediction.cheap else [*lines, f"Nothing tried is cheap for {title}."]


def _ranked(advice: Advice) -> list[dict[str, object]]:
    return [
        {
            **c.as_row(),
            "parameters": magnitude(c.parameters) if c.parameters else "-",
            "basis": c.prediction.basis.kind,
            "E": c.architecture.embed_dim,
            "pos": c.architecture.positions,
        }
        for c in advice.ranked
    ]


def _frontier(advice: Advice) -> Iterable[str]:
    for f in advice.frontier:
        where = f"{f.layers} layer{'s' if f.layers > 1 else ''}, {'positions' if f.positions else 'no positions'}"
        heads = f"{f.heads}" if f.heads else "no number tried"
        why = "" if f.heads == 1 else f"; fewer: {f.reason}" if f.heads else f": {f.reason}"
        yield _labelled(f"  {where}", f"{heads}{why}", indent=27)


def _next(advice: Advice) -> Iterable[str]:
    """What can be had with a certificate, and how."""
    for candidate in advice.buildable[:1]:
        arch = candidate.architecture
        fields = f"{arch.layers}, positions={arch.positions}, embed_dim={arch.embed_dim}"
        yield f"With a certificate: build(task, {advice.eps:g}, arch=Architecture({fields}))"
