"""The main figure of a study as a file for a paper: svg, pdf or png."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount.files import atomic_write, write_text
from headcount.refusals import nearest
from headcount.report.page import paper_figure

if TYPE_CHECKING:
    from headcount.results import Study

FORMATS = ("svg", "pdf", "png")


def write_figure(study: Study, folder: Path, format: str, width: str = "6.5in") -> Path:
    """Write `figure.<format>` of a width on paper into `folder`."""
    if format not in FORMATS:
        raise ValueError(f"no figure as {format!r}; {nearest(format, FORMATS)}")
    picture, path = paper_figure(study, width), folder / f"figure.{format}"
    if format == "svg":
        return write_text(path, picture)
    with atomic_write(path) as scratch:
        _convert(picture, scratch, format)
    return path


def _convert(picture: str, path: Path, format: str) -> None:
    try:
        import cairosvg
    except (ImportError, OSError) as missing:
        raise ValueError(
            f"a {format} needs CairoSVG and the cairo library ({missing}): pip install 'headcount[figures]', or write "
            "an svg and convert it"
        ) from None
    if format == "pdf":
        cairosvg.svg2pdf(bytestring=picture.encode(), write_to=str(path))
    else:
        cairosvg.svg2png(bytestring=picture.encode(), write_to=str(path), scale=4)
