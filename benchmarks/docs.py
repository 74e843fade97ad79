"""`make docs`: every generated page and picture, written anew from committed data, and which of them changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    battery_page,
    born_pages,
    coverage,
    induction_page,
    laws_page,
    lens_masking,
    performance_page,
    shrink_minilm,
)
from benchmarks.infoflow_page import INFOFLOW
from benchmarks.infoflow_stored import stored
from headcount.files import whole
from headcount.papers.induction.stages_picture import stages_picture
from headcount.papers.ssm.pictures import bits_picture
from headcount.report import figure
from headcount.reproduction import read_records, theorems
from headcount.reproduction.index import listing
from headcount.reproduction.side_by_side import html, markdown
from headcount.results import read_study
from headcount.tasks.catalogue import catalogue
from studies.language_model import page as compress_page
from studies.measure import page as measure_bench
from studies.measure import picture as measure_picture
from studies.shape import page as shape_page
from studies.worst import page as worst_page

__all__ = ["GENERATED", "main"]

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs/data"


def _json(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def _rows(rows: Any) -> str:
    return json.dumps(rows, indent=1) + "\n"


def _speech_filter() -> str:
    data = _json("speech_filter.json")
    return bits_picture(data["panels"], data["title"]).standalone()


GENERATED: dict[str, Callable[[], str]] = {
    "headcount/listings/tasks.json": lambda: _rows(catalogue()),
    "headcount/listings/reproductions.json": lambda: _rows(listing()),
    "docs/theorems.md": theorems.table,
    "docs/reproduction.md": lambda: markdown(read_records(DATA / "reproduction")),
    "docs/reproduction.html": lambda: html(read_records(DATA / "reproduction")),
    "docs/infoflow.html": lambda: battery_page.page(*(stored(DATA / name) for name in INFOFLOW)),
    "docs/laws.html": lambda: laws_page.page(DATA),
    "docs/born.html": born_pages.page,
    "docs/induction.html": lambda: induction_page.page(_json("induction.json")),
    "docs/images/induction.svg": lambda: stages_picture(_json("induction.json")["stages"]).standalone(),
    "docs/coverage.md": lambda: coverage.page(_json("coverage.json")),
    "docs/measure.md": lambda: measure_bench.page(DATA),
    "docs/images/measure_heads.svg": lambda: measure_picture.picture(_json("measure_bench.json")).standalone(),
    "docs/compress.md": compress_page.page,
    "docs/images/compress_methods.svg": compress_page.picture,
    "docs/performance.md": lambda: performance_page.page(_json("bank_speed.json")),
    "docs/images/bank_speed.svg": lambda: performance_page.picture(_json("bank_speed.json")).standalone(),
    "docs/images/head_count.svg": lambda: figure(read_study(DATA / "head_count.json")).standalone(),
    "docs/images/shrink_minilm.svg": lambda: shrink_minilm.picture(_json("shrink_minilm.json")).standalone(),
    "docs/images/speech_filter.svg": _speech_filter,
    "docs/worst.html": lambda: worst_page.page(_json("worst.json")),
    "docs/shape.html": shape_page.evidence,
    "docs/how-many-heads.md": shape_page.answer,
    "docs/images/shape_evidence.svg": shape_page.picture,
    "docs/images/lens_masking.svg": lambda: lens_masking.picture(_json("lens_masking.json")).standalone(),
}


def changed(name: str) -> bool:
    """Write the file anew where it is not what its data give; whether it was not."""
    text, path = GENERATED[name](), ROOT / name
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    with whole(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return True


def main() -> None:
    new = [name for name in GENERATED if changed(name)]
    for name in new:
        print(f"changed: {name}")
    print(f"So: {len(new)} of {len(GENERATED)} generated files changed.")


if __name__ == "__main__":
    main()
