"""Every command of the app, from the app itself."""

from collections.abc import Iterator
from typing import Any

import typer

from headcount.cli.door import app

__all__ = ["commands"]


def commands(group: Any = None, before: str = "") -> Iterator[str]:
    """Every command by the words that call it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"
