"""What the documents promise: the README's code runs, its links exist, and the table of theorems is the code's."""

import re
from pathlib import Path

import pytest

from headcount.report import rendering
from headcount.reproduction.theorems import table
from headcount.sources import STATUSES, implementations
from studies.docs import GENERATED

ROOT = Path(__file__).parent.parent
SITE = ("cite", "errors", "formats", "index", "install", "pages", "questions")  # pages of the site alone
README = (ROOT / "README.md").read_text()


def test_the_code_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "3 heads are enough" in out and "predicted 3: consistent" in out  # a verdict that is resolved


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/log.md", "docs/words.md", "docs/licences.md"])
def test_every_local_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    for link in links:
        if "://" not in link:
            assert ((ROOT / page).parent / link).exists(), link


def test_the_readme_lists_every_room():
    rooms = {p.name for p in (ROOT / "headcount").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert {room for room in rooms if f"  {room}/" not in README} == set()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_or_picture_is_what_the_committed_data_give(name, monkeypatch):
    monkeypatch.setattr(rendering, "today", lambda: "another day")  # what is committed has the date of its data
    assert (ROOT / name).read_text() == GENERATED[name](), "run `make docs`"


def test_every_page_and_picture_of_the_docs_is_generated_or_written_by_hand():
    kinds = (".md", ".html", ".svg", ".png", ".jpg", ".pdf")
    found = {str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*") if p.suffix in kinds}
    by_hand = {"docs/log.md", "docs/words.md", "docs/trust.md", "docs/reliability.md", "docs/scale.md"}
    by_hand |= {"docs/licences.md", *(f"docs/{name}.md" for name in SITE)}
    by_hand |= {"docs/_templates/search.html"}
    folders = ("docs/papers/", "docs/reference/", "docs/tutorials/")  # of the site: tests/test_site.py
    assert {name for name in found - set(GENERATED) if not name.startswith(folders)} == by_hand


def test_every_statement_says_how_it_is_known():
    table()
    assert not [r.code for r in implementations() if not r.status], "state status= in @implements"
    assert {r.status for r in implementations()} == set(STATUSES)
    bounds = [r for r in implementations() if r.code.endswith("_exponent")]
    assert all(r.hypotheses for r in bounds)
    (theorem,) = [r for r in bounds if r.source.name == "Theorem 2(2)"]
    assert "heads < retrievals" in theorem.checked
    assert any("Assumption 1" in h for h in theorem.assumed)


def test_every_result_names_a_test_that_exists():
    table()
    for result in implementations():
        path, _, name = result.test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), result


def test_every_line_of_a_figure_has_a_style_that_exists():
    pages = [*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").glob("page_*.html")]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        used = re.findall(r'<(?:path|line|circle|rect|polyline)[^>]*class="([^"]+)"', text)
        lacking = {name for names in used for name in names.split() if not re.search(rf"\.{name}\b", text)}
        assert not lacking, (path.name, lacking)
