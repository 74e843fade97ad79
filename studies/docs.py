"""`make docs`: every generated page and picture, written anew from committed data, and which of them changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import performance_page
from headcount.files import atomic_write
from headcount.papers.induction.stages_picture import stages_picture
from headcount.papers.ssm.pictures import bits_picture
from headcount.report import figure
from headcount.reproduction import read_records, theorems
from headcount.reproduction.index import listing
from headcount.reproduction.side_by_side import html, markdown
from headcount.results import read_study
from headcount.tasks.catalogue import catalogue
from studies import coverage, shrink_minilm
from studies.born import page as born
from studies.claims import page as claims_page
from studies.induction import page as induction
from studies.infoflow import page as infoflow
from studies.language_model import page as compress_page
from studies.laws import page as laws
from studies.lens import families, masking, smollm2, views
from studies.measure import page as measure_bench
from studies.measure import picture as measure_picture
from studies.shape import page as shape_page
from studies.shape.entering import own_rows
from studies.site import gallery, held_numbers
from studies.stored import DATA, DOCS, ROOT, between
from studies.worst import page as worst_page


def _json(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def _rows(rows: Any) -> str:
    return json.dumps(rows, indent=1) + "\n"


def _speech_filter() -> str:
    data = _json("speech_filter.json")
    return bits_picture(data["panels"], data["title"]).standalone()


def _tensor_lens() -> str:
    """The page of the lens, written by hand but for its three tables."""
    data = _json("lens_families.json")
    text = between((DOCS / "tensor_lens.md").read_text(), "families", families.tables(data["rows"], data["device"]))
    text = between(text, "smollm2", smollm2.tables(_json("tensor_lens.json")))
    return between(text, "masking", masking.tables(_json("lens_masking.json")))


GENERATED: dict[str, Callable[[], str]] = {
    "headcount/listings/tasks.json": lambda: _rows(catalogue()),
    "headcount/listings/reproductions.json": lambda: _rows(listing()),
    "docs/theorems.md": theorems.table,
    "docs/reproduction.md": lambda: markdown(read_records(DATA / "reproduction")),
    "docs/reproduction.html": lambda: html(read_records(DATA / "reproduction")),
    "docs/infoflow.html": infoflow.stored_page,
    "docs/laws.html": lambda: laws.page(DATA),
    "docs/born.html": born.page,
    "docs/induction.html": lambda: induction.page(_json("induction.json")),
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
    "docs/claims.md": lambda: claims_page.page(_json("claims_trained.json")),
    "docs/worst.html": lambda: worst_page.page(_json("worst.json"), _json("worst_roads.json")),
    "headcount/sizing/own_rows.toml": lambda: own_rows(_json("shape_grid.json")),
    "docs/shape.html": shape_page.evidence,
    "docs/how-many-heads.md": shape_page.answer,
    "docs/images/shape_evidence.svg": shape_page.picture,
    "docs/tensor_lens.md": _tensor_lens,
    "docs/images/lens_masking.svg": lambda: masking.picture(_json("lens_masking.json")).standalone(),
    **{f"docs/images/lens_{name}.svg": partial(views.picture, name) for name in views.COMMANDS},
    **{f"docs/page_lens_{name}.html": partial(views.page, name) for name in views.COMMANDS},
    "docs/gallery.md": gallery.page,
    **{f"docs/images/{name}": made for name, made in gallery.FROM_COMMANDS.items()},
    "docs/images/gallery_heat.svg": gallery.heat_picture,
    "docs/images/gallery_measure.svg": gallery.measure_picture,
    "docs/images/gallery_prompt.svg": gallery.prompt_picture,
    "docs/page_measure.html": gallery.measure_page,
    "README.md": held_numbers.readme,
    **{f"docs/papers/{name}.md": partial(held_numbers.page, name) for name in held_numbers.HELD},
}


def changed(name: str) -> bool:
    """Write the file anew where it is not what its data give; whether it was not."""
    text, path = GENERATED[name](), ROOT / name
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    with atomic_write(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return True


def main() -> None:
    new = [name for name in GENERATED if changed(name)]
    for name in new:
        print(f"changed: {name}")
    print(f"So: {len(new)} of {len(GENERATED)} generated files changed.")


if __name__ == "__main__":
    main()
