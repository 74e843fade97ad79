"""The ranking measure of the benchmark, by hand."""

import gzip
import json
import math

import pytest

from headcount.shrinking.ranking import cranfield, interval, ndcg, trec_dl
from studies.shrink_minilm import picture, rows, table


def test_ndcg_by_hand():
    grades = {"a": 3, "b": 1}
    best = 7 + 1 / math.log2(3)
    assert ndcg(["a", "b"], grades) == 1
    assert ndcg(["b", "a"], grades) == pytest.approx((1 + 7 / math.log2(3)) / best)
    assert ndcg(["x"] * 10 + ["a"], grades) == 0
    assert ndcg(["a"], {}) == 0


def test_the_interval_holds_the_mean_and_shrinks_to_it():
    low, high = interval([0.0, 1.0] * 50)
    assert low < 0.5 < high and high - low == pytest.approx(4 * 0.05, rel=0.1)
    assert interval([0.3] * 5) == pytest.approx((0.3, 0.3))


def test_collections_read_their_files(tmp_path):
    marco = {
        "queries": {"1": "q"},
        "passages": {"7": "p", "8": "r"},
        "qrels": {"1": {"7": 2}},
        "bm25_top100": {"1": ["7"]},
    }
    cran = {"docs": {"1": {"title": "t", "text": ""}}, "queries": {"1": "q"}, "qrels": {"1": {"1": 1, "2": -1}}}
    for name, data in (("m", marco), ("c", cran)):
        with gzip.open(tmp_path / name, "wt") as out:
            json.dump(data, out)
    assert trec_dl(tmp_path / "m").documents == {"7": "p"}
    found = cranfield(tmp_path / "c")
    assert (
        found.grades == {"1": {"1": 4}} and found.documents == {"1": "t"} and found.part(1).candidates == {"1": ["1"]}
    )


def test_the_figure_is_redrawn_from_the_stored_results_alone():
    one = {"curve": "original", "keep": 1.0, "dl": {"a": 0.5, "b": 0.7}}
    other = {"curve": "allocated, data-aware", "keep": 0.5, "dl": {"a": 0.4, "b": 0.7}}
    results = {"variants": {"original": one, "half": other}}
    assert [r["change"] for r in rows(results)] == pytest.approx([0.0, -0.05])
    assert "half" in table(results)
    drawn = picture(results).standalone()
    assert drawn == picture(results).standalone() and drawn.count("<circle") == 1  # the original is the line at 0
