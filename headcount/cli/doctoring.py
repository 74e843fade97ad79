"""`headcount doctor`: what this machine has of what headcount uses, and the line that mends what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headcount.cli.printing import Listing, Printout
from headcount.numerals import counted

# What each extra is for, in the words of the commands that ask for it.
FOR = {
    "hf": "models of others: lens, saturation, compress",
    "lm": "the small language model that a package carries",
    "certify": "certificates in ball arithmetic: build --certify",
    "onnx": "networks and filters for other runtimes",
    "parquet": "tables in parquet: measure",
    "figures": "report --figure pdf and png",
    "estimators": "hc.Classifier and hc.Regressor; boosted trees in measure",
    "ray": "sweep --backend ray",
}


class Finding(NamedTuple):
    """A part of the machine, what there is of it, and what would mend it; nothing to mend: empty."""

    part: str
    found: str
    mend: str = ""


def doctor(
    runs: Annotated[Path, typer.Argument(help="Folder that holds studies.")] = Path("runs"),
) -> Printout:
    """Say what this machine has, and what mends what is missing.

    Device, threads, compiler, caches, extras and stores; exit code 0 whatever is missing.
    """
    findings = [_python(), *_torch(), _compiler(), _cache(), *_extras(), _stores(runs)]
    rows = [finding._asdict() for finding in findings]
    lacking = [finding for finding in findings if finding.mend]
    lines = [Listing(rows, ("part", "found")), *(f"{each.part}: {each.mend}" for each in lacking)]
    so = f"{counted(len(lacking), 'part')} could be added or mended" if lacking else "everything that is used is there"
    return Printout(rows, lines, so)


def _python() -> Finding:
    from headcount._version import __version__

    return Finding("headcount", f"{__version__}, Python {platform.python_version()}, {platform.machine()}")


def _torch() -> Iterator[Finding]:
    import torch

    yield Finding("torch", f"{torch.__version__}, {counted(torch.get_num_threads(), 'thread')} of {os.cpu_count()}")
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Finding("GPU", f"{names}: `--device cuda`")
    else:
        yield Finding("GPU", "none that torch sees; everything runs on the CPU")


def _compiler() -> Finding:
    from headcount.kernels.cpp.native_library import SWITCH, native_compiler

    compiler = native_compiler()
    if compiler is not None:
        return Finding("C++ compiler", compiler)
    if os.environ.get(SWITCH) == "0":
        return Finding("C++ compiler", f"switched off by {SWITCH}=0", f"unset {SWITCH}")
    return Finding("C++ compiler", "none: long trainings on a CPU are slower", "install g++ or clang++, or set CXX")


def _cache() -> Finding:
    from headcount.files import user_cache

    folder = user_cache()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return Finding("cache", str(user_cache()))
    return Finding("cache", f"{user_cache()} cannot be written", "set HEADCOUNT_CACHE to a folder of your own")


def _extras() -> Iterator[Finding]:
    from headcount.refusals import EXTRAS

    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            yield Finding(f"[{extra}]", f"no {', '.join(missing)}", f"pip install 'headcount[{extra}]' ({FOR[extra]})")
        else:
            yield Finding(f"[{extra}]", "there")


def _stores(folder: Path) -> Finding:
    from headcount.results.overview import studies_in, unfinished_in_words

    if not folder.is_dir():
        return Finding("studies", f"no folder {folder}")
    try:
        rows, odd = studies_in(folder)
    except ValueError as problem:
        return Finding("studies", str(problem), f"headcount runs verify {folder}/NAME, then repair")
    mend = f"headcount runs verify {folder}/NAME, then repair" if odd else ""
    return Finding("studies", odd[0] if odd else unfinished_in_words(rows), mend)
