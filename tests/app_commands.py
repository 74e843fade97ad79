"""Every command of the app, from the app itself."""

from collections.abc import Iterator
from typing import Any

from headcount.cli.door import command_line

__all__ = ["commands"]


def commands(group: Any = None, before: str = "") -> Iterator[str]:
    """Every command by the words that call it."""
    for name, command in (group or command_line()).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"
