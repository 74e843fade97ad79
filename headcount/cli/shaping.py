"""`headcount shape`: how many heads a real model should have, with marks and intervals, and what would settle it."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import Out, task_of
from headcount.cli.printing import Listing, Printout

if TYPE_CHECKING:
    from headcount.papers.born.length_study import Judged
    from headcount.sizing.ranked_shapes import ShapeAnswer
    from headcount.sizing.settling import SettlingExperiment
    from headcount.tasks import Task

SHAPE = ("heads", "head_dim", "kv", "feed", "cache/token", "expected")
BESIDE = ("model", "heads", "cache bytes per token", "why it differs")


@dataclass(frozen=True)
class ShapeOptions:
    """What `headcount shape` takes."""

    budget: Annotated[str | None, typer.Argument(help="Parameters, as 135M or 1.5B.", show_default=False)] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Known model's name, a folder or a config.json, in place of a budget.", show_default=False
        ),
    ] = None
    width: Annotated[int | None, typer.Option(help="Width of the model (embed_dim).", show_default=False)] = None
    layers: Annotated[int | None, typer.Option(help="Layers.", show_default=False)] = None
    context: Annotated[int, typer.Option(help="Tokens of context.")] = 2048
    vocab: Annotated[int | None, typer.Option(help="Tokens known.", show_default="32768, encoders 0")] = None
    encoder: Annotated[bool, typer.Option("--encoder", help="Reads both ways and keeps no cache.")] = False
    cache_per_token: Annotated[
        str | None, typer.Option(help="Bytes of cache a token, as 16kB.", show_default=False)
    ] = None
    memory: Annotated[str | None, typer.Option(help="Bytes for weights and cache.", show_default=False)] = None
    speed: Annotated[float, typer.Option(help="Tokens a second that must be reached.")] = 0.0
    bandwidth: Annotated[str, typer.Option(help="Bytes a second that memory gives.")] = "1TB"
    worth: Annotated[float, typer.Option(help="Percent of loss that half the bytes a token are worth.")] = 0.5
    task: Annotated[
        str | None,
        typer.Option(help="Task, or letters as UR, that theorems are asked of.", show_default=False),
    ] = None
    evidence: Annotated[bool, typer.Option("--evidence", help="Print what was measured, row by row.")] = False
    experiment: Annotated[
        Path | None,
        typer.Option("--experiment", help="Write the sweep that decides between the first two.", show_default=False),
    ] = None
    text: Annotated[str, typer.Option(help="What --experiment trains on: .npz windows or a text file.")] = "text.txt"
    flops: Annotated[float, typer.Option(help="Arithmetic that --experiment may take.")] = 1e17
    out: Out = None


def shape(options: ShapeOptions) -> Printout:
    """How many heads should a model have?

    Ranks heads, head_dim and key-value heads of one budget by cost and expected quality.
    """
    if options.evidence:
        return _evidence(options.out)
    from headcount.files import write_text
    from headcount.sizing.ranked_shapes import shape as ranked

    answer = ranked(
        options.budget,
        model=options.model,
        width=options.width,
        layers=options.layers,
        context=options.context,
        vocab=options.vocab,
        encoder=options.encoder,
        cache_per_token=_bytes(options.cache_per_token),
        memory=_bytes(options.memory),
        speed=options.speed,
        bandwidth=_bytes(options.bandwidth),
        worth=options.worth,
        task=None if options.task is None else _task(options.task),
    )
    files = [] if options.out is None else answer.files(options.out, _called())
    planned = None if options.experiment is None else _planned(answer, options.text, options.flops)
    lines: list[str | Listing] = [Listing(answer.short_rows[:8], SHAPE), "", Listing(answer.beside(), BESIDE), ""]
    lines += answer.theory
    if planned is not None and options.experiment is not None:
        files.append(write_text(options.experiment, planned.to_toml()))
        lines.append(f"{planned.sentence}; `headcount sweep {options.experiment}` runs it.")
    lines += [answer.compared] if answer.compared else []
    facts = answer.to_json() | {"experiment": None if planned is None else planned.sentence}
    return Printout(facts, lines, answer.sentence, files)


def _planned(answer: ShapeAnswer, text: str, flops: float) -> SettlingExperiment:
    from headcount.sizing.settling import settling_experiment

    vocab = 2048 if text.endswith(".npz") else 256
    return settling_experiment(answer, text=text, flops=flops, length=min(answer.context, 256), vocab=vocab)


def _evidence(out: Path | None) -> Printout:
    from headcount.sizing.evidence import evidence_table
    from headcount.sizing.shape_page import EvidenceSummary, evidence_rows, pooled_rows

    evidence = EvidenceSummary(evidence_table())
    rows, lines = evidence_rows(evidence.table), list[str | Listing]()
    for change in evidence.table.changes:
        of = [row for row in rows if row["change"] == change]
        lines += [Listing(of, ("id", "found", "source", "checked"), change), ""]
    lines.append(Listing(pooled_rows(evidence.pooled), ("change", "sources", "percent per step", "a further source")))
    return Printout(evidence.to_json(), lines, evidence.sentence, [] if out is None else evidence.files(out, _called()))


def _called() -> str:
    """The command as it was typed."""
    return " ".join(["headcount", *(shlex.quote(word) for word in sys.argv[1:])])


def _task(name: str) -> Task | Judged:
    """A task of the catalogue or, by its code, of letters."""
    from headcount.papers.born.length_study import letter_task
    from headcount.tasks.catalogue import catalogue

    if name in (known := [str(row["task"]) for row in catalogue()]):
        return task_of(name, None)
    try:
        return letter_task(name)
    except ValueError as problem:
        raise ValueError(f"{problem}; and of numbers: {', '.join(known)}") from None


def _bytes(text: str | None) -> float:
    from headcount.numerals import bytes_from

    return math.inf if text is None else float(bytes_from(text))
