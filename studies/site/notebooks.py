"""Tutorials: a notebook's cells run in order in one process, and its page.

    python -m studies.site.notebooks docs/tutorials/own_data.ipynb            # run it and keep the outputs
    python -m studies.site.notebooks docs/tutorials/own_data.ipynb --out DIR  # run it, write it elsewhere

A cell is Python whose last expression is shown; a line that begins with ! is a command, as in Jupyter.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from headcount.files import write_text
from studies.site.markup import fenced

RICH = (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_"))
DRAWN = re.compile(r"<svg\b.*?</svg>", flags=re.DOTALL)
OUTPUT = '<div class="cell-output">\n{}\n</div>'


class CellFailedError(RuntimeError):
    """A cell that raised, with its number and its text."""


def cells_of(notebook: dict[str, Any]) -> list[tuple[str, str]]:
    """The kind and the text of every cell."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run in this process, in a folder of its own."""
    names: dict[str, Any] = {"__name__": "__main__"}
    home, count, done = Path.cwd(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(notebook["cells"]):
                if cell["cell_type"] == "code":
                    count += 1
                    cell = {**cell, "execution_count": count, "outputs": _run("".join(cell["source"]), names, number)}
                done.append(cell)
        finally:
            os.chdir(home)
    return {**notebook, "cells": done}


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    printed = io.StringIO()
    shown = None
    try:
        with contextlib.redirect_stdout(printed):
            shown = _value(source, names)
    except BaseException as problem:
        trace = traceback.format_exc(limit=-3)
        raise CellFailedError(f"cell {number}: {problem!r}\n{source}\n{trace}") from problem
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if shown is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _bundle(shown)})
    return outputs


def _value(source: str, names: dict[str, Any]) -> Any:
    """Run the cell; the value of its last line where that is an expression."""
    if source.lstrip().startswith("!"):
        for line in source.strip().splitlines():
            _command(line.lstrip("!").strip())
        return None
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def _command(line: str) -> None:
    """A command of headcount, run by this Python; what it prints is the cell's."""
    if not line.startswith("headcount "):
        raise ValueError(f"a tutorial runs commands of headcount, not {line!r}")
    words = f"{sys.executable} -m {line}"
    process = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)
    sys.stdout.write(process.stdout)
    if process.returncode:
        raise RuntimeError(f"{line}: exit code {process.returncode}: {process.stderr}")


def _bundle(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for kind, method in RICH:
        if callable(renderer := getattr(value, method, None)) and (text := renderer()):
            data[kind] = _lines(str(text))
            break
    data["text/plain"] = _lines(repr(value))
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def as_page(notebook: dict[str, Any], name: str) -> str:
    """The notebook as Markdown, with its outputs as they were kept."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts += [source, ""]
            continue
        parts += [fenced(source, "text" if source.startswith("!") else "python")]
        parts += [_output(output) for output in cell["outputs"]]
    parts += [
        "",
        f"This page is a notebook: {{download}}`{name}` runs as it stands, from its first cell to its last.",
        "",
    ]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return fenced("".join(output["text"]), "text") + "\n"
    data = output["data"]
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            html = DRAWN.sub(_as_image, "".join(data[kind]))
            return "``````{raw} html\n" + OUTPUT.format(html) + "\n``````\n"
    return fenced("".join(data["text/plain"]), "text") + "\n"


def _as_image(drawn: re.Match[str]) -> str:
    """A drawing as a picture of its own, so that its styles stay inside it."""
    title = re.search(r"<title[^>]*>(.*?)</title>", drawn[0], flags=re.DOTALL)
    text = base64.b64encode(drawn[0].encode()).decode()
    return f'<img alt="{title[1] if title else "a figure"}" src="data:image/svg+xml;base64,{text}">'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    for path in options.notebook:
        done = executed(json.loads(path.read_text(encoding="utf-8")))
        place = path if options.out is None else options.out / path.name
        write_text(place, json.dumps(done, indent=1, ensure_ascii=False) + "\n")
        print(f"ran {path.name}")


if __name__ == "__main__":
    main()
