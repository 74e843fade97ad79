"""What `measure` says of data whose answer is known: digits, ETTh1, spoken digits, planted look-ups, and pure noise.

    python -m benchmarks.measure_table [--budget 120] [--ett ETTh1.csv] [--fsdd fsdd_1200.npz] [--out FILE]

Every data set is measured as a user would, with a time to keep to and nothing else. Digits are scikit-learn's 8 x 8, a
row of pixels a token; ETTh1 asks for the next oil temperature from 24 hours; spoken digits are frames as
examples/spoken_digits.py makes them; the planted set looks three tokens up; noise has a target that no token knows.
Data that are not given are left as they stand in the file.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from examples.spoken_digits import frames
from headcount.files import whole
from headcount.fits import Measurement
from headcount.measuring import Sequences, measure, sequences
from headcount.measuring.tables import Reading

OUT = Path("docs/data/measure_table.json")


def digits() -> Sequences:
    from sklearn.datasets import load_digits

    pixels, target = load_digits(return_X_y=True)
    return sequences(pixels.reshape(-1, 8, 8), np.array([f"digit {d}" for d in target]), name="digits")


def spoken(clips: Path) -> Sequences:
    with np.load(clips) as file:
        audio, offsets, digit = (file[key] for key in ("audio", "offsets", "digit"))
    tokens = [frames(audio[a:b]) for a, b in pairwise(offsets)]
    return sequences(tokens, np.array([f"digit {d}" for d in digit]), name="spoken digits")


def planted(samples: int = 4000, retrievals: int = 3) -> Sequences:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, 8, retrievals + 1))
    found = np.take_along_axis(x[:, :, -1], x[:, :, :retrievals].argmax(axis=1), axis=1).sum(axis=1)
    return sequences(x, found + 0.05 * rng.standard_normal(samples), name="planted, 3 look-ups")


def noise(samples: int = 2000) -> Sequences:
    rng = np.random.default_rng(0)
    return sequences(rng.standard_normal((samples, 8, 3)), rng.standard_normal(samples), name="pure noise")


def row(name: str, found: Measurement, budget: float, seconds: float) -> dict[str, Any]:
    """What was found of one data set."""
    best = min(found.baselines, key=lambda base: base["level"])
    level = min(found.levels.values())
    wrong = min((line["error_rate"] for line in found.by_heads() if line["error_rate"] is not None), default=None)
    return {
        "data": name,
        "sequences": found.study.spec["data"]["sequences"],
        "tokens": found.study.spec["data"]["tokens"],
        "baseline": best["name"],
        "baseline_level": best["level"],
        "baseline_wrong": best["error_rate"],
        "level": level,
        "wrong": wrong,
        "positions": max(line["positions"] for line in found.study),
        "knee": str(found.knee),
        "seeds": list(found.knee.seeds),
        "headline": found.answer.headline,
        "advice": found.advice,
        "measure": found.words,
        "budget": budget,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--ett", type=Path)
    parser.add_argument("--fsdd", type=Path)
    parser.add_argument("--only", default="", help="one of the names, for a part of the table")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    rows = {row["data"]: row for row in json.loads(asked.out.read_text())} if asked.out.exists() else {}
    sets: dict[str, Any] = {"pure noise": noise, "planted, 3 look-ups": planted, "digits": digits}
    if asked.ett:
        sets["ETTh1"] = lambda: asked.ett
    if asked.fsdd:
        sets["spoken digits"] = lambda: spoken(asked.fsdd)
    for name, make in sets.items():
        if asked.only and asked.only != name:
            continue
        start = time.monotonic()
        reading = Reading(target="OT", window=24) if name == "ETTh1" else None
        found = measure(make(), reading=reading, budget=asked.budget)
        rows[name] = row(name, found, asked.budget, time.monotonic() - start)
        print(f"{name}: {found.advice} ({rows[name]['seconds']} s)", flush=True)
        with whole(asked.out) as scratch:
            scratch.write_text(json.dumps(list(rows.values()), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
