"""A layer and its sequences in an npz file: query, key, value, last, contexts and targets, as `reach` takes them.

Contexts of several lengths are `context_0`, `context_1`, ..; a `query_bias` may be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headcount.files import arrays_in, atomic_write
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
    arrays = arrays_in(path)
    each = sorted((name for name in arrays if name.startswith("context_")), key=_number)
    for name in arrays:
        if name not in (*AXES, "query_bias") and not name.startswith(("prompt_", "context_")):
            raise ValueError(f"unknown array {name!r} in {path}; {nearest(name, AXES)}")
    for name, axes in AXES.items():
        if name == "contexts" and each:
            continue
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; it needs {', '.join(AXES)}")
        _check(path, name, arrays[name], axes)
    for name in each:
        _check(path, name, arrays[name], 2)
    contexts = [arrays[name].astype(float) for name in each] or list(arrays["contexts"].astype(float))
    parts = {
        name: arrays[name].astype(float) for name in (*AXES, "query_bias") if name in arrays and name != "contexts"
    }
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


def _agreeing(path: Path, arrays: dict[str, np.ndarray], contexts: list[np.ndarray]) -> PromptProblem:
    d = arrays["value"].shape[1]
    wanted = {
        "query": (len(arrays["key"]), d),
        "key": (len(arrays["key"]), d),
        "last": (d,),
        "targets": (len(contexts), len(arrays["value"])),
        **({"query_bias": (len(arrays["key"]),)} if "query_bias" in arrays else {}),
    }
    for context in contexts:
        if context.shape[1] != d:
            raise ValueError(f"contexts in {path} must have the {d} coordinates of a token, got {context.shape[1]}")
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} in {path} must have shape {shape} beside the others, got {arrays[name].shape}")
    layer = PromptedLayer(arrays["query"], arrays["key"], arrays["value"], arrays.get("query_bias"))
    return PromptProblem(layer, arrays["last"], tuple(contexts), arrays["targets"])


def write_problem(path: Path, problem: PromptProblem, prompts: dict[int, np.ndarray]) -> Path:
    """The problem with the prompts built for it, as `read_problem` reads it again."""
    layer = problem.layer
    arrays = {"query": layer.query, "key": layer.key, "value": layer.value, "last": problem.last}
    arrays |= {} if layer.query_bias is None else {"query_bias": layer.query_bias}
    arrays |= {f"context_{i}": context for i, context in enumerate(problem.contexts)}
    arrays |= {"targets": problem.targets}
    arrays |= {f"prompt_{tokens}": prompt for tokens, prompt in prompts.items()}
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    return path
