"""Tables as sequences: a row per token, a row per moment of a series, or a row per sequence, wide or with lists."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import refuse_no_file
from headcount.measuring.sequences import Sequences, sequences
from headcount.refusals import missing_package, nearest

Columns = dict[str, list[Any]]
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # what stands where nothing was written down
DECIMAL = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")  # a number with a decimal comma, or a whole one
FEW_NAMES = 20  # a column of names becomes so many tokens of a wide table, at most


@dataclass(frozen=True)
class Reading:
    """How a table is read: `sequence` names the column that tells sequences apart, or `window` cuts a series.

    With `sequence`, rows of one sequence are its tokens in order, and `target` is the same in all of them. With
    `window`, a row is a moment, a sequence is `window` rows on end and its target the value of `target` `horizon`
    rows after the last. With neither, a row is a sequence: a column of lists or of texts holds its tokens, or every
    column is one. `text` cuts texts into characters or words; where it is given, the one column without numbers is the
    text, however short. `split` names a column that says training or validation; `tokens` says whether whole numbers
    are numbers or letters.
    """

    target: str = "target"
    sequence: str | None = None
    window: int | None = None
    horizon: int = 1
    group: str | None = None
    kind: str | None = None
    split: str | None = None
    tokens: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.sequence is not None and self.window is not None:
            raise ValueError("give `sequence` for a long table or `window` for a series, not both")
        if self.text is not None and (self.sequence is not None or self.window is not None):
            raise ValueError("`text` reads a row as a sequence; with `sequence` or `window` a row is a token")
        if self.text not in (None, "characters", "words"):
            raise ValueError(f"text is read by characters or words, got {self.text!r}")
        for name in ("window", "horizon"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


def read_csv(path: Path) -> Columns:
    """The columns of a CSV file with a header line."""
    refuse_no_file(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
        between = delimiter(text)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=between))
    except (UnicodeDecodeError, csv.Error) as problem:
        again = f"`iconv -f latin1 -t utf-8 {path.name}` makes one of Latin-1"
        raise ValueError(f"{path} is not a CSV file in UTF-8: {problem}; {again}") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise ValueError(f"{path} holds {len(rows)} lines; a header and rows are needed")
    names = [name.strip() for name in rows[0]]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise ValueError(f"{path}: two columns are called {repeated!r}; each needs a name of its own")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(f"{path}: line {number} has {len(row)} fields, the header {len(rows[0])}")
    columns = dict(zip(names, map(list, zip(*rows[1:], strict=True)), strict=True))
    return columns if between == "," else {name: with_points(column) for name, column in columns.items()}


def with_points(column: list[str]) -> list[str]:
    """A column whose every number has a decimal comma, with points; any other as it is.

    >>> with_points(["1,5", "-2,25", ""]), with_points(["1,5", "a,b"])
    (['1.5', '-2.25', ''], ['1,5', 'a,b'])
    """
    numbers = [value for value in column if value.strip().lower() not in MISSING]
    comma = any("," in value for value in numbers) and all(DECIMAL.fullmatch(value.strip()) for value in numbers)
    return [value.replace(",", ".") for value in column] if comma else column


def delimiter(text: str) -> str:
    """What stands between the fields: of comma, semicolon, tab and bar the one that the first line has most of.

    >>> delimiter("a;b;c\\n1,5;2;3\\n"), delimiter("a,b\\n")
    (';', ',')
    """
    head = text.partition("\n")[0]
    return max(",;\t|", key=head.count)


def read_parquet(path: Path) -> Columns:
    """The columns of a parquet or Arrow file, lists as lists."""
    try:
        from pyarrow import ipc, parquet  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ValueError(f"{path}: {missing_package('pyarrow')}; a .csv is read without") from None
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path).to_pydict()
        with path.open("rb") as file:
            opened = ipc.open_file if file.read(6) == b"ARROW1" else ipc.open_stream
            file.seek(0)
            return opened(file).read_all().to_pydict()
    except (ValueError, OSError) as problem:  # pyarrow's own errors are both
        raise ValueError(f"{path} is not a readable {path.suffix[1:]} file: {problem}") from None


def from_columns(columns: Columns, how: Reading, name: str) -> Sequences:
    """The sequences of a table, read as `how` says."""
    for option in ("target", "sequence", "group", "split"):
        column = getattr(how, option)
        if column is not None and column not in columns:
            known = nearest(column, columns)
            raise ValueError(f"`{option}`: {name} has no column {column!r}; {known}; name one as `{option}`")
    if how.window is not None:
        return _series(columns, how, name)
    if how.sequence is None:
        return _rowwise(columns, how, name)
    return _long(columns, how, name)


def cut_windows(values: np.ndarray, target: np.ndarray, window: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of a series and the target `horizon` rows after its last row.

    >>> x, y = cut_windows(np.arange(5.0)[:, None], np.arange(5.0), window=3, horizon=1)
    >>> x[:, :, 0].tolist(), y.tolist()
    ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]], [3.0, 4.0])
    """
    count = len(values) - window - horizon + 1
    if count < 1:
        raise ValueError(f"a series of {len(values)} rows has no window of {window} with a target {horizon} rows later")
    cut = np.lib.stride_tricks.sliding_window_view(values, window, axis=0)[:count]
    return np.moveaxis(cut, -1, 1), target[window + horizon - 1 :]


