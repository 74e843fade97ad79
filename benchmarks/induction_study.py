"""Measure what docs/induction.html shows, and write docs/data/induction.json: half a minute on one core."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import torch

from headcount.files import whole
from headcount.papers.induction.bounds import information_table
from headcount.papers.induction.experiments import (
    ChainRun,
    full_rows,
    length_rows,
    predictor_rows,
    selection_rows,
    stage_rows,
)
from headcount.papers.induction.networks import MatchingNet, generalised_induction, matched_mean, unmatched
from headcount.papers.induction.staged import GROUPS, Stage
from headcount.tasks.ngrams import NGram

__all__ = ["main", "measured"]

DATA = Path(__file__).parent.parent / "docs/data/induction.json"
STEPS = 300
SHOWN = sorted({*range(21), *(round(10 ** (e / 12)) for e in range(16, 30)), 50, 100, STEPS})


def measured() -> dict[str, Any]:
    """Every table and curve of the page."""
    run = ChainRun(training=4000)
    start = time.process_time()
    model, stages = stage_rows(run, (Stage(GROUPS, STEPS),), at=SHOWN)
    seconds = time.process_time() - start
    apart = (Stage(("selector",), 100), Stage(("copier",), 100), Stage(("classifier",), 100))
    _, in_turn = stage_rows(ChainRun(training=2000), apart, at=(0, 10, 100, 200, 300))
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "seconds": round(seconds, 1),
        "stages": stages,
        "in_turn": in_turn,
        "information": information_rows(),
        "selection": selection_rows(),
        "predictors": predictor_rows(NGram()),
        "lengths": length_rows(model, NGram()),
        "certificate": certificate_rows(),
        "full": [row for own in (3.0, 1.0) for row in full_rows(own=own, seeds=(0, 1), steps=200, training=1000)],
    }


def information_rows() -> list[dict[str, Any]]:
    """Plain and modified information of every set of lags, at each concentration."""
    rows = []
    for alpha in (0.1, 0.3, 1.0):
        for power, name in ((1, "plain"), (2, "modified")):
            values = information_table(alpha, 3, (1, 2), 3, power=power, kernels=1500)
            means = {_set(lags): float(v.mean()) for lags, v in values.items() if lags}
            rows.append({"concentration": alpha, "information": name, **means})
    return rows


@torch.no_grad()
def certificate_rows() -> list[dict[str, Any]]:
    """The promise of the built head and the worst of 4000 sequences, by scale; and where it says nothing."""
    task = NGram()
    x = task.sample(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).x
    silent = unmatched(x, task.parents)
    rows = []
    for beta in (4.0, 8.0, 12.0, 16.0):
        built = generalised_induction(task, beta)
        assert isinstance(built.net, MatchingNet)
        gaps = (built.net.rows(x) - matched_mean(x, task.parents)).abs().amax(dim=1)
        row = {"scale": beta, "promised": built.certificate.error, "worst_gap": float(gaps[~silent].max())}
        rows.append(row | {"unmatched": float(silent.double().mean()), "unmatched_gap": float(gaps[silent].max())})
    return rows


def main() -> None:
    with whole(DATA) as scratch:
        scratch.write_text(_text(measured()), encoding="utf-8")
    print(f"So: {DATA.name} is written; `make docs` draws the page.")


def _set(lags: tuple[int, ...]) -> str:
    return ",".join(map(str, lags))


def _text(data: dict[str, Any]) -> str:
    """JSON with a line for every row."""
    parts = []
    for key, value in data.items():
        rows = [f"  {json.dumps(_rounded(row))}" for row in value] if isinstance(value, list) else []
        parts.append(f' "{key}": ' + ("[\n" + ",\n".join(rows) + "\n ]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(v) for key, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
