"""The package's C++ made into a library by the machine's own compiler, once for a user, and loaded.

Only the sources beside this file are compiled. The library lies in the user's cache folder (see `CodeCache`) under a
name made of the sources, the compiler, its flags and the processor's abilities, so that a change of any of them makes
another one, and of its own content, so that a damaged one is known. It is used by a child process before it comes
there: should it crash, the child does. `HEADCOUNT_COMPILED=0` switches it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from headcount.code_cache import code_cache, loaded_code

SOURCES = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
SWITCH = "HEADCOUNT_COMPILED"
PATIENCE = 120.0  # seconds that a compiler may take
# What a child does with a library that was just made: take every function that is called, and make one step of AdamW.
TRIAL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for name in sys.argv[3:]:
    getattr(library, name)
if "bank_adamw" in sys.argv[3:]:
    real = {"float32": ctypes.c_float, "float64": ctypes.c_double}[sys.argv[2]]
    row = lambda *values: (real * 64)(*values * 64)
    whole, part = ctypes.c_int64, ctypes.c_double
    theta, active = row(1.0), (ctypes.c_uint8 * 1)(1)
    library.bank_adamw(whole(1), whole(64), whole(1), row(0.5), row(0.0), *map(part, (1, 0.1, 0.001, 0.9, 0.999, 1e-8)),
                       active, row(1.0), row(0.0), row(0.0), theta, whole(2))
    assert all(abs(value - 0.5) < 1e-3 for value in theta), list(theta)[:3]
"""
CALLED = {
    "bank": ("bank_lanes", "bank_pass", "bank_adamw"),
    "decoders": ("decoder_gradient",),
    "encoders": ("encoder_pass",),
    "boxes": ("bound_boxes",),
}


@cache
def native_library(dtype: str = "float32", program: str = "bank") -> ctypes.CDLL | None:
    """A program for numbers of this type; None where it is switched off, or there is no compiler, or it fails."""
    compiler = native_compiler()
    if compiler is None:
        return None
    try:
        return loaded_code(_built(compiler, dtype, program))
    except (OSError, subprocess.SubprocessError) as problem:
        _say(_spoken(problem))
        return None


def native_name(compiler: str, dtype: str, program: str = "bank") -> str:
    """What the library is made of, as a name: equal names, equal code for an equal processor."""
    parts = [compiler, _version(compiler), *_options(dtype), _processor()]
    parts += [file.read_text(encoding="utf-8") for file in (SOURCES / f"{program}.cpp", *sorted(SOURCES.glob("*.h")))]
    return f"{program}-{dtype}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"


def native_compiler() -> str | None:
    """The machine's C++ compiler as a command line ($CXX may hold options); None where there is none, or it is off."""
    if os.environ.get(SWITCH) == "0" or sys.platform == "win32":
        return None
    named = os.environ.get("CXX", "").strip()
    if not named:
        return next((shlex.quote(compiler) for name in COMPILERS if (compiler := shutil.which(name))), None)
    try:
        program, *options = shlex.split(named)
    except ValueError:  # a quotation without an end
        program, options = named, []
    compiler = shutil.which(program)
    if compiler is None:
        _say(f"CXX names {program!r}, which is not there")
        return None
    return shlex.join([compiler, *options])


def _built(compiler: str, dtype: str, program: str = "bank") -> Path:
    def make(scratch: Path) -> None:
        _build(compiler, dtype, program, scratch)
        _try(scratch, dtype, program)

    return code_cache().file(native_name(compiler, dtype, program), ".so", make)


def _build(compiler: str, dtype: str, program: str, file: Path) -> None:
    _run([*shlex.split(compiler), *_options(dtype), str(SOURCES / f"{program}.cpp"), "-o", str(file)])


def _try(library: Path, dtype: str, program: str) -> None:
    """Use a library in a child process."""
    done = _run([sys.executable, "-I", "-S", "-c", TRIAL, str(library), dtype, *CALLED[program]], check=False)
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else (_last(done.stderr) or f"code {done.returncode}")
        raise OSError(f"the library that was compiled fails in a trial: {how}")


def _run(command: list[str], *, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=check, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)


def _spoken(problem: Exception) -> str:
    """Why there is no library, in a line; a compiler may say it in any bytes."""
    message = getattr(problem, "stderr", None) or str(problem)
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    return next((line.strip() for line in text.splitlines() if line.strip()), type(problem).__name__)


def _last(output: bytes) -> str:
    return next((line for line in reversed(output.decode(errors="replace").splitlines()) if line.strip()), "")


def _say(why: str) -> None:
    shown = "".join(c if c.isprintable() else "?" for c in why)
    print(f"headcount: no compiled banks ({shown[:200]})", file=sys.stderr)  # noqa: T201


def _options(dtype: str) -> tuple[str, ...]:
    return (*FLAGS, f"-DREAL={'double' if dtype == 'float64' else 'float'}")


def _version(compiler: str) -> str:
    return _run([*shlex.split(compiler), "-v"]).stderr.decode(errors="replace")


def _processor() -> str:
    """What the processor can do, as far as the system says it: a home folder may be shared by different machines."""
    words = Path("/proc/cpuinfo")
    if words.is_file():
        lines = words.read_text(errors="replace").splitlines()
        about = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
        return "\n".join(dict.fromkeys(about))
    return f"{platform.machine()} {platform.processor()}"
