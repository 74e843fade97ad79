"""`headcount report`: one self-contained page of a study."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, out_file, tell_written
from headcount.cli.sweeping import SpecName, one_spec, tell_damaged

if TYPE_CHECKING:
    from headcount.results.attention_record import AttentionRecord

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a study, as `headcount sweep` writes it.")]
To = Annotated[Path | None, typer.Option("--out", help="Folder to write into; RUN by default.", show_default=False)]
Predicted = Annotated[int | None, typer.Option(help="Heads to judge; the task's own by default.", show_default=False)]


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(
        run: Run, out: To = None, predicted: Predicted = None, spec: SpecName = None, as_json: AsJson = False
    ) -> None:
        """Write the page of a study and its main figure."""
        from headcount.report import write
        from headcount.results import read_study

        folder = out or (run if run.is_dir() else run.parent)
        spec = one_spec(run, spec)
        study = read_study(run, spec)
        tell_damaged(run, study)
        given = study.spec.get("measured", False)  # data of the user's own: `headcount measure` made these rows
        if given:
            from headcount.measuring import Measurement, write_measured

            pages = write_measured(Measurement(study))
        else:
            pages = write(study, predicted=predicted, attention=_attention(run, spec))
        paths = {name: str(out_file(folder, name, content)) for name, content in pages.items()}
        if as_json:
            emit_json(paths)
        else:
            tell_written(paths.values())
            conclude(f"open {paths['report.html']} in a browser: one page that needs no other file and no network")


def _attention(run: Path, spec: str | None) -> AttentionRecord | None:
    """Where the best network kept looks; None where none is kept, or its task does not say what it finds."""
    if not (run / "networks").is_dir():
        return None
    from headcount.training.attention_maps import attention_in

    with contextlib.suppress(ValueError):
        return attention_in(run, inputs=0, spec=spec)
    return None
