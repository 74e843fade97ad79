"""How long the linear systems take: long inputs, many modes, the search for a depth.

python benchmarks/ssm.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headcount.papers.ssm import DiagonalSSM
from headcount.papers.ssm.depth_tables import example_teacher
from headcount.papers.ssm.responses import gap


def timed(what: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    print(f"{time.perf_counter() - start:8.2f} s  {what}")
    return result


def main() -> None:
    rng = np.random.default_rng(0)
    shallow = example_teacher()
    deep = shallow.deepen(4, 4)
    x = rng.standard_normal(1_000_000)
    by_fft = timed("a million samples, 13 modes in one layer, by FFT", lambda: shallow.convolve(x))
    timed("the same by scan", lambda: shallow.scan(x))
    deep_fft = timed("a million samples, depth 4, by FFT", lambda: deep.convolve(x))
    deep_scan = timed("the same by scan", lambda: deep.scan(x))
    print(f"{'':12}they differ by {gap(deep_fft, by_fft):.1e} and {gap(deep_scan, by_fft):.1e}")

    poles = rng.uniform(0.1, 0.99, 1000) * np.exp(2j * np.pi * rng.random(1000))
    many = DiagonalSSM(poles, 100 * np.exp(2j * np.pi * rng.random(1000)))
    large = timed("1000 modes at depth 50", lambda: many.deepen(50))
    kernel = timed("its response, 1000 samples", lambda: large.impulse(1000))
    lost = gap(kernel, many.impulse(1000))
    print(f"{'':12}differs by {lost:.1e}; width {large.width}, entries {large.largest_entry:.3g}")
    small = timed("1000 modes, the least depth for entries of 1.2", lambda: many.deepen_to(1.2))
    print(f"{'':12}depth {small.depth}, width {small.width}")


if __name__ == "__main__":
    main()
