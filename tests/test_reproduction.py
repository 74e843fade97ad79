"""The command and the page: names, cheap tables, results that are kept, and a page drawn from files alone."""

import dataclasses
import json
from pathlib import Path

import pytest

from headcount.cli.door import main
from headcount.fits.agreement import comparisons
from headcount.papers.head_count import reproduce as head_count
from headcount.reproduction.index import REPRODUCTIONS, chosen, named
from headcount.reproduction.runner import read_records, reproduce
from headcount.reproduction.side_by_side import entries, html, markdown
from headcount.results.record import Measured, Record, Reproduction, Setting
from headcount.training.member import Recipe
from studies.head_count import cifar, text_retrieval

NAMES = [
    "head-count:table-2",
    "head-count:table-3",
    "head-count:table-4",
    "head-count:table-5",
    "head-count:cifar",
    "head-count:text",
    "infoflow:pair",
    "infoflow:triangle",
    "infoflow:probes",
    "allocation:e-128",
    "allocation:4-gram",
    "allocation:jacobian",
    "ssm:norms",
    "ssm:learning",
    "hardmax:exact",
    "hardmax:decay",
    "induction:curve",
    "induction:selection",
]
CHEAP = (
    "head-count:exponents",
    "allocation:e-128",
    "ssm:norms",
    "icl:claims",
    "consistency:rate",
    "hardmax:exact",
    "prompts:memory",
)


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code, capsys.readouterr()


def test_every_promised_name_is_there_once_and_files_do_not_collide():
    names = [r.name for r in REPRODUCTIONS]
    assert set(NAMES) <= set(names) and len(set(names)) == len(names)
    files = {(r.file(quick=q), r.name, q and not r.computed) for r in REPRODUCTIONS for q in (True, False)}
    assert len({file for file, *_ in files}) == len(files) == 2 * len(names) - len(CHEAP)


def test_a_paper_or_all_may_be_asked_for():
    assert {r.paper for r in chosen(["infoflow"])} == {"infoflow"}
    assert chosen(["all", "ssm:norms"]) == list(REPRODUCTIONS)


@pytest.mark.parametrize("name", CHEAP)
def test_tables_that_were_derived_here_are_consistent_and_never_match(name, tmp_path):
    (record,) = reproduce([named(name)], Setting(folder=tmp_path), tmp_path)
    for c in comparisons(record, named(name)):
        words = {"paper": "matches", "same formula": "not comparable"}
        assert c.verdict.word == words.get(c.published.origin, "consistent")
    assert all(claim.holds for claim in record.measured.claims)


@pytest.mark.parametrize("name", CHEAP)
def test_what_is_computed_is_the_same_when_asked_for_quickly(name, capsys, tmp_path):
    code, said = run(capsys, "reproduce", name, "--quick", "--out", str(tmp_path))
    assert code == 0 and "quick" not in said.out and "standard deviation" not in said.out
    assert not Record.read(tmp_path / named(name).file(quick=False)).quick


def test_a_kept_result_is_not_run_again_unless_asked(tmp_path):
    runs = []
    counted = Reproduction("ssm:norms", "counted", lambda setting: runs.append(1) or Measured())
    for again in (False, False, True):
        reproduce([counted], Setting(folder=tmp_path), tmp_path, again=again)
    assert len(runs) == 2


def test_a_full_result_is_preferred_to_a_quick_one(tmp_path):
    for quick, seconds in ((True, 1.0), (False, 2.0)):
        record = Record("ssm:norms", quick, "2026-01-01", "CPU", "c", seconds, Measured())
        (tmp_path / named("ssm:norms").file(quick=quick)).write_text(record.to_json())
    assert read_records(tmp_path)["ssm:norms"].seconds == 2.0


def test_the_command_lists_runs_and_redraws(capsys, tmp_path):
    code, said = run(capsys, "reproduce")
    assert code == 0 and "head-count:cifar" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    code, said = run(capsys, "reproduce", "allocation:e-128", "--out", str(tmp_path), "--json")
    found = json.loads(said.out)
    assert code == 0 and found["verdicts"][0]["verdict"] == "consistent"
    code, said = run(capsys, "reproduce", "--redraw", str(tmp_path), "--out", str(tmp_path / "page"))
    assert code == 0
    assert (tmp_path / "page" / "reproduction.md").read_text() == (tmp_path / "reproduction.md").read_text()


