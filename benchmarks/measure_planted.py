"""Does `measure` find what was planted? Twenty data sets whose number of retrievals is known, one to six.

    python -m benchmarks.measure_planted [--device cuda] [--jobs 2] [--cases 0-19] [--draw 0] [--out FILE]

A data set looks D tokens up in every sequence, each by another feature, and hands over arrays alone; `measure` sees
neither D nor the features that matter. In `look-ups` the target is the sum of what the D tokens carry, in `maxima` the
sum of the D largest values, in `ragged` the sequences differ in length, in `classes` the target is which part of its
range a look-up falls into. All have features that mean nothing; numbers carry noise. Every case is measured with the
same plan, and counts as found when D lies in the interval of its knee. `--draw 1` makes the same twenty anew from other
seeds. The file is written after every case, so a run that is cut keeps what it has; begun again it goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headcount.files import whole
from headcount.measuring import Sequences, StudyPlan, measure, sequences

PLAN = StudyPlan()  # what a user gets who asks for nothing else
NEEDED = 18


@dataclass(frozen=True)
class Case:
    """One planted data set."""

    family: str
    retrievals: int
    distractors: int
    noise: float
    samples: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.family}, D = {self.retrievals}"


def cases(draw: int = 0) -> list[Case]:
    """Twenty of them, fixed; another draw has other seeds."""
    families = (
        *(("look-ups", d, d % 3, 0.02, 4000 if d < 5 else 8000) for d in range(1, 7)),
        *(("maxima", d, 1 + d % 2, 0.01, 4000) for d in range(1, 7)),
        *(("ragged", d, 1, 0.02, 4000 if d < 5 else 8000) for d in (2, 3, 4, 5)),
        *(("classes", d, 1, 0.0, 8000) for d in (1, 2, 3, 4)),
    )
    return [Case(*values, seed=number + 100 * draw) for number, values in enumerate(families)]


def planted(case: Case) -> Sequences:
    """The arrays of a case, as a user would hand them over: features shuffled, scaled and shifted."""
    rng = np.random.default_rng(1000 + case.seed)
    D, shortest, longest = case.retrievals, 5 if case.family == "ragged" else 8, 10 if case.family == "ragged" else 8
    lengths = rng.integers(shortest, longest + 1, case.samples)
    keys = rng.standard_normal((case.samples, longest, D))
    values = rng.standard_normal((case.samples, longest, 1 + case.distractors))
    masked = np.where((np.arange(longest) < lengths[:, None])[..., None], keys, -np.inf)
    found = np.take_along_axis(values[:, :, 0], masked.argmax(axis=1), axis=1).sum(axis=1)
    y = masked.max(axis=1).sum(axis=1) if case.family == "maxima" else found
    y = y + case.noise * y.std() * rng.standard_normal(case.samples)
    x = np.concatenate([keys, values], axis=2)[:, :, rng.permutation(D + 1 + case.distractors)]
    x = x * rng.uniform(0.1, 10, x.shape[2]) + rng.uniform(-5, 5, x.shape[2])
    target = np.where(y > np.median(y), "high", "low") if case.family == "classes" else 40 + 7 * y
    return sequences(x, target, lengths=lengths, name=case.name)


def row(number: int, draw: int, device: str, folder: str) -> dict[str, Any]:
    """Measure one case; what is finished is kept in `folder`."""
    torch.set_num_threads(1)
    case = cases(draw)[number]
    start = time.perf_counter()
    found = measure(planted(case), plan=PLAN, device=device, store=Path(folder) / f"case-{case.seed}")
    knee = found.knee
    inside = knee.low <= case.retrievals and (knee.high is None or case.retrievals <= knee.high)
    return {
        "case": number,
        **asdict(case),
        "knee": knee.value,
        "low": knee.low,
        "high": knee.high,
        "found": inside,
        "exact": knee.value == case.retrievals,
        "width": None if knee.high is None else knee.high - knee.low + 1,
        "levels": {str(heads): float(f"{level:.4g}") for heads, level in found.levels.items()},
        "advice": found.advice,
        "seconds": round(time.perf_counter() - start, 1),
    }


def line(done: dict[str, Any]) -> str:
    """One case in a line of the terminal."""
    high = "..." if done["high"] is None else done["high"]
    verdict = "found" if done["found"] else "MISSED"
    name = f"{done['family']} D={done['retrievals']}"
    return f"{name:14s} knee {done['knee']} [{done['low']}, {high}]  {verdict:6s} {done['seconds']:.0f} s"


def summary(rows: list[dict[str, Any]], asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What was found, with what it was measured with."""
    return {
        "found": sum(done["found"] for done in rows),
        "exact": sum(done["exact"] for done in rows),
        "cases": len(rows),
        "needed": NEEDED,
        "draw": asked.draw,
        "plan": PLAN.to_json(),
        "seconds": round(seconds),
        "device": torch.cuda.get_device_name() if asked.device == "cuda" else platform.processor() or "cpu",
        "jobs": asked.jobs,
        "torch": torch.__version__,
        "rows": sorted(rows, key=lambda done: done["case"]),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cases", default=f"0-{len(cases()) - 1}")
    parser.add_argument("--draw", type=int, default=0, help="which set of seeds")
    parser.add_argument("--store", default="out/measure_planted")
    parser.add_argument("--out", default="docs/data/measure_planted.json")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    first, _, last = asked.cases.partition("-")
    start, rows, out = time.perf_counter(), [], Path(asked.out)
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        numbers = range(int(first), int(last or first) + 1)
        for future in as_completed([pool.submit(row, n, asked.draw, asked.device, asked.store) for n in numbers]):
            rows.append(future.result())
            print(line(rows[-1]), flush=True)
            with whole(out) as scratch:
                scratch.write_text(json.dumps(summary(rows, asked, time.perf_counter() - start), indent=1) + "\n")
    found, exact = (sum(done[how] for done in rows) for how in ("found", "exact"))
    print(f"{found} of {len(rows)} found, {exact} exactly, in {time.perf_counter() - start:.0f} s: {out}")


if __name__ == "__main__":
    main()
