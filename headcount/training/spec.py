"""A sweep as a small TOML file: task, grid, seeds, training. A misspelt key is refused with the nearest right one."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.nets import Architecture
from headcount.refusals import refuse_unknown
from headcount.structure import Structure
from headcount.tasks import Task, named, sentence
from headcount.training.member import Member, Recipe

__all__ = ["Sweep"]

GRID = ("lengths", "heads", "head_dim", "embed_dim", "width", "layers", "shapes", "positions", "lr", "weight_decay")
SECTIONS = ("name", "task", "grid", "seeds", "training")


@dataclass(frozen=True)
class Sweep:
    """What a sweep asks for: every member, and the recipe they share.

    >>> text = '''
    ... seeds = 2
    ... [task]
    ... name = "KthLargest"
    ... rank = 1
    ... [grid]
    ... lengths = [4, 8]
    ... heads = [1, 2]
    ... '''
    >>> len(Sweep.from_toml(text).members)
    8
    """

    members: tuple[Member, ...]
    recipe: Recipe
    name: str = "sweep"
    source: str = ""

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("the grid is empty: nothing to train")

    @property
    def structure(self) -> Structure | None:
        """What the task asks, when all members ask the same but for the length."""
        found = {dataclasses.replace(m.drawn.structure, length=1_000_000) for m in self.members}
        return self.members[0].drawn.structure if len(found) == 1 else None

    def to_json(self) -> dict[str, Any]:
        """The spec as it is stored beside the rows."""
        structure = self.structure
        return {
            "structure": structure.to_json() if structure is not None else None,
            "target": sentence(self.members[0].drawn),
            "domain": self.members[0].drawn.domain,
            "recipe": dataclasses.asdict(self.recipe),
            "toml": self.source,
        }

    @classmethod
    def read(cls, path: str | Path) -> Sweep:
        """The sweep that a TOML file describes, named after the file unless it names itself."""
        path = Path(path)
        try:
            return cls.from_toml(path.read_text(), name=path.stem)
        except (ValueError, UnicodeDecodeError) as problem:
            raise ValueError(f"{path}: {problem}") from None

    @classmethod
    def from_toml(cls, text: str, name: str = "sweep") -> Sweep:
        """The sweep that TOML text describes."""
        spec = tomllib.loads(text)
        refuse_unknown(spec, SECTIONS, "the spec")
        for section in ("task", "grid"):
            if not isinstance(spec.get(section), dict):
                raise ValueError(f"the spec lacks a [{section}] section")
        grid, training = spec["grid"], dict(spec.get("training", {}))
        refuse_unknown(grid, GRID, "[grid]")
        rates = {key: training.pop(key) for key in ("lr", "weight_decay") if key in training}
        members = tuple(
            Member(task, arch, seed=seed, data_seed=seed, **rate)
            for task in _tasks(spec["task"], _numbers(grid, "lengths"))
            for arch in _architectures(grid)
            for rate in _rates(grid, rates)
            for seed in _seeds(spec.get("seeds", 1))
        )
        return cls(members, _recipe(training), str(spec.get("name", name)), text)

    @classmethod
    def of(
        cls,
        task: Task | Sequence[Task],
        archs: Sequence[Architecture],
        lengths: Sequence[int] | None,
        seeds: int | Sequence[int],
        recipe: Recipe,
        **rates: float,
    ) -> Sweep:
        """The sweep over every task and length, architecture and seed."""
        tasks = list(task) if isinstance(task, Sequence) else [task]
        if lengths is not None:
            tasks = [dataclasses.replace(t, length=n) for t in tasks for n in lengths]  # pyright: ignore[reportArgumentType]
        members = tuple(
            Member(t, arch, seed=seed, data_seed=seed, **rates)
            for t in tasks
            for arch in archs
            for seed in _seeds(seeds)
        )
        return cls(members, recipe)


def _recipe(given: dict[str, Any]) -> Recipe:
    refuse_unknown(given, [*(f.name for f in dataclasses.fields(Recipe)), "lr", "weight_decay"], "[training]")
    for key, value in given.items():
        wanted = type(getattr(Recipe(), key))
        if not isinstance(value, wanted) and not (wanted is float and isinstance(value, int)):
            raise ValueError(f"{key} in [training] must be of type {wanted.__name__}, got {value!r}")
    return Recipe(**given)


def _tasks(section: dict[str, Any], lengths: list[int]) -> list[Task]:
    if "name" not in section:
        raise ValueError('[task] lacks a name, such as name = "LinearMax" (see `headcount tasks`)')
    if "length" in section:
        raise ValueError("[task] has a length; lengths belong into [grid] as lengths = [...]")
    rest = {k: v for k, v in section.items() if k != "name"}
    return [named(section["name"], length, **rest) for length in lengths]


def _architectures(grid: dict[str, Any]) -> list[Architecture]:
    widths, positions = _numbers(grid, "width", 32), _numbers(grid, "positions", 0)
    return [
        Architecture(layers=layers, width=width, positions=places, embed_dim=embed)
        for (layers, embed), width, places in itertools.product(_shapes(grid), widths, positions)
    ]


def _shapes(grid: dict[str, Any]) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """Every (layers, embed_dim) of the grid; at a fixed embed_dim, head_dim is its share rounded up."""
    if "shapes" in grid:
        clash = [key for key in ("heads", "head_dim", "layers") if key in grid]
        if clash:
            raise ValueError(f"[grid] gives shapes, so {clash[0]} has no meaning")
        embeds = _numbers(grid, "embed_dim", 0)
        return [(_layers(shape), embed) for shape in grid["shapes"] for embed in embeds]
    if "head_dim" in grid and "embed_dim" in grid:
        raise ValueError("[grid] gives both head_dim and embed_dim; give one, or shapes for full freedom")
    heads, depths = _numbers(grid, "heads"), _numbers(grid, "layers", 1)
    if "embed_dim" in grid:
        fixed = itertools.product(heads, _numbers(grid, "embed_dim"), depths)
        return [(((h, math.ceil(e / h)),) * depth, h * math.ceil(e / h)) for h, e, depth in fixed]
    return [(((h, n),) * depth, 0) for h, n, depth in itertools.product(heads, _numbers(grid, "head_dim", 8), depths)]


def _layers(shape: Any) -> tuple[tuple[int, int], ...]:
    """One of the grid's shapes: a text as 2x8+2x8, or a list of (heads, head_dim)."""
    return Architecture.parse(shape).layers if isinstance(shape, str) else tuple(tuple(pair) for pair in shape)


def _rates(grid: dict[str, Any], given: dict[str, Any]) -> list[dict[str, float]]:
    choices = {}
    for key in ("lr", "weight_decay"):
        if key in grid and key in given:
            raise ValueError(f"{key} stands both in [grid] and in [training]; keep one")
        if key in grid or key in given:
            value = grid[key] if key in grid else given[key]
            choices[key] = [float(v) for v in (value if isinstance(value, list) else [value])]
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def _numbers(grid: dict[str, Any], key: str, default: int | None = None) -> list[int]:
    value = grid.get(key, default)
    if value is None:
        raise ValueError(f"[grid] lacks {key}, such as {key} = [1, 2, 3]")
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int) for v in values):
        raise ValueError(f"{key} in [grid] must be a whole number or a list of them, got {value!r}")
    return list(dict.fromkeys(int(v) for v in values))


def _seeds(value: Any) -> list[int]:
    seeds = list(range(value)) if isinstance(value, int) else list(value)
    if not seeds or not all(isinstance(s, int) and s >= 0 for s in seeds):
        raise ValueError(f"seeds must be a count of at least 1 or a list of whole numbers, got {value!r}")
    return list(dict.fromkeys(seeds))