def _series(columns: Columns, how: Reading, name: str) -> Sequences:
    if how.group is not None or how.split is not None:
        raise ValueError("`group` and `split` belong to `sequence`; windows of one series are split in time")
    assert how.window is not None
    features, names, notes = _features(columns, (), name)
    target = as_numbers(columns, how.target, name)
    if np.isnan(target).any():
        row = int(np.isnan(target).argmax()) + 1
        raise ValueError(f"{name}: row {row} of column {how.target!r} is empty, and it is the target; fill it first")
    x, y = cut_windows(features, target, how.window, how.horizon)
    apart = how.window + how.horizon - 1  # the next window of which no row, target included, is shared
    return sequences(
        x, y, kind=how.kind, name=name, apart=apart, notes=notes, features=names, past=names.index(how.target)
    )


def _long(columns: Columns, how: Reading, name: str) -> Sequences:
    assert how.sequence is not None
    own = tuple(c for c in (how.sequence, how.target, how.group, how.split) if c is not None)
    others = [c for c in columns if c not in own]
    lettered = len(others) == 1 and not any(_is_number(value) for value in columns[others[0]][:50])
    if lettered:  # a row per token, and the token is a word
        features, names, notes = np.array([str(v) for v in columns[others[0]]]), (others[0],), ()
    else:
        features, names, notes = _features(columns, own, name)
    order: dict[Any, list[int]] = {}
    for row, key in enumerate(columns[how.sequence]):
        order.setdefault(key, []).append(row)

    def each(column: str) -> list[Any]:
        return [_one(columns[column], rows, f"{column!r} in sequence {key!r}") for key, rows in order.items()]

    x = [features[rows] for rows in order.values()]
    return sequences(
        x,
        _typed(each(how.target)),
        tokens="letters" if lettered else "numbers",
        groups=each(how.group) if how.group else None,
        kind=how.kind,
        name=name,
        notes=notes,
        features=names,
        split=each(how.split) if how.split else None,
    )


def _rowwise(columns: Columns, how: Reading, name: str) -> Sequences:
    """A row is a sequence: of a column of lists, of a column of texts, or of a token for every column."""
    own = {c for c in (how.target, how.group, how.split) if c is not None}
    others = [c for c in columns if c not in own]
    if not others:
        raise ValueError(f"{name} has no column beside {', '.join(sorted(own))} to make tokens of")
    texts = _texts(columns, others, how, name)
    lists = [c for c in others if how.text is None and any(isinstance(value, list | tuple) for value in columns[c])]
    wide = not lists and not texts
    x: Any
    if wide:
        x, names, notes = _wide(columns, others, name)
    elif lists:
        x, names, notes = _listed(columns, lists, name), tuple(lists), _left_out([c for c in others if c not in lists])
    else:
        by = how.text or "characters"
        x, names = [cut_text(str(v), by) for v in columns[texts[0]]], (texts[0],)
        notes = (f"{texts[0]!r} was read by {by}", *_left_out([c for c in others if c != texts[0]]))
    data = sequences(
        x,
        _typed(columns[how.target]),
        groups=columns[how.group] if how.group else None,
        kind=how.kind,
        tokens=how.tokens if not wide else "numbers",
        name=name,
        notes=notes,
        features=() if lists else names,
        split=columns[how.split] if how.split else None,
        wide=wide,
    )
    return replace(data, text=how.text or "characters") if not wide and not lists else data


def _texts(columns: Columns, others: list[str], how: Reading, name: str) -> list[str]:
    """The columns of texts: those that are plainly so, or, where `text` is given, the one that can be."""
    plain = [c for c in others if _is_text(columns[c])]
    if how.text is None or plain:
        return plain
    words = [c for c in others if all(isinstance(value, str) for value in columns[c])]
    able = words if len(others) == 1 else [c for c in words if not any(map(_is_written_number, columns[c]))]
    if len(able) == 1:
        return able
    found = f"{len(able)} columns without numbers ({', '.join(able)})" if able else "no column without numbers"
    raise ValueError(f"`text`: {name} has {found}; leave one column of texts beside the target")


