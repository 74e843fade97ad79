"""The cells of `gpu_round3`, stage by stage, and how one of them is measured."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path as File
from typing import Any, NamedTuple

import torch

from benchmarks import decoder_speed, deep_race, fuzz
from benchmarks.battery import battery
from benchmarks.gpu_round2 import alone, profile
from benchmarks.measuring import Run
from benchmarks.problem import Problem, Size, of_path
from headcount.papers.infoflow.experiments import pair_cells
from headcount.papers.infoflow.trained_cells import Entry
from headcount.training import Member, Recipe, train
from headcount.training.backends.choice import Path, as_it_is, fused, recorded, warped
from headcount.training.backends.fused import gradient
from headcount.training.backends.tiles import SublayerTile, Tile
from headcount.training.fresh import OnDevice

__all__ = ["STAGES", "Round3", "cells_of", "measured_cell"]

STAGES = ("fuzz", "race", "decoders", "recheck", "growth")
SHAPES = [*deep_race.DEEP, *deep_race.WIDE]
DEEP = range(len(deep_race.DEEP))
TINY = Size(2, 5, batch=4, heads=2, layers=2, width=8, steps_per_epoch=1)
WIDE_TILES = {  # of the wide shapes, in the order of the table
    len(deep_race.DEEP): (
        Tile(parts=5, registers=128),
        Tile(turned="forward", parts=6, back=8, registers=128),
        Tile(turned="both", parts=6, back=4),
        Tile(parts=5, back=6),
        Tile(tail_registers=168),
    ),
    len(deep_race.DEEP) + 1: (
        Tile(turned="both", parts=13, back=8),
        Tile(turned="forward", parts=13, back=8),
        Tile(parts=11, back=8),
        Tile(tail_registers=168),
    ),
    len(deep_race.DEEP) + 2: (
        Tile(split=16),
        Tile(split=16, back=7, registers=128),
        Tile(split=16, turned="forward", parts=5, back=7, registers=128),
        Tile(split=16, turned="both", parts=5, back=7),
    ),
}
GROWTH = (64, 128, 256, 512, 1024)
SAMPLED = 4  # every so-many-th deep cell of the battery is trained again


class Round3(NamedTuple):
    """A stage, whether it is a rehearsal without a device, and whether peers are measured anew."""

    stage: str
    dry: bool
    peers_again: bool

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"


def cells_of(round3: Round3) -> list[str]:
    """The names of a stage's cells, in the order of their worth."""
    stage, dry, peers = round3
    if stage == "race":
        return _races(dry, peers)
    names = {
        "fuzz": ["all"],
        "decoders": [str(n) for n in range(1 if dry else len(decoder_speed.CASES))],
        "recheck": [entry.name for entry in published(dry)],
        "growth": [str(models) for models in (GROWTH[:1] if dry else GROWTH)],
    }
    return names[stage]


def _races(dry: bool, peers: bool) -> list[str]:
    if dry:
        return [f"0:{name}" for name in list(ways(0))[:1]]
    ours = [f"{n}:{next(iter(ways(n)))}" for n in range(len(SHAPES))]
    others = [f"{n}:{name}" for n in reversed(range(len(SHAPES))) for name in list(ways(n))[1:]]
    names = ["JAX vmap + scan, dot_product_attention", "JAX vmap + scan"]
    theirs = [f"{n}:{names[n not in DEEP]}" for n in range(len(SHAPES))] if peers else []
    return [*ours, *theirs, *others]


def ways(number: int) -> dict[str, Path]:
    """Our paths at a shape: first the one that is chosen, then others and tiles."""
    if number not in DEEP:
        return {fused().name: fused()} | {_name(tile): _fused(tile) for tile in WIDE_TILES[number]}
    return {path.name: path for path in (warped(), warped(SublayerTile(aside=False)))}


def _fused(tile: Tile) -> Path:
    return replace(fused(), gradient=partial(gradient, tile=tile))


def _name(tile: Tile) -> str:
    changed = {f.name: v for f in fields(tile) if (v := getattr(tile, f.name)) != f.default}
    return "fused (half), " + ", ".join(f"{name}={value}" for name, value in changed.items())


def published(dry: bool) -> list[Entry]:
    """A sample of the cells of the pair table and of the battery, deep ones."""
    size = {"length": 8, "width": 64} if dry else {}
    pairs = pair_cells("sphere", head_dim=16, class_token="last", **size)[: 1 if dry else 3]
    others = [e for group in battery(length=8 if dry else 32, width=8 if dry else 64).values() for e in group]
    return pairs + [e for e in others if e.arch.depth > 1][:: 1000 if dry else SAMPLED]


