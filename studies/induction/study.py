"""Measure what docs/induction.html shows, and write docs/data/induction.json: half a minute on one core.

    python -m studies.induction.study            # all but what is long
    python -m studies.induction.study --long     # three seeds, to the end of the published run
    python -m studies.induction.study --double   # the same in float64
    python -m studies.induction.study --full     # the full model for 3,000 steps

The last three take 20, 25 and 5 minutes of one core, add to the file as they go, and go on where they were cut.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headcount.files import write_text
from headcount.numerals import today
from headcount.papers.induction.bounds import information_table
from headcount.papers.induction.experiments import (
    ChainRun,
    full_path,
    full_rows,
    length_rows,
    path_rows,
    predictor_rows,
    selection_rows,
    stage_rows,
)
from headcount.papers.induction.networks import MatchingNet, generalised_induction, matched_mean, unmatched
from headcount.papers.induction.staged import GROUPS, Stage
from headcount.tasks.ngrams import NGram
from studies.stored import DATA, stored

STEPS = 300
SHOWN = sorted({*range(21), *(round(10 ** (e / 12)) for e in range(16, 30)), 50, 100, STEPS})
LONG = (0, 1, 5, 10, *(round(10 ** (e / 8)) for e in range(10, 38)), 50, 100, 500, 5000, 50000)
FULL_AT = (200, 1000, 3000)
STARTS = [(own, t, seed) for own in (3.0, 1.0) for t in (0.0, 0.3, 1.0) for seed in ((0, 1, 2) if t else (0,))]
LONGER = ("to_the_end", "in_double", "full_longer")  # parts that other runs write
Save = Callable[[dict[str, Any]], None]


def measured() -> dict[str, Any]:
    """Every table and curve of the page."""
    run = ChainRun(training=4000)
    start = time.process_time()
    model, stages = stage_rows(run, (Stage(GROUPS, STEPS),), at=SHOWN)
    seconds = time.process_time() - start
    apart = (Stage(("selector",), 100), Stage(("copier",), 100), Stage(("classifier",), 100))
    _, in_turn = stage_rows(ChainRun(training=2000), apart, at=(0, 10, 100, 200, 300))
    return {
        "date": today(),
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


def longer(
    kept: dict[str, Any],
    save: Save,
    *,
    at: tuple[int, ...] = LONG,
    ends: tuple[int, ...] = (5000, 50000),
    seeds: int = 3,
    training: int = 9000,
    dtype: torch.dtype = torch.float32,
) -> None:
    """The simplified model as published: all seeds to the first end, then to the next; their last rows have states."""
    rows, seconds = list(kept.get("rows", [])), kept.get("seconds", 0.0)
    for end, seed in ((end, seed) for end in ends for seed in range(seeds)):
        run = ChainRun(training=training, seed=seed, dtype=dtype)
        last = max((row for row in rows if row["seed"] == seed), key=lambda row: row["step"], default=None)
        began = time.process_time()
        for row in path_rows(run, [step for step in sorted(set(at)) if step <= end], after=last):
            others = [old if old["seed"] != seed else {k: v for k, v in old.items() if k != "state"} for old in rows]
            rows, spent = [*others, row], round(seconds + time.process_time() - began, 1)
            save({"date": today(), "training": training, "validation": run.validation, "seconds": spent, "rows": rows})
        seconds += time.process_time() - began


def full_longer(kept: dict[str, Any], save: Save, *, at: tuple[int, ...] = FULL_AT, training: int = 4000) -> None:
    """The full model from every start that has no row yet."""
    rows, before, began = list(kept.get("rows", [])), kept.get("seconds", 0.0), time.process_time()
    done = {(row["own"], row["randomness"], row["seed"]) for row in rows}
    for own, randomness, seed in STARTS:
        if (own, randomness, seed) not in done:
            rows += full_path(ChainRun(training=training, own=own), randomness, seed, at)
            spent = round(before + time.process_time() - began, 1)
            save({"date": today(), "training": training, "seconds": spent, "rows": list(rows)})


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the published run to its end")
    parser.add_argument("--double", action="store_true", help="the published run in float64")
    parser.add_argument("--full", action="store_true", help="the full model for longer")
    parser.add_argument("--out", type=Path, default=DATA / "induction.json")
    options = parser.parse_args()
    known = stored(options.out)
    if options.long:
        longer(known.get("to_the_end", {}), lambda part: _write(options.out, known | {"to_the_end": part}))
    elif options.double:
        save = lambda part: _write(options.out, known | {"in_double": part})  # noqa: E731
        longer(known.get("in_double", {}), save, ends=(20000, 50000), dtype=torch.float64)
    elif options.full:
        full_longer(known.get("full_longer", {}), lambda part: _write(options.out, known | {"full_longer": part}))
    else:
        _write(options.out, measured() | {name: known[name] for name in LONGER if name in known})
    print(f"So: {options.out.name} is written; `make docs` draws the page.")


def _set(lags: tuple[int, ...]) -> str:
    return ",".join(map(str, lags))


def _write(path: Path, data: dict[str, Any]) -> None:
    """JSON with a line for every row."""
    write_text(path, _lines(data, "") + "\n")


def _lines(data: dict[str, Any], indent: str) -> str:
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"{indent}  {json.dumps(_rounded(row))}" for row in value)
            parts.append(f'{indent} "{key}": [\n{rows}\n{indent} ]')
        else:
            nested = isinstance(value, dict)
            parts.append(f'{indent} "{key}": ' + (_lines(value, indent + " ") if nested else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):  # a state is kept to the last bit of float32, for a run to go on from
        return {key: v if key == "state" else _rounded(v) for key, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
