"""How exact interpolation grows with the number of sequences: time, layers, parameters, gaps and promises.

python -m studies.hardmax_growth [docs/data/hardmax.json]

Real sequences are the digits of scikit-learn, eight rows of eight pixels each; beyond their 1,797, and beside them,
Gaussian ones of the same sizes.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from headcount.files import atomic_write
from headcount.papers.hardmax import SequenceMemoriser

SIZES = (50, 100, 200, 500, 1000, 1797, 2000)
HELD_OUT = 200


def measured(name: str, x: np.ndarray, y: np.ndarray, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Fit with several seeds; the times are their median, the gap and the promise the worst."""
    seconds, own, fits, learner = [], [], [], SequenceMemoriser()
    for seed in seeds:
        start, used = time.perf_counter(), time.process_time()
        learner = SequenceMemoriser(seed).fit(x, y)
        seconds.append(time.perf_counter() - start)
        own.append(time.process_time() - used)
        built = learner.built_
        start = time.perf_counter()
        correct = learner.score(x, y)
        answered = time.perf_counter() - start
        off = np.abs(
            learner.outputs(x[:, ::-1].copy()) - learner.targets_[np.searchsorted(learner.classes_, y)][:, :]
        ).max()
        fits.append((float(off), built.certificate.error, built.smallest_gap, correct, answered))
    built = learner.built_
    return {
        "data": name,
        "sequences": len(x),
        "layers": built.layers,
        "separating_layers": built.separating_layers,
        "parameters": built.parameters,
        "seconds": round(median(seconds), 3),
        "slowest": round(max(seconds), 3),
        "processor_seconds": round(median(own), 3),
        "answer_seconds": round(median(f[4] for f in fits), 3),
        "worst_gap_reversed": max(f[0] for f in fits),
        "promise": max(f[1] for f in fits),
        "smallest_gap": min(f[2] for f in fits),
        "memorised": min(f[3] for f in fits),
    }


def main() -> None:
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    digits: Any = load_digits()
    rng = np.random.default_rng(0)
    gaussian = rng.standard_normal((max(SIZES), 8, 8)), rng.integers(10, size=max(SIZES))
    rows = []
    for count in SIZES:
        seeds = (0, 1, 2) if count <= 500 else (0,)
        if count <= len(digits.images):
            rows.append(measured("digits", digits.images[:count], digits.target[:count], seeds))
            print(rows[-1], flush=True)
        rows.append(measured("gaussian", gaussian[0][:count], gaussian[1][:count], seeds))
        print(rows[-1], flush=True)
    learner = SequenceMemoriser().fit(digits.images[:500], digits.target[:500])
    held_out = learner.score(digits.images[-HELD_OUT:], digits.target[-HELD_OUT:])
    laws = {name: _exponent([r for r in rows if r["data"] == name]) for name in ("digits", "gaussian")}
    record = {
        "what": "SequenceMemoriser on N sequences of 8 tokens of 8 numbers, 10 labels, one thread",
        "command": "python -m studies.hardmax_growth",
        "device": f"CPU ({platform.machine()}), shared",
        "held_out_accuracy_of_500": held_out,
        "exponent_of_processor_seconds": laws,
        "rows": rows,
    }
    if len(sys.argv) > 1:
        with atomic_write(Path(sys.argv[1])) as scratch:
            scratch.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print({k: v for k, v in record.items() if k != "rows"})


def _exponent(rows: list[dict[str, Any]]) -> float:
    """The slope of the logarithm of processor seconds in log N from N = 200 on."""
    large = [r for r in rows if r["sequences"] >= 200]
    logs = np.log([[r["sequences"], r["processor_seconds"]] for r in large])
    return round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 2)


if __name__ == "__main__":
    main()
