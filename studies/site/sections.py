"""What the search looks through: every section of the built pages, as one script that needs no server."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from headcount.files import write_text

HEADINGS = ("h1", "h2", "h3", "h4")
APART = (*HEADINGS, "p", "li", "td", "th", "pre", "tr", "dt", "dd", "figcaption")  # a word ends where one begins
SILENT = ("script", "style", "button", "svg")
# Pages that answer a question come before those that record how an answer was found.
WEIGHTS = {"questions": 1.6, "formats": 1.5, "install": 1.5, "index": 1.2, "cite": 1.5, "words": 1.3, "errors": 1.3,
           "contributing": 1.3, "tutorials/": 1.3, "papers/": 1.1, "reference/names": 0.3, "reference/json": 0.5,
           "examples": 0.8, "log": 0.3, "changelog": 0.2, "reproduction": 0.5, "theorems": 0.7,
           "licences": 0.5}  # fmt: skip


class Section(NamedTuple):
    """A heading, the page it stands on, its text, and how much it counts."""

    url: str
    page: str
    heading: str
    text: str
    weight: float


class _Reader(HTMLParser):
    """The sections of one page: each with the id of its heading's section, its heading and its own text."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, list[str], list[str]]] = []  # id, heading, text
        self.open: list[str] = []  # ids of the sections that enclose this place
        self.inside = self.heading = self.linked = False
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "article":
            self.inside = True
        if not self.inside:
            return
        if tag == "section":
            self.open.append(attributes.get("id") or "")
        self.silent += tag in SILENT
        self.linked |= tag == "a" and "headerlink" in (attributes.get("class") or "")
        if tag in HEADINGS and self.open:
            self.heading = True
            self.parts.append((self.open[-1], [], []))
        elif tag in APART and self.parts:
            self.parts[-1][2].append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside = False
        if not self.inside:
            return
        self.silent -= tag in SILENT
        if tag == "a":
            self.linked = False
        if tag in HEADINGS:
            self.heading = False
        if tag == "section" and self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.inside and self.parts and not self.silent and not self.linked:
            _, heading, text = self.parts[-1]
            (heading if self.heading else text).append(data)


def _weight(name: str) -> float:
    return next(
        (w for start, w in WEIGHTS.items() if name == start or (start[-1] == "/" and name.startswith(start))), 1
    )


def sections_of(page: str, name: str) -> list[Section]:
    """The sections of a built page; the first one is the page itself.

    >>> html = '<article><section id="a"><h1>A<a class="headerlink">#</a></h1><p>one</p><section id="b"><h2>B</h2>'
    >>> [(s.url, s.heading, s.text) for s in sections_of(html + "<p>two</p></section></section></article>", "x")]
    [('x.html', 'A', 'one'), ('x.html#b', 'B', 'two')]
    """
    reader = _Reader()
    reader.feed(page)
    sections: list[Section] = []
    for place, heading, text in reader.parts:
        title, words = (" ".join("".join(part).split()) for part in (heading, text))
        url = f"{name}.html" + (f"#{place}" if sections else "")
        sections.append(Section(url, sections[0].heading if sections else title, title, words, _weight(name)))
    return sections


def write_sections(folder: Path) -> int:
    """Write `sections.js` beside the pages; how many sections it holds."""
    skipped = ("_static", "_downloads", "pages")
    pages = [p for p in sorted(folder.rglob("*.html")) if not set(skipped) & set(p.relative_to(folder).parts)]
    sections = [
        section
        for path in pages
        if path.stem not in ("search", "genindex")
        for section in sections_of(path.read_text(encoding="utf-8"), str(path.relative_to(folder).with_suffix("")))
    ]
    rows = ",\n".join(json.dumps(section, ensure_ascii=False) for section in sections)
    write_text(folder / "sections.js", f"const SECTIONS = [\n{rows}\n];\n")
    return len(sections)
