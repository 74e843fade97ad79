"""How commands print: a printout is tables and paragraphs for people, JSON for programs, and one conclusion."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headcount.files import strict_json
from headcount.numerals import cell
from headcount.results.claim import conclusion
from headcount.visible import visible

if TYPE_CHECKING:
    from headcount.results import Claim

NAME = 32  # what the first column holds is a name, to be copied whole, up to so many characters


class Listing(NamedTuple):
    """Rows as a table of the named columns."""

    rows: Iterable[Mapping[str, Any]]
    columns: Sequence[str]
    title: str | None = None


class Verbatim(str):
    """Text that is printed as it is, for another program: no line of it is wrapped."""


@dataclass(frozen=True)
class Printout:
    """What a command has to say: `facts` to a program, `told` to a person, and what it all comes to.

    `facts` is what --json prints, or an iterator of pieces of its text; files are added to a mapping of facts. `told`
    are paragraphs and tables in the order of reading. `so` is the conclusion: a claim, or a sentence that decides
    nothing. `code` is the exit code.
    """

    facts: Any
    told: Sequence[str | Listing] = ()
    so: Claim | str = ""
    files: Iterable[Path | str] = ()
    code: int = 0


_quiet: list[bool] = [False]


@contextlib.contextmanager
def json_asked(asked: bool) -> Iterator[None]:
    """While a command runs whose answer is JSON, nothing else goes to stdout."""
    _quiet.append(asked)
    try:
        yield
    finally:
        _quiet.pop()


def json_wanted() -> bool:
    """Whether the answer will be JSON: for what is so long that it is handed out piece by piece."""
    return _quiet[-1]


def show(printout: Printout, *, as_json: bool) -> None:
    """Print what a command has to say."""
    files = [str(file) for file in printout.files]
    if as_json:
        sys.stdout.writelines(_json_pieces(printout.facts, files))
        return
    for part in printout.told:
        _show_part(part)
    for file in files:
        say(f"wrote {file}")
    _conclude(printout.so)


def _show_part(part: str | Listing) -> None:
    if isinstance(part, Verbatim):
        typer.echo(visible(part))
    elif isinstance(part, str):
        say(part)
    else:
        _show_listing(part)


def _json_pieces(facts: Any, files: list[str]) -> Iterable[str]:
    if isinstance(facts, Iterator):
        return facts
    whole_facts = {**facts, "files": files} if isinstance(facts, Mapping) and files else facts
    return [strict_json(whole_facts, indent=2, default=str), "\n"]


def _conclude(so: Claim | str) -> None:
    """The last line of a command; a claim comes with what it rests on in the lines above."""
    if isinstance(so, str):
        first, rest = so, ()
    else:
        first, *rest = so.lines
    for line in rest:
        say(f"  {line}")
    if first:
        say(conclusion(first))


def console(*, stderr: bool = False) -> Console:
    """A console that never wraps tighter than 80 columns and stays plain when it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 100, highlight=False, soft_wrap=False)


def say(text: str = "") -> None:
    """Print one paragraph now, wrapped to the terminal; nothing where the answer will be JSON."""
    if not _quiet[-1]:
        console().print(visible(text), markup=False)


def warn(sentence: str) -> None:
    """Say on stderr what should be known beside the answer, in one line."""
    typer.echo(f"headcount: {visible(' '.join(sentence.split()))}", err=True)


def note(sentence: str) -> None:
    """Say now what should be known before the answer: on stderr where that will be JSON."""
    warn(sentence) if _quiet[-1] else say(sentence)


def _show_listing(listing: Listing) -> None:
    """Numbers to the right, the name whole; what looks like markup is text."""
    rows, (_, columns, title) = list(listing.rows), listing
    table = Table(
        title=None if title is None else escape(visible(title)),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        name = column == columns[0] and all(len(_cell(row.get(column))) <= NAME for row in rows)
        table.add_column(escape(visible(column)), justify="right" if numeric else "left", overflow="fold", no_wrap=name)
    for row in rows:
        table.add_row(*(escape(_cell(row.get(column))) for column in columns))
    console().print(table)


def _cell(value: Any) -> str:
    return visible(cell(value, lambda number: f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.3g}"))


@contextlib.contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """One line on a terminal's stderr that always says what is being done; elsewhere, silence."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with console(stderr=True).status("reading the model") as shown:
        yield shown.update
