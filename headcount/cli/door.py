"""The one entrance: collects the rooms' commands, and turns every mistake into one line and exit code 2."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from headcount.cli import failures
from headcount.cli.failures import (
    ENDINGS,
    Interruption,
    clipped,
    foreseen,
    interruptible,
    one_line_warnings,
    sentence_of,
)
from headcount.cli.surface import build_app
from headcount.refusals import RefusalError, missing_package
from headcount.visible import visible

REFUSED, UNFORESEEN, INTERRUPTED = 2, 1, 130  # exit codes

app = build_app("How many heads, how wide, how deep? Size a sequence model by theory, check it by experiment.")


def _print_version(wanted: bool) -> bool:
    if wanted:
        from headcount._version import __version__

        typer.echo(f"headcount {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """How many heads, how wide, how deep? Size a sequence model by theory, check it by experiment."""


@cache
def command_line() -> Any:
    """All commands with their options, put together once in a process."""
    return typer.main.get_command(app)


# typer carries its own click from some version on, so take the classes from where typer shows them.
Misuse: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class Interrupted(Exception):
    """An interruption that knows what is kept and how to go on."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; leave with 0, with 2 and one line on stderr, or with 130 when interrupted.

    With 1 when none of that was foreseen: then the traceback is in a file, and the line says which.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    # Threads that wait for each other shall sleep: beside another process, spinning ones took twenty times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_flushed(_status(arguments)))


def _status(arguments: Sequence[str] | None) -> int:
    interruption = Interruption()
    try:
        with interruptible(interruption), one_line_warnings():
            _stand_somewhere()
            code = _code(arguments)
        return _interrupted(KeyboardInterrupt()) if code == INTERRUPTED else code  # typer says nothing
    except BrokenPipeError:
        _forget_output()
        return 0
    except SystemExit as end:  # typer leaves by itself when nobody takes its output any more
        _forget_output()
        return end.code if end.code in (REFUSED, INTERRUPTED) else 0
    except (Interrupted, typer.Abort, KeyboardInterrupt) as stop:
        return _interrupted(stop)
    except Exception as problem:
        if interruption.came:  # a library may have met it as another error
            return _interrupted(KeyboardInterrupt())
        if os.environ.get("HEADCOUNT_TRACEBACK"):
            raise
        return _refuse(translated(sentence_of(problem), arguments)) if foreseen(problem) else _unforeseen(problem)


def _stand_somewhere() -> None:
    try:
        Path.cwd()
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise RefusalError(f"the folder you are in is gone or closed to you ({reason}); change to another") from None


def _code(arguments: Sequence[str] | None) -> int:
    try:
        code = command_line()(args=arguments, standalone_mode=False, prog_name="headcount")
        return code if isinstance(code, int) else 0
    except Misuse as mistake:
        if type(mistake).__name__ == "NoArgsIsHelpError":
            _say(f"{mistake}\n")
            return REFUSED
        where = getattr(mistake, "ctx", None)
        command = where.command_path if where is not None else "headcount"
        return _refuse(f"{_message(mistake)} (see `{command} --help`)")
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.split(".")[0] == "headcount":
            raise
        return _refuse(missing_package((missing.name or str(missing)).split(".")[0]))


def _interrupted(stop: BaseException) -> int:
    if failures.leave_while_loading is not None:  # the process is the command's, and ends with it
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # once is enough
    _say(visible(f"headcount: interrupted. {stop}").rstrip() + "\n")
    return INTERRUPTED


def _flushed(status: int) -> int:
    """The status once all output is out; output that nobody takes any more is no failure."""
    try:
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _forget_output()
        return status
    except OSError as problem:
        _forget_output()
        return _refuse(f"standard output: {(problem.strerror or str(problem)).lower()}")


def _forget_output() -> None:
    with contextlib.suppress(OSError, ValueError):  # where it is no file, there is nothing to turn away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unforeseen(problem: Exception) -> int:
    """A bug, ours or of a task of the user's own: one line that says where, and the whole traceback in a file."""
    at = traceback.extract_tb(problem.__traceback__)[-1]
    what = f"{type(problem).__name__}: {clipped(problem)}".rstrip(": ")
    where = _traceback_place("".join(traceback.format_exception(problem)))
    _refuse(f"not foreseen: {what} ({Path(at.filename).name}, line {at.lineno}); {where}")
    return UNFORESEEN


def _traceback_place(report: str) -> str:
    """Where the traceback is kept, in words."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", delete=False, prefix="headcount-", suffix=".txt", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(report)
        return f"the traceback is in {file.name}"
    except OSError as problem:
        return f"the traceback could not be kept ({problem.strerror}); HEADCOUNT_TRACEBACK=1 shows it"


def translated(sentence: str, arguments: Sequence[str] | None) -> str:
    """What the library says of an `argument`, in words of the command line: --argument, where the command has it.

    >>> translated("give `sequence` or `window_size`", ["measure", "x.csv"])
    'give --sequence or `window_size`'
    """
    options = _options_of(sys.argv[1:] if arguments is None else arguments)
    return re.sub(r"`([a-z_]+)`", lambda match: options.get(match[1], match[0]), sentence)


def _options_of(arguments: Sequence[str]) -> dict[str, str]:
    """The options of a command, by the names that the library has for them."""
    command = command_line()
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    spelt = [
        (parameter.name, option) for parameter in command.params for option in parameter.opts if option[:2] == "--"
    ]
    return {option[2:].replace("-", "_"): option for _, option in spelt} | dict(spelt)


def _message(mistake: Exception) -> str:
    said = str(getattr(mistake, "format_message", mistake.__str__)())
    where = getattr(mistake, "ctx", None)
    return f"{said.rstrip('.')}: {_least(where)}" if type(mistake).__name__ == "MissingParameter" and where else said


def _least(where: Any) -> str:
    """The shortest line that a command takes: all that it cannot do without."""
    needed = [parameter for parameter in where.command.params if parameter.required]
    options = [[option for option in parameter.opts if option.startswith("-")][:1] for parameter in needed]
    values = [(parameter.metavar or parameter.name).upper() for parameter in needed]
    return " ".join([where.command_path, *(" ".join([*o, value]) for o, value in zip(options, values, strict=True))])


def _refuse(sentence: str) -> int:
    _say(f"headcount: {visible(' '.join(sentence.split()))}\n")
    return REFUSED


def _say(line: str) -> None:
    """Write to stderr; where nobody takes it, the exit code alone speaks."""
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
