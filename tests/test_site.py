"""The site: every link leads somewhere, every block of code and every notebook runs, every format is read."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from studies.docs import GENERATED
from studies.site import (
    code_blocks,
    example_blocks,
    format_files,
    gallery,
    held_numbers,
    links,
    notebooks,
    reference,
    sections,
)
from studies.site.calls import called
from studies.site.command_pages import commands
from studies.site.paper_pages import PAPER_PAGES
from tests.browser import WIDTHS, chromium, missing_browser
from tests.site_commands import LONG, NO_COMMANDS, NOT_RUN, SMALLER, STAND_INS

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


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("a.css", "body { background: url('https://example.org/x') }"),
        ("a.css", "@import 'https://example.org/x';"),
        ("a.html", "<style>@font-face { src: url(//example.org/x) }</style>"),
        ("a.html", '<p style="background: url(https://example.org/x)">a</p>'),
        ("a.js", 'fetch("https://example.org/x")'),
    ],
)
def test_what_a_style_or_a_script_would_load_from_elsewhere_is_found(tmp_path, name, planted):
    (tmp_path / "fine.css").write_text(
        "a { background: url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\">') }"
    )
    (tmp_path / "fine.js").write_text('document.createElementNS("http://www.w3.org/2000/svg", "g")')
    assert links.foreign_in_pages(tmp_path) == []
    (tmp_path / name).write_text(planted)
    assert [found.page for found in links.foreign_in_pages(tmp_path)] == [name]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built once."""
    pytest.importorskip("furo", reason="needs the extra docs")
    out = tmp_path_factory.mktemp("built") / "site"
    words = [sys.executable, "-m", "studies.site", "--out", out]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_is_built_and_all_its_links_lead(site):
    assert not links.foreign_in_pages(site) and not links.broken_in_pages(site)
    planted = site / "planted.html"
    planted.write_text('<a href="nowhere.html">a</a>')
    assert [found.page for found in links.broken_in_pages(site)] == ["planted.html"]
    planted.unlink()


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_a_broken_link_in_a_source_fails_the_build(tmp_path, monkeypatch):
    pytest.importorskip("furo", reason="needs the extra docs")
    from studies.site import __main__ as door

    source = tmp_path / "source"
    (source / "_static").mkdir(parents=True)
    (source / "conf.py").write_text('extensions = ["myst_parser"]\nhtml_theme = "furo"\n')
    (source / "index.md").write_text("# Page\n\n[leads](index.md)\n")
    door.build(source, tmp_path / "site")
    (source / "index.md").write_text("# Page\n\n[leads nowhere](nowhere.md)\n")
    with pytest.raises(SystemExit, match="nowhere"):
        door.build(source, tmp_path / "site")


# What newcomers looked for (fifteen of these were found nowhere once), as they type it, and the place that answers.
LOOKED_FOR = {
    "install": "install.html",
    "measure a csv": "questions.html#measure-a-csv-is-attention-worth-anything-on-my-data",
    "own function": "questions.html#i-have-a-function-of-my-own",
    "figure pdf": "questions.html#a-figure-as-pdf-a-table-in-latex",
    "reproduce a table": "questions.html#reproduce-a-published-table",
    "gpu sweep": "questions.html#train-a-grid-stop-it-go-on-use-a-gpu",
    "what words mean": "words.html",
    "add a paper": "contributing.html",
    "my own split": "questions.html#i-have-a-split-of-my-own",
    "scikit-learn estimator": "questions.html#where-are-the-scikit-learn-estimators",
    "file formats": "formats.html",
    "npz keys": "formats.html#sequences-as-npz",
    "text or token ids": "questions.html#my-data-are-texts-or-ids",
    "missing values": "questions.html#values-are-missing",
    "load what compress wrote": "questions.html#load-what-compress-wrote",
    "predict_proba": "questions.html#where-are-the-probabilities",
    "onnx of a measured network": "questions.html#onnx-of-a-measured-network",
    "attention maps": "questions.html#attention-maps",
    "which command": "index.html#which-command-answers-which-question",
    "cite": "cite.html",
    "read a measure page": "questions.html#how-do-i-read-a-page-of-measure",
}
needs_browser = pytest.mark.skipif(bool(missing_browser()), reason=missing_browser())