def measured_cell(round3: Round3, cell: str, out: File, limit: float, compiling: bool) -> dict[str, Any]:
    """One cell's row; nothing where it was only to be compiled."""
    torch.backends.cuda.matmul.allow_tf32 = True
    measure: dict[str, Callable[..., dict[str, Any]]] = {
        "fuzz": _fuzz, "race": _race, "decoders": _decoders, "recheck": _recheck, "growth": _growth,
    }  # fmt: skip
    if compiling:
        _compile(cell)
        return {}
    if round3.dry or round3.stage == "fuzz":
        return measure[round3.stage](round3, cell, out, limit)
    with alone(out / "lock"):
        return measure[round3.stage](round3, cell, out, limit)


def _compile(cell: str) -> None:
    number, name = cell.split(":", 1)
    size = replace(SHAPES[int(number)], steps_per_epoch=1)
    epoch, _ = of_path(Problem(size, "cuda"), ways(int(number))[name])
    epoch()
    torch.cuda.synchronize()


def _fuzz(round3: Round3, cell: str, out: File, limit: float) -> dict[str, Any]:
    file = out / "fuzz.json"
    if round3.dry:
        fuzz.examine([6], "cpu", limit, file)
        rows = json.loads(file.read_text())
    else:
        rows = fuzz.apart(300, 14, min(limit - 5, 120.0), "cuda", file)
    done = [r for r in rows if "gap" in r]
    return {
        "banks": len(done), "beyond": sum(r["beyond"] > 0 for r in done), "could not run": len(rows) - len(done),
        "largest gap": max((r["gap"] for r in done), default=math.nan), "summary": fuzz.summary(rows),
    }  # fmt: skip


def _race(round3: Round3, cell: str, out: File, limit: float) -> dict[str, Any]:
    number, name = int(cell.split(":", 1)[0]), cell.split(":", 1)[1]
    size = TINY if round3.dry else SHAPES[number]
    run = Run(round3.device, 60.0, 0.01 if round3.dry else 0.6, None, time.perf_counter)
    if name.startswith("JAX"):
        contestant = deep_race.deep_contestants("deep JAX" if number in DEEP else "wide JAX")[name]
        return {**run.measure(name, contestant, size), **run.about}
    path = _on(round3, ways(number)[name])
    row = run.measure(name, partial(of_path, path=path), size)
    if not round3.dry and name in list(ways(number))[:1]:
        row["by kernel"] = profile(size, path)
    return {**row, **run.about}


def _on(round3: Round3, path: Path) -> Path:
    return replace(path, record=as_it_is) if round3.dry else path


def _decoders(round3: Round3, cell: str, out: File, limit: float) -> dict[str, Any]:
    case = decoder_speed.TINY[0] if round3.dry else decoder_speed.CASES[int(cell)]
    return decoder_speed.race(case, round3.device, 1 if round3.dry else 12, again=round3.peers_again)


def _recheck(round3: Round3, cell: str, out: File, limit: float) -> dict[str, Any]:
    """The same members by the chosen path and by the recorded one: the smallest NMSE of each seed."""
    entry = next(e for e in published(round3.dry) if e.name == cell)
    seeds, steps = (1, 2) if round3.dry else (4, 3000)
    batch = 8 if round3.dry else 256
    recipe = Recipe(2 * batch if round3.dry else 16384, 16 if round3.dry else 4096, 1, batch, fresh=not round3.dry)
    recipe = replace(recipe, epochs=max(1, steps // recipe.steps_per_epoch), evaluations=1 if round3.dry else 16)
    members = [Member(entry.task, entry.arch, s, 0, 2e-3, 1e-2) for s in range(seeds)]
    data = OnDevice if recipe.fresh else None
    given: dict[str, Any] = {"device": round3.device} | ({"data": data} if data else {})
    chosen = train(members, recipe, **given)
    plain = train(members, recipe, path=replace(recorded, record=as_it_is) if round3.dry else recorded, **given)
    both = [(a["nmse"], b["nmse"]) for a, b in zip(chosen.rows, plain.rows, strict=True)]
    return {
        "backend": chosen.backend, "steps": recipe.steps, "nmse": both,
        "largest log ratio": max(abs(math.log(a / b)) for a, b in both),
        "best": min(a for a, _ in both), "best recorded": min(b for _, b in both),
    }  # fmt: skip


def _growth(round3: Round3, cell: str, out: File, limit: float) -> dict[str, Any]:
    size = TINY if round3.dry else Size(int(cell), 32, layers=2, steps_per_epoch=8)
    run = Run(round3.device, 60.0, 0.01 if round3.dry else 0.6, None, time.perf_counter)
    row = run.measure(warped().name, partial(of_path, path=_on(round3, warped())), size)
    each = (row["peak bytes"] or 0) / size.models
    return {**row, **run.about, "microseconds per model-step": 1e6 / row["rate"], "bytes per member": each}
