"""How long `advise` takes for every task that ships, for mixed tasks and for many drawn at random.

python -m benchmarks.advise_speed --length 1024 --max-layers 8 --max-heads 16
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator

from headcount.cli.printing import Listing, Printout, say, show
from headcount.papers.infoflow import advise, structure_from_toml
from headcount.structure import Retrieval, Structure
from headcount.tasks import named

SHIPPED = {
    "LinearMax": {"retrievals": 8, "token_dim": 4},
    "Wells": {"retrievals": 4, "token_dim": 2},
    "PairMax": {"retrievals": 6, "token_dim": 4},
    "OppositePair": {},
    "TriangleCentre": {},
    "KthLargest": {"rank": 4},
    "PositionSum": {"positions": (0, 1, 2)},
    "Induction": {"vocab": 8},
}
MIXED = """
token_dim = 8
retrievals = [
  {name = "maxima", count = 4},
  {name = "pairs", count = 3, order = 2},
  {name = "third", rank = 3},
  {name = "near", count = 3, window = 16},
  {name = "far", count = 2, window = 64},
  {name = "first", positions = [0, 1, 2]},
  {name = "like the first", count = 2, after = ["first"]},
  {name = "what followed", after = ["maxima"], offset = 1},
]
"""
KINDS = ("max", "pair", "rank", "places", "window", "chain", "shift")


def tasks(length: int) -> Iterator[tuple[str, Structure]]:
    """Every family that ships, and a task in TOML that mixes them."""
    for name, fields in SHIPPED.items():
        yield name, named(name, length, **fields).structure
    yield "mixed (TOML)", structure_from_toml(f"length = {length}\n{MIXED}")


def drawn(rng: random.Random, length: int) -> Structure:
    """A mixture of two to six retrievals, up to eight look-ups each."""
    retrievals: list[Retrieval] = []
    for i in range(rng.randint(2, 6)):
        kind, count = rng.choice(KINDS), rng.randint(1, 8)
        after = tuple(r.name for r in retrievals if rng.random() < 0.5) if kind in ("chain", "shift") else ()
        fields = {
            "pair": {"order": 2, "count": count},
            "rank": {"rank": rng.randint(2, 4), "count": count},
            "places": {"positions": tuple(range(rng.randint(1, 6)))},
            "window": {"window": rng.randint(1, max(1, length // 5)), "count": count},
            "shift": {"offset": 1},
        }.get(kind, {"count": count})
        retrievals.append(Retrieval(f"r{i}", after=after, **fields))
    return Structure(length, rng.choice((2, 4, 8)), tuple(retrievals))


def main() -> None:
    options = _arguments()
    rows = []
    for name, structure in tasks(options.length):
        seconds, best = timed(structure, options)
        rows.append({"task": name, "seconds": f"{seconds:.3f}", "best shape": best})
    rng = random.Random(options.seed)
    times = sorted(timed(drawn(rng, options.length), options)[0] for _ in range(options.drawn))
    if times:
        for name, seconds in (("median", statistics.median(times)), ("slowest", times[-1])):
            rows.append({"task": f"{name} of {len(times)} drawn", "seconds": f"{seconds:.3f}", "best shape": ""})
    show(Printout(None, [Listing(rows, ("task", "seconds", "best shape"))]), as_json=False)
    say(f"length {options.length}, at most {options.max_layers} layers of {options.max_heads} heads; processor seconds")
    if times:
        say(f"drawn mixtures within a second: {sum(t < 1 for t in times)} of {len(times)}")


def timed(structure: Structure, asked: argparse.Namespace) -> tuple[float, str]:
    """Processor seconds, so that what else runs on the machine does not count; and the best shape."""
    start = time.process_time()
    best = advise(structure, max_layers=asked.max_layers, max_heads=asked.max_heads).best
    return time.process_time() - start, f"{best.architecture.name} ({best.prediction.verdict})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--max-layers", type=int, default=8)
    parser.add_argument("--max-heads", type=int, default=16)
    parser.add_argument("--drawn", type=int, default=40, help="mixtures drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
