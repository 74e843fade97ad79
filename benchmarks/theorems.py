"""How fast the theorems run: a grid of exponents, networks of every size asked for, and a search in 3^20 fillings.

python -m benchmarks.theorems
"""

import time
from collections.abc import Callable
from itertools import product
from typing import Any

from headcount.nets import Architecture, Transformer
from headcount.papers.head_count import bounds, collide, enough_heads
from headcount.tasks import LinearMax, Wells


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def exponents() -> None:
    for length, heads, head_dim in product(range(8, 808, 8), range(1, 11), range(1, 11)):
        bounds.few_heads_exponent(length=length, retrievals=11, heads=heads, head_dim=head_dim)


def slowest_build() -> float:
    sizes = product((1, 2, 4, 8), (16, 128, 1024), (1e-1, 1e-2, 1e-3, 1e-4))
    return max(
        seconds(lambda task=task, eps=eps: enough_heads(task, eps))
        for D, T, eps in sizes
        for task in (Wells.random(D, 4, T, windows=True), LinearMax.random(D, 4, T))
    )


def main() -> None:
    print(f"10,000 exponents          {seconds(exponents):6.2f} s")
    print(f"slowest of 96 builds      {slowest_build():6.2f} s")
    task = Wells(centres=[[0.0, 0.0], [1.0, 1.0]], length=64)
    net = Transformer(Architecture(layers=((1, 2),), width=32, positions=5), 2, seed=0)
    for free in (12, 16, 20):
        print(f"collision, {free} free       {seconds(lambda free=free: collide(task, net, free=free)):6.2f} s")


if __name__ == "__main__":
    main()
