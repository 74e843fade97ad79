"""A study: the measured rows of one sweep, with the spec and the environment that produced them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict, cast, get_args, get_origin, get_type_hints

from headcount.files import strict_json, write_text
from headcount.frozen import checked
from headcount.notebook import html_table, html_words, within_columns
from headcount.numerals import counted, listed, short
from headcount.structure import Structure
from headcount.visible import plain_cell

SHAPE = ("length", "layers", "width")  # what tells the cells of a study apart, in a notebook


class UnusualColumns(TypedDict, total=False):
    """Columns that a row has only where its training is not the usual one."""

    schedule: str
    batch: int
    noise: float
    read_out: float
    factors: str
    start: str


class PlannedRow(TypedDict):
    """The columns of a row that are known before training."""

    run: Annotated[str, "content address of the member: the hash of everything that determines it"]
    task: Annotated[str, "name of the task's class"]
    length: Annotated[int, "tokens in a sequence"]
    heads: Annotated[int, "heads of the layer with fewest"]
    head_dim: Annotated[int, "dimension of a head in that layer"]
    layers: Annotated[str, "every layer as heads x head_dim, first to last"]
    embed_dim: Annotated[int, "width of the residual stream"]
    width: Annotated[int, "hidden size of the feed-forwards"]
    positions: Annotated[int, "position features given to the encoder"]
    parameters: Annotated[int, "all trainable numbers"]
    feedforward_parameters: Annotated[int, "those of the feed-forwards, as the head-count paper counts them"]
    seed: Annotated[int, "seed of the initial weights and of the order of batches"]
    data_seed: Annotated[int, "seed of the training and validation samples"]
    lr: Annotated[float, "peak learning rate"]
    weight_decay: Annotated[float, "decoupled weight decay"]
    steps: Annotated[int, "optimiser steps asked for"]
    schedule: NotRequired[Annotated[str, "how the rate runs over the steps, where it is no cosine"]]
    batch: NotRequired[Annotated[int, "samples in a step, where the schedule is no cosine"]]
    noise: NotRequired[Annotated[float, "noise in the training targets, in their spreads, where there is any"]]
    read_out: NotRequired[Annotated[float, "what multiplied the start of the read-out's last matrix, where not 1"]]
    factors: NotRequired[Annotated[str, "the base whose factors rate and start follow, where there is one"]]
    start: NotRequired[Annotated[str, "built, where training went on from a certified network"]]
    source: NotRequired[Annotated[str, "hash of the file of a task of the user's own"]]


class Row(PlannedRow):
    """One trained network: every column with its type and what it means, stated here alone.

    A row is a dictionary, so it travels as JSON and may carry more columns than these. Networks that are judged by what
    they say have their loss under `nmse`, as the spec's "level" names it, and the accuracies beside it.
    """

    nmse: Annotated[float, "smallest validation MSE / variance of the target"]
    final_nmse: Annotated[float, "the same at the last evaluation"]
    train_nmse: Annotated[float, "training MSE / variance, at the smallest validation value"]
    best_step: Annotated[int, "the step of that smallest value"]
    status: Annotated[str, "done, frozen (stopped early) or diverged"]
    backend: NotRequired[Annotated[str, "which implementation trained it"]]
    loss: NotRequired[Annotated[float, "cross-entropy of what is to be said, on the lengths trained on"]]
    token_accuracy: NotRequired[Annotated[float, "share of answers that are right there"]]
    string_accuracy: NotRequired[Annotated[float, "share of strings all of whose answers are right there"]]
    tests: NotRequired[Annotated[list, "the same three for every range of lengths"]]
    curve: NotRequired[Annotated[list, "the same three at every evaluation"]]
    accuracy: NotRequired[Annotated[float, "share of unseen examples labelled right"]]
    train_accuracy: NotRequired[Annotated[float, "share of the examples trained on labelled right"]]
    validation_nmse: NotRequired[Annotated[float, "NMSE on what a choice is made by, where nmse is a test apart"]]
    worst_lower: NotRequired[Annotated[float, "largest |network - target| met over the domain, in the target's units"]]
    worst_upper: NotRequired[
        Annotated[float, "an upper bound of |network - target| over the domain, from the search of a certificate"]
    ]
    error_rate: NotRequired[Annotated[float, "for classes, the share of the validation set that is named wrongly"]]


class Column(NamedTuple):
    """A column of a row: its name, the type of its values, and what they mean."""

    name: str
    type: type
    meaning: str


def _columns() -> dict[str, Column]:
    bare, stated = get_type_hints(Row), get_type_hints(Row, include_extras=True)
    return {name: Column(name, bare[name], _meaning(hint)) for name, hint in stated.items()}


def _meaning(hint: Any) -> str:
    return _meaning(get_args(hint)[0]) if get_origin(hint) is NotRequired else get_args(hint)[1]


COLUMNS = _columns()


# What every row of a study has where its first one has it: tables and fits go through these.
CORE = ("heads", "length", "layers", "width", "nmse", "final_nmse", "train_nmse")


def as_row(data: Any, where: str, first: Any = None) -> Row:
    """A row as JSON brought it back: its known columns have the types stated, others pass. Null is no error yet.

    What the study's `first` row has of the columns that everything reads, this one has too.

    >>> as_row({"heads": 4, "nmse": None}, "row 0")
    {'heads': 4, 'nmse': None}
    >>> as_row({"heads": "four"}, "row 0")
    Traceback (most recent call last):
    ...
    ValueError: heads in row 0 must be of type int (a whole number), got 'four'
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table of columns, got {data!r}")
    for name in data.keys() & COLUMNS.keys():
        kind, value = COLUMNS[name].type, data[name]
        if (kind is float and value is None) or (kind is int and isinstance(value, bool)):  # 0.1.0 wrote positions so
            continue
        checked(kind, value, name, where)
    for name in CORE:
        if name not in data and name in (first or ()):
            raise ValueError(f"{where} lacks {name!r}, which others have")
    return cast(Row, data)


