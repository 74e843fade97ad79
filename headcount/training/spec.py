"""A sweep as a small TOML file: task, grid, seeds, training. A misspelt key is refused with the nearest right one."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.files import text_in
from headcount.frozen import checked, decode
from headcount.kernels.bank import Network
from headcount.kernels.rate_schedule import schedule_named
from headcount.nets import Architecture
from headcount.nets.causal import DecoderShape, Places
from headcount.refusals import RefusalError, at_least_one, refuse_unknown
from headcount.structure import Structure
from headcount.tasks import Task, named, sentence
from headcount.tasks.catalogue import on_lengths
from headcount.tasks.letters import Lengths, OnLengths
from headcount.training.member import Member, Recipe
from headcount.training.rate_search import ChosenRates, RateSearch
from headcount.training.strings import string_recipe

MOST_NETWORKS = 1_000_000
MOST_LAYERS = 1000
RATES = ("lr", "weight_decay")
WIDTH = 32  # hidden units, where a spec does not say
STRINGS = {"fresh": True, "keep": "last", "stop": "never"}  # how strings are trained on, where a spec does not say
BEST = "best"  # for lr: the rate is chosen per shape, see RateSearch
Counts = int | tuple[int, ...]
Rates = float | tuple[float, ...]


@dataclass(frozen=True)
class _Grid:
    """The [grid] of a spec: what varies, each as one value or a list of them."""

    lengths: Counts | None = None
    heads: Counts | None = None
    head_dim: Counts | None = None
    embed_dim: Counts | None = None
    width: Counts | None = None
    layers: Counts | None = None
    shapes: tuple[str | tuple[tuple[int, int], ...], ...] | None = None
    positions: Counts = 0
    places: Places = "absolute"
    lr: Rates | None = None
    weight_decay: Rates | None = None


@dataclass(frozen=True)
class _Spec:
    """The sections of a spec as they stand in its file."""

    task: dict[str, object]
    grid: _Grid
    name: str = ""
    seeds: Counts = 1
    training: dict[str, object] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """What a sweep asks for: every member, and the recipe they share.

    With a `search` the rate of every shape is looked for first; `chosen` is what a search has found. `shapes` is what
    theory says of each architecture, where somebody asked it.

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
    search: RateSearch | None = None
    chosen: ChosenRates | None = None
    shapes: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("the grid is empty: nothing to train")

    @property
    def structure(self) -> Structure | None:
        """What the task asks, when all members ask the same but for the length."""
        if any(isinstance(m.task, OnLengths) for m in self.members):
            return None  # what a decoder must look up is not counted in tokens
        tasks = dict.fromkeys(m.drawn for m in self.members)  # many members, few tasks
        structures = {dataclasses.replace(task.structure, length=1_000_000) for task in tasks}
        return self.members[0].drawn.structure if len(structures) == 1 else None

    def to_json(self) -> dict[str, object]:
        """The spec as it is stored beside the rows."""
        structure, first = self.structure, self.members[0]
        task = first.task if isinstance(first.task, OnLengths) else first.drawn
        return {
            "structure": structure.to_json() if structure is not None else None,
            "target": sentence(task),
            "domain": task.domain,
            "recipe": self.recipe.as_dict(),
            "toml": self.source,
            **({"level": "cross-entropy"} if isinstance(task, OnLengths) else {}),
            **({} if self.chosen is None else {"rate_search": self.chosen.to_json()}),
            **({"shapes": self.shapes} if self.shapes else {}),
        }

    def started(self, start: Callable[[Task, Architecture], Any], shapes: Mapping[str, object]) -> Sweep:
        """The sweep with every member once more that `start` knows a network for, beginning from it."""
        known = {(m.drawn, m.arch): start(m.drawn, m.arch) is not None for m in self.members}
        built = [dataclasses.replace(m, start="built") for m in self.members if known[m.drawn, m.arch]]
        return dataclasses.replace(self, members=(*self.members, *built), shapes=shapes)

    @classmethod
    def read(cls, path: str | Path) -> Sweep:
        """The sweep that a TOML file describes, named after the file unless it names itself."""
        path = Path(path)
        beside = str(path.absolute().parent)  # a task of the user's own may stand there
        if beside not in sys.path:
            sys.path.append(beside)
        try:
            return cls.from_toml(text_in(path, "utf-8-sig"), name=path.stem)
        except (ValueError, UnicodeDecodeError) as problem:
            raise RefusalError(f"{path}: {problem}") from None
        except RecursionError:
            raise RefusalError(f"{path}: it is nested too deeply to be a spec") from None

    @classmethod
    def from_toml(cls, text: str, name: str = "sweep") -> Sweep:
        """The sweep that TOML text describes."""
        spec = _sections(tomllib.loads(text))
        search = RateSearch() if spec.training.get("lr") == BEST else None
        if search is not None:
            _refuse_twice(spec.grid, "lr")
            del spec.training["lr"]
        training = {k: v for k, v in spec.training.items() if k not in RATES}
        if "schedule" in training:
            training["schedule"] = schedule_named(training["schedule"], "[training]")
        rates, letters = _rates(spec.grid, spec.training), "train" in spec.task
        recipe = decode(Recipe, {**(STRINGS if letters else {}), **training}, "[training]", also=RATES)
        lengths = [] if letters else _numbers(spec.grid, "lengths")
        refuse_too_many(lengths or [0], _shapes(spec.grid), _widths(spec.grid), rates, _count(spec.seeds))
        tasks = [_letter_task(spec)] if letters else _tasks(spec.task, lengths)
        members = (
            dataclasses.replace(Member(task, net, seed, seed), **rate)
            for task in tasks
            for net in _networks(spec.grid, task)
            for rate in rates
            for seed in _seeds(spec.seeds)
        )
        return cls(tuple(dict.fromkeys(members)), recipe, _folder_name(spec.name or name), text, search)

    @classmethod
    def of(
        cls,
        task: Task | Sequence[Task],
        archs: Sequence[Architecture | Network],
        seeds: int | Sequence[int],
        recipe: Recipe,
        *,
        lr: float | Sequence[float] | str | RateSearch = 3e-3,
        weight_decay: float = 1e-4,
        base: Architecture | None = None,
    ) -> Sweep:
        """The sweep over every task, architecture, rate and seed; `lr="best"` looks for the rate first."""
        tasks = list(task) if isinstance(task, Sequence) else [task]
        if recipe == Recipe() and isinstance(tasks[0], OnLengths):
            recipe = string_recipe()
        search, rates = _search_and_rates(lr)
        members = tuple(
            Member(t, arch, seed=seed, data_seed=seed, lr=rate, weight_decay=weight_decay, base=base)
            for t in tasks
            for arch in archs
            for rate in rates
            for seed in _seeds(seeds)
        )
        return cls(tuple(dict.fromkeys(members)), recipe, search=search)


