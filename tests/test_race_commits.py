"""The race of two commits knows every shape that a committed table of a GPU has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.race_commits import row_of, shapes

DATA = Path(__file__).parents[1] / "docs/data"
KEYS = ("models", "length", "batch", "heads", "layers")


def committed() -> set[tuple[int, ...]]:
    tables = json.loads((DATA / "bank_speed.json").read_text())
    cells = [*tables["cuda"]["cells"], *tables["cuda"]["growth"], *tables["deep"]["cells"]]
    cells += json.loads((DATA / "deep_speed.json").read_text())["cells"]
    return {(*(cell[key] for key in KEYS), cell.get("width", 32)) for cell in cells}


def test_every_class_token_shape_of_a_committed_table_is_raced():
    raced = [tuple(shape[key] for key in (*KEYS, "width")) for kind, shape in shapes() if kind == "class token"]
    assert committed() <= set(raced)
    assert len(committed()) > 20


def test_every_decoder_of_the_committed_table_is_raced():
    rows = json.loads((DATA / "decoder_speed.json").read_text())["rows"]
    raced = [s for kind, s in shapes() if kind == "decoder"]
    names = {
        f"K={s['models']}, {s['depth']} layers of {s['heads']}x{s['head_dim']}, E={s['embed_dim']}, n={s['length']}"
        for s in raced
    }
    assert {row["case"] for row in rows} == names


def test_a_ratio_is_the_median_of_the_rounds_not_of_the_sides():
    said = {side: {"loss": 2.0, "backend": "x"} for side in ("before", "after")}
    row = row_of("class token", {"models": 1}, said, {"before": [1.0, 2.0, 8.0], "after": [1.0, 4.0, 8.0]})
    assert row["ratio"] == 1.0
    assert (row["lowest ratio"], row["highest ratio"]) == (1.0, 2.0)
    assert row["before"]["spread"] == pytest.approx(3.5)
