"""`headcount report`: one self-contained page of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, out_file, tell_written
from headcount.cli.sweeping import SpecName, tell_other_specs

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a study, as `headcount sweep` writes it.")]
To = Annotated[Path | None, typer.Option("--out", help="Folder to write into; RUN by default.", show_default=False)]
Predicted = Annotated[int | None, typer.Option(help="Heads to judge; the task's own by default.", show_default=False)]


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(
        run: Run, out: To = None, predicted: Predicted = None, spec: SpecName = None, as_json: AsJson = False
    ) -> None:
        """Write the page of a study and its main figure."""
        from headcount.fits import Measurement
        from headcount.report import write, write_measured
        from headcount.results import read_study

        folder = out or (run if run.is_dir() else run.parent)
        tell_other_specs(run, spec)
        study = read_study(run, spec)
        given = study.spec.get("measured", False)  # data of the user's own: `headcount measure` made these rows
        pages = write_measured(Measurement(study)) if given else write(study, predicted=predicted)
        paths = {name: str(out_file(folder, name, content)) for name, content in pages.items()}
        if as_json:
            emit_json(paths)
        else:
            tell_written(paths.values())
            conclude(f"open {paths['report.html']} in a browser: one page that needs no other file and no network")
