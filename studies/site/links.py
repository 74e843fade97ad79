"""Which links lead nowhere: in Markdown sources, and in a folder of built pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

CODE = re.compile(r"^(```+|~~~+).*?^\1\s*$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
SOURCE = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", flags=re.IGNORECASE)
FROM_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", flags=re.IGNORECASE)
FROM_SCRIPT = re.compile(r"""["'`]((?:https?:|wss?:)//(?!www\.w3\.org/)[^"'`\s]+)""")  # a name space is not loaded
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class BrokenLink(NamedTuple):
    """A page, and what it links to that is not there."""

    page: str
    target: str


class _Anchors(HTMLParser):
    """The ids of a page, what it links to, and what it loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.styles: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value for key, value in attrs if value}
        self.in_style = tag == "style"
        self.styles += [attributes["style"]] if "style" in attributes else []
        self.ids.update(attributes[key] for key in ("id", "name") if key in attributes)
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if (
            tag in LOADED
            and LOADED[tag] in attributes
            and attributes.get("rel") not in ("canonical", "author", "search")
        ):
            self.loads.append(attributes[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self.in_style &= tag != "style"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.styles.append(data)


@cache
def _read(path: Path, changed: float) -> _Anchors:
    page = _Anchors()
    page.feed(path.read_text(encoding="utf-8", errors="replace"))
    return page


def _page(path: Path) -> _Anchors:
    return _read(path, path.stat().st_mtime)


def targets(text: str) -> list[str]:
    """Everything that Markdown text links to or shows, code left out.

    >>> targets("see [a](b.md#c) and ![p](q.svg); `[no](x)`\\n```\\n[no](y)\\n```")
    ['b.md#c', 'q.svg']
    """
    plain = re.sub(r"(`+)[^`]+?\1", "", CODE.sub("", text))
    return LINK.findall(plain) + SOURCE.findall(plain)


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it.

    >>> slug("head-count:table-2 and `x`")
    'head-counttable-2-and-x'
    """
    letters = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).strip().lower())
    return letters.replace(" ", "-")


def _slugs(path: Path) -> set[str]:
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    slugs = {slug(line) for line in re.findall(r"^#+\s+(.*)$", text, flags=re.MULTILINE)}
    return slugs | set(re.findall(r"^\(([\w.-]+)\)=$", text, flags=re.MULTILINE))


def broken_in_markdown(files: list[Path], root: Path) -> list[BrokenLink]:
    """The links between files that lead to no file, or to no heading of it."""
    return [
        BrokenLink(str(file.relative_to(root)), target)
        for file in files
        for target in targets(file.read_text(encoding="utf-8"))
        if not ELSEWHERE.match(target) and not _leads(file, target)
    ]


def _leads(file: Path, target: str) -> bool:
    path, _, place = unquote(target).partition("#")
    other = file if not path else (file.parent / path)
    if not other.exists():
        return False
    return not place or other.suffix != ".md" or place in _slugs(other)


def _pages(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*.html")) if "_static" not in p.parts)


def broken_in_pages(folder: Path) -> list[BrokenLink]:
    """The links and pictures of built pages that lead to no file of the folder, or to no place of the page."""
    return [
        BrokenLink(str(path.relative_to(folder)), target)
        for path in _pages(folder)
        for target in (*_page(path).links, *_page(path).loads)
        if not ELSEWHERE.match(target) and not _leads_in(folder, path, target)
    ]


def _leads_in(folder: Path, path: Path, target: str) -> bool:
    name, _, place = unquote(target).partition("#")
    other = path if not name else (path.parent / name.partition("?")[0]).resolve()
    if other.is_dir():
        other /= "index.html"
    if not other.is_file() or not other.resolve().is_relative_to(folder.resolve()):
        return False
    return not place or other.suffix != ".html" or place in _page(other).ids


def foreign_in_pages(folder: Path) -> list[BrokenLink]:
    """What pages would load from elsewhere when they are opened: by an element, by a style or by a script."""
    foreign = [
        BrokenLink(str(path.relative_to(folder)), target)
        for path in _pages(folder)
        for target in (*_page(path).loads, *FROM_STYLE.findall("\n".join(_page(path).styles)))
        if ELSEWHERE.match(target) and not target.startswith("data:")
    ]
    for suffix, rule in ((".css", FROM_STYLE), (".js", FROM_SCRIPT)):
        for path in sorted(folder.rglob(f"*{suffix}")):
            text = path.read_text(encoding="utf-8") if path.name != "sections.js" else ""  # text that is shown, not run
            foreign += [BrokenLink(str(path.relative_to(folder)), target) for target in rule.findall(text)]
    return foreign
