"""`headcount figure`: the main figure of a study, or its table, as a file for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, emit_json, out_file, say
from headcount.cli.sweeping import SpecName, one_spec, tell_damaged
from headcount.files import whole
from headcount.refusals import nearest
from headcount.visible import visible

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder or JSON file of a study.")]
To = Annotated[Path | None, typer.Option("--out", help="Folder to write into; RUN by default.", show_default=False)]
Format = Annotated[str, typer.Option("--format", help="svg, pdf or png.")]
Width = Annotated[str, typer.Option(help="Width on paper, as 3.25in or 84mm.")]
Tabular = Annotated[str, typer.Option("--table", help="Print the numbers instead: latex or markdown.")]
FORMATS = ("svg", "pdf", "png")


def register(app: typer.Typer) -> None:
    @app.command("figure")
    def figure(
        run: Run,
        format: Format = "svg",
        width: Width = "6.5in",
        table: Tabular = "",
        out: To = None,
        spec: SpecName = None,
        as_json: AsJson = False,
    ) -> None:
        """Write a study's figure for a paper, or print its table.

        The figure as svg, pdf or png of a given width, the table in LaTeX or Markdown.
        """
        from headcount.results import read_study

        study = read_study(run, one_spec(run, spec))
        tell_damaged(run, study)
        if table:
            from headcount.report.tabular import as_latex, as_markdown

            kinds = {"latex": as_latex, "markdown": as_markdown}
            if table not in kinds:
                raise ValueError(f"no table as {table!r}; {nearest(table, kinds)}")
            text = kinds[table](study)
            if as_json:
                emit_json({"table": text})
            else:
                typer.echo(visible(text))
            return
        if format not in FORMATS:
            raise ValueError(f"no figure as {format!r}; {nearest(format, FORMATS)}")
        from headcount.report import paper_figure

        picture = paper_figure(study, width)
        folder = out or (run if run.is_dir() else run.parent)
        path = out_file(folder, "figure.svg", picture) if format == "svg" else _converted(picture, folder, format)
        if as_json:
            emit_json({"file": str(path)})
        else:
            say(f"wrote {path}")
            say(f"So: the figure is {width} wide and needs nothing but a reader of {format.upper()}.")


def _converted(picture: str, folder: Path, format: str) -> Path:
    try:
        import cairosvg
    except (ImportError, OSError) as missing:
        raise ValueError(
            f"a {format} needs CairoSVG and the cairo library ({missing}): pip install 'headcount[figures]', or write "
            "an svg and convert it"
        ) from None
    path = folder / f"figure.{format}"
    with whole(path) as scratch:
        if format == "pdf":
            cairosvg.svg2pdf(bytestring=picture.encode(), write_to=str(scratch))
        else:
            cairosvg.svg2png(bytestring=picture.encode(), write_to=str(scratch), scale=4)
    return path
