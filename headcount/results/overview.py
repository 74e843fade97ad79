"""What is kept, at a glance: the studies of a folder, the cells of a study, its best network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from headcount.numerals import counted
from headcount.results.snapshot import StatedSpec
from headcount.results.store import FILE, Store
from headcount.results.study import Study, error_of


def studies_in(folder: Path) -> tuple[list[dict[str, object]], list[str]]:
    """A row for each spec of each study found in `folder`, and a sentence for each store that cannot be read."""
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}; `headcount sweep` keeps its studies in runs/ unless told otherwise")
    rows, odd = [], []
    for path in sorted([folder / FILE, *folder.glob(f"*/{FILE}")]):
        if path.exists():
            try:
                store = Store.open(path)
                rows += [_listed(store, spec, study) for spec, study in store.heads()]
            except (ValueError, OSError) as problem:
                odd.append(" ".join(str(problem).split()))
    if odd and not rows:
        raise ValueError(odd[0])
    return rows, odd[:2]


def _listed(store: Store, spec: StatedSpec, study: Study) -> dict[str, object]:
    return {
        "study": str(store.path.parent),
        "spec": spec.label,
        "task": ", ".join(dict.fromkeys(str(row.get("task", "-")) for row in study)) or "-",
        "trained": spec.trained,
        "wanted": spec.wanted,
        "diverged": spec.diverged,
        "device": study.environment.get("device", "-"),
    }


def unfinished_in_words(rows: list[dict[str, object]]) -> str:
    """How many studies there are, and how many networks are still to be trained."""
    left = [row for row in rows if int(str(row["trained"])) < int(str(row["wanted"]))]
    studies = counted(len({row["study"] for row in rows}), "study", "studies")
    if not left:
        return f"{studies}, every network trained" if rows else "there is no study here yet"
    return f"{studies}, {len(left)} of them unfinished: run the same `headcount sweep` to go on"


def cell_rows(study: Study) -> list[dict[str, object]]:
    """A row for each length and shape: how many networks, the best and the median NMSE."""
    cells: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for row in study:
        cells.setdefault((row["length"], row["layers"], row["width"]), []).append(row)
    return [
        {
            "length": length,
            "layers": layers,
            "width": width,
            "networks": len(rows),
            "best": min(map(error_of, rows)),
            "median": median(map(error_of, rows)),
            "diverged": sum(r["status"] == "diverged" for r in rows),
        }
        for (length, layers, width), rows in cells.items()
    ]
