"""`headcount sweep`, `runs` and `export`: train what a spec asks for, list what is kept, hand it out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, emit_json, out_file, say, show_table

RUN = Annotated[Path, typer.Argument(help="Folder of a study, as `headcount sweep` wrote it.", show_default=False)]


def register(app: typer.Typer) -> None:
    @app.command("sweep")
    def sweep(
        spec: Annotated[Path, typer.Argument(help="TOML file: task, grid, seeds, training.", show_default=False)],
        store: Annotated[Path | None, typer.Option(help="Where rows are kept. Default: runs/NAME.")] = None,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        as_json: AsJson = False,
    ) -> None:
        """Train every network a spec asks for; what is already kept is skipped, so run it again to go on."""
        from headcount.cli.door import Interrupted
        from headcount.results import Store
        from headcount.training.progress import bar
        from headcount.training.spec import Sweep
        from headcount.training.sweeps import run

        asked = Sweep.read(spec)
        folder = store or Path("runs") / asked.name
        kept = Store.open(folder, create=True)
        try:
            study = run(asked, kept, device=device, on_progress=bar)
        except KeyboardInterrupt:
            done = len(kept.study())
            raise Interrupted(
                f"{done} of {len(asked.members)} networks are kept in {folder}; run the same command to go on."
            ) from None
        if as_json:
            emit_json(list(study.rows))
            return
        show_table(summary(study), ("length", "layers", "width", "networks", "best", "median", "diverged"))
        say(f"{len(study)} rows in {folder}, path: {study.environment.get('path', '-')}.")
        say(f"Next: headcount report {folder}")

    @app.command("runs")
    def runs(
        folder: Annotated[Path, typer.Argument(help="Folder that holds studies.")] = Path("runs"),
        as_json: AsJson = False,
    ) -> None:
        """List the studies in a folder: how many networks were asked for, how many are kept."""
        rows = list_studies(folder)
        if as_json:
            emit_json(rows)
        else:
            show_table(rows, ("study", "task", "kept", "asked", "diverged", "device"))

    @app.command("export")
    def export(
        run: RUN,
        out: Annotated[Path | None, typer.Option("--out", help="Folder to write into. Default: RUN.")] = None,
        as_json: AsJson = False,
    ) -> None:
        """Write a study as rows.csv, rows.jsonl and study.json, or print its rows with --json."""
        from headcount.results import read_study

        study = read_study(run)
        if as_json:
            emit_json(list(study.rows))
            return
        folder = out or (run if run.is_dir() else run.parent)
        texts = {"rows.csv": study.to_csv(), "rows.jsonl": study.to_json_lines(), "study.json": study.to_json()}
        for name, text in texts.items():
            say(f"{len(study)} rows in {out_file(folder, name, text)}")


def summary(study) -> list[dict[str, object]]:
    """A row for each length and shape: how many networks, the best and the median NMSE."""
    from statistics import median

    cells: dict[tuple, list[dict]] = {}
    for row in study:
        cells.setdefault((row["length"], row["layers"], row["width"]), []).append(row)
    return [
        {
            "length": length,
            "layers": layers,
            "width": width,
            "networks": len(rows),
            "best": min(r["nmse"] for r in rows),
            "median": median(r["nmse"] for r in rows),
            "diverged": sum(r["status"] == "diverged" for r in rows),
        }
        for (length, layers, width), rows in cells.items()
    ]


def list_studies(folder: Path) -> list[dict[str, object]]:
    """A row for each study found in `folder`."""
    from headcount.results import Store
    from headcount.results.store import FILE

    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; `headcount sweep` keeps its studies in runs/ unless told otherwise")
    rows = []
    for path in sorted([folder / FILE, *folder.glob(f"*/{FILE}")]):
        if path.exists():
            study = Store.open(path).study()
            rows.append(
                {
                    "study": str(path.parent),
                    "task": ", ".join(study.values("task")) if len(study) else "-",
                    "kept": len(study),
                    "asked": study.spec["asked"],
                    "diverged": sum(row["status"] == "diverged" for row in study),
                    "device": study.environment.get("device", "-"),
                }
            )
    return rows