USUAL = {float: {float, int, type(None)}, int: {int, bool}}
FAST = {name: USUAL.get(column.type, {column.type}) for name, column in COLUMNS.items()}
LARGEST = 2**63  # a whole number from here on is looked at by itself


def as_rows(text: str, where: str, first: Row | None = None) -> list[Row]:
    """The rows of a JSON list that a store put together, as `as_row` wants them; columns are looked at together."""
    rows = json.loads(text)
    if not rows:
        return []
    first = rows[0] if first is None else first
    if not (isinstance(first, dict) and all(type(row) is dict for row in rows)):
        return [as_row(row, f"a row of {where}", first) for row in rows]
    if all(_usual([row.get(name, ()) for row in rows], types) for name, types in FAST.items() if name in first):
        return rows
    return [as_row(row, f"a row of {where}", first) for row in rows]


def _usual(values: list[Any], types: set[type]) -> bool:
    """Whether the values of a column have its types, and no whole number is one that no machine holds."""
    kinds = set(map(type, values))
    if int not in kinds:
        return kinds <= types
    integers = values if len(kinds) == 1 else [value for value in values if type(value) is int]
    return kinds <= types and max(integers) < LARGEST and min(integers) > -LARGEST


# What pages and fits read of a spec, by the keys that lead there: a file may hold more, and nothing else under these.
READ_OF_SPEC: dict[tuple[str, ...], Any] = {
    ("toml",): str,
    ("asked",): int,
    ("damaged",): int,
    ("measured",): bool,
    ("level",): str,
    ("given_up",): str,
    ("validation",): float,
    ("baselines",): list[dict],
    ("data",): dict,
    ("data", "name"): str,
    ("data", "sequences"): str,
    ("data", "tokens"): str,
    ("data", "target"): str,
    ("data", "notes"): list[str],
    ("plan",): dict,
    ("plan", "layers"): int,
    ("plan", "steps"): int | None,  # None: as the time allows
    ("plan", "seeds"): int,
    ("plan", "width"): int,
    ("plan", "embed_dim"): int,
    ("plan", "batch"): int,
}
READ_OF_BASELINE = {"name": str, "level": float, "error_rate": float | None}


