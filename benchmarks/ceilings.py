"""What the device can do at best, measured: large products and large copies, and a core's own products of registers."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from headcount.kernels.cpp.native_library import FLAGS, SOURCES, native_compiler

# Sixteen sums in registers of the widest kind, each a product and a sum a turn, which nothing but the core holds up.
REGISTERS = """
#include "lanes.h"
extern "C" real turns(long count) {
    vec a[16], x = all(real(1.0000001)), y = all(real(1e-9));
    for (int i = 0; i < 16; ++i) a[i] = all(real(i));
    for (long k = 0; k < count; ++k)
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) { a[i] = a[i] * x + y; asm volatile("" : : "v"(a[i])); }
    vec total{};
    for (int i = 0; i < 16; ++i) total += a[i];
    return sum(total);
}
extern "C" int lanes() { return LANES; }
"""


def seconds_of(work: Callable[[], object], device: str, repeats: int = 10) -> float:
    """Median seconds of one call, after two to warm up."""
    times = []
    for repeat in range(repeats + 2):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        if repeat >= 2:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def ceilings(device: str) -> dict[str, float]:
    """Operations per second of a square product in float32 and (on a GPU) float16; bytes per second of a copy."""
    n, count = (8192, 2**28) if device == "cuda" else (1024, 2**24)
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    source = torch.randn(count, device=device)
    target = torch.empty_like(source)
    was = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    rates = {
        "float32 product": 2 * n**3 / seconds_of(lambda: a @ b, device, 5),
        "copy": 8 * count / seconds_of(lambda: target.copy_(source), device),
    }
    if device == "cuda":
        x, y = a.half(), b.half()
        rates["float16 product"] = 2 * n**3 / seconds_of(lambda: x @ y, device)
    torch.backends.cuda.matmul.allow_tf32 = was
    return rates


def core_peak(clock: Callable[[], float], times: int = 30, turns: int = 200_000) -> float | None:
    """The most operations in float32 per second of one core, products and sums of its widest registers, no memory."""
    compiler = native_compiler()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "registers.cpp", Path(folder) / "registers.so"
        source.write_text(REGISTERS)
        command = [*shlex.split(compiler), *FLAGS, f"-I{SOURCES}", str(source), "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True)
        library, best = ctypes.CDLL(str(program)), float("inf")
        for _ in range(times):
            begun = clock()
            library.turns(ctypes.c_long(turns))
            best = min(best, clock() - begun)
        return 2 * 16 * library.lanes() * turns / best
