"""Sequences from where they lie: `.npz`, a table, a folder of safetensors, or a function that returns them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import arrays_in
from headcount.measuring.sequences import Sequences, sequences
from headcount.measuring.tables import Reading, cut_text, from_columns, read_csv, read_parquet
from headcount.refusals import refuse_unknown

# What arrays are called: sequences, targets, how many tokens exist, which, where each begins, what stays together, and
# which side each is on.
KEYS = ("x", "y", "lengths", "mask", "offsets", "groups", "split")


def load(data: str | Path, how: Reading | None = None) -> Sequences:
    """The sequences that `data` names: a path, or `module:function`.

    Arrays are called as in `KEYS`: x (samples, length, token_dim) or (samples, length), y (samples,); for ragged
    sequences lengths or mask beside them, or x as all tokens on end with offsets (samples + 1,).
    """
    how = how or Reading()
    text = str(data)
    path = Path(text)
    if not path.exists() and ":" in text and "/" not in text:
        return _from_function(text, how)
    if not path.exists():
        raise FileNotFoundError(f"no data at {text}: give a file, a folder of safetensors, or module:function")
    if path.is_dir():
        return _from_folder(path, how)
    if path.suffix == ".npz":
        return from_arrays(arrays_in(path), how, path.stem)
    if path.suffix in (".csv", ".tsv", ".parquet", ".arrow", ".feather"):
        columns = read_csv(path) if path.suffix in (".csv", ".tsv") else read_parquet(path)
        return from_columns(columns, how, path.stem)
    if path.suffix in (".gz", ".xz", ".bz2", ".zip", ".zst"):
        raise ValueError(f"{path} is packed: unpack it first, for measure reads .npz, .csv, .parquet and safetensors")
    raise ValueError(f"{path} ends in {path.suffix or 'nothing'}; measure reads .npz, .csv, .parquet and safetensors")


def from_arrays(arrays: Mapping[str, Any], how: Reading, name: str) -> Sequences:
    """The sequences that named arrays hold; a series of moments where `how` has a window."""
    refuse_unknown(arrays, KEYS, name)
    for key in ("x", "y"):
        if key not in arrays:
            raise ValueError(f"{name} lacks {key!r}; it has {', '.join(arrays) or 'no arrays'}")
    if any(v is not None for v in (how.window, how.sequence, how.group, how.split)):
        raise ValueError("`window`, `sequence`, `group` and `split` read tables; arrays say it by x, groups and split")
    x, lengths = _sequences_of(arrays)
    if how.text is not None:
        x = _cut_texts(x, how.text, name)
    return sequences(
        x,
        arrays["y"],
        lengths=lengths,
        groups=arrays.get("groups"),
        kind=how.kind,
        tokens=how.tokens,
        name=name,
        split=arrays.get("split"),
    )


def _cut_texts(x: Any, by: str, name: str) -> list[list[str]]:
    """Texts by characters or words; a list of anything else is refused."""
    texts = x.tolist() if isinstance(x, np.ndarray) else list(x)
    if not all(isinstance(one, str) for one in texts):
        raise ValueError(f"`text` reads texts, and x of {name} holds none: `tokens` letters reads ids")
    return [cut_text(one, by) for one in texts]


def _sequences_of(arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    descriptions = [key for key in ("lengths", "mask", "offsets") if key in arrays]
    if len(descriptions) > 1:
        raise ValueError(f"{' and '.join(descriptions)} say the same; give one of them")
    if "offsets" in arrays:
        return _cut(np.asarray(arrays["x"]), np.asarray(arrays["offsets"])), None
    if "mask" in arrays:
        return arrays["x"], _lengths(np.asarray(arrays["mask"]), np.asarray(arrays["x"]))
    return arrays["x"], arrays.get("lengths")


def _cut(tokens: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    if tokens.ndim not in (1, 2):
        raise ValueError(f"with offsets, x must be (tokens, token_dim), got shape {tokens.shape}")
    rising = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1 and (np.diff(offsets) > 0).all()
    if not rising or offsets[0] != 0 or offsets[-1] != len(tokens):
        raise ValueError(f"offsets must rise from 0 to the {len(tokens)} tokens of x, each sequence with at least one")
    return np.split(tokens, offsets[1:-1])


def _lengths(mask: np.ndarray, x: np.ndarray) -> np.ndarray:
    if mask.shape != x.shape[:2]:
        raise ValueError(f"mask must be {x.shape[:2]} as the tokens of x, got {mask.shape}")
    present = mask.astype(bool)
    lengths = present.sum(axis=1)
    if not (present == (np.arange(mask.shape[1]) < lengths[:, None])).all():
        raise ValueError("mask must mark the first tokens of each sequence: move the absent ones to its end")
    return lengths


def _from_folder(folder: Path, how: Reading) -> Sequences:
    """Every `*.safetensors` of the folder in the order of names: a file holds many sequences, or one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no .safetensors files")
    shards = []
    for file in files:
        try:
            shards.append(load_file(file))
        except (SafetensorError, ValueError) as problem:
            raise ValueError(f"{file} is not a readable safetensors file: {problem}") from None
    return from_arrays(_joined(shards, files), how, folder.name)


def _joined(shards: list[dict[str, np.ndarray]], files: list[Path]) -> dict[str, list[Any]]:
    joined: dict[str, list[Any]] = {"x": [], "y": []}
    for shard, file in zip(shards, files, strict=True):
        refuse_unknown(shard, KEYS, file.name)
        for key in ("x", "y"):
            if key not in shard:
                raise ValueError(f"{file.name} lacks {key!r}; it has {', '.join(shard) or 'nothing'}")
        for key in ("groups", "split"):
            if (key in shard) != (key in shards[0]):
                raise ValueError(f"{file.name}: either every file has {key} or none")
        many = _many(shard, file.name)
        joined["x"] += many["x"]
        joined["y"] += many["y"]
        for key in ("groups", "split"):
            if key in shard:
                joined.setdefault(key, []).extend(many[key])
    return joined


def _many(shard: dict[str, np.ndarray], name: str) -> dict[str, list[Any]]:
    """A shard as lists; one whose y is a single number is one sequence."""
    if shard["y"].size == 1:
        shard = {"x": shard["x"][None], **{key: value.reshape(1) for key, value in shard.items() if key != "x"}}
    x, lengths = _sequences_of(shard)
    counts = [len(one) for one in x] if lengths is None else lengths.tolist()
    if len(x) != len(shard["y"]):
        raise ValueError(f"{name}: x holds {len(x)} sequences and y {len(shard['y'])} targets")
    cut = [one[:count] for one, count in zip(x, counts, strict=True)]
    return {"x": cut, "y": list(shard["y"]), **{key: list(shard.get(key, ())) for key in ("groups", "split")}}


def _from_function(text: str, how: Reading) -> Sequences:
    module, _, name = text.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        source = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise ValueError(f"{text} cannot be imported: {problem}") from None
    returned = source() if callable(source) else source
    if isinstance(returned, Sequences):
        return returned
    if isinstance(returned, tuple) and len(returned) == 2:
        returned = {"x": returned[0], "y": returned[1]}
    if not isinstance(returned, Mapping):
        raise ValueError(f"{text} must return (x, y) or a dict of {', '.join(KEYS)}, got {type(returned).__name__}")
    return from_arrays(returned, how, name)