@pytest.mark.slow
@pytest.mark.xdist_group("site")
@needs_browser
def test_the_search_of_the_first_page_finds_what_newcomers_look_for(site, tmp_path):
    """Typed into the box of the first page, opened from a folder: among the first three, and the console is silent."""
    from selenium.webdriver.support.ui import WebDriverWait

    missed = {}
    with chromium(tmp_path) as driver:
        for words, wanted in LOOKED_FOR.items():
            driver.get((site / "index.html").as_uri())
            box = driver.find_element("css selector", "input[name=q]")
            driver.execute_script("arguments[0].value = arguments[1]; arguments[0].form.submit()", box, words)
            found = WebDriverWait(driver, 30).until(lambda d: d.find_elements("css selector", "#found li a"))
            places = [link.get_attribute("href").rpartition("/site/")[2] for link in found[:3]]
            if wanted not in places:
                missed[words] = places
        assert driver.get_log("browser") == []
    assert missed == {}


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_what_newcomers_look_for_is_two_clicks_from_the_first_page(site):
    def reached(page: Path) -> set[str]:
        targets = [target.partition("#")[0] for target in links._page(page).links if not links.ELSEWHERE.match(target)]
        return {str((page.parent / t).resolve().relative_to(site.resolve())) for t in targets if t}

    once = reached(site / "index.html")
    twice = once.union(*(reached(site / name) for name in once if name.endswith(".html")))
    assert {place.partition("#")[0] for place in LOOKED_FOR.values()} <= twice
    for place in LOOKED_FOR.values():
        name, _, part = place.partition("#")
        assert not part or part in links._page(site / name).ids, place


LOOKED_AT = ("index", "questions", "tutorials/own_data", "reference/front", "papers/head_count", "gallery", "formats")


@pytest.mark.slow
@pytest.mark.xdist_group("site")
@needs_browser
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_of_the_site_is_not_wider_than_a_phone(name, site, tmp_path):
    """Wide tables and code scroll inside the page; the page itself does not."""
    with chromium(tmp_path) as driver:
        for width in WIDTHS:
            sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
            driver.get((site / f"{name}.html").as_uri())
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width, width
        assert driver.get_log("browser") == []


def test_a_section_is_found_with_its_place_and_its_text():
    page = (
        '<article><section id="a"><h1>A</h1><p>one</p><table><tr><td>x</td><td>y</td></tr></table></section></article>'
    )
    (found,) = sections.sections_of(page, "questions")
    assert found.text == "one x y" and found.weight > sections.sections_of(page, "log")[0].weight


# ---------------------------------------------------------------- numbers, figures, questions


@pytest.mark.parametrize("name", [page.folder for page in PAPER_PAGES])
def test_every_number_of_a_papers_page_comes_from_a_record_or_from_the_theory(name):
    text, stated = (DOCS / f"papers/{name}.md").read_text(), held_numbers.STATED.get(name, ())
    assert held_numbers.unheld(text, stated) == []
    assert [phrase for phrase in stated if phrase not in text] == []
    assert {mark for mark, _ in held_numbers.MARK.findall(text)} == set(held_numbers.HELD[name])


@pytest.mark.parametrize("name", ["infoflow", "hardmax"])
def test_a_changed_number_of_a_papers_page_is_written_anew(name):
    text = (DOCS / f"papers/{name}.md").read_text()
    for mark, held in held_numbers.MARK.findall(text):
        wrong = text.replace(f"<!--={mark}-->{held}", f"<!--={mark}-->17")
        assert wrong != text and held_numbers.filled(wrong, held_numbers.HELD[name]) == text
    assert held_numbers.unheld(f"{text} in 64 s", held_numbers.STATED.get(name, ())) == ["64"]


