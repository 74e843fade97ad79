"""The package's C++ made into a library by the machine's own compiler, once for a user, and loaded.

Only the sources beside this file are compiled. The library lies in the user's cache folder under a name made of the
sources, the compiler, its flags and the processor's abilities, so that a change of any of them makes another one; it
appears whole or not at all, and is loaded only if it belongs to the user. `HEADCOUNT_COMPILED=0` switches it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from headcount.files import user_cache, whole

__all__ = ["native_compiler", "native_library", "native_name", "ours"]

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
SWITCH = "HEADCOUNT_COMPILED"
PATIENCE = 120.0  # seconds that a compiler may take


@cache
def native_library(dtype: str = "float32", program: str = "bank") -> ctypes.CDLL | None:
    """A program for numbers of this type; None where it is switched off, or there is no compiler, or it fails."""
    compiler = native_compiler()
    if compiler is None:
        return None
    try:
        return ctypes.CDLL(str(_built(compiler, dtype, program)))
    except (OSError, subprocess.SubprocessError) as problem:
        said = getattr(problem, "stderr", None) or str(problem)
        print(f"headcount: no compiled banks ({said.strip().splitlines()[0][:100]})", file=sys.stderr)  # noqa: T201
        return None


def native_name(compiler: str, dtype: str, program: str = "bank") -> str:
    """The file of the library: equal names, equal code for an equal processor."""
    parts = [_version(compiler), *_options(dtype), _processor()]
    parts += [file.read_text(encoding="utf-8") for file in (SOURCES / f"{program}.cpp", *sorted(SOURCES.glob("*.h")))]
    return f"{program}-{dtype}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.so"


def native_compiler() -> str | None:
    """The machine's C++ compiler; None where there is none, or it is switched off."""
    if os.environ.get(SWITCH) == "0" or sys.platform == "win32":
        return None
    named = os.environ.get("CXX")
    return next((found for name in ([named] if named else COMPILERS) if (found := shutil.which(name))), None)


def _built(compiler: str, dtype: str, program: str = "bank") -> Path:
    name = native_name(compiler, dtype, program)
    file = user_cache() / "compiled" / name
    if not ours(file):
        try:
            _build(compiler, dtype, program, file)
        except PermissionError:  # a cache folder that cannot be written: a library for this process alone
            file = Path(tempfile.mkdtemp(prefix="headcount-compiled-")) / name
            _build(compiler, dtype, program, file)
    return file


def _build(compiler: str, dtype: str, program: str, file: Path) -> None:
    with whole(file) as scratch:
        command = [compiler, *_options(dtype), str(SOURCES / f"{program}.cpp"), "-o", str(scratch)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
        if scratch.exists():
            scratch.chmod(0o700)  # whatever the user's mask: others shall not write it


def ours(file: Path) -> bool:
    """Whether it is there, belongs to this user (or the system), and nobody else can have written it."""
    if not file.is_file():
        return False
    about = file.stat()
    return about.st_uid in (os.getuid(), 0) and not about.st_mode & 0o022


def _options(dtype: str) -> tuple[str, ...]:
    return (*FLAGS, f"-DREAL={'double' if dtype == 'float64' else 'float'}")


def _version(compiler: str) -> str:
    return subprocess.run([compiler, "-v"], check=True, capture_output=True, text=True, timeout=PATIENCE).stderr


def _processor() -> str:
    """What the processor can do, as far as the system says it: a home folder may be shared by different machines."""
    words = Path("/proc/cpuinfo")
    if words.is_file():
        lines = words.read_text(errors="replace").splitlines()
        about = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
        return "\n".join(dict.fromkeys(about))
    return f"{platform.machine()} {platform.processor()}"
