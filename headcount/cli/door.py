"""The one entrance: collects the rooms' commands, and turns every mistake into one line and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

__all__ = ["Interrupted", "app", "main"]

# One file a room, in the order `--help` lists them. Each has `register(app)` and imports its room only when called.
ROOMS = (
    "demo",
    "tasks",
    "bounding",
    "building",
    "colliding",
    "interpolating",
    "infoflow",
    "probing",
    "lens",
    "sweeping",
    "fits",
    "report",
    "figures",
    "measuring",
    "allocation",
    "ssm",
    "generalise",
    "margin",
    "prompting",
    "reproducing",
)

# The modules that each optional part of the package brings, by the extra that pyproject.toml gives it.
EXTRAS = {
    "hf": ("transformers", "tokenizers", "huggingface_hub"),
    "certify": ("flint",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "parquet": ("pyarrow",),
}

app = typer.Typer(
    name="headcount",
    help="How many heads, how wide, how deep? Size a sequence model by theory, check it by experiment.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _room in ROOMS:
    importlib.import_module(f"headcount.cli.{_room}").register(app)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from headcount import __version__

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


# typer carries its own click from some version on, so take the classes from where typer shows them.
Misuse: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class Interrupted(Exception):
    """An interruption that knows what is kept and how to go on."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; leave with 0, with 2 and one line on stderr, or with 130 when interrupted."""
    sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="headcount")
        return code if isinstance(code, int) else 0
    except Misuse as mistake:
        if type(mistake).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{mistake}\n")
            return 2
        where = getattr(mistake, "ctx", None)
        command = where.command_path if where is not None else "headcount"
        return _refuse(f"{_message(mistake)} (see `{command} --help`)")
    except (Interrupted, typer.Abort, KeyboardInterrupt) as stop:
        sys.stderr.write(f"headcount: interrupted. {stop}".rstrip() + "\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.split(".")[0] == "headcount":
            raise
        return _refuse(_missing((missing.name or str(missing)).split(".")[0]))
    except (ValueError, OSError) as mistake:
        if os.environ.get("HEADCOUNT_TRACEBACK"):
            raise
        return _refuse(_sentence(mistake))


def _missing(package: str) -> str:
    """What is not installed, and the extra that brings it.

    >>> _missing("flint")
    "this needs the package 'flint', which is not installed: pip install 'headcount[certify]'"
    """
    extra = next((name for name, brought in EXTRAS.items() if package in brought), None)
    how = f"pip install 'headcount[{extra}]'" if extra else f"pip install {package}"
    return f"this needs the package {package!r}, which is not installed: {how}"


def _message(mistake: Exception) -> str:
    return str(getattr(mistake, "format_message", mistake.__str__)())


def _sentence(mistake: Exception) -> str:
    if isinstance(mistake, OSError) and mistake.filename is not None and mistake.strerror:
        return f"{mistake.filename}: {mistake.strerror.lower()}"
    return str(mistake)


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"headcount: {' '.join(sentence.split())}\n")
    return 2
