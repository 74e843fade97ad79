"""Bounds of one error by several roads, on the same boxes and to the end (`python -m studies.worst.roads`).

On the same boxes: plain interval propagation, ranges with exact softmax means, slopes alone, and the lowest of all,
which `certify` takes, by batched products and compiled; auto_LiRPA where it is installed; each over the largest error
seen in the box. To the end: boxes and seconds until a proof is within 1.5 of what was met, by boxes of all tokens and
by boxes of the winners, as length, heads and width grow. All seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from headcount.certificates.worst_case import error_bounds as bounding
from headcount.certificates.worst_case.branching import SearchLimits
from headcount.certificates.worst_case.compiled_bounds import CompiledBounds
from headcount.certificates.worst_case.folded import fold
from headcount.certificates.worst_case.intervals import Interval
from headcount.certificates.worst_case.layered_bounds import Layered
from headcount.certificates.worst_case.met_errors import errors_at
from headcount.certificates.worst_case.proofs import prove
from headcount.certificates.worst_case.sloped_targets import LookedUp, sloped
from headcount.certificates.worst_case.winners_road import prove_by_winners
from headcount.nets import Architecture
from headcount.nets.target_units import TargetUnits
from headcount.numerals import now
from headcount.tasks import Wells
from headcount.training import Member, Recipe, train
from headcount.training.data import target_scale
from studies.worst.peers import lirpa_roads

SAMPLES = 8192
SHAPES = [  # length, wells, heads, width
    *((T, 1, 1, 16) for T in (2, 4, 8, 16, 32, 64)),
    *((T, 2, 2, 16) for T in (2, 4, 8, 16, 32, 64)),
    *((4, 2, heads, 16) for heads in (1, 4)),
    *((4, 2, 2, width) for width in (8, 32)),
]
LONG = 16  # tokens, from which a smaller rate trains better
HALF_WIDTHS = (0.25, 0.05, 0.01, 0.002)


def trained(length: int, wells: int, heads: int, width: int, epochs: int) -> tuple[TargetUnits, Wells, float]:
    """One network in the units of its target, its task and its NMSE."""
    task = Wells.random(wells, 1, length, seed=3)
    rate = 0.02 if length < LONG else 0.01
    member = Member(task, Architecture(layers=((heads, 4),), width=width), seed=0, lr=rate)
    outcome = train([member], Recipe(samples=SAMPLES, validation=1024, epochs=epochs, batch=256))
    return TargetUnits(outcome.net(0), *target_scale(task, 0, SAMPLES)), task, outcome.rows[0]["nmse"]


def nothing_known(net: Any, means: Interval) -> Interval:
    """A range that bounds nothing: what is left are slopes."""
    shape = means.mid.shape[:2]
    return Interval(means.mid.new_zeros(shape), means.mid.new_full(shape, torch.inf))


def all_bends(x: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bends that bound nothing: what is left are ranges."""
    return torch.full_like(x, -torch.inf), torch.full_like(x, torch.inf)


def on_boxes(net: TargetUnits, task: Wells, boxes: int = 256) -> list[dict[str, Any]]:
    """How many times the largest error seen in a box each road's bound is, and what a box takes."""
    generator = torch.Generator().manual_seed(0)
    middle = torch.rand(1, boxes, task.length, 1, generator=generator, dtype=torch.float64).sort(2).values
    folded, layered, target = fold([net], task.length), Layered.of_net(net, task.length), sloped([task])
    compiled, member = CompiledBounds.of(folded, target, 0.0, 1.0), torch.zeros(boxes, dtype=torch.int64)
    assert compiled is not None
    assert isinstance(target, LookedUp)
    roads: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "interval propagation": lambda lo, hi: bounding.error_bounds(layered, target, lo, hi).upper[0],
        "ranges": lambda lo, hi: _patched("gelu_bend", all_bends, folded, target, lo, hi),
        "slopes": lambda lo, hi: _patched("_outputs", nothing_known, folded, target, lo, hi),
        "ours": lambda lo, hi: bounding.error_bounds(folded, target, lo, hi).upper[0],
        "ours, compiled": lambda lo, hi: compiled.bounds(target, member, lo[0], hi[0]).upper[0],
        **lirpa_roads(folded, target),
    }
    rows = []
    for half in HALF_WIDTHS:
        lo, hi = (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)
        x = lo[:, :, None] + (hi - lo)[:, :, None] * torch.rand(
            1, boxes, 500, task.length, 1, generator=generator, dtype=torch.float64
        )
        largest = errors_at(folded, target, x.flatten(1, 2)).view(boxes, -1).amax(1)
        row: dict[str, Any] = {"half width": half}
        for name, method in roads.items():
            start = time.process_time()
            upper = method(lo, hi)
            row[f"{name}, microseconds"] = round(1e6 * (time.process_time() - start) / boxes, 1)
            assert bool((largest <= upper * (1 + 1e-9)).all()), name
            row[name] = float(f"{(upper / largest).median():.4g}")
        rows.append(row)
    return rows


def _patched(name: str, by: Any, *arguments: Any) -> Any:
    with patch.object(bounding, name, by):
        return bounding.error_bounds(*arguments).upper[0]


def to_the_end(net: TargetUnits, task: Wells, limits: SearchLimits) -> dict[str, Any]:
    """Both roads until they close or the limits are reached."""
    folded, target = fold([net], task.length), sloped([task])
    assert isinstance(target, LookedUp)
    start = time.process_time()
    plain = prove(folded, target, 0.0, 1.0, budget=limits)
    between = time.process_time()
    winners = prove_by_winners(folded, target, (0.0, 1.0), limits=limits, lower=float(plain.lower[0]))
    end = time.process_time()
    return {
        "met": float(f"{float(plain.lower[0]):.4g}"),
        "all tokens": round(float(plain.upper[0] / plain.lower[0]), 3),
        "all tokens, boxes": int(plain.boxes[0]),
        "all tokens, seconds": round(between - start, 2),
        "all tokens, open": int(plain.open[0]),
        "winners": round(winners.upper / winners.lower, 3),
        "winners, boxes": winners.boxes,
        "winners, seconds": round(end - between, 2),
        "winners, open": winners.open,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--boxes", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    same: list[dict[str, Any]] = []
    ends = []
    for shape in SHAPES:
        net, task, nmse = trained(*shape, options.epochs)
        if shape == (4, 2, 2, 16):
            same = on_boxes(net, task)
        sizes = dict(zip(("length", "wells", "heads", "width"), shape, strict=True))
        ended = to_the_end(net, task, SearchLimits(options.boxes, options.seconds))
        ends.append({**sizes, "nmse": float(f"{nmse:.3g}"), **ended})
        print(json.dumps(ends[-1]), flush=True)
    content = {
        "date": now(),
        "device": f"CPU, {torch.get_num_threads()} threads, seconds of the processor",
        "torch": torch.__version__,
        "command": "python -m studies.worst.roads",
        "same boxes": same,
        "to the end": ends,
    }
    print(json.dumps(content["same boxes"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