def _search_and_rates(lr: float | Sequence[float] | str | RateSearch) -> tuple[RateSearch | None, list[float]]:
    """The search and the rates that an `lr` asks for."""
    if isinstance(lr, RateSearch):
        return lr, [Member.lr]
    if isinstance(lr, str):
        if lr != BEST:
            raise ValueError(f'lr is a rate, several, or "best"; got {lr!r}')
        return RateSearch(), [Member.lr]
    return None, [float(rate) for rate in (lr if isinstance(lr, Sequence) else [lr])]


def refuse_too_many(*choices: Sequence[Any] | range) -> None:
    """Refuse a grid of more networks than anybody can mean, before any of them is made."""
    count = math.prod(map(len, choices))
    if count > MOST_NETWORKS:
        raise RefusalError(f"the grid asks for {count:,} networks; at most {MOST_NETWORKS:,} make a sweep")


def _folder_name(name: str) -> str:
    """The name, which is that of a folder in runs/ too: of letters, digits, spaces and -_.+=,@ alone."""
    if not re.fullmatch(r"\w[\w .+=,@-]{0,99}", name) or name != name.strip():
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise RefusalError(
            f"name must be up to 100 letters, digits, spaces or -_.+=,@ that name a folder, got {shown!r}"
        )
    return name


def _sections(data: dict[str, Any]) -> _Spec:
    refuse_unknown(data, [f.name for f in dataclasses.fields(_Spec)], "the spec")
    for section in ("task", "grid"):
        if not isinstance(data.get(section), dict):
            raise ValueError(f"the spec lacks a [{section}] section; the help of `headcount sweep` shows one")
    _refuse_pairs(data["grid"].get("shapes"))
    return decode(_Spec, {**data, "grid": decode(_Grid, data["grid"], "[grid]")}, "the spec")


def _refuse_pairs(shapes: Any) -> None:
    """Refuse shapes one bracket short: a pair is a layer, and a shape is a list of them."""
    listed = shapes if isinstance(shapes, list) else []
    if any(isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape) for shape in listed):
        right = "each shape is a list of layers, as in shapes = [[[1, 4]], [[2, 4], [2, 4]]]"
        raise RefusalError(f"shapes in [grid] is one bracket short, got {str(shapes)[:60]}; {right}")


def _tasks(section: dict[str, object], lengths: list[int]) -> list[Task]:
    if "name" not in section:
        raise ValueError('[task] lacks a name, such as name = "LinearMax" (see `headcount tasks`)')
    if not isinstance(section["name"], str):
        raise RefusalError(f"name in [task] must be text, got {str(section['name'])[:60]}")
    if "length" in section:
        raise ValueError("[task] has a length; lengths belong into [grid] as lengths = [...]")
    rest = {k: v for k, v in section.items() if k != "name"}
    return [named(section["name"], length, **rest) for length in lengths]


