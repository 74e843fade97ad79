"""The site: every link leads somewhere, every block of code and every notebook runs, every format is read."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from studies.site import example_blocks, format_files, links, notebooks, reference
from studies.site.command_pages import commands
from studies.site.paper_pages import PAPER_PAGES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
TUTORIALS = sorted(DOCS.glob("tutorials/*.ipynb"))
EXAMPLES = sorted(DOCS.glob("reference/examples/*.md"))
SLOW = {"compress", "demo", "sweep"}
ENTRIES = [entry for space in reference.spaces() for entry in reference.entries(space)]


# ---------------------------------------------------------------- links


def test_every_link_of_the_markdown_sources_leads_somewhere():
    assert links.broken_in_markdown(SOURCES, ROOT) == []


def test_every_link_of_a_tutorial_leads_somewhere(tmp_path):
    for path in TUTORIALS:
        cells = notebooks.cells_of(json.loads(path.read_text()))
        told = "\n\n".join(text for kind, text in cells if kind == "markdown")
        for target in links.targets(told):
            name, _, place = target.partition("#")
            assert (path.parent / name).exists(), f"{path.name}: {target}"
            assert not place or place in links._slugs(path.parent / name), f"{path.name}: {target}"


@pytest.mark.parametrize("planted", ["[a](nowhere.md)", "[a](there.md#no-such-place)", "![a](no.svg)", "[a](#gone)"])
def test_a_planted_broken_link_is_found_in_markdown(tmp_path, planted):
    (tmp_path / "there.md").write_text("# There\n")
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n[right](there.md#there) [also](#page) `[no](link)`\n")
    assert links.broken_in_markdown([page], tmp_path) == []
    page.write_text(f"# Page\n\n{planted}\n")
    assert len(links.broken_in_markdown([page], tmp_path)) == 1


@pytest.mark.parametrize(
    "planted",
    [
        '<a href="nowhere.html">a</a>',
        '<a href="b.html#no">a</a>',
        '<img src="no.png">',
        '<a href="../outside.html">a</a>',
    ],
)
def test_a_planted_broken_link_is_found_in_built_pages(tmp_path, planted):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("")
    (site / "b.html").write_text('<p id="yes"></p>')
    (site / "a.html").write_text('<a href="b.html#yes">b</a><a href="https://example.org">elsewhere</a>')
    assert links.broken_in_pages(site) == []
    (site / "a.html").write_text(planted)
    assert len(links.broken_in_pages(site)) == 1


def test_what_a_page_would_load_from_elsewhere_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<img src="data:image/png;base64,"><a href="https://example.org">fine</a>')
    assert links.foreign_in_pages(tmp_path) == []
    (tmp_path / "a.html").write_text('<script src="https://example.org/x.js"></script>')
    assert [found.target for found in links.foreign_in_pages(tmp_path)] == ["https://example.org/x.js"]


@pytest.mark.slow
def test_the_site_is_built_and_all_its_links_lead(tmp_path):
    pytest.importorskip("furo", reason="needs the extra docs")
    out = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "studies.site", "--out", out], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "searchindex.js").exists() and not links.foreign_in_pages(out)
    (out / "planted.html").write_text('<a href="nowhere.html">a</a>')
    assert [found.page for found in links.broken_in_pages(out)] == ["planted.html"]


# ---------------------------------------------------------------- code and notebooks


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_of_the_reference_prints_what_it_says(path):
    parser, flags = doctest.DocTestParser(), doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    for number, block in enumerate(example_blocks.BLOCK.findall(path.read_text())):
        test = parser.get_doctest(block, {"__name__": "example"}, f"{path.stem} {number}", str(path), 0)
        runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
        said: list[str] = []
        runner.run(test, out=said.append)
        assert not runner.failures, "".join(said)


def blocks_of(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)


WITH_CODE = [p for p in SOURCES if p.name != "README.md" and "examples" not in p.parts and blocks_of(p)]


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda p: p.stem)
def test_every_python_block_of_a_page_runs(path, capsys):
    names: dict[str, object] = {}
    for block in blocks_of(path):
        exec(compile(block, path.name, "exec"), names)


COMMAND = re.compile(r"^(headcount [a-z].*?)(?:\s{2,}#.*)?$", flags=re.MULTILINE)


def test_every_command_of_a_page_exists_with_its_options():
    known = {words for _, words in commands()}
    helps: dict[str, str] = {}
    from studies.site.command_pages import _help

    for path in [*SOURCES, *TUTORIALS]:
        for block in re.findall(r"^```text\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE):
            for line in COMMAND.findall(block):
                words = line.split()[1:]
                name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
                assert name in known or name == "--install-completion", f"{path.name}: {line}"
                said = helps.setdefault(name, _help(name) if name in known else "")
                for option in re.findall(r"(?<=\s)--[a-z-]+", line):
                    assert not said or option in said, f"{path.name}: {line}"


def outputs(notebook: dict) -> list[list[list[str]]]:
    """The kinds of every output of every cell."""
    return [
        [sorted(out["data"]) if "data" in out else ["stream"] for out in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_a_notebook_runs_in_a_fresh_process_and_shows_what_was_kept(path, tmp_path):
    words = [sys.executable, "-m", "studies.site.notebooks", path, "--out", tmp_path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, new = (json.loads((folder / path.name).read_text()) for folder in (path.parent, tmp_path))
    assert outputs(new) == outputs(kept)


def test_there_are_five_tutorials_with_outputs_next_steps_and_trust():
    assert len(TUTORIALS) == 5
    for path in TUTORIALS:
        notebook = json.loads(path.read_text())
        told = "\n".join(text for _, text in notebooks.cells_of(notebook))
        assert "## What to do next" in told and "## How far to trust it" in told, path.name
        assert any(outputs(notebook)), path.name


def test_a_cell_that_raises_is_a_failure_with_its_number():
    cell = {"cell_type": "code", "source": ["1 / 0"], "outputs": []}
    with pytest.raises(notebooks.CellFailedError, match=r"cell 0: ZeroDivisionError"):
        notebooks.executed({"cells": [cell]})


def test_a_cell_shows_its_last_expression_and_what_it_prints():
    cells = [{"cell_type": "code", "source": ["print(1)\n", "x = 2"]}, {"cell_type": "code", "source": ["x + 1"]}]
    first, second = notebooks.executed({"cells": cells})["cells"]
    assert first["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]
    assert second["outputs"][0]["data"] == {"text/plain": ["3"]}


# ---------------------------------------------------------------- reference and formats


def test_every_public_name_has_words_and_an_example():
    assert [e.label for e in ENTRIES if not e.summary and not isinstance(e.value, dict | tuple)] == []
    bare = [e.label for e in ENTRIES if not (">>> " in e.doc and reference._documented(e.value))]
    assert [e.label for e in ENTRIES if e.label in bare and not reference.examples(e)] == []


def test_every_field_of_a_public_value_says_what_it_holds():
    silent = [
        f"{e.label}.{f.name}" for e in ENTRIES for f in reference.fields(e.value) if not reference.field_text(e, f.name)
    ]
    assert silent == []


def test_labels_are_used_once_and_every_paper_has_a_page():
    assert len({e.label for e in ENTRIES}) == len(ENTRIES)
    assert {page.folder for page in PAPER_PAGES} == {space.removeprefix("hc.") for space in reference.spaces()} - {
        "hc",
        "tasks",
    }
    assert all((DOCS / f"papers/{page.folder}.md").exists() for page in PAPER_PAGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the files of docs/formats, where calls may write."""
    place = tmp_path_factory.mktemp("formats")
    shutil.copytree(format_files.FORMATS, place, dirs_exist_ok=True)
    return place


