"""The grid of our own: what is committed is what the pages and the evidence say, and its promise was kept."""

import json
import math
from pathlib import Path

import pytest

from headcount.sizing.evidence import evidence_table, parsed
from headcount.sizing.paired_difference import best_rates, paired_differences, pooled_deviation
from headcount.sizing.power import promised_width
from studies.shape.entering import CHANGES, difference, own_rows
from studies.shape.grid import BASE, shapes
from studies.shape.text import parted, runs_of, windows_of

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs/data"


@pytest.fixture(scope="module")
def grid():
    return json.loads((DATA / "shape_grid.json").read_text())


def test_the_grid_is_whole(grid):
    rows = grid["rows"]
    assert {row["shape"] for row in rows} == set(shapes()) and len(rows) == 12 * 3 * 5
    assert len({(row["shape"], row["seed"], row["rate"]) for row in rows}) == 180
    assert {row["parameters"] for row in rows} == {3_670_016} and all(row["loss"] for row in rows)


def test_one_pass_ends_before_overfitting(grid):
    chosen = best_rates(grid["rows"])
    best = [row for row in grid["rows"] if row["rate"] == chosen[row["shape"]]]
    for row in best:
        losses = [loss for _, loss in row["curve"]]
        assert losses == sorted(losses, reverse=True)


def test_the_table_holds_the_grid_as_one_source(grid):
    text = own_rows(grid)
    assert (ROOT / "headcount/sizing/own_rows.toml").read_text() == text, "run `make docs`"
    entered = parsed([text])
    assert len(entered.rows) == len(CHANGES) and {row.source for row in entered.rows} == {"headcount"}
    assert {row.id for row in entered.rows} <= {row.id for row in evidence_table().rows}
    deviation, free = pooled_deviation(paired_differences(grid["rows"], BASE))
    assert entered.paired == {"deviation": round(deviation, 5), "free": free}


def test_a_rows_numbers_are_those_of_its_pairs(grid):
    for row in parsed([own_rows(grid)]).rows:
        found = difference(grid["rows"], row.before, row.after)
        assert row.error == pytest.approx(found.deviation / math.sqrt(5), rel=1e-3)
        assert row.percent == pytest.approx(found.mean, abs=0.02)  # of means, and mean of pairs


def test_the_last_experiment_ended_where_it_was_promised(grid):
    promise, settled = (json.loads((DATA / f"shape_{n}.json").read_text()) for n in ("promise", "settled"))
    differences = paired_differences(grid["rows"], BASE)
    again = promised_width(*pooled_deviation(differences), promise["seeds"])
    assert promise["half_width"] == pytest.approx(list(again))
    (found,) = paired_differences(settled["rows"], promise["first"])
    low, high = found.interval()
    assert promise["half_width"][1] <= (high - low) / 2 <= promise["half_width"][2]
    assert not {row["seed"] for row in settled["rows"]} & {row["seed"] for row in grid["rows"]}


def test_held_out_passages_share_no_run_of_words_with_what_is_trained_on():
    words = [f"word{i}" for i in range(60)]
    texts = [" ".join(words[i % 40 : i % 40 + 16]) + f" end{i}" for i in range(400)]
    train, held = parted(texts)
    seen = {run for text in held for run in runs_of(text)}
    assert held and all(seen.isdisjoint(runs_of(text)) for text in train)
    assert len(train) + len(held) < len(texts)


def test_windows_share_one_token_with_the_next():
    found = windows_of(list(range(256 * 3 + 1)))
    assert found.shape == (3, 257) and (found[1:, 0] == found[:-1, -1]).all()