def _letter_task(spec: _Spec) -> OnLengths:
    """The letter task of a spec, which states the lengths to train on and to test in [task]."""
    if spec.grid.lengths is not None:
        raise ValueError("[task] states the lengths to train on, so lengths in [grid] has no meaning")
    rest = {k: v for k, v in spec.task.items() if k not in ("name", "train", "tests", "offsets")}
    ranges = checked(Lengths, spec.task["train"], "train", "[task]")
    tests = checked(tuple[Lengths, ...], spec.task.get("tests", []), "tests", "[task]")
    offsets = checked(bool, spec.task.get("offsets", True), "offsets", "[task]")
    return on_lengths(str(spec.task.get("name", "")), train=ranges, tests=tests, offsets=offsets, **rest)


def _networks(grid: _Grid, task: Task | OnLengths) -> Sequence[Architecture | Network]:
    return _decoders(grid, task) if isinstance(task, OnLengths) else _architectures(grid)


def _decoders(grid: _Grid, task: OnLengths) -> list[DecoderShape]:
    """The decoders of the grid: feed-forwards four times as wide as the state, unless widths are given."""
    return [
        DecoderShape(layers, state, width or 4 * state, task.token_dim, task.longest, grid.places)
        for layers, embed in _shapes(grid)
        for state in [embed or max(h * n for h, n in layers)]
        for width in (_numbers(grid, "width") if grid.width is not None else [0])
    ]


def _architectures(grid: _Grid) -> list[Architecture]:
    return [
        Architecture(layers=layers, width=width, positions=places, embed_dim=embed)
        for (layers, embed), (width, places) in itertools.product(_shapes(grid), _widths(grid))
    ]


def _widths(grid: _Grid) -> list[tuple[int, int]]:
    widths = [WIDTH] if grid.width is None else _numbers(grid, "width")
    return list(itertools.product(widths, _numbers(grid, "positions")))


def _shapes(grid: _Grid) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """Every (layers, embed_dim) of the grid; at a fixed embed_dim, head_dim is its share rounded up."""
    if grid.shapes is not None:
        clash = [key for key in ("heads", "head_dim", "layers") if getattr(grid, key) is not None]
        if clash:
            raise ValueError(f"[grid] gives shapes, so {clash[0]} has no meaning")
        embeds = _numbers(grid, "embed_dim") if grid.embed_dim is not None else [0]
        return [(_layers(shape), embed) for shape in grid.shapes for embed in embeds]
    if grid.head_dim is not None and grid.embed_dim is not None:
        raise ValueError("[grid] gives both head_dim and embed_dim; give one, or shapes for full freedom")
    heads, depths = _numbers(grid, "heads"), [1] if grid.layers is None else _numbers(grid, "layers")
    at_least_one(layers=min(depths))
    if max(depths) > MOST_LAYERS:
        raise RefusalError(f"layers in [grid] must be at most {MOST_LAYERS}, got {max(depths)}")
    if grid.embed_dim is not None:
        at_least_one(heads=min(heads))
        fixed = itertools.product(heads, _numbers(grid, "embed_dim"), depths)
        return [(((h, math.ceil(e / h)),) * depth, h * math.ceil(e / h)) for h, e, depth in fixed]
    head_dims = [8] if grid.head_dim is None else _numbers(grid, "head_dim")
    return [(((h, n),) * depth, 0) for h, n, depth in itertools.product(heads, head_dims, depths)]


def _layers(shape: str | tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """One of the grid's shapes: a text as 2x8+2x8, or a list of (heads, head_dim)."""
    return Architecture.parse(shape).layers if isinstance(shape, str) else shape


def _rates(grid: _Grid, training: dict[str, object]) -> list[dict[str, float]]:
    choices = {}
    for key in RATES:
        rates = getattr(grid, key)
        if key in training:
            _refuse_twice(grid, key)
            rates = checked(Rates, training[key], key, "[training]")
        if rates is not None:
            choices[key] = list(dict.fromkeys(map(float, rates if isinstance(rates, tuple) else [rates])))
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def _refuse_twice(grid: _Grid, key: str) -> None:
    if getattr(grid, key) is not None:
        raise ValueError(f"{key} stands both in [grid] and in [training]; keep one")


def _numbers(grid: _Grid, key: str) -> list[int]:
    """The whole numbers of one key, each once."""
    value = getattr(grid, key)
    if value is None:
        raise ValueError(f"[grid] lacks {key}, such as {key} = [1, 2, 3]")
    if value == ():
        raise ValueError(f"{key} in [grid] must be a whole number or a list of them, got []")
    return list(dict.fromkeys(value if isinstance(value, tuple) else (value,)))


def _count(seeds: int | Sequence[int]) -> Sequence[int]:
    return range(min(seeds, 2 * MOST_NETWORKS)) if isinstance(seeds, int) else seeds


def _seeds(value: int | Sequence[int]) -> list[int]:
    seeds = list(range(value)) if isinstance(value, int) else list(value)
    if not seeds or not all(isinstance(s, int) and s >= 0 for s in seeds):
        raise ValueError(f"seeds must be a count of at least 1 or a list of whole numbers, got {value!r}")
    return list(dict.fromkeys(seeds))