@pytest.mark.parametrize("data", format_files.MEASURED)
def test_measure_reads_every_kind_of_data_file(data, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    given = [data, *format_files.MEASURED[data], *format_files.SMALL, "--out", f"out/{data.replace(':', '-')}"]
    assert format_files.answer("measure", given)["verdict"] in ("worth it", "not worth it", "cannot say yet")


def test_a_saved_network_and_second_order_sections_are_read(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert format_files.answer("lens", ["--own-run", "net.safetensors", "--length", "3"])
    assert format_files.answer("ssm table", ["sos.json", "--depths", "1"])


def test_every_command_has_a_call():
    assert set(format_files.CALLS) == {words for _, words in commands()}
    stated = json.loads((format_files.FORMATS / "json/calls.json").read_text())
    assert {words: call["arguments"] for words, call in stated.items()} == format_files.CALLS


def _kept(words: str):
    return json.loads((format_files.FORMATS / f"json/{words.replace(' ', '-')}.json").read_text())


@pytest.mark.parametrize(
    "words", [pytest.param(w, marks=pytest.mark.slow) if w in SLOW else w for w in format_files.CALLS]
)
def test_the_json_of_a_command_has_the_keys_that_the_page_shows(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    if words == "ssm flatten" and not (folder / "out/deep").exists():
        format_files.answer("ssm deepen", format_files.CALLS["ssm deepen"])
    found = format_files.answer(words, format_files.CALLS[words])
    assert format_files.keys_of(found) == format_files.keys_of(_kept(words)), "python -m studies.site.format_files"
