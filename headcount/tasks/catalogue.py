"""Tasks by name, for files and the command line: those that ship, and a user's own as `module:Class`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from headcount.frozen import checked, name_of, plain
from headcount.limits import refuse_sizes
from headcount.refusals import nearest, refuse_unknown
from headcount.tasks.alternation import Alternation
from headcount.tasks.copies import Copy
from headcount.tasks.languages import Dyck, Majority, Parity, Recognition, Spoken, letter_task_of
from headcount.tasks.letters import Lengths, OnLengths
from headcount.tasks.linear_max import LinearMax
from headcount.tasks.neighbours import Neighbour
from headcount.tasks.opposite import OppositePair
from headcount.tasks.pairs import Gaussian, PairMax, TriangleCentre, UnitSphere
from headcount.tasks.places import Induction, PositionSum
from headcount.tasks.ranks import KthLargest
from headcount.tasks.task import Task
from headcount.tasks.wells import Wells

SHIPPED = (LinearMax, Wells, PairMax, OppositePair, TriangleCentre, KthLargest, PositionSum, Induction)
LETTERS = (Neighbour, Copy, Alternation, Majority, Dyck, Parity, Spoken)
TOKENS = {"gaussian": Gaussian(), "sphere": UnitSphere()}

# What a task is taken with where only its name is given: its fields, or the sizes of a drawn one.
TYPICAL: dict[str, dict[str, object]] = {
    "Wells": {"retrievals": 4, "token_dim": 2, "seed": 0},
    "LinearMax": {"retrievals": 4, "token_dim": 2, "seed": 0},
    "PairMax": {"retrievals": 1, "token_dim": 2, "seed": 0},
    "KthLargest": {"rank": 2},
    "PositionSum": {"positions": (0, 1, 2)},
    "Induction": {"vocab": 8},
}


def typical(name: str, given: Mapping[str, Any]) -> dict[str, object]:
    """What is given, and for what is left open the values of `TYPICAL`; a task given by its fields is not drawn.

    >>> typical("KthLargest", {}), typical("LinearMax", {"retrievals": 2})
    ({'rank': 2}, {'retrievals': 2, 'token_dim': 2, 'seed': 0})
    >>> typical("LinearMax", {"directions": ((1.0, 0.0),)})
    {'directions': ((1.0, 0.0),)}
    """
    usual = TYPICAL.get(name, {})
    needed = {f.name for f in dataclasses.fields(_class(name)) if f.default is dataclasses.MISSING}
    return dict(given) if "retrievals" in usual and needed & set(given) else {**usual, **given}


def named(name: str, /, length: int, **parameters: Any) -> Task:
    """The task `name` at `length`: by its fields, or drawn by its `random` when only sizes and a seed are given.

    >>> named("KthLargest", length=8, rank=2)
    KthLargest(rank=2, length=8)
    >>> named("LinearMax", length=8, retrievals=3, token_dim=4).structure.count
    3
    >>> named("LinearMex", length=8)
    Traceback (most recent call last):
    ...
    ValueError: unknown task 'LinearMex'; did you mean 'LinearMax'?
    """
    make = _maker(_class(name), parameters)
    accepted = {key: p for key, p in inspect.signature(make).parameters.items() if key != "length"}
    known = list(accepted)
    refuse_unknown(parameters, known, f"task {name}")
    missing = [key for key, p in accepted.items() if p.default is p.empty and key not in parameters]
    if missing:
        drawn = hasattr(make, "random")  # the class itself: nobody asked for a random one yet
        instead = ", or retrievals and token_dim to draw one" if drawn else ""
        raise ValueError(f"task {name} needs {' and '.join(missing)}{instead}; it takes {', '.join(known)}")
    if isinstance(parameters.get("tokens"), str):
        chosen = parameters["tokens"]
        if chosen not in TOKENS:
            raise ValueError(f"tokens of task {name} must be one of {', '.join(TOKENS)}; got {chosen!r}")
        parameters = {**parameters, "tokens": TOKENS[chosen]}
    refuse_sizes(parameters, f"task {name}")
    try:
        return make(length=length, **_typed(make, parameters, name))
    except TypeError as problem:
        raise ValueError(f"task {name}: {problem}; it takes {', '.join(known)}") from None


def on_lengths(
    name: str, /, train: Lengths, tests: tuple[Lengths, ...] = (), offsets: bool = True, **parameters: Any
) -> OnLengths:
    """The letter task or language `name`, one that ships or a user's own `module:Class`, on these lengths.

    >>> on_lengths("Neighbour", train=(4, 12), side="left").task
    Neighbour(side='left', which='only', letters=5, length=16)
    >>> on_lengths("Nieghbour", train=(4, 12))
    Traceback (most recent call last):
    ...
    ValueError: unknown task 'Nieghbour'; did you mean 'Neighbour'?
    """
    make = _class(name, LETTERS)
    refuse_unknown(parameters, [f.name for f in dataclasses.fields(make)], f"task {name}")
    return OnLengths(letter_task_of(_made(make, parameters, name), name), train, tests, offsets)


def _made(make: Any, parameters: dict[str, object], name: str) -> Any:
    try:
        return make(**_typed(make, parameters, name))
    except TypeError as problem:
        raise ValueError(f"task {name}: {problem}") from None


def describe(task: Any) -> dict[str, object]:
    """Everything that makes a task what it is, ready for JSON: its class and the values of its fields.

    >>> describe(KthLargest(rank=2, length=8))
    {'is': 'headcount.tasks.ranks:KthLargest', 'rank': 2, 'length': 8}
    """
    return plain(task, name_of)  # with its module: part of the address of every row ever stored


def sentence(task: Task | OnLengths) -> str:
    """The task's target in one sentence: the first of its docstring.

    >>> sentence(KthLargest(rank=2, length=8))
    'The k-th largest of the tokens, which are numbers in [0, 1]'
    """
    inner = task.task if isinstance(task, OnLengths) else task
    kind = type(inner.language if isinstance(inner, Recognition) else inner)
    text = " ".join((kind.__doc__ or kind.__name__).split("\n\n")[0].split())
    return re.split(r"(?<=[^.])\.(?:\s|$)", text)[0]


def catalogue() -> list[dict[str, object]]:
    """A row for each task that ships: its name, its target, what it looks up and how it is given."""
    examples = (
        LinearMax.random(4, 4, 32),
        Wells.random(2, 2, 32),
        PairMax.random(2, 4, 32),
        OppositePair(32),
        TriangleCentre(32),
        KthLargest(2, 32),
        PositionSum((0, 1, 2), 32),
        Induction(8, 32),
    )
    return [
        {
            "task": type(task).__name__,
            "target": sentence(task),
            "looks up": _words(task),
            "domain": task.domain,
            "fields": [f.name for f in dataclasses.fields(type(task))],
            "structure": task.structure.to_json(),
        }
        for task in examples
    ]


def _class(name: str, known: tuple[type, ...] = SHIPPED) -> Any:
    shipped = {c.__name__: c for c in known}
    if name in shipped:
        return shipped[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"unknown task {name!r}; {nearest(name, shipped)}")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ValueError(f"task {name!r} cannot be imported: {problem}") from None
    if not dataclasses.is_dataclass(kind):
        raise ValueError(f"task {name!r} is not a frozen dataclass; see examples/own_task.py")
    return kind


def _maker(cls: Any, parameters: dict[str, object]) -> Callable[..., Task]:
    drawn = getattr(cls, "random", None)
    return drawn if drawn is not None and "retrievals" in parameters else cls


def _typed(make: Callable[..., Task], parameters: dict[str, object], name: str) -> dict[str, object]:
    """The parameters with the types that the class or its `random` states."""
    try:
        hints = get_type_hints(make)
    except NameError:  # a user's own task may name types that are there for its editor only
        hints = {}
    return {key: checked(hints.get(key, Any), value, key, f"task {name}") for key, value in parameters.items()}


def _words(task: Task) -> str:
    parts = []
    for r in task.structure.retrievals:
        if r.positions:
            parts.append(f"position {', '.join(map(str, r.positions))}")
            continue
        what = {1: "largest", 2: "best pair", 3: "best triple"}[r.order]
        rank = f"rank {r.rank}" if r.rank > 1 else what
        parts.append(f"{r.count} x {rank}" if r.count > 1 else rank)
    return "; ".join(dict.fromkeys(parts))
