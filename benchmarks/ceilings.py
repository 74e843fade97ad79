"""What the device can do at best, measured: large products and large copies."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


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
    found = {
        "float32 product": 2 * n**3 / seconds_of(lambda: a @ b, device, 5),
        "copy": 8 * count / seconds_of(lambda: target.copy_(source), device),
    }
    if device == "cuda":
        x, y = a.half(), b.half()
        found["float16 product"] = 2 * n**3 / seconds_of(lambda: x @ y, device)
    torch.backends.cuda.matmul.allow_tf32 = was
    return found
