"""The shapes of deep and wide banks, who races on them, and the table of ratios with its check of the losses."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from benchmarks.measuring import SHAPE, Contestant
from benchmarks.problem import Size, of_backend
from headcount.kernels.backend import Backend, Problem, recorded
from headcount.kernels.bank import Bank
from headcount.kernels.plain import Batch
from headcount.kernels.tiles import Tile

DEEP = [
    Size(128, 32, layers=2, steps_per_epoch=8),
    Size(48, 64, heads=6, layers=2, width=128, steps_per_epoch=8),
    Size(64, 64, heads=3, layers=2, width=128, steps_per_epoch=8),
    Size(128, 32, heads=1, layers=4, steps_per_epoch=8),
    Size(512, 32, layers=2, steps_per_epoch=8),
]
WIDE = [
    Size(256, 32, width=64, steps_per_epoch=8),
    Size(128, 32, heads=12, width=48, steps_per_epoch=8),
    Size(300, 48, heads=6, steps_per_epoch=8),
]
GROWTH = [Size(models, 32, layers=2, steps_per_epoch=8) for models in (64, 256, 1024)]
DEEP_GROUPS = {"deep": 90.0, "deep JAX": 120.0, "wide": 50.0, "wide JAX": 60.0, "deep growth": 40.0}  # seconds
PREFERRED = ("cuda", "fused", "by parts")  # our backends by name, in the order in which they are taken


def cells(group: str) -> list[Size]:
    """The shapes that a group runs on."""
    if group == "deep growth":
        return GROWTH
    return DEEP if group.startswith("deep") else WIDE


def deep_contestants(group: str) -> dict[str, Contestant]:
    """Who runs in one process: our backends, or the JAX peers."""
    if group.endswith("JAX"):
        return _peers(group)
    from headcount.kernels import fused, parts
    from headcount.kernels.cuda import class_network

    ours = {
        "wide": [fused.backend, tiled("fused, tail=4096", Tile(tail=4096))],
        "deep": [class_network.backend, parts.backend, recorded],
        "deep growth": [class_network.backend],
    }[group]
    return {backend.name: partial(of_backend, backend=backend) for backend in ours}


def tiled(name: str, tile: Tile) -> Backend:
    """The fused backend with its work cut in another way."""
    from headcount.kernels import fused

    def gradient(problem: Problem, bank: Bank, batch: Batch) -> Tensor:
        return fused.gradient(bank, batch, tile)

    return replace(fused.backend, name=name, gradient=gradient)


def _peers(group: str) -> dict[str, Contestant]:
    if not importlib.util.find_spec("jax"):
        print("JAX is not installed: no JAX in this race")
        return {}
    from benchmarks.peers_jax import scanned

    names = {"JAX vmap + scan": "deep", "JAX vmap + scan, dot_product_attention": "deep, dot_product_attention"}
    if group == "wide JAX":
        names = {"JAX vmap + scan": "plain", "JAX vmap + scan, collapsed": "collapsed"}
    return {name: partial(scanned, form=form) for name, form in names.items()}


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each shape the backend we prefer, the faster JAX vmap + scan, their ratio, and whether the losses agree."""
    out = []
    for shape in dict.fromkeys(tuple(row[key] for key in SHAPE) for row in rows):
        of_shape = [row for row in rows if tuple(row[key] for key in SHAPE) == shape]
        peers = [r for r in of_shape if r["way"].startswith("JAX") and "collapsed" not in r["way"]]
        ours = [row for row in of_shape if row["way"] in PREFERRED]
        if not ours:
            continue
        best = min(ours, key=lambda row: PREFERRED.index(row["way"]))
        ratio = {
            **dict(zip(SHAPE, shape, strict=True)),
            "ours": best["way"],
            "rate": best["rate"],
            "loss": best["loss"],
        }
        if peers:
            peer = max(peers, key=lambda row: row["rate"])
            ratio |= {"peer": peer["way"], "peer rate": peer["rate"], "peer loss": peer["loss"]}
            ratio |= {"ratio": best["rate"] / peer["rate"]}
            ratio["loss gap"] = max(abs(row["loss"] / peer["loss"] - 1) for row in of_shape)
            ratio["agree"] = ratio["loss gap"] < 5e-4
        out.append(ratio)
    return out


def table(rows: list[dict[str, Any]]) -> str:
    """The ratios as lines of text."""
    lines = []
    for r in ratios(rows):
        shape = f"{r['layers']} layers, K={r['models']}, T={r['length']}, {r['heads']}x8, width {r['width']}"
        peer = (
            f"  {r['ratio']:5.1f}x {r['peer']} ({r['peer rate']:,.0f}), losses agree: {r['agree']}"
            if "ratio" in r
            else ""
        )
        lines.append(f"{shape:44} {r['rate']:>10,.0f} ({r['ours']}, {r['loss']:.4f}){peer}")
    return "\n".join(lines)
