"""The command line on one page: every command with its help, and the JSON it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from headcount.cli.surface import PANELS, Command
from studies.site.calls import called
from studies.site.markup import fenced

DOCS = Path(__file__).parents[2] / "docs"
ABOUT_COMMANDS = """\
Every command takes `--json` ([what it prints](json.md)), ends with one sentence that begins *So:*, and says a mistake
in one line with [exit code 2](../errors.md). This page is what `headcount COMMAND --help` prints."""
ABOUT_JSON = """\
What `--json` prints, one call each, cut for reading: *...* stands for the rest of a list. The whole answers are in
`docs/formats/json`; a test runs each call and compares the keys. Numbers that are not finite are `null`."""
LONG = 60  # lines of JSON that a page shows


def commands() -> Iterator[tuple[str, str]]:
    """Every command by the words that call it, with its heading."""
    for panel, entries in PANELS.items():
        for entry in entries:
            if isinstance(entry, Command):
                yield panel, entry.name
            else:
                yield from ((panel, f"{entry.name} {command.name}") for command in entry.commands)


@cache
def _help(words: str) -> str:
    return called([*words.split(), "--help"]).stdout.strip()


def command_page() -> str:
    """Every command, as `--help` says it."""
    parts = [
        "# Commands",
        "",
        ABOUT_COMMANDS,
        "",
    ]
    last = ""
    for panel, words in commands():
        if panel != last:
            parts += [f"## {panel}", ""]
            last = panel
        parts += [f"### `headcount {words}`", "", fenced(_help(words), "text")]
    return "\n".join(parts)


def _short(value: Any, depth: int = 0) -> Any:
    """The same with long lists and texts cut, for reading."""
    if isinstance(value, dict):
        items = list(value.items())
        return {key: _short(part, depth + 1) for key, part in items[:30]}
    if isinstance(value, list):
        most = 2 if any(isinstance(part, dict | list) for part in value) else 4
        return [_short(part, depth + 1) for part in value[:most]] + (["..."] if len(value) > most else [])
    return value if not isinstance(value, str) or len(value) < 90 else value[:86] + " ..."


def json_page() -> str:
    """One answer of every command as JSON, from the files that the tests compare with a run."""
    calls = json.loads((DOCS / "formats/json/calls.json").read_text(encoding="utf-8"))
    parts = [
        "# JSON of every command",
        "",
        ABOUT_JSON,
        "",
    ]
    for _, words in commands():
        if words not in calls:
            continue
        answer = json.loads((DOCS / f"formats/json/{words.replace(' ', '-')}.json").read_text(encoding="utf-8"))
        lines = json.dumps(_short(answer), indent=1, ensure_ascii=False).splitlines()
        cut = lines if len(lines) <= LONG else [*lines[:LONG], "..."]
        call = " ".join(["headcount", words, *calls[words]["arguments"], "--json"])
        parts += [f"## `{words}`", "", fenced(call, "text"), fenced("\n".join(cut), "text")]
    return "\n".join(parts)