def test_one_table_and_then_another_into_one_folder_shows_both(capsys, tmp_path):
    for name in ("allocation:e-128", "ssm:norms"):
        code, said = run(capsys, "reproduce", name, "--out", str(tmp_path), "--json")
        assert code == 0 and {row["name"] for row in json.loads(said.out)["verdicts"]} == {name}
    (tmp_path / "prediction.json").write_text("{}")  # what another command wrote there is left alone
    assert set(read_records(tmp_path)) == {"allocation:e-128", "ssm:norms"}
    assert (tmp_path / "reproduction.md").read_text() == markdown(read_records(tmp_path))
    shown = {e.reproduction.name for e in entries(read_records(tmp_path)) if e.record is not None}
    assert shown == {"allocation:e-128", "ssm:norms"}


def test_a_table_that_was_not_run_says_where_it_was_published():
    page = markdown({})
    assert "; )" not in page and "()" not in page
    for reproduction in REPRODUCTIONS:
        for published in reproduction.published:
            assert f"**{published.title}** ({published.quantity}; {published.source})" in page


@pytest.mark.parametrize(("reduced", "size"), [("", "full"), ("8 of 28,000 training queries", "reduced")])
def test_a_run_is_called_reduced_by_its_field_and_not_by_its_notes(reduced, size):
    measured = Measured(notes=("smaller seeds were tried too", "lengths are published"), reduced=reduced)
    record = Record("head-count:text", False, "2026-01-01", "CPU", "c", 1.0, measured)
    assert Record.from_json(record.to_json()) == record
    (entry,) = [e for e in entries({record.name: record}) if e.record is not None]
    assert entry.size == size
    assert entry.notes[-2:] == list(measured.notes) and len(entry.notes) == 2 + bool(reduced)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["head-count:table-9"], "did you mean"),
        (["head-count:cifar", "--quick"], "`python -m studies.head_count cifar`"),
        (["head-count:text", "--quick"], "on data of https://microsoft.github.io/msmarco"),
        (["allocation:jacobian", "--quick"], "get WikiText-2"),
        (["allocation:decoders", "--quick"], "tinyshakespeare)"),
        (["allocation:e-128", "--device", "tpu"], "device must be cpu or cuda"),
        (["allocation:e-128", "--budget", "-3"], "above 0"),
        (["--redraw", "nowhere"], "no folder nowhere"),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, arguments, says):
    code, said = run(capsys, "reproduce", *arguments, "--out", str(tmp_path))
    assert code == 2 and says in said.err and said.err.count("\n") == 1


def test_the_page_shows_every_published_number_run_or_not():
    record = Record("head-count:table-2", False, "2026-01-01", "CPU", "cmd", 1.0,
                    Measured({"Table 2": {(1, 8): (0.05, 0.09)}}, (), {"seeds": 2}))  # fmt: skip
    text_page, web_page = markdown({record.name: record}), html({record.name: record})
    for page in (text_page, web_page):
        assert "0.145 ± 0.105" in page and "0.955" not in page and "99.9" not in page
        assert "5.89e-5" in page and "[0.05, 0.09]" in page and "cmd" in page
    assert "<script" not in web_page and "http" not in web_page.split("</style>")[-1]


def test_a_verdict_on_the_page_says_which_table_it_is_about():
    found = {e.reproduction.name: e for e in entries({})}
    assert found["head-count:table-2"].size == "not run" and not found["head-count:table-2"].outcomes


TINY = Recipe(samples=64, validation=32, epochs=2, batch=32)


