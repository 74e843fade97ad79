"""`headcount predict` and `headcount advise`: which depth, heads and dimensions a task needs, and why."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, conclude, emit_json, out_file, say, show_table, tell_written
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
TaskName = Annotated[
    str, typer.Argument(help="A task's name (see `headcount tasks`), or a TOML file that describes one.")
]
Length = Annotated[int, typer.Option(help="Tokens in a sequence; a TOML file says it itself.", show_default=False)]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="A field of the task, as retrievals=2; may be repeated.", show_default=False),
]
Layers = Annotated[str, typer.Option(help="Every layer as heads x head_dim, as 2x8+2x8.")]
Embedding = Annotated[str, typer.Option(help="How tokens enter: feed-forward, or linear (one matrix).")]


def register(app: typer.Typer) -> None:
    @app.command("predict")
    def predict(
        task: TaskName,
        layers: Layers,
        length: Length = 64,
        fields: With = None,
        positions: Annotated[int, typer.Option(help="Position features (0: none).")] = 0,
        embed_dim: Annotated[int, typer.Option(help="Width of a state (0: the widest layer).")] = 0,
        class_token: Annotated[str, typer.Option(help="Where it attends: in every layer, or in the last.")] = "every",
        embedding: Embedding = "feed-forward",
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Say whether an architecture computes a task cheaply.

        On what basis, by which plan, and what limits it.
        """
        from headcount.nets import Architecture
        from headcount.papers.infoflow import draw
        from headcount.papers.infoflow import predict as ask

        kind = {"positions": positions, "embed_dim": embed_dim, "class_token": class_token, "embedding": embedding}
        arch = Architecture.parse(layers, **kind)
        prediction = ask(task_described(task, length, fields or []), arch)
        files = _written(out, "prediction.json", prediction.as_row(), draw(prediction, _title(task))) if out else ()
        if as_json:
            emit_json(prediction.as_row())
        else:
            _print_prediction(_title(task), prediction, _assumed(task, length, fields or []), files)

    @app.command("advise")
    def advise(
        task: TaskName,
        eps: Annotated[float, typer.Option(help="The error wanted.")] = 1e-2,
        length: Length = 64,
        fields: With = None,
        max_layers: Annotated[int, typer.Option(help="Most layers to consider.")] = 4,
        max_heads: Annotated[int, typer.Option(help="Most heads in a layer.")] = 8,
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Rank architectures for a task by predicted parameters.

        And say which cannot compute it, and why.
        """
        from headcount.papers.infoflow import advise as ask
        from headcount.papers.infoflow import draw

        target = task_described(task, length, fields or [])
        advice = ask(target, eps, max_layers=max_layers, max_heads=max_heads)
        drawn = draw(advice.best.prediction, _title(task)) if out else ""
        files = _written(out, "advice.json", advice.as_row(), drawn) if out else ()
        if as_json:
            emit_json(advice.as_row())
        else:
            _print_advice(_title(task), advice, _assumed(task, length, fields or []), files)


def task_described(task: str, length: int, fields: list[str]) -> Task | Structure:
    """A shipped task, or the structure of the one a TOML file describes."""
    from headcount.papers.infoflow import read_structure

    if task.endswith(".toml"):
        if fields:
            raise ValueError(f"{task} describes the task itself; --with is for tasks by name")
        return read_structure(task)
    from headcount.tasks.catalogue import named, typical

    return named(task, length, **typical(task, fields_of(fields)))


def fields_of(texts: list[str]) -> dict[str, Any]:
    """The fields of a task, each given as name=value."""
    return dict(_field(text) for text in texts)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--with takes name=value, as retrievals=2; got {text!r}")
    if name.strip() == "length":
        raise ValueError(f"the length of a task is said by --length, not by --with {text}")
    try:
        return name.strip(), _frozen(json.loads(value))
    except json.JSONDecodeError:
        return name.strip(), value


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _assumed(task: str, length: int, fields: list[str]) -> str:
    """What the catalogue took for what was left open, with the option that says otherwise; empty where nothing was."""
    from headcount.tasks.catalogue import SHIPPED, typical

    if task not in {cls.__name__ for cls in SHIPPED}:
        return ""
    given = fields_of(fields)
    taken = [f"{name}={_plain(value)}" for name, value in typical(task, given).items() if name not in given]
    return f"Taken: {', '.join([f'length={length}', *taken])}; --with NAME=VALUE takes others." if taken else ""


def _plain(value: Any) -> str:
    return json.dumps(value).replace(" ", "")


def _written(out: Path, name: str, row: Any, drawn: str) -> tuple[Path, ...]:
    return out_file(out, "flow.svg", drawn), out_file(out, name, json.dumps(row, indent=2) + "\n")


def _title(task: str) -> str:
    return Path(task).stem if task.endswith(".toml") else task


def _print_prediction(title: str, p: Prediction, assumed: str, files: Iterable[Path]) -> None:
    arch = p.arch
    places = f"{arch.positions} position features" if arch.positions else "no positions"
    places += ", class token in the last layer only" if arch.class_token == "last" else ""
    places += ", tokens enter by one matrix" if arch.embedding == "linear" else ""
    about = "" if p.warrant == "proved" else "about "
    cost = f"parameters {about}{p.cost}" if p.feasible else p.cost
    say(f"{title} by {arch.name} ({places}): {p.verdict.upper()}, {cost}")
    if assumed:
        say(assumed)
    _paragraph("Basis", f"{p.basis.kind}: {BASES[p.basis.kind if p.feasible else 'impossible']}")
    _paragraph("Limit", p.limiting)
    if p.fixes:
        _paragraph("Would do", "; or ".join(map(str, p.fixes)))
    if p.lower is not None:
        _paragraph("At least", str(p.lower))
    if p.outside is not None:
        _paragraph("Outside", str(p.outside))
    _cautions(p)
    if p.plan:
        say("\nPlan")
        for step in p.plan:
            _paragraph(f"  layer {step.layer}", f"{step.who} at {step.place}: {step.attends} ({step.retrieval})")
            price = f"carries {step.carries:,}, eps^-{power(step.exponent)}"
            _paragraph("", f"{step.mode}, score: {step.score}, {price}; {step.knows}")
        grown = ", ".join(f"layer {k.layer}: {k.token:,} and {k.cls:,}" for k in p.known)
        if grown:
            _paragraph("  known", f"tokens a token and the class token can depend on, {grown}")
    say("\nHow we know")
    if not p.statements:
        _paragraph("  calculus", "the counting alone; no statement speaks of this shape", indent=16)
    for s in p.statements:
        _paragraph(f"  {s.status}", f"{s.says} ({s.source})", indent=16)
    say()
    tell_written(files)
    conclude(p.claim(f"{title} by {arch.name}"))


def _cautions(p: Prediction) -> None:
    for caution in p.cautions:
        _paragraph("Caution", str(caution))


def _paragraph(label: str, words: str, indent: int = 11) -> None:
    say(textwrap.fill(words, 80, initial_indent=f"{label:<{indent}}", subsequent_indent=" " * indent))


def _print_advice(title: str, advice: Advice, assumed: str, files: Iterable[Path]) -> None:
    best = advice.best
    say(f"{title}, error {advice.eps:g}: best {best.architecture.name} ({best.prediction.verdict})")
    if assumed:
        say(assumed)
    for step in best.prediction.plan:
        _paragraph(f"  layer {step.layer}", f"{step.who} at {step.place}: {step.attends} ({step.mode})")
    _cautions(best.prediction)
    say()
    rows = [
        {
            **c.as_row(),
            "parameters": magnitude(c.parameters) if c.parameters else "-",
            "basis": c.prediction.basis.kind,
            "E": c.architecture.embed_dim,
            "pos": c.architecture.positions,
        }
        for c in advice.ranked
    ]
    show_table(rows, ("layers", "E", "pos", "parameters", "exponent", "basis", "reason"))
    say(f"\nLeast heads per layer that are cheap, of dimension {advice.head_dim}")
    for f in advice.frontier:
        where = f"{f.layers} layer{'s' if f.layers > 1 else ''}, {'positions' if f.positions else 'no positions'}"
        heads = f"{f.heads}" if f.heads else "no number tried"
        why = "" if f.heads == 1 else f"; fewer: {f.reason}" if f.heads else f": {f.reason}"
        _paragraph(f"  {where}", f"{heads}{why}", indent=27)
    say()
    tell_written(files)
    for line in _next(advice):
        say(line)
    if not best.prediction.cheap:
        say(f"Nothing tried is cheap for {title}.")
    conclude(advice.claim(title))


def _next(advice: Advice) -> Iterable[str]:
    """What can be had with a certificate, and how."""
    for made in advice.buildable[:1]:
        arch = made.architecture
        fields = f"{arch.layers}, positions={arch.positions}, embed_dim={arch.embed_dim}"
        yield f"With a certificate: build(task, {advice.eps:g}, arch=Architecture({fields}))"
