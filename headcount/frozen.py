"""Frozen values from dictionaries and back: the one reader of what TOML and JSON describe.

`decode` builds the type it is asked for; `rebuilt` builds what a file names itself, and only from the list below:
nothing that a file says is ever imported or called by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headcount.refusals import nearest, refuse_unknown

Value = TypeVar("Value")

# The values that a file may name, by the module each lives in; a list, so that nothing loads before it is wanted.
LISTED = {
    "tasks.linear_max": ("LinearMax",),
    "tasks.lookups": ("LipschitzOuter", "Lookups", "MaxOf", "PlaceOf", "RankOf", "WellOf"),
    "tasks.opposite": ("OppositePair",),
    "tasks.pairs": ("Gaussian", "PairMax", "TriangleCentre", "UnitSphere"),
    "tasks.places": ("Induction", "PositionSum"),
    "tasks.ranks": ("KthLargest",),
    "tasks.ridges": ("Affine", "Exponential", "Ridges", "Sine", "Square"),
    "tasks.sourced": ("SourcedFunction",),
    "tasks.wells": ("Wells",),
    "certificates.domains": ("Box", "Drawn"),
    "certificates.attempts": ("AllEqual", "Ascent", "Boundary", "FewValued", "NearTies", "Random", "Ties"),
    "certificates.network": ("ClassTokenNet", "NetworkShape"),
    "certificates.parallel_parts": ("SideBySide", "SideBySideShape"),
    "tasks.ngrams": ("NGram",),
    "papers.consistency.smooth": ("Smooth",),
    "papers.consistency.networks": ("Covered", "SmootherNet", "SmootherShape"),
    "papers.icl.contexts": ("InContext", "Spectrum"),
    "papers.icl.networks": ("Conditioned", "DescentNet", "DescentShape", "Planted"),
    "papers.induction.networks": ("InductionShape", "MatchedMean", "MatchingNet"),
    "papers.hardmax.narrow": ("NarrowNet", "NarrowShape", "NarrowStage"),
    "papers.hardmax.sequence_pairs": ("EverySequence", "SequencePairs"),
    "papers.head_count.networks.worst_inputs": ("BetterOutside", "WorstTies"),
    "papers.infoflow.networks.gated": ("SplitTies",),
    "papers.infoflow.networks.induction_head": ("Runs",),
    "papers.infoflow.networks.kth_largest": ("Leader", "Spaced"),
    "papers.infoflow.networks.pair": ("NearlyOpposite",),
    "papers.infoflow.networks.pair_max": ("OneAhead",),
    "papers.infoflow.networks.positions": ("Contrast", "LeadBy"),
}
HOME = {name: f"headcount.{module}" for module, names in LISTED.items() for name in names}
RENAMED = {"Shape": "NetworkShape"}  # since 0.1.0, whose files say module:Class

BITS = 63  # of a whole number, besides its sign

NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}

_hints = cache(get_type_hints)


def decode(kind: type[Value], data: Any, where: str, *, also: Iterable[str] = ()) -> Value:
    """The frozen value of type `kind` whose fields a dictionary gives; `also` are keys that others read.

    >>> from headcount.structure import Retrieval
    >>> decode(Retrieval, {"name": "maxima", "count": 4}, "the task").count
    4
    >>> decode(Retrieval, {"name": "maxima", "cuont": 4}, "the task")
    Traceback (most recent call last):
    ...
    ValueError: unknown key 'cuont' in the task; did you mean 'count'?
    >>> decode(Retrieval, {"name": "maxima", "count": True}, "the task")
    Traceback (most recent call last):
    ...
    ValueError: count in the task must be of type int (a whole number), got True
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table of keys and values, got {_shown(data)}")
    known = {f.name: f for f in dataclasses.fields(kind) if f.init}  # pyright: ignore[reportArgumentType]
    refuse_unknown(data, [*known, *also], where)
    for name, field in known.items():
        if name not in data and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} lacks {name!r}")
    hints = _hints(kind)
    return kind(**{key: checked(hints[key], data[key], key, where) for key in data if key in known})


def checked(hint: Any, value: Any, key: str, where: str) -> Any:
    """The value if its type is the one stated, lists as tuples; otherwise a refusal that says which key, and where.

    >>> checked(tuple[int, ...], [1, 2], "heads", "[grid]")
    (1, 2)
    >>> checked(int | tuple[int, ...], [1, 2.5], "heads", "[grid]")
    Traceback (most recent call last):
    ...
    ValueError: heads in [grid] must be a whole number or a list of them, got [1, 2.5]
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return rebuilt(value, f"{key} in {where}", hint) if "is" in value else decode(hint, value, f"{key} in {where}")
    if _is_list(hint) and isinstance(value, list | tuple):
        return _items(hint, value, key, where)
    if _is_union(hint):
        return _either(hint, value, key, where)
    if getattr(hint, "_is_protocol", False) and isinstance(value, Mapping | list | str | int | float | None):
        return rebuilt(value, f"{key} in {where}", hint)
    if not _fits(hint, value):
        raise ValueError(f"{key} in {where} must be {_wanted(hint)}, got {_shown(value)}")
    if isinstance(value, int) and value.bit_length() > BITS:
        raise ValueError(f"{key} in {where} is too large for a number of {BITS} bits")
    return _tuples(value) if hint is Any else value


def field_of(data: Any, key: str, where: str) -> Any:
    """What a dictionary holds under a key that must be there.

    >>> field_of({"task": 1}, "domain", "the file")
    Traceback (most recent call last):
    ...
    ValueError: the file lacks 'domain'
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a table of keys and values, got {_shown(data)}")
    if key not in data:
        raise ValueError(f"{where} lacks {key!r}")
    return data[key]