def as_spec(data: Any, where: str) -> dict[str, Any]:
    """A spec as JSON brought it back: a table, and what is read of it has the types it was written with.

    >>> as_spec({"toml": "", "own": 1}, "the spec")
    {'toml': '', 'own': 1}
    >>> as_spec({"plan": {"layers": "many"}}, "the spec")
    Traceback (most recent call last):
    ...
    ValueError: layers in the spec must be of type int (a whole number), got 'many'
    """
    table = as_table(data, where)
    for keys, kind in READ_OF_SPEC.items():
        inner: Any = table
        for key in keys[:-1]:
            inner = inner.get(key, {})
        if keys[-1] in inner:
            checked(kind, inner[keys[-1]], keys[-1], where)
    for base in table.get("baselines", ()):
        for key, kind in READ_OF_BASELINE.items():
            checked(kind, base.get(key), key, f"a baseline of {where}")
    return table


def as_table(data: Any, where: str) -> dict[str, Any]:
    """A table of keys and values, or a refusal."""
    return checked(dict, data, "the content", where)


@dataclass(frozen=True, repr=False)
class Study:
    """Rows in, pictures out: everything a table, a fit or a page needs, and no tensors.

    `nmse` of a diverged member is the best value seen before it diverged, or infinity. `networks` finds the network of
    a row, where they were kept.

    >>> study = Study(rows=({"heads": 1, "length": 8, "seed": 0, "nmse": 0.1},
    ...                     {"heads": 2, "length": 8, "seed": 0, "nmse": 1e-5}))
    >>> study.values("heads")
    (1, 2)
    >>> [row["nmse"] for row in study.where(heads=2)]
    [1e-05]
    """

    rows: tuple[Row, ...]
    spec: dict[str, Any] = field(default_factory=dict, hash=False)
    environment: dict[str, Any] = field(default_factory=dict, hash=False)
    name: str = "study"
    networks: Callable[[Row], Any] | None = field(default=None, repr=False, compare=False, hash=False)

    def __repr__(self) -> str:
        return within_columns(f"<Study {self.name!r}: {self.sentence}>")

    def _repr_html_(self) -> str:
        cells: dict[tuple[Any, ...], list[float]] = {}
        for row in self.rows:
            cells.setdefault(tuple(row.get(name) for name in SHAPE), []).append(error_of(row))
        rows = [(*key, len(v), min(v), sorted(v)[len(v) // 2]) for key, v in sorted(cells.items(), key=str)]
        return html_words(self.sentence) + html_table((*SHAPE, "networks", "best NMSE", "median NMSE"), rows)

    @property
    def sentence(self) -> str:
        """Which network came out best and how well, how many there are, and over what."""
        if not self.rows:
            return "no networks yet"
        over = [f"{name} {listed(self.values(name))}" for name in ("heads", "length") if name in self.rows[0]]
        networks = ", ".join([counted(len(self), "network"), *over])
        best = min(self.rows, key=error_of)
        if not math.isfinite(error_of(best)):
            return f"all diverged, {networks}"
        first = f"{best['layers']} at length {best['length']} came out best" if "layers" in best else "the best"
        return f"{first}, {self.spec.get('level', 'NMSE')} {short(error_of(best), 2)}, of {networks}"

    def files(self, out: Path) -> list[Path]:
        """All of it in `study.json`, which `fit` and `report` read."""
        return [write_text(out / "study.json", self.to_json())]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def values(self, column: str) -> tuple[Any, ...]:
        """The distinct values of a column, sorted."""
        return tuple(sorted({row[column] for row in self.rows}))

    def where(self, keep: Callable[[Row], bool] | None = None, **equal: Any) -> Study:
        """The rows on which every named column has the given value, and for which `keep` holds."""
        for column in equal:
            if self.rows and column not in self.rows[0]:
                raise ValueError(f"no column {column!r}; columns: {', '.join(self.rows[0])}")
        rows: Iterable[Row] = self.rows
        for column, value in equal.items():
            rows = [row for row in rows if row[column] == value]
        rows = tuple(rows if keep is None else filter(keep, rows))
        return Study(rows, self.spec, self.environment, self.name, self.networks)

    def net(self, row: Row) -> Any:
        """The network of a row, from tokens to the target in its own units; where the sweep kept networks."""
        if self.networks is None:
            raise ValueError('no networks are kept with this study: sweep(..., save="all") keeps them')
        return self.networks(row)

    @property
    def structure(self) -> Structure | None:
        """What the task asks, when the spec says it."""
        data = self.spec.get("structure")
        return Structure.from_json(data) if data else None

    @property
    def predicted_heads(self) -> int | None:
        """The number D of first-order retrievals, each of which takes a head of one layer."""
        structure = self.structure
        if structure is None or structure.order != 1 or any(r.rank > 1 or r.after for r in structure.retrievals):
            return None
        return structure.count

    def column_name(self, column: str) -> str:
        """What a column is called for people: `nmse` where it holds NMSE, else by the level that it does hold.

        >>> Study((), {"level": "relative cross-entropy"}).column_name("final_nmse"), Study(()).column_name("nmse")
        ('final_relative_cross_entropy', 'nmse')
        """
        level = str(self.spec.get("level", "NMSE"))
        return column.replace("nmse", level.lower().replace(" ", "_").replace("-", "_"))

    def to_json(self) -> str:
        """The whole study as one JSON text: rows, spec and environment, to be kept beside a page drawn from it."""
        return "".join(self.json_pieces(self.rows))

    def json_pieces(self, rows: Iterable[Row]) -> Iterator[str]:
        """`to_json` piece by piece, with these rows for the study's own: a million need not be held at once."""
        head = {"name": self.name, "spec": self.spec, "environment": self.environment}
        yield strict_json(head, indent=1).removesuffix("\n}") + ',\n "rows": ['
        before = "\n  "
        for row in rows:
            yield before + strict_json(row, indent=1).replace("\n", "\n  ")
            before = ",\n  "
        yield "\n ]\n}\n" if before.startswith(",") else "]\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Study:
        """The study that `to_json` wrote."""
        content = json.loads(text)
        if not isinstance(content, dict) or not {"name", "spec", "environment", "rows"} <= set(content):
            raise ValueError("this JSON is not a study: it lacks name, spec, environment or rows")
        if not isinstance(content["rows"], list):
            raise ValueError(f"rows of a study must be a list, got {str(content['rows'])[:60]}")
        first = content["rows"][0] if content["rows"] else None
        rows = tuple(_with_infinities(as_row(row, f"row {i}", first)) for i, row in enumerate(content["rows"]))
        name = checked(str, content["name"], "name", "the study")
        return cls(
            rows, as_spec(content["spec"], "the spec"), as_table(content["environment"], "the environment"), name
        )

    def to_csv(self) -> str:
        """The rows as CSV, columns in the order of the first row."""
        if not self.rows:
            return ""
        text = io.StringIO()
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n", restval="")
        writer.writerow({column: plain_cell(self.column_name(column)) for column in columns})
        writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in self.rows)
        return text.getvalue()

    def to_json_lines(self) -> str:
        """The rows as JSON, one per line."""
        return "".join(strict_json(row) + "\n" for row in self.rows)


def error_of(row: Mapping[str, Any]) -> float:
    """The NMSE of a row, infinite where it is no number."""
    error = row.get("nmse")
    return math.inf if error is None or math.isnan(error) else error


def _with_infinities(row: Row) -> Row:
    """A row read from JSON: an error that was never finite is infinity, as training had it."""
    lost = [name for name in ("nmse", "final_nmse", "train_nmse") if name in row and row[name] is None]
    return cast(Row, {**row, **dict.fromkeys(lost, math.inf)}) if lost else row
