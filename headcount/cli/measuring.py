"""`headcount measure`: how many heads given data need, measured on this machine, on a page."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import Device
from headcount.cli.printing import Listing, Printout, say

if TYPE_CHECKING:
    from headcount.measuring import Measurement

Sequence = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Table: a row per token; this column tells sequences apart.", show_default=False
    ),
]


@dataclass(frozen=True)
class MeasureOptions:
    """What `headcount measure` takes."""

    data: Annotated[
        str,
        typer.Argument(help=".npz, .csv, .parquet, a folder of safetensors, or module:function.", show_default=False),
    ]
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Table: the column to predict.")] = "target"
    sequence: Sequence = None
    window: Annotated[
        int | None,
        typer.Option(metavar="N", help="Table: a row per moment; predict from N on end.", show_default=False),
    ] = None
    horizon: Annotated[int, typer.Option(metavar="N", help="With --window: so many rows ahead.")] = 1
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Table: sequences of a group stay together.", show_default=False),
    ] = None
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="COLUMN", help="Table: says training or validation.", show_default=False),
    ] = None
    kind: Annotated[str | None, typer.Option("--kind", help="regression or classification.", show_default=False)] = None
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", help="numbers or letters, where whole numbers may be either.", show_default=False),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            "--text", help="characters or words: the one column without numbers is the text.", show_default=False
        ),
    ] = None
    heads: Annotated[str, typer.Option(help="Head counts to try, two or more, as 1-8 or 1,2,4.")] = "1-4,6,8"
    layers: Annotated[int, typer.Option(help="Attention layers, up to.")] = 2
    steps: Annotated[
        int | None, typer.Option(help="Training steps; 1500, or what the budget allows.", show_default=False)
    ] = None
    splits: Annotated[
        int | None, typer.Option(help="Outer splits, 2 to 20; 5, or by the budget.", show_default=False)
    ] = None
    embed_dim: Annotated[int, typer.Option(help="Width of the state, shared by the heads.")] = 48
    width: Annotated[int, typer.Option(help="Hidden size of the feed-forwards.")] = 96
    head_dim: Annotated[
        int | None, typer.Option(help="Heads of this size, instead of a share.", show_default=False)
    ] = None
    pooling: Annotated[str, typer.Option(help="Read out from the class token, or the mean.")] = "class token"
    budget: Annotated[str | None, typer.Option(help="Time to keep to, as 90s or 5m.", show_default=False)] = None
    workers: Annotated[
        int | None, typer.Option(help="Processes that train side by side; one per core.", min=1, show_default=False)
    ] = None
    device: Device = "cpu"
    model: Annotated[Path | None, typer.Option(help="Save a network here, for apply.", show_default=False)] = None
    out: Annotated[Path | None, typer.Option("--out", help="Folder for page and rows. Default: out/measure-NAME.")] = (
        None
    )


PLANNED = ("layers", "steps", "splits", "embed_dim", "width", "head_dim", "pooling")
READ = ("target", "sequence", "window", "horizon", "group", "kind", "split", "tokens", "text")


def measure(options: MeasureOptions) -> Printout:
    """Is attention worth it on your data, and how many heads?

    An equal contest of standard encoders and of what needs no attention, on a page.
    """
    began = time.monotonic()  # before torch is loaded
    from headcount.cli.door import Interrupted, translated
    from headcount.measuring import StudyPlan, measure
    from headcount.measuring.planning import seconds
    from headcount.measuring.tables import Reading

    plan = StudyPlan(_counts(options.heads), **{name: getattr(options, name) for name in PLANNED})
    reading = Reading(**{name: getattr(options, name) for name in READ})
    folder = options.out or Path("out") / f"measure-{_name(options.data)}"
    resume_hint = f"Finished contestants are kept in {folder}; run the same command to go on."
    try:
        measurement = measure(
            options.data,
            reading=reading,
            model=options.model,
            plan=plan,
            budget=None if options.budget is None else seconds(options.budget),
            device=options.device,
            workers=options.workers or _cores(options.device),
            store=folder / "contest",
            command=_command(),
            say=lambda line: say(translated(line, ["measure"])),
            began=began,
        )
    except KeyboardInterrupt:
        raise Interrupted(resume_hint) from None
    facts = {**measurement.as_row(), "rows": list(measurement.study.rows)}
    return Printout(facts, _lines(measurement), measurement.sentence, measurement.files(folder))


def apply(
    model: Annotated[Path, typer.Argument(help="What measure --model wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help=".npz with x, or .csv.", show_default=False)],
    sequence: Sequence = None,
    out: Annotated[Path, typer.Option(help="The CSV to write.")] = Path("predictions.csv"),
) -> Printout:
    """Predict new sequences with a saved model.

    In your units, into a CSV of one line per sequence.
    """
    from headcount.measuring.applying import predictions, write_predictions
    from headcount.measuring.fitted import load

    rows = predictions(load(model), data, sequence)
    write_predictions(rows, out)
    return Printout({"predictions": rows}, [], f"{len(rows)} predictions are in {out}", [out])


def _lines(measurement: Measurement) -> list[str | Listing]:
    rows = [
        {
            "contestant": row.name,
            measurement.words: f"{row.error:.3g}",
            "splits": f"{row.least:.2g} to {row.most:.2g}",
            "wrong": None if row.error_rate is None else f"{row.error_rate:.1%}",
            "balanced": None if row.balanced_error is None else f"{row.balanced_error:.1%}",
            "weights": row.parameters or "-",
            "": "<" if row.chosen else "",
        }
        for row in measurement.by_contestant()
    ]
    wrong = ("wrong", "balanced") if rows and rows[0]["wrong"] is not None else ()
    columns = ("contestant", measurement.words, "splits", *wrong, "weights", "")
    again = _again(measurement)
    return [
        *(["", Listing(rows, columns), ""] if rows else []),
        *(f"Note: {warning}." for warning in measurement.warnings),
        *(f"{one.sentence}." for one in measurement.answer.compared),
        *([f"To settle it: {again}"] if again else []),
    ]


def _again(measurement: Measurement) -> str:
    """The command that would settle it: the same with four times the time, or with what is missing."""
    missing, arguments, budget = (
        measurement.answer.missing,
        dict(measurement.answer.ask or {}),
        measurement.study.spec.get("budget"),
    )
    if not missing:
        return ""
    if not arguments:
        return f"more {missing}"
    arguments = arguments if budget is None or missing == "heads" else {"budget": f"{4 * budget:g}s"}
    return " ".join([_command(tuple(f"--{name}" for name in arguments)), *(f"--{n} {v}" for n, v in arguments.items())])


def _counts(text: str) -> tuple[int, ...]:
    """Head counts as 1-8 or 1,2,4.

    >>> _counts("1-3,6")
    (1, 2, 3, 6)
    """
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
        counts = tuple(count for part in ends for count in range(part[0], part[-1] + 1))
    except ValueError:
        raise ValueError(f"--heads must be counts such as 1-8 or 1,2,4, got {text!r}") from None
    if any(len(part) > 2 for part in ends) or max(counts, default=0) > 64:
        raise ValueError(f"--heads must be counts from 1 to 64 such as 1-8 or 1,2,4, got {text!r}")
    return counts


def _cores(device: str) -> int:
    """Cores that this process may use; a GPU is one."""
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(data: str) -> str:
    return Path(data.partition(":")[2] if ":" in data and "/" not in data else data).stem or "data"


def _command(without: tuple[str, ...] = ()) -> str:
    """What was typed, less the options that are to be said anew."""
    import shlex

    words = [word for word in sys.argv[1:] if not word.startswith(tuple(f"{option}=" for option in without))]
    for option in without:
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    return shlex.join(["headcount", *words])
