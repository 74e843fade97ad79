"""`headcount demo`: how many heads a retrieval task needs, measured on this machine in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, emit_json, out_file, say, show_table


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo(
        out: Annotated[Path, typer.Option(help="Folder for the page, the rows and the picture.")] = Path("out/demo"),
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        as_json: AsJson = False,
    ) -> None:
        """Measure how many heads a small retrieval task needs, and write a page."""
        from headcount.cli.door import Interrupted
        from headcount.fits import knee
        from headcount.papers.demo import demo_study
        from headcount.report import page
        from headcount.training.progress import bar

        try:
            study = demo_study(out / "study", device=device, watch=bar)
        except KeyboardInterrupt:
            raise Interrupted(f"Finished networks are kept in {out / 'study'}; run it again to go on.") from None
        found = knee(study)
        path = out_file(out, "report.html", page(study))
        if as_json:
            emit_json({"knee": found.as_row(), "page": str(path), "rows": list(study.rows)})
            return
        show_table(found.table(), found.columns)
        say(found.sentence)
        say(f"The page: {path}")