def test_every_figure_is_drawn_by_make_docs_and_shown_somewhere():
    images = {p.name for p in DOCS.glob("images/*")}
    assert {name for name in images if f"docs/images/{name}" not in GENERATED} == set()
    assert {one.image for one in gallery.GALLERY} <= images
    assert {one.whole for one in gallery.GALLERY if one.whole} <= {Path(name).name for name in GENERATED}
    told = "\n".join(path.read_text() for path in SOURCES)
    assert {name for name in images if f"images/{name}" not in told} == set()


def test_a_figure_of_a_page_is_taken_out_whole():
    from headcount.drawing.svg import Figure

    drawn = Figure(20, 10, "<g>1 &lt; 2</g>", "t", "a < b")
    (found,) = gallery.figures_of(f"<p>{drawn.inline('x')}</p>")
    assert (found.width, found.height, found.body, found.description) == (20, 10, drawn.body, "a < b")


def test_the_citation_names_this_version_and_the_page_repeats_it():
    from headcount import __version__

    cited = dict(re.findall(r"^([a-z-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE))
    assert (
        cited["version"] == __version__
        and cited["license"] == "Apache-2.0"
        and "authors:" in (ROOT / "CITATION.cff").read_text()
    )
    page = (DOCS / "cite.md").read_text()
    assert f"version {__version__}" in page and cited["title"].strip('"') in page and cited["date-released"][:4] in page


def test_every_command_is_named_in_the_questions():
    told = (DOCS / "questions.md").read_text()
    usual = {"runs list": "headcount runs"}
    assert {words for _, words in commands() if usual.get(words, words) not in told} == set()


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


@pytest.mark.parametrize("module", sorted(ROOT.glob("studies/site/[a-z]*.py")), ids=lambda p: p.stem)
def test_the_examples_of_what_makes_the_site_run(module):
    assert doctest.testmod(importlib.import_module(f"studies.site.{module.stem}")).failed == 0


BLOCKS = {path: code_blocks.blocks_of(path.read_text(), str(path.relative_to(ROOT))) for path in SOURCES}
OTHERWISE = {"{toctree}", "pycon"}  # what Sphinx reads; what the test above runs


def test_every_block_of_the_site_is_run_or_says_why_not():
    """Python is run, commands are run or listed with a reason, and nothing is listed that is not shown."""
    blocks = [block for found in BLOCKS.values() for block in found]
    assert {block.language for block in blocks} == {"python", "text", "", *OTHERWISE}
    assert {block.page for block in blocks if block.language == "pycon"} <= {str(p.relative_to(ROOT)) for p in EXAMPLES}
    shown = [block for block in blocks if block.language in ("text", "")]
    assert [block for block in shown if not (block.calls or block.text.startswith(NO_COMMANDS))] == []
    calls = {call for block in shown for call in block.calls}
    assert [call for call in (*LONG, *NOT_RUN) if call not in calls] == []
    assert [call for call in calls if not call.startswith("headcount ") and call not in NOT_RUN] == []
    assert not LONG.keys() & NOT_RUN.keys() and all(NOT_RUN.values())


@pytest.mark.parametrize("planted", ["make a wish", "headcount doctor\nand more", "python -m studies.new_study"])
def test_a_planted_block_without_a_reason_is_found(planted, monkeypatch):
    block = code_blocks.CodeBlock("docs/planted.md", "text", f"{planted}\n")
    monkeypatch.setitem(BLOCKS, ROOT / "docs/planted.md", [block])
    with pytest.raises(AssertionError, match=planted.split()[1]):
        test_every_block_of_the_site_is_run_or_says_why_not()


def is_run(block: code_blocks.CodeBlock) -> bool:
    """Whether it is Python that is run here; that of the README is in tests/test_docs.py, with what it must print."""
    return block.language == "python" and block.page != "README.md"


def run_blocks(path: Path, folder: Path, *, long: bool) -> list[str]:
    """Run what the blocks of a page hold, in order, in a copy of docs/formats; the commands that were run."""
    shutil.copytree(format_files.FORMATS, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", folder / "examples")
    names: dict[str, object] = {}
    done = []
    for block in BLOCKS[path]:
        if is_run(block):
            exec(compile(block.text, path.name, "exec"), names)
        for call in block.calls:
            if call in NOT_RUN or (call in LONG and not long):
                continue
            words = [STAND_INS.get(word, word) for word in shlex.split(call)[1:]]
            found = called([*words, *SMALLER.get(words[0], ())])
            assert found.exit_code == 0, f"{block.page}: {call}: {found.stderr} {found.stdout[-500:]}"
            done.append(call)
    return done


def with_blocks() -> list[object]:
    """Every page with something to run; one with a long command twice, the second time with it."""
    made: list[object] = []
    for path, blocks in BLOCKS.items():
        held = {call for block in blocks for call in block.calls} - NOT_RUN.keys()
        name = str(path.relative_to(ROOT).with_suffix(""))
        if held - LONG.keys() or any(map(is_run, blocks)):
            made.append(pytest.param(path, False, id=name))
        if held & LONG.keys():
            made.append(pytest.param(path, True, id=f"{name}-long", marks=pytest.mark.slow))
    return made


@pytest.mark.parametrize(("path", "long"), with_blocks())
def test_the_blocks_of_a_page_run(path, long, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_blocks(path, tmp_path, long=long) or any(map(is_run, BLOCKS[path]))


SAID = re.compile(r"`(headcount [a-z][^`]*)`")
PAST = {"CHANGELOG.md", "log.md"}  # what was called otherwise once
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def calls_of(path: Path) -> list[str]:
    """Every command that a page shows in a block or names in a sentence."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = notebooks.cells_of(json.loads(text))
        text = "\n\n".join(part for kind, part in cells if kind == "markdown")
        text += "".join(f"\n```\n{part.replace('!', '')}\n```\n" for _, part in cells if part.startswith("!"))
    shown = [call for block in code_blocks.blocks_of(text) for call in block.calls]
    said = [] if path.name in PAST else SAID.findall(code_blocks.without_blocks(text))
    return [*shown, *(" ".join(line.split()) for line in said)]


def wrong_with(call: str, helps: dict[str, str]) -> str:
    """What keeps a call from being made: no such command, option, module or target; nothing where nothing does."""
    from studies.site.command_pages import _help

    program, *words = call.split()
    if program in ("pip", "pipx"):
        return ""
    if program == "make":
        return "" if set(words) & TARGETS or "ROOM=" in call else f"no target of {call}"
    if program == "python":
        there = importlib.util.find_spec(words[1]) if words[0] == "-m" else (ROOT / words[0]).exists()
        return "" if there else f"no {call}"
    known = {name for _, name in commands()} | {name.split()[0] for _, name in commands()}
    name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
    if name not in known:
        return "" if name.startswith("--") else f"no command {name}"
    said = helps.setdefault(name, _help(name))
    unknown = [option for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", call) if option not in said]
    return f"{name} has no {', '.join(unknown)}" if unknown and "COMMAND" not in said else ""


def test_every_command_of_a_page_exists_with_its_options():
    helps: dict[str, str] = {}
    found = {(path.name, call): wrong_with(call, helps) for path in [*SOURCES, *TUTORIALS] for call in calls_of(path)}
    assert len(found) > 100
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "planted",
    ["headcount mesure x.csv", "headcount measure x.csv --bugdet 5m", "make sight", "python -m studies.no_such"],
)
def test_a_planted_wrong_command_is_found(tmp_path, planted):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```text\n{planted}\n```\n")
    (call,) = calls_of(page)
    assert wrong_with(call, {})


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


def test_a_field_is_not_described_by_the_words_of_its_type():
    from headcount.results import Study

    told = dict(reference.methods(Study))
    assert "`.to_csv()`" in told and "`.predicted_heads`" in told and "`.name`" not in told


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
