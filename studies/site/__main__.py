"""Build the site: gather its Markdown into one folder, let Sphinx make pages of it, and follow every link.

python -m studies.site                   # out/site/index.html
python -m studies.site --out elsewhere
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from headcount.files import write_text
from headcount.numerals import spoken_bytes
from studies.site import command_pages, notebooks, paper_pages, reference
from studies.site.links import broken_in_pages, foreign_in_pages, slug
from studies.site.markup import fenced
from studies.site.sections import write_sections

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTRA = "extra"  # what is copied into the site as it is
# Sphinx's own search names pages without their sections, and its excerpts need a server: studies/site/sections.py.
UNUSED = (
    "searchindex.js",
    *(f"_static/{name}.js" for name in ("searchtools", "language_data", "english-stemmer", "base-stemmer")),
)
PAGE = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)*)([\w.-]+)\.html\)")


def gather(source: Path) -> None:
    """Everything the site is made of, in one folder."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.html", "__pycache__", "*.ipynb"))
    for page in sorted(DOCS.glob("*.html")):
        _copy(page, source / EXTRA / "pages" / page.name)
    for template in sorted(DOCS.glob("_templates/*.html")):
        _copy(template, source / "_templates" / template.name)
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        _copy(ROOT / name, source / name.lower())
    _copy(ROOT / "LICENSE", source / "LICENSE.txt")
    pages = reference.pages() | paper_pages.pages() | _tutorials(source) | _examples()
    pages |= {"reference/commands.md": command_pages.command_page(), "reference/json.md": command_pages.json_page()}
    for name, text in pages.items():
        write_text(source / name, text)
    for path in sorted(source.rglob("*.md")):
        write_text(path, _for_the_site(path.read_text(encoding="utf-8"), path.relative_to(source)))


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def _tutorials(source: Path) -> dict[str, str]:
    pages = {}
    for path in sorted(DOCS.glob("tutorials/*.ipynb")):
        _copy(path, source / "tutorials" / path.name)
        notebook = json.loads(path.read_text(encoding="utf-8"))
        pages[f"tutorials/{path.stem}.md"] = notebooks.as_page(notebook, path.name)
    return pages


def _examples() -> dict[str, str]:
    """The files of examples/, whole, on one page."""
    parts = ["# Example files", "", "They lie in `examples/` of the repository, and the tests run them.", ""]
    for path in sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.toml")]):
        if path.name != "__init__.py":
            text = path.read_text(encoding="utf-8")
            parts += [f"## {path.name}", "", fenced(text, "toml" if path.suffix == ".toml" else "python")]
    return {"examples.md": "\n".join(parts)}


def _for_the_site(text: str, page: Path) -> str:
    """Links to files outside docs/, and to pages that are whole files of their own, as the site has them."""
    up = "../" * (len(page.parts) - 1)
    text = re.sub(r"\]\((?:\.\./)*examples/([\w.]+)\)", lambda m: f"]({up}examples.md#{slug(m[1])})", text)
    text = re.sub(r"\]\((?:\.\./)+(CONTRIBUTING|CHANGELOG)\.md\)", lambda m: f"]({up}{m[1].lower()}.md)", text)
    text = re.sub(r"\]\((?:\.\./)+README\.md\)", f"]({up}index.md)", text)
    text = re.sub(r"\]\((?:\.\./)+LICENSE\)", f"]({up}LICENSE.txt)", text)
    text = re.sub(r"\]\(docs/", f"]({up}", text)
    text = re.sub(r"\]\(([\w./]+)\.ipynb\)", r"](\1.md)", text)
    return PAGE.sub(lambda m: f'<a href="{m[2]}pages/{m[3]}.html">{m[1]}</a>', text)


def build(source: Path, out: Path) -> None:
    """The pages, anew; a warning of Sphinx is a failure."""
    shutil.rmtree(out, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", str(min(2, os.cpu_count() or 1))]
    words += ["-d", str(source.parent / f"{source.name}-trees"), str(source), str(out)]
    sphinx = subprocess.run(words, check=False, capture_output=True, text=True)
    if sphinx.returncode:
        sys.exit(sphinx.stdout + sphinx.stderr)
    for name in UNUSED:
        (out / name).unlink(missing_ok=True)
    write_sections(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out/site")
    out = parser.parse_args().out
    start = time.perf_counter()
    source = out.parent / f"{out.name}-source"
    gather(source)
    build(source, out)
    for broken, what in ((broken_in_pages(out), "leads nowhere"), (foreign_in_pages(out), "is loaded from elsewhere")):
        if broken:
            sys.exit("\n".join(f"{page}: {target} {what}" for page, target in broken))
    files = [p for p in out.rglob("*") if p.is_file()]
    pages = sum(p.suffix == ".html" for p in files)
    size = spoken_bytes(sum(p.stat().st_size for p in files))
    print(
        f"So: {out}/index.html, {pages} pages, {size}, in {time.perf_counter() - start:.0f} s; every link inside leads."
    )


if __name__ == "__main__":
    main()