@pytest.mark.parametrize("name", ["table-2", "table-3", "table-4", "table-5", "figure-1a", "figure-1b", "reversal"])
def test_synthetic_recipes_run_at_the_smallest_size(name, tmp_path, monkeypatch):
    small = {
        k: dataclasses.replace(g, lengths=(4, 6), seeds=2, recipe=TINY, widths=g.widths[:2])
        for k, g in head_count.GRIDS.items()
    }
    monkeypatch.setattr(head_count, "GRIDS", small)
    monkeypatch.setattr(
        head_count, "VARIED", dataclasses.replace(head_count.VARIED, lengths=(4,), seeds=1, recipe=TINY)
    )
    (record,) = reproduce([named(f"head-count:{name}")], Setting(folder=tmp_path), tmp_path)
    assert record.measured.tables and all(
        values for cells in record.measured.tables.values() for values in cells.values()
    )
    assert f"head-count:{name}" in markdown({record.name: record})


def test_rows_of_a_stored_study_are_taken_over_where_they_are_the_same(tmp_path, monkeypatch):
    grid = dataclasses.replace(head_count.GRIDS["table-4"], lengths=(4,), heads=(1,), seeds=2, recipe=TINY)
    monkeypatch.setattr(head_count, "GRIDS", {"table-4": grid})
    study = head_count.sweep_of(grid, Setting(folder=tmp_path / "one"))
    assert head_count.adopt(study, Setting(folder=tmp_path / "two")) == 2
    monkeypatch.setattr(head_count, "GRIDS", {"table-4": dataclasses.replace(grid, lr=1e-4)})
    assert head_count.adopt(study, Setting(folder=tmp_path / "three")) == 0


def test_images_and_text_run_at_the_smallest_size(tmp_path, monkeypatch):
    from tests.test_head_count_data import WORDS, write_batch

    write_batch(tmp_path / "data_batch_1", 32, 1)
    write_batch(tmp_path / "test_batch", 8, 2)
    size = cifar.ImageGrid(images=32, test=8, epochs=1, canvases=(32,), heads=(1, 2), seeds=3, batch=16)
    found = cifar.run(Setting(data=tmp_path, folder=tmp_path / "kept"), size)
    assert set(found.tables) >= {"Table 8", "Table 9"} and found.setup["pixels"] == "official pixels"
    again = cifar.run(Setting(data=tmp_path, folder=tmp_path / "kept"), size)  # from what is kept
    assert again.tables == found.tables
    kept = [json.loads(line)["of"]["cell"] for line in (tmp_path / "kept" / "cifar.jsonl").read_text().splitlines()]
    assert kept == [[32, 1], [32, 2]]  # every cell was trained, and once

    with pytest.raises(ValueError, match=r"passed before the first network could be trained"):
        cifar.run(Setting(data=tmp_path, folder=tmp_path / "late", seconds=1e-9), size)

    passages = [f"{a} {b} text" for a in WORDS for b in WORDS if a < b]
    (tmp_path / "collection.tsv").write_text("".join(f"{i}\t{p}\n" for i, p in enumerate(passages)))
    (tmp_path / "queries.train.tsv").write_text("".join(f"{q}\twhat is {w}\n" for q, w in enumerate(WORDS)))
    (tmp_path / "qrels.train.tsv").write_text("".join(f"{q} 0 {5 * q} 1\n" for q in range(len(WORDS))))
    size = text_retrieval.TextGrid(candidates=(4,), heads=(1, 2), seeds=1, epochs=1, sets=8, batch=4)
    found = text_retrieval.run(Setting(quick=True, data=tmp_path, folder=tmp_path / "kept"), size)
    assert set(found.tables["Table 6"]) == {(1, 4), (2, 4)}
    assert found.reduced.endswith("of 28,000 training queries, 1 epoch")
    monkeypatch.setattr(text_retrieval, "QUERIES", 1)
    monkeypatch.setattr(text_retrieval, "FULL", size)
    assert text_retrieval.run(Setting(data=tmp_path, folder=tmp_path / "whole"), size).reduced == ""


def test_the_committed_page_is_what_the_committed_results_give():
    docs = Path(__file__).parents[1] / "docs"
    records = read_records(docs / "data" / "reproduction")
    assert (docs / "reproduction.md").read_text() == markdown(records)
    assert (docs / "reproduction.html").read_text() == html(records)
    assert set(records) <= {r.name for r in REPRODUCTIONS}
