"""`headcount demo`: how many heads a retrieval task needs, measured on this machine in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.options import Device
from headcount.cli.printing import Listing, Printout, say


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the rows.")] = Path("out/demo"),
    device: Device = "cpu",
) -> Printout:
    """Measure how many heads a small retrieval task needs.

    Trains on this machine in minutes, prints a table and writes a page.
    """
    from headcount.cli.door import Interrupted
    from headcount.papers.head_count.first_study import first_look
    from headcount.results.overview import cell_rows
    from headcount.training.progress import bar

    folder = out / "study"
    say("y = max_t <a1, x_t> + max_t <a2, x_t> + max_t <a3, x_t>: three retrievals.")
    say("Theory: one attention layer needs three heads. Training networks with 1 to 5 heads:")
    try:
        look = first_look(folder, device=device, on_progress=bar)
    except KeyboardInterrupt:
        raise Interrupted(f"Finished networks are kept in {folder}; run the same command to go on.") from None
    facts = {"knee": look.knee.as_row(), "rows": list(look.rows)}
    lines = [
        Listing(cell_rows(look.study), ("length", "layers", "networks", "best", "median")),
        f"Next: `headcount report {folder}`, `headcount fit {folder}`, or `headcount measure` on data of your own.",
    ]
    return Printout(facts, lines, look.sentence, look.files(out))
