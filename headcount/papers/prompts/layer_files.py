"""A layer and its sequences in an npz file: query, key, value, last, contexts and targets, as `reach` takes them.

Contexts of several lengths are `context_0`, `context_1`, ..; a `query_bias` may be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headcount.files import arrays_in, whole
from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.refusals import nearest

AXES = {"query": 2, "key": 2, "value": 2, "last": 1, "contexts": 3, "targets": 2}

LARGEST = 1e60  # of a number in a file: products of five are finite


@dataclass(frozen=True, eq=False)
class PromptProblem:
    """What a file holds: attention weights, the last token, contexts, and wanted attention outputs."""

    layer: PromptedLayer
    last: np.ndarray
    contexts: tuple[np.ndarray, ...]
    targets: np.ndarray


def read_problem(path: Path) -> PromptProblem:
    """The problem in a file; every mistake is said in one line."""
    held = arrays_in(path)
    each = sorted((name for name in held if name.startswith("context_")), key=_number)
    for name in held:
        if name not in (*AXES, "query_bias") and not name.startswith(("prompt_", "context_")):
            raise ValueError(f"unknown array {name!r} in {path}; {nearest(name, AXES)}")
    for name, axes in AXES.items():
        if name == "contexts" and each:
            continue
        if name not in held:
            raise ValueError(f"{path} has no array {name!r}; it needs {', '.join(AXES)}")
        _check(path, name, held[name], axes)
    for name in each:
        _check(path, name, held[name], 2)
    contexts = [held[name].astype(float) for name in each] or list(held["contexts"].astype(float))
    parts = {name: held[name].astype(float) for name in (*AXES, "query_bias") if name in held and name != "contexts"}
    return _agreeing(path, parts, contexts)


def _number(name: str) -> int:
    digits = name.removeprefix("context_")
    return int(digits) if digits.isdigit() else -1


def _check(path: Path, name: str, value: np.ndarray, axes: int) -> None:
    if value.dtype.kind not in "fiu" or value.ndim != axes or not value.size or not (abs(value) < LARGEST).all():
        raise ValueError(
            f"{name} in {path} must be finite numbers below {LARGEST:.0e} with {axes} axes, "
            f"got {value.dtype} {value.shape}"
        )


def _agreeing(path: Path, held: dict[str, np.ndarray], contexts: list[np.ndarray]) -> PromptProblem:
    d = held["value"].shape[1]
    wanted = {
        "query": (len(held["key"]), d),
        "key": (len(held["key"]), d),
        "last": (d,),
        "targets": (len(contexts), len(held["value"])),
        **({"query_bias": (len(held["key"]),)} if "query_bias" in held else {}),
    }
    for context in contexts:
        if context.shape[1] != d:
            raise ValueError(f"contexts in {path} must have the {d} coordinates of a token, got {context.shape[1]}")
    for name, shape in wanted.items():
        if held[name].shape != shape:
            raise ValueError(f"{name} in {path} must have shape {shape} beside the others, got {held[name].shape}")
    layer = PromptedLayer(held["query"], held["key"], held["value"], held.get("query_bias"))
    return PromptProblem(layer, held["last"], tuple(contexts), held["targets"])


def write_problem(path: Path, problem: PromptProblem, prompts: dict[int, np.ndarray]) -> Path:
    """The problem with the prompts built for it, as `read_problem` reads it again."""
    layer = problem.layer
    held = {"query": layer.query, "key": layer.key, "value": layer.value, "last": problem.last}
    held |= {} if layer.query_bias is None else {"query_bias": layer.query_bias}
    held |= {f"context_{i}": context for i, context in enumerate(problem.contexts)}
    held |= {"targets": problem.targets}
    held |= {f"prompt_{tokens}": prompt for tokens, prompt in prompts.items()}
    with whole(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **held)  # pyright: ignore[reportArgumentType]
    return path