def name_of(cls: type) -> str:
    """`module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def short_name(cls: type) -> str:
    """The name under which a listed class stands in files; a stranger's keeps its module.

    >>> from headcount.certificates.domains import Box
    >>> short_name(Box)
    'Box'
    """
    if HOME.get(cls.__qualname__) == cls.__module__:
        return cls.__qualname__
    if cls.__module__.startswith("headcount."):
        raise ValueError(f"{cls.__qualname__} cannot be saved: headcount/frozen.py does not list it")
    return name_of(cls)


def plain(value: Any, name: Callable[[type], str] = short_name) -> Any:
    """A frozen value as JSON: the name of its class and the values of its fields.

    >>> from headcount.certificates.domains import Box
    >>> plain(Box(4, 2, 0.0, 1.0))
    {'is': 'Box', 'length': 4, 'token_dim': 2, 'low': 0.0, 'high': 1.0}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name), name) for f in dataclasses.fields(value)}
        return {"is": name(type(value)), **fields}
    if isinstance(value, tuple | list):
        return [plain(v, name) for v in value]
    return value


def rebuilt(data: Any, where: str = "the file", kind: Any = object) -> Any:
    """The listed value that `plain` described, which must be a `kind` where one is asked for.

    >>> rebuilt({"is": "Box", "length": 4, "token_dim": 2, "low": 0.0, "high": 1.0})
    Box(length=4, token_dim=2, low=0.0, high=1.0)
    >>> rebuilt({"is": "headcount.files:whole", "path": "x"})
    Traceback (most recent call last):
    ...
    ValueError: the file names 'headcount.files:whole', which is no value that a file may hold
    """
    cls = class_named(field_of(data, "is", where))
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ValueError(f"{where} names {data['is']!r} where a value should stand")
    value = decode(cls, {key: v for key, v in data.items() if key != "is"}, f"{where}, {data['is']}")
    if not isinstance(value, kind):
        raise ValueError(f"{where} must be {_named(kind)}, got {data['is']}")
    return value


def class_named(name: Any) -> Any:
    """The listed class that a file names, as Box or as headcount.constructions.domains:Box, as 0.1.0 wrote it."""
    if not isinstance(name, str):
        raise ValueError(f"the file names its values by text, got {_shown(name)}")
    module, colon, short = name.rpartition(":")
    if colon and not module.startswith("headcount."):
        raise ValueError(f"the file names {name!r}, which is not part of headcount; give your own task as task=...")
    short = RENAMED.get(short, short)
    if short not in HOME:
        hint = "" if colon else f"; {nearest(short, HOME)}"
        raise ValueError(f"the file names {name!r}, which is no value that a file may hold{hint}")
    return getattr(importlib.import_module(HOME[short]), short)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in (tuple, list, Sequence)


def _items(hint: Any, value: Sequence[Any], key: str, where: str) -> Any:
    kinds = get_args(hint)
    if get_origin(hint) is tuple and kinds[-1] is not Ellipsis:
        if len(value) != len(kinds):
            raise ValueError(f"{key} in {where} must be {_wanted(hint)}, got {_shown(value)}")
    else:
        kinds = (kinds[0],) * len(value)
    items = [checked(kind, v, f"{key}[{i}]", where) for i, (kind, v) in enumerate(zip(kinds, value, strict=True))]
    return items if get_origin(hint) is list else tuple(items)


def _either(hint: Any, value: Any, key: str, where: str) -> Any:
    for kind in get_args(hint):
        if isinstance(value, Mapping) and dataclasses.is_dataclass(kind):
            return checked(kind, value, key, where)
        with contextlib.suppress(ValueError):
            return checked(kind, value, key, where)
    raise ValueError(f"{key} in {where} must be {_wanted(hint)}, got {_shown(value)}")


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value has the type stated; a bare type that we do not know lets everything in."""
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is None or hint is type(None):
        return value is None
    if hint in (str, bool):
        return isinstance(value, hint)
    if (get_origin(hint) or hint) in (dict, Mapping):
        return isinstance(value, Mapping)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return isinstance(value, hint)
    return not _is_list(hint)


def _wanted(hint: Any) -> str:
    """What would be right, in words.

    >>> _wanted(tuple[str, ...]), _wanted(int | None)
    ('a list of text', 'a whole number')
    """
    if hint in NOUNS:
        return f"of type {hint.__name__} ({NOUNS[hint]})"
    return _noun(hint)


def _noun(hint: Any) -> str:
    if hint in NOUNS:
        return NOUNS[hint]
    if _is_union(hint):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return " or ".join(_listed(kind, kinds) for kind in kinds)
    if get_origin(hint) is tuple and get_args(hint)[-1] is not Ellipsis:
        return f"a list of {len(get_args(hint))}: {', '.join(map(_noun, get_args(hint)))}"
    if _is_list(hint):
        return f"a list of {_many(get_args(hint)[0])}"
    return "a table of keys and values" if (get_origin(hint) or hint) in (dict, Mapping) else _named(hint)


def _listed(kind: Any, beside: list[Any]) -> str:
    """A list beside the same without brackets is a list of them."""
    return "a list of them" if _is_list(kind) and get_args(kind)[0] in beside else _noun(kind)


def _many(hint: Any) -> str:
    many = {int: "whole numbers", float: "numbers"}
    if dataclasses.is_dataclass(hint):
        return f"tables, each {_named(hint)}"
    return many.get(hint) or ("lists" if _is_list(hint) else _noun(hint))


def _named(hint: Any) -> str:
    name = getattr(hint, "__name__", str(hint))
    return f"a{'n' if name[:1] in 'AEIOU' else ''} {name}"


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 4 * BITS else "a very large number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
