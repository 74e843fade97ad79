"""The battery and the tables: cells as designed, judged as said, and trained for a moment."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headcount.certificates.excess import gibbs_excess
from headcount.nets import parameters
from headcount.numerals import short
from headcount.papers.infoflow import predict
from headcount.papers.infoflow.choosing import shared_heads
from headcount.papers.infoflow.experiments import (
    PAIRS,
    SHAPES,
    TRIANGLE,
    pair_cells,
    pair_rows,
    position_cells,
    triangle_cells,
    triangle_rows,
    window_cells,
)
from headcount.papers.infoflow.reproduce import pair_claims, probe_claims
from headcount.papers.infoflow.trained_cells import Entry, Trained, same_size, train_cells
from headcount.tasks import LinearMax
from headcount.training import Recipe
from studies.infoflow.battery import battery, confusion, judged
from studies.infoflow.page import INFOFLOW, UNSEEN, page
from studies.infoflow.pair_page import ENTERED, entered_by_one_matrix
from studies.infoflow.routed import routed, trained_from
from studies.infoflow.scatter import scatter
from studies.infoflow.solved import FACTOR, FAILED, FLOOR


def test_the_battery_covers_every_family_cheap_and_costly():
    cells = [cell for group in battery().values() for cell in group]
    verdicts = [predict(cell.task, cell.arch).verdict for cell in cells]
    assert len(cells) >= 40 and len({cell.name for cell in cells}) == len(cells)
    assert {"cheap", "costly", "infeasible"} == set(verdicts)
    assert 0.3 < sum(v == "cheap" for v in verdicts) / len(cells) < 0.7
    assert len({type(cell.task).__name__ for cell in cells}) == 8


def test_every_shape_of_a_task_has_the_size_of_its_reference():
    for like, cell in [(group[0], cell) for group in battery().values() for cell in group]:
        sizes = [parameters(c.arch, c.task.token_dim).total for c in (cell, like)]
        assert abs(sizes[0] / sizes[1] - 1) < 0.02
        assert (
            cell.arch == same_size(cell.arch, like.arch, like.task.token_dim) or cell is like or "triangle" in cell.name
        )


def test_cells_are_judged_against_their_reference():
    cells = battery()["4 maxima"][:3]  # 4x8 (reference, cheap), 1x8 and 2x8 (costly)
    trained = [Trained(c, (nmse,), 0) for c, nmse in zip(cells, (1e-4, 4e-4, 6e-3), strict=True)]
    rows = judged("4 maxima", trained)
    assert [row["trained"] for row in rows] == ["solved", "solved", "not solved"]
    assert [row["agree"] for row in rows] == [True, False, True]
    assert confusion(rows) == {"cheap": {"solved": 1, "not solved": 0}, "costly": {"solved": 1, "not solved": 1}}


def test_a_failed_reference_solves_nothing():
    cell = battery()["4 maxima"][0]
    (row,) = judged("4 maxima", [Trained(cell, (0.9,), 0)])
    assert row["trained"] == "not solved" and not row["agree"]


def test_the_published_tables_are_predicted_as_published():
    pairs = pair_rows([Trained(c, (1.0,), 0) for c in pair_cells("gaussian")])
    assert [row["published"] for row in pairs] == [v for row in PAIRS.values() for v in row]
    heads = [(shared_heads(c.task), *(heads for heads, _ in c.arch.layers)) for c in pair_cells("gaussian")]
    for row, (needed, first, second) in zip(pairs, heads, strict=True):
        D = int(re.findall(r"D=(\d)", row["cell"])[0])
        assert (row["predicted"] == "cheap") == (second == D and first >= needed), row["cell"]
    assert pairs[1]["predicted"] == "costly"  # as published, and where large tokens win both look-ups so do we
    triangles = triangle_rows([Trained(c, (1.0,), 0) for c in triangle_cells()])
    assert len(triangles) == 3 * len(TRIANGLE)
    assert {row["predicted"] for row in triangles if row["length"] > 3} == {"costly"}
    assert {row["predicted"] for row in triangles if row["length"] == 3} == {"cheap"}


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        ((0.08, 0.84), (0.95, 1.05), [True, True, True]),
        ((0.81, 1.25), (0.97, 1.02), [False, True, False]),  # one head of several is not enough
        ((0.2, 0.3), (0.85, 1.0), [True, False, True]),
    ],
)
def test_every_head_must_contain_its_winner_and_no_runner_up(first, second, holds):
    ratios = {("(1, 2)", "largest weight"): first, ("(1, 2)", "second largest"): second}
    assert [claim.holds for claim in probe_claims(ratios)] == holds


def test_a_head_fewer_costs_only_where_the_error_is_clearly_larger():
    published = {(D, shape): [v] for D, row in PAIRS.items() for shape, v in zip(SHAPES, row, strict=True)}
    assert [claim.holds for claim in pair_claims(published)] == [True]
    ours = published | {(2, "(D,D-1)"): [1.1 * 5.89e-5]}
    assert [claim.holds for claim in pair_claims(ours)] == [False]


def test_two_layers_of_one_head_are_cheap_where_they_have_positions():
    stored = json.loads(Path("docs/data/infoflow_tables.json").read_text())
    for name, cells in (("positions", position_cells()), ("windows", window_cells())):
        assert [row["cell"] for row in stored[name]["rows"]] == [cell.name for cell in cells]
        deep = [
            c for c in cells if c.arch.layers == ((1, 8), (1, 8)) and c.task.structure.count > 3
        ]  # three ride along
        assert all((predict(c.task, c.arch).verdict == "cheap") == bool(c.arch.positions) for c in deep)


def test_cells_train_as_banks_and_fill_the_page():
    cells = battery(length=6, width=4)["4 maxima"][:2]
    recipe = Recipe(samples=32, validation=16, epochs=1, batch=16, evaluations=1)
    trained = train_cells(cells, recipe, seeds=2)
    assert [len(t.nmse) for t in trained] == [2, 2] and all(t.nmse[0] <= t.nmse[1] for t in trained)
    rows = judged("4 maxima", trained)
    run = {"samples": 32, "steps": 2, "batch": 16, "seeds": 2, "device": "cpu", "date": "2026-11-15"}
    text = page({}, {"rows": rows, "runs": {"4 maxima": run}, "confusion": confusion(rows)})
    assert "cells agree" in text and ">4 maxima: 4x8</th>" in text
    assert Entry(cells[0].name, cells[0].task, cells[0].arch) == cells[0]


def told() -> dict:
    """Three cells of one task as the battery writes them: a reference, a costly shape that trained, one that failed."""
    cells = battery()["4 maxima"][:3]
    rows = judged("4 maxima", [Trained(c, (nmse,), 0) for c, nmse in zip(cells, (1e-4, 4e-4, 6e-3), strict=True)])
    run = {"samples": 64, "steps": 6000, "batch": 16, "seeds": 3, "device": "cpu", "date": "2026-11-15"}
    return {"rows": rows, "runs": {"4 maxima": run}, "confusion": confusion(rows)}


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.split("<body>")[1]))


def test_the_page_says_what_solved_means_with_the_numbers_in_force():
    text = words(page({}, told()))
    for number in (FACTOR, FAILED, FLOOR):
        assert short(number, missing="-") in text
    assert "1 of 2 cells agree" in text and "6,000 steps of 16, 3 seeds" in text


def test_a_disagreement_is_shown_with_what_was_found_or_that_nobody_looked():
    assert UNSEEN in words(page({}, told()))
    seen = words(page({}, told(), {"4 maxima: 1x8": "Found by memorising & <luck>."}))
    assert UNSEEN not in seen and "memorising &amp; &lt;luck&gt;" in seen
    with pytest.raises(ValueError, match=r"'4 maxima: 1x9' in the disagreements looked into; did you mean"):
        page({}, told(), {"4 maxima: 1x9": "a misspelt cell"})


def test_a_page_without_a_battery_says_how_to_get_one():
    text = words(page({}, {}))
    assert "python -m studies.infoflow.trained_battery" in text and "agree." not in text


def test_the_published_tables_show_ratios_to_the_full_shape():
    nmse = [0.01, 0.05, 0.02] * len(PAIRS)
    rows = pair_rows([Trained(c, (v, 2 * v), 0) for c, v in zip(pair_cells("sphere"), nmse, strict=True)])
    html = page({"sphere": {"rows": rows, "seeds": 2, "steps": 1000, "batch": 64}}, {})
    row = next(line for line in html.splitlines() if "sphere D=2 (D-1,D)" in line)
    # published, best, median, predicted, exponent, and twice the ratio: 5.89e-2 / 5.89e-5 and 0.05 / 0.01
    shown = re.findall(r"<td[^>]*>([^<]*)", row)
    assert shown == ["0.0589", "0.05", "0.075", "cheap", "1", "1.00e3", "5"]
    assert "10 of the 10 cells with a head too few are worse than (D,D)" in html


def test_every_stored_table_is_drawn_and_scrolls_in_a_box_of_its_own():
    stored = json.loads(Path("docs/data/infoflow_tables.json").read_text())
    html = page(stored, told())
    assert html.count("<table") == len(re.findall(r'<div class="scroll"[^>]*>\s*<table', html))
    assert all(row["cell"] in html for name in ("sphere", "triangle", "positions") for row in stored[name]["rows"])
    assert 'name="viewport"' in html and "prefers-color-scheme:dark" in html and "<script" not in html


def test_the_scatter_has_a_dot_for_every_cell_but_references_and_a_ring_for_every_disagreement():
    rows = [*told()["rows"], {**told()["rows"][2], "cell": "no exponent", "exponent": None, "predicted": "infeasible"}]
    body = scatter(rows, width=372).body
    assert body.count("<title>") == 3 and body.count('class="lost"') == 1
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', body)]
    assert len(places) == 4 and all(0 < x < 372 for x in places)


def test_the_page_is_drawn_without_torch():
    code = "import sys, studies.infoflow.page as p; p.page({}, {}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_committed_page_is_what_the_stored_measurements_draw():
    stored = [json.loads(Path("docs/data", name).read_text()) for name in INFOFLOW]
    assert Path("docs/infoflow.html").read_text() == page(*stored)
    apart = {row["cell"] for row in stored[1]["rows"] if not row["agree"]}
    assert apart == set(stored[2]), "every disagreement has been looked into, and nothing else"


def test_by_one_matrix_all_heads_lie_below_a_head_less_for_every_d_and_far_below_up_to_four():
    shown = entered_by_one_matrix(json.loads(Path("docs/data/pair_table.json").read_text()))
    assert shown is not None and [line["D"] for line in shown["lines"]] == list(PAIRS)
    for line in shown["lines"]:
        full, *short = line["cells"]
        wanted = 10 if line["D"] <= 4 else 1
        assert all(wanted * full[by] < cell[by] for cell in short for by in ("best", "median"))
        assert full["predicted"] == "cheap" and {cell["predicted"] for cell in short} == {"costly"}


def test_the_times_below_are_to_the_lower_of_the_two_short_cells():
    rows = [
        {"cell": c.name, "retrievals": 2, "steps": 9, "best": b, "median": m, "published": 1.0, "layers": c.arch.name}
        for c, b, m in zip(pair_cells("gaussian")[:3], (0.01, 0.05, 0.2), (0.02, 0.4, 0.06), strict=True)
    ]
    shown = entered_by_one_matrix({ENTERED: {"rows": rows}})
    assert shown is not None
    (line,) = shown["lines"]
    assert (line["below"], line["below by median"]) == (pytest.approx(5.0), pytest.approx(3.0))
    assert entered_by_one_matrix({}) is None


def test_the_stored_battery_is_predicted_and_judged_as_the_rules_say_now():
    stored = json.loads(Path("docs/data/infoflow_battery.json").read_text())
    assert set(stored["runs"]) == set(battery()) and stored["confusion"] == confusion(stored["rows"])
    for group, run in stored["runs"].items():
        rows = [row for row in stored["rows"] if row["group"] == group]
        for row, cell in zip(rows, battery(run["length"])[group], strict=True):
            assert (row["cell"], row["predicted"]) == (cell.name, predict(cell.task, cell.arch).verdict)
            solved = row["nmse"] <= FLOOR or (row["ratio"] <= FACTOR and row["nmse"] <= FAILED)
            assert row["trained"] == ("solved" if solved else "not solved"), row["cell"]


def test_the_network_that_routes_by_position_needs_its_positions():
    task = LinearMax.random(4, 3, 8)
    x, y = task.sample(256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beta = (100.0, 12.0)
    # Gibbs: W((T-1)/e)/beta a retrieval; outside the first D positions lies (T-D) e^-12 / D of the weight, of zeros.
    error = 4 * gibbs_excess(7, beta[0]).value + 4 * math.exp(-beta[1]) * float(y.abs().max()) + 1e-9
    gap = (routed(task, beta=beta)(x) - y).abs()
    assert gap.max() < error < 20 * gap.max()
    scaled = routed(task, mean=2.0, spread=3.0, beta=beta)(x)
    assert torch.allclose(3 * scaled + 2, routed(task, beta=beta)(x))


def test_from_near_the_network_training_falls_back_with_positions_and_not_without():
    recipe = Recipe(samples=512, validation=256, epochs=20, batch=64, evaluations=5)
    task = LinearMax.random(4, 3, 8)
    found = {p: trained_from(task, 0.03, (0, 1), recipe, lr=1e-3, places=p) for p in (True, False)}
    assert found[True]["nmse"] < 0.1 * found[False]["nmse"]
    assert (found[True]["predicted"], found[False]["predicted"]) == ("cheap", "costly")
