"""`headcount attention`: which head of a kept network looks at what the task finds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table
from headcount.cli.sweeping import SpecName, one_spec

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a sweep run with --save best or --save all.")]
Heads = Annotated[int | None, typer.Option(help="Of networks with so many heads; else the best.", show_default=False)]
Length = Annotated[int | None, typer.Option(help="Of networks of this length; else the best.", show_default=False)]


def register(app: typer.Typer) -> None:
    @app.command("attention")
    def attention(
        run: Run,
        heads: Heads = None,
        length: Length = None,
        samples: Annotated[int, typer.Option(help="Fresh sequences to look at.")] = 1000,
        inputs: Annotated[int, typer.Option(help="Sequences to draw a map of.")] = 4,
        seed: Annotated[int, typer.Option(help="Seed of the sequences.")] = 0,
        spec: SpecName = None,
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Say how often each head looks at what each retrieval finds, with maps of single inputs on a page."""
        from headcount.refusals import at_least_one
        from headcount.report import attention_page
        from headcount.training.attention_maps import attention_in

        at_least_one(samples=samples)
        spec = one_spec(run, spec)
        how = {"samples": samples, "inputs": max(0, inputs), "seed": seed}
        record = attention_in(run, heads=heads, length=length, spec=spec, **how)
        folder = out or run
        path = out_file(folder, "attention.html", attention_page(record, command=f"headcount attention {run}"))
        if as_json:
            emit_json({**record.to_json(), "file": str(path)})
            return
        say(f"{record.task} by {record.layers} at length {record.length}, NMSE {record.nmse:.2e}")
        say()
        show_table(
            [{k: v if k == "head" else f"{v:.1%}" for k, v in row.items()} for row in record.rows()],
            ("head", *record.retrievals),
        )
        say()
        say(f"A guess would be right in {record.chance:.1%} of {record.samples} sequences.")
        say(f"The page: {path}")
        say(f"So: {record.sentence}.")
