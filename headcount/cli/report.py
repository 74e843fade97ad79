"""`headcount report`: one self-contained page of a study, its figure and table for a paper, where its heads look."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.opening import folder_of, one_spec, opened
from headcount.cli.options import Run, SpecName
from headcount.cli.printing import Listing, Printout, Verbatim
from headcount.files import write_text
from headcount.refusals import at_least_one, nearest

if TYPE_CHECKING:
    from headcount.results import Study
    from headcount.results.attention_record import AttentionRecord


@dataclass(frozen=True)
class ReportOptions:
    """What `headcount report` takes."""

    run: Run
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write into; RUN by default.", show_default=False)
    ] = None
    predicted: Annotated[
        int | None, typer.Option(help="Heads to judge; the task's own by default.", show_default=False)
    ] = None
    figure: Annotated[str, typer.Option("--figure", help="Only the figure, for a paper: svg, pdf or png.")] = ""
    width: Annotated[str, typer.Option(help="With --figure: width on paper, as 3.25in or 84mm.")] = "6.5in"
    table: Annotated[str, typer.Option("--table", help="Only the numbers: latex or markdown.")] = ""
    attention: Annotated[bool, typer.Option("--attention", help="Only where the heads of a kept network look.")] = False
    heads: Annotated[int | None, typer.Option(help="With --attention: of so many heads; else the best.")] = None
    length: Annotated[int | None, typer.Option(help="With --attention: of this length; else the best.")] = None
    samples: Annotated[int, typer.Option(help="With --attention: fresh sequences to look at.")] = 1000
    inputs: Annotated[int, typer.Option(help="With --attention: sequences to draw a map of.")] = 4
    seed: Annotated[int, typer.Option(help="With --attention: seed of the sequences.")] = 0
    spec: SpecName = None


def report(options: ReportOptions) -> Printout:
    """Write the page of a study and its main figure.

    With --figure the figure for a paper instead, with --table its numbers in LaTeX or Markdown, with --attention how
    often each head of a kept network looks at what each retrieval finds.
    """
    folder = folder_of(options.run, options.out)
    if options.attention:
        at_least_one(samples=options.samples)
        looked = {name: getattr(options, name) for name in ("samples", "seed", "heads", "length")}
        looked |= {"inputs": max(0, options.inputs)}
        return _attention(options.run, folder, one_spec(options.run, options.spec), looked)
    study = opened(options.run, options.spec)
    if options.table:
        return _table(study, options.table)
    if options.figure:
        return _figure(study, folder, options.figure, options.width)
    pages = _pages(options.run, study, options.predicted, options.spec)
    paths = {name: write_text(folder / name, content) for name, content in pages.items()}
    so = f"open {paths['report.html']} in a browser: one page that needs no other file and no network"
    return Printout({}, [], so, paths.values())


def _pages(run: Path, study: Study, predicted: int | None, spec: str | None) -> dict[str, str]:
    """The pages of a study by name: of data of the user's own, of letters, or of any other task."""
    from headcount.fits import predicted_heads
    from headcount.papers.head_count.lookup_words import one_head_each
    from headcount.report import write

    if study.spec.get("measured", False):  # `headcount measure` made these rows
        from headcount.measuring import Measurement, write_measured

        return write_measured(Measurement(study))
    because = one_head_each(predicted_heads(study))
    pages = write(study, predicted=predicted, attention=_looked(run, spec), because=because)
    letters = _letter_pages(study, f"headcount report {run}") if "tests" in study.rows[0] else []
    return pages | {"lengths.html" if i == 0 else f"lengths-{i + 1}.html": page for i, page in enumerate(letters)}


def _letter_pages(study: Study, command: str) -> list[str]:
    """A page for each shape of a study of letters; they alone know networks, and so load torch."""
    from headcount.papers.born.born_page import length_page
    from headcount.papers.born.length_study import LengthStudy

    return [length_page(part, command=command) for part in LengthStudy.of(study)]


def _table(study: Study, kind: str) -> Printout:
    from headcount.report.tabular import as_latex, as_markdown

    kinds = {"latex": as_latex, "markdown": as_markdown}
    if kind not in kinds:
        raise ValueError(f"no table as {kind!r}; {nearest(kind, kinds)}")
    text = kinds[kind](study)
    return Printout({"table": text}, [Verbatim(text)])


def _figure(study: Study, folder: Path, format: str, width: str) -> Printout:
    from headcount.report.figure_files import write_figure

    path = write_figure(study, folder, format, width)
    so = f"the figure is {width} wide and needs nothing but a reader of {format.upper()}"
    return Printout({"file": str(path)}, [], so, [path])


def _attention(run: Path, folder: Path, spec: str | None, looked: dict[str, int | None]) -> Printout:
    from headcount.report import attention_page
    from headcount.training.attention_maps import attention_in

    record = attention_in(run, spec=spec, **looked)  # type: ignore[arg-type]
    page = attention_page(record, command=f"headcount report {run} --attention")
    path = write_text(folder / "attention.html", page)
    rows = [{k: v if k == "head" else f"{v:.1%}" for k, v in row.items()} for row in record.rows]
    lines = [
        f"{record.task} by {record.layers} at length {record.length}, NMSE {record.nmse:.2e}\n",
        Listing(rows, ("head", *record.retrievals)),
        f"\nA guess would be right in {record.chance:.1%} of {record.samples} sequences.",
    ]
    return Printout({**record.to_json(), "file": str(path)}, lines, record.sentence, [path])


def _looked(run: Path, spec: str | None) -> AttentionRecord | None:
    """Where the best network kept looks; None where none is kept, or its task does not say what it finds."""
    if not (run / "networks").is_dir():
        return None
    from headcount.training.attention_maps import attention_in

    with contextlib.suppress(ValueError):
        return attention_in(run, inputs=0, spec=spec)
    return None
