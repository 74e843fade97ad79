"""`headcount demo`: how many heads a retrieval task needs, measured on this machine in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, out_file, say, show_table


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo(
        out: Annotated[Path, typer.Option(help="Folder for the page and the rows.")] = Path("out/demo"),
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        as_json: AsJson = False,
    ) -> None:
        """Measure how many heads a small retrieval task needs.

        Trains on this machine in minutes, prints a table and writes a page.
        """
        from headcount.cli.door import Interrupted
        from headcount.cli.sweeping import summary
        from headcount.papers.head_count.first_study import first_look
        from headcount.training.progress import bar

        kept = out / "study"
        if not as_json:
            say("y = max_t <a1, x_t> + max_t <a2, x_t> + max_t <a3, x_t>: three retrievals.")
            say("Theory: one attention layer needs three heads. Training networks with 1 to 5 heads:")
        try:
            look = first_look(kept, device=device, on_progress=bar)
        except KeyboardInterrupt:
            raise Interrupted(f"Finished networks are kept in {kept}; run the same command to go on.") from None
        paths = {name: str(out_file(out, name, text)) for name, text in look.files.items()}
        if as_json:
            emit_json({"knee": look.knee.as_row(), "files": paths, "rows": list(look.study.rows)})
            return
        show_table(summary(look.study), ("length", "layers", "networks", "best", "median"))
        say(f"The page: {paths['report.html']}")
        conclude(look.knee.sentence)
