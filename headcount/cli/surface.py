"""The surface: which commands there are, under which headings, and how one becomes an entry of the command line."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from headcount.cli.options import AsJson
from headcount.cli.printing import Printout, json_asked, show


class Command(NamedTuple):
    """A command: its name, and where the function lies that answers it, as file:function of this folder."""

    name: str
    place: str

    def function(self) -> Callable[..., Printout]:
        file, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"headcount.cli.{file}"), name)


class CommandGroup(NamedTuple):
    """Commands under one word; without one of their names, the `usual` one is meant."""

    name: str
    about: str
    commands: tuple[Command, ...]
    usual: str = ""


def _commands(file: str, *names: str) -> tuple[Command, ...]:
    return tuple(Command(name, f"{file}:{name.replace('-', '_')}") for name in names)


THEORY = CommandGroup(
    "theory",
    "Theorems at your sizes: bounds, collisions, margins, prompts.",
    (
        *_commands("bounding", "bound"),
        *_commands("colliding", "collide"),
        *_commands("interpolating", "interpolate"),
        *_commands("margin", "margin"),
        *_commands("prompting", "prompt"),
        *_commands("allocation", "allocate"),
    ),
)
SSM = CommandGroup(
    "ssm",
    "State-space systems and filters, deep with small parameters.",
    (
        *_commands("ssm", "deepen", "flatten", "depth", "table", "quantise", "train"),
        Command("export", "ssm:export_system"),
    ),
)
RUNS = CommandGroup(
    "runs",
    "List the studies of a folder; export, verify, repair, merge.",
    (Command("list", "storing:list_runs"), *_commands("storing", "export", "verify", "repair", "merge")),
    usual="list",
)
PANELS: dict[str, tuple[Command | CommandGroup, ...]] = {
    "Your data": _commands("measuring", "measure", "apply"),
    "A task": (
        *_commands("tasks", "tasks"),
        *_commands("infoflow", "predict", "advise"),
        *_commands("building", "build"),
        *_commands("sweeping", "sweep"),
        *_commands("fits", "fit"),
        *_commands("report", "report"),
        *_commands("probing", "probe"),
        *_commands("certifying", "certify"),
    ),
    "A model": (
        *_commands("shaping", "shape"),
        *_commands("lens", "lens"),
        *_commands("allocation", "saturation"),
        *_commands("compressing", "compress"),
    ),
    "The papers": (*_commands("reproducing", "reproduce"), THEORY, SSM),
    "Housekeeping": (*_commands("demo", "demo"), *_commands("doctoring", "doctor"), RUNS),
}


class InPanels(TyperGroup):
    """A group whose help lists commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        for panel, entries in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(
                    [(f"{e.name:<11}", self.commands[e.name].get_short_help_str(limit)) for e in entries]
                )


class WithUsual(TyperGroup):
    """A group one of whose commands is meant where none is named: its name stands in `usual`."""

    usual = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


def build_app(about: str) -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(cls=InPanels, help=about, add_completion=True, **_ALIKE)
    for entries in PANELS.values():
        for entry in entries:
            if isinstance(entry, Command):
                app.command(entry.name)(_entry(entry.function()))
            else:
                app.add_typer(_group(entry), name=entry.name)
    return app


_ALIKE: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _group(group: CommandGroup) -> typer.Typer:
    kind = type("Group", (WithUsual,), {"usual": group.usual}) if group.usual else TyperGroup
    app = typer.Typer(cls=kind, help=group.about, **{**_ALIKE, "no_args_is_help": not group.usual})
    for command in group.commands:
        app.command(command.name)(_entry(command.function()))
    return app


def _entry(function: Callable[..., Printout]) -> Callable[..., None]:
    """The function with --json, that prints what it returns; the fields of a value of options are its options."""
    stated = inspect.signature(function, eval_str=True)
    parameters = list(stated.parameters.values())
    value = next((p.annotation for p in parameters if _is_value(p.annotation)), None)
    parameters = parameters if value is None else _fields(value)

    @functools.wraps(function)
    def run(*, as_json: bool = False, **given: Any) -> None:
        with json_asked(as_json):
            printout = function(**given) if value is None else function(value(**given))
        show(printout, as_json=as_json)
        if printout.code:
            raise typer.Exit(printout.code)

    parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))
    run.__signature__ = stated.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _is_value(annotation: object) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _fields(value: type) -> list[inspect.Parameter]:
    """The fields of a value of options as parameters, typer's words with them."""
    stated = inspect.signature(value, eval_str=True, globals=vars(sys.modules[value.__module__]))
    return list(stated.parameters.values())
