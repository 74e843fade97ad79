"""`headcount shape`: how many heads a real model should have, with marks and intervals, and what would settle it."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, conclude, emit_json, say, show_table, tell_written

if TYPE_CHECKING:
    from headcount.sizing.ranked_shapes import ShapeAnswer

Budget = Annotated[str | None, typer.Argument(help="Parameters, as 135M or 1.5B.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="Known model's name, a folder or a config.json, in place of a budget.", show_default=False
    ),
]
Limit = Annotated[str | None, typer.Option(help="Bytes of cache a token, as 16kB.", show_default=False)]
Experiment = Annotated[
    Path | None,
    typer.Option("--experiment", help="Write the sweep that decides between the first two.", show_default=False),
]


def register(app: typer.Typer) -> None:
    @app.command("shape")
    def shape(
        budget: Budget = None,
        model: Model = None,
        width: Annotated[int | None, typer.Option(help="Width of the model (embed_dim).", show_default=False)] = None,
        layers: Annotated[int | None, typer.Option(help="Layers.", show_default=False)] = None,
        context: Annotated[int, typer.Option(help="Tokens of context.")] = 2048,
        vocab: Annotated[int | None, typer.Option(help="Tokens known.", show_default="32768, encoders 0")] = None,
        encoder: Annotated[bool, typer.Option("--encoder", help="Reads both ways and keeps no cache.")] = False,
        cache_per_token: Limit = None,
        memory: Annotated[str | None, typer.Option(help="Bytes for weights and cache.", show_default=False)] = None,
        speed: Annotated[float, typer.Option(help="Tokens a second that must be reached.")] = 0.0,
        bandwidth: Annotated[str, typer.Option(help="Bytes a second that memory gives.")] = "1TB",
        worth: Annotated[float, typer.Option(help="Percent of loss that half the bytes a token are worth.")] = 0.5,
        task: Annotated[str | None, typer.Option(help="Task whose bounds are asked too.", show_default=False)] = None,
        evidence: Annotated[bool, typer.Option("--evidence", help="Print what was measured, row by row.")] = False,
        experiment: Experiment = None,
        text: Annotated[
            str, typer.Option(help="What --experiment trains on: .npz windows or a text file.")
        ] = "text.txt",
        flops: Annotated[float, typer.Option(help="Arithmetic that --experiment may take.")] = 1e17,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """How many heads should a model have?

        Ranks heads, head_dim and key-value heads of one budget by cost and expected quality.
        """
        if evidence:
            _evidence(out, as_json=as_json)
            return
        from headcount.sizing.ranked_shapes import shape as ranked

        answer = ranked(
            budget,
            model=model,
            width=width,
            layers=layers,
            context=context,
            vocab=vocab,
            encoder=encoder,
            cache_per_token=_bytes(cache_per_token),
            memory=_bytes(memory),
            speed=speed,
            bandwidth=_bytes(bandwidth),
            worth=worth,
            task=None if task is None else _task(task),
        )
        _answered(answer, experiment, text, flops, out, as_json=as_json)


def _answered(
    answer: ShapeAnswer, experiment: Path | None, text: str, flops: float, out: Path | None, *, as_json: bool
) -> None:
    from headcount.files import whole
    from headcount.sizing.settling import settling_experiment

    planned = None
    files = [] if out is None else answer.files(out, _called())
    if experiment is not None:
        length = min(answer.context, 256)
        vocab = 256 if not text.endswith(".npz") else 2048
        planned = settling_experiment(answer, text=text, flops=flops, length=length, vocab=vocab)
        with whole(experiment) as scratch:
            scratch.write_text(planned.to_toml(), encoding="utf-8")
        files.append(experiment)
    if as_json:
        emit_json(_json(answer, None if planned is None else planned.sentence))
        return
    show_table([_short(row) for row in answer.rows[:8]], ("heads", "head_dim", "kv", "feed", "cache/token", "expected"))
    say()
    show_table(answer.beside(), ("model", "heads", "cache bytes per token", "why it differs"))
    say()
    for bound in answer.bounds:
        say(str(bound))
    tell_written(files)
    if planned is not None:
        say(f"{planned.sentence}; `headcount sweep {experiment}` runs it.")
    conclude(answer.sentence)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    from headcount.numerals import spoken_bytes

    return {
        "heads": row["by layer"] or row["heads"],
        "head_dim": row["head_dim"],
        "kv": row["key-value heads"],
        "feed": row["feed-forward"],
        "cache/token": spoken_bytes(row["cache bytes per token"]),
        "expected": row["why"] + ("" if not row["broken"] else f"; breaks {'; '.join(row['broken'])}"),
    }


def _json(answer: ShapeAnswer, planned: str | None) -> dict[str, Any]:
    from headcount.sizing.ranked_shapes import marks

    return {
        "question": answer.question,
        "sentence": answer.sentence,
        "shapes": answer.rows,
        "beside": answer.beside(),
        "bounds": [bound.as_row() for bound in answer.bounds],
        "marks": marks(answer),
        "experiment": planned,
    }


def _evidence(out: Path | None, *, as_json: bool) -> None:
    from headcount.sizing.evidence import evidence_table
    from headcount.sizing.meta_analysis import left_out, pooled_change
    from headcount.sizing.shape_page import evidence_rows, pooled_rows, write_evidence

    table = evidence_table()
    pooled = [pooled_change(table, change) for change in table.changes]
    if as_json:
        rows = [row.as_row() for row in table.rows]
        emit_json({"rows": rows, "pooled": [p.as_row() for p in pooled], "left out": left_out(table)})
        return
    rows = evidence_rows(table)
    for change in table.changes:
        shown = [row for row in rows if row["change"] == change]
        show_table(shown, ("id", "found", "source", "checked"), title=change)
        say()
    show_table(pooled_rows(pooled), ("change", "sources", "percent per step", "a further source"))
    files = [] if out is None else write_evidence(table, out, _called())
    tell_written(files)
    quoted = sum(row.checked == "quoted" for row in table.rows)
    firm = [p for p in pooled if p.mean is not None]
    conclude(
        f"{len(table.rows)} rows from {len(table.sources)} sources, {quoted} of them read in the source's own text; "
        f"{len(firm)} of {len(pooled)} kinds of change have three sources and a number"
    )


def _called() -> str:
    """The command as it was typed."""
    return " ".join(["headcount", *(shlex.quote(word) for word in sys.argv[1:])])


def _bytes(text: str | None) -> float:
    from headcount.numerals import bytes_from

    return math.inf if text is None else float(bytes_from(text))


def _task(name: str) -> Any:
    from headcount.cli.task_options import task_of

    return task_of(name, None)