def _is_text(column: list[Any]) -> bool:
    """Whether a column holds texts: most of them different, and of more than a word's length."""
    if not all(isinstance(value, str) for value in column) or any(_is_number(value) for value in column[:50]):
        return False
    return len(set(column)) > len(column) / 2 and sum(map(len, column)) > 8 * len(column)


def cut_text(text: str, by: str) -> list[str]:
    """A text by characters or words.

    >>> cut_text("to be", "words"), cut_text("to", "characters")
    (['to', 'be'], ['t', 'o'])
    """
    return list(text) if by == "characters" else text.split()


def _listed(columns: Columns, lists: list[str], name: str) -> list[Any]:
    """The lists of one column, or those of several side by side."""
    if len(lists) == 1:
        return [[] if value is None else list(value) for value in columns[lists[0]]]
    rows = zip(*(columns[c] for c in lists), strict=True)
    try:
        return [np.array(row, dtype=np.float64).T for row in rows]
    except (TypeError, ValueError):
        raise ValueError(f"{name}: the lists of {', '.join(lists)} differ in length in some row") from None


def _left_out(columns: list[str]) -> tuple[str, ...]:
    return (f"left out: {', '.join(columns)}",) if columns else ()


def _wide(columns: Columns, others: list[str], name: str) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """A token for every column: its number, or one that says whether a name is the row's."""
    tokens: dict[str, np.ndarray] = {}
    left = []
    for column in others:
        values = columns[column]
        if any(map(_is_written_number, values)):
            tokens[column] = as_numbers(columns, column, name)
            continue
        names = sorted({str(value) for value in values if not _is_missing(value)})
        if not 1 < len(names) <= FEW_NAMES:
            left.append(column)
            continue
        tokens |= {f"{column}={one}": np.array([float(str(value) == one) for value in values]) for one in names}
    if not tokens:
        how = "`text` characters or words reads its texts"
        raise ValueError(f"{name} has no column of numbers to make tokens of; {how}")
    alone = len(others) == 1 and len(tokens) > 1  # one column, of names: are they texts?
    other = "`text` characters or words reads its texts" if alone else "`sequence` or `window` reads rows as tokens"
    remark = f"every {'name' if alone else 'column'} is a token, {len(tokens)} in all; {other}"
    return np.stack(list(tokens.values()), axis=1)[:, :, None], tuple(tokens), (remark, *_left_out(left))


def _one(column: list[Any], rows: list[int], where: str) -> Any:
    values = {column[row] for row in rows}
    if len(values) > 1:
        few = ", ".join(map(str, sorted(values, key=str)[:3]))
        raise ValueError(f"{where} takes {len(values)} values ({few}); a sequence has one")
    return values.pop()


def _typed(values: list[Any]) -> np.ndarray:
    """Whole numbers or numbers where all are, names otherwise."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])
    if all(isinstance(v, int) or (isinstance(v, str) and v.strip().lstrip("+-").isdigit()) for v in values):
        return np.array([int(value) for value in values])
    return np.array(numbers)


def _features(columns: Columns, own: tuple[str, ...], name: str) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """The columns of numbers beside those with a part of their own; a column without any number is left out."""
    others = [c for c in columns if c not in own]
    left = [c for c in others if not any(map(_is_written_number, columns[c]))]
    numeric = [c for c in others if c not in left]
    if not numeric:
        raise ValueError(f"{name} has no column of numbers to make tokens of")
    table = np.stack([as_numbers(columns, c, name) for c in numeric], axis=1)
    return table, tuple(numeric), (f"left out, for they hold no numbers: {', '.join(left)}",) if left else ()


def as_numbers(columns: Columns, column: str, name: str) -> np.ndarray:
    """A column as numbers, NaN where nothing was written down."""
    try:
        return np.array([np.nan if _is_missing(value) else float(value) for value in columns[column]])
    except (TypeError, ValueError):
        row, value = next((i, v) for i, v in enumerate(columns[column], start=1) if not _is_number(v))
        raise ValueError(f"{name}: row {row} of column {column!r} holds {value!r}, which is no number") from None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in MISSING) or value != value


def _is_written_number(value: Any) -> bool:
    return _is_number(value) and not _is_missing(value)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return _is_missing(value)
    return True
