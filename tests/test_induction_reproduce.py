"""The paper on induction heads made again: the stored run beside ours, selection, and the picture of the stages."""

import pytest

from headcount.fits.agreement import comparisons
from headcount.papers.induction.experiments import ChainRun
from headcount.papers.induction.published import LOSS, SCALE, SHARE
from headcount.papers.induction.reproduce import INDUCTION, curve_measured
from headcount.papers.induction.stages_picture import lengths_picture, stages_picture
from headcount.results.record import Setting

CURVE, SELECTION = INDUCTION


def test_the_quick_run_meets_the_stored_one():
    record = CURVE.measure(Setting(quick=True))
    assert all(claim.holds for claim in record.measured.claims), record.measured.claims
    found = {c.published.title: c for c in comparisons(record, CURVE)}
    assert set(found) == {LOSS.title, SCALE.title, SHARE.title}
    assert all(abs(cell.ours - cell.published) < 0.02 for cell in found[LOSS.title].cells)
    assert all(abs(cell.ours - cell.published) < 0.2 for cell in found[SCALE.title].cells)
    assert all(comparison.same_order for comparison in found.values())


def test_a_curve_takes_as_many_seeds_as_came_to_a_step():
    base = ChainRun(training=9000)
    rows = [row(step, share) | {"seed": s} for s in (0, 1) for step, share in ((0, 0.1), (1, 0.3), (10, 0.99))]
    measured = curve_measured([*rows, row(100, 1.0) | {"seed": 1}], base)
    assert {key[0]: len(values) for key, values in measured.tables[LOSS.title].items()} == {0: 2, 100: 1}
    assert measured.tables["own-lag weights at the end"][100, "lag 2"] == (4.0,)
    assert measured.setup["steps"] == 100 and "100 steps of 50000" in measured.notes[0]
    whole = curve_measured([r | {"step": r["step"] * 5000 if r["step"] == 10 else r["step"]} for r in rows]
                           + [row(10, 0.99) | {"seed": s} for s in (0, 1)], base)  # fmt: skip
    assert whole.notes == ()


@pytest.mark.slow
def test_every_statement_of_the_selection_holds():
    measured = SELECTION.measure(Setting(quick=True)).measured
    assert all(claim.holds for claim in measured.claims), measured.claims
    assert len(measured.tables["margin"]) == 12


def row(step: int, share: float) -> dict:
    shares = dict.fromkeys(("", "1", "2", "3", "1,2", "1,3", "2,3"), (1 - share) / 6) | {"1,2": share}
    return {"step": step, "loss": 0.9, "scale": 0.01 + step, "own": [3.0, 3.0 + step / 100, 3.0], "shares": shares}


@pytest.mark.parametrize("narrow", [False, True])
def test_the_picture_shows_the_three_groups(narrow):
    drawn = stages_picture([row(0, 1 / 7), row(1, 0.3), row(10, 0.99), row(100, 1.0)], narrow=narrow).standalone()
    for words in ("selector", "copier", "classifier", "{1,2}", "head 3", "scale a"):
        assert words in drawn
    assert drawn.count('class="line ks0"') >= 3


def test_the_picture_of_lengths_has_a_panel_for_each_concentration():
    names = ("model_accuracy", "posterior_accuracy", "kernel_accuracy")
    rows = [
        {"concentration": c, "length": n, **dict.fromkeys(names, 0.5 + n / 1000)} for c in (0.1, 1.0) for n in (10, 400)
    ]
    drawn = lengths_picture(rows).standalone()
    assert "concentration 0.1" in drawn and "concentration 1" in drawn and ">400<" in drawn
