"""Docstrings and values as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

CODE = re.compile(r"(`[^`]+`)")
SPECIAL = re.compile(r"([\\*_<\[\]|~$])")
EXAMPLE = ">>> "


def escaped(text: str) -> str:
    """Plain text so that Markdown shows it letter by letter; what stands between backticks is code and stays.

    >>> escaped("sum_i <a_i, x> by `f_i`")
    'sum\\\\_i \\\\<a\\\\_i, x> by `f_i`'
    """
    parts = CODE.split(text)
    return "".join(part if k % 2 else SPECIAL.sub(r"\\\1", part) for k, part in enumerate(parts))


def fenced(text: str, language: str = "python") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def anchor(space: str, name: str) -> str:
    """The label of a public name.

    >>> anchor("hc.ssm", "Layer")
    'hc-ssm-layer'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{space}.{name}".lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_markdown(doc: str, link: Callable[[str], str] = str) -> str:
    """A docstring: paragraphs as text, examples as code, and what stands between backticks through `link`.

    >>> as_markdown("The sum a_1.\\n\\n>>> 1 + 1\\n2")
    'The sum a\\\\_1.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    blocks = re.split(r"\n\s*\n", doc.strip())
    out: list[str] = []
    code: list[str] = []
    for block in blocks:
        if block.lstrip().startswith(EXAMPLE):
            code.append(block)
            continue
        if code:
            out.append(fenced("\n\n".join(code), "pycon"))
            code = []
        before, mark, example = block.partition("\n" + EXAMPLE)
        out.append(_paragraph(before, link))
        if mark:
            code.append(EXAMPLE + example)
    if code:
        out.append(fenced("\n\n".join(code), "pycon"))
    return "\n\n".join(out)


def _paragraph(text: str, link: Callable[[str], str]) -> str:
    """One paragraph; lines further in than its first are kept as they stand."""
    if re.search(r"^ {4,}\S", text, flags=re.MULTILINE):
        return fenced(text, "text")
    parts = CODE.split(text)
    return "".join(link(part) if k % 2 else SPECIAL.sub(r"\\\1", part) for k, part in enumerate(parts))
