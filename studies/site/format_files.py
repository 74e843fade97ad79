"""One valid file of every format, and one JSON answer of every command: `python -m studies.site.format_files`.

The tests copy the files into a folder of their own, run every call below there, and compare the keys of its answer
with those of the committed one.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import write_text
from studies.site.calls import called

FORMATS = Path(__file__).parents[2] / "docs/formats"
SEQUENCES = 60
SMALL = ["--heads", "1,2", "--layers", "1", "--steps", "20", "--splits", "2", "--embed-dim", "8", "--width", "8"]

# Every file that `measure` reads, with the options that say how.
MEASURED: dict[str, tuple[str, ...]] = {
    "sequences.npz": (),
    "ragged.npz": (),
    "long.csv": ("--sequence", "id", "--target", "y"),
    "series.csv": ("--window", "8", "--target", "load"),
    "wide.csv": ("--target", "y"),
    "texts.csv": ("--target", "label"),
    "short_texts.csv": ("--target", "label", "--text", "characters"),
    "holes.csv": ("--sequence", "id", "--target", "y"),
    "lists.parquet": ("--target", "y"),
    "shards": (),
    "own_data:pairs": (),
}

# One call of every command; files are those of this folder or what a call before has written.
CALLS: dict[str, list[str]] = {
    "measure": ["sequences.npz", *SMALL, "--model", "model.hc", "--out", "out/measure"],
    "apply": ["model.hc", "new.npz", "--out", "out/predictions.csv"],
    "tasks": [],
    "predict": ["structure.toml", "--layers", "2x8"],
    "advise": ["structure.toml"],
    "build": ["Wells", "--length", "8", "--eps", "0.05", "--out", "out/built"],
    "sweep": ["sweep.toml", "--store", "study", "--save", "best"],
    "fit": ["study"],
    "report": ["study", "--out", "out/report"],
    "probe": ["LinearMax", "--layers", "1x4+1x4", "--length", "4", "--epochs", "1", "--save", "out/net.safetensors"],
    "certify": ["study", "--box", "-1,1", "--seconds", "2", "--out", "out/worst"],
    "shape": ["135M", "--context", "8192"],
    "lens": ["tiny-llama", "--text", "ab"],
    "saturation": ["tiny-llama", "--text", "text.txt", "--lengths", "8,16", "--samples", "2"],
    "compress": [
        "tiny-llama",
        "--keep",
        "0.5",
        "--text",
        "text.txt",
        "--length",
        "32",
        "--tokens",
        "512,256",
        "--out",
        "out/small",
    ],
    "reproduce": ["ssm:norms", "--out", "out/reproduce"],
    "theory bound": [],
    "theory collide": ["Wells", "--length", "16", "--free", "4"],
    "theory interpolate": ["pairs.npz"],
    "theory margin": ["selection.npz"],
    "theory prompt": ["prompt.npz", "--tokens", "1", "--starts", "1"],
    "theory allocate": [],
    "ssm deepen": ["system.json", "--max-entry", "2", "--out", "out/deep"],
    "ssm flatten": ["out/deep/system-deep.json", "--out", "out/flat"],
    "ssm depth": ["10", "2", "--modes", "4"],
    "ssm table": ["system.json", "--depths", "1,2"],
    "ssm quantise": ["system.json", "--bits", "8"],
    "ssm train": ["--sizes", "1x13", "--clips", "1", "--seeds", "1", "--steps", "4"],
    "ssm export": ["system.json", "--to", "sos", "--out", "out/sos"],
    "demo": ["--out", "out/demo"],
    "doctor": [],
    "runs list": ["."],
    "runs export": ["study", "--out", "out/rows"],
    "runs verify": ["study"],
    "runs repair": ["study"],
    "runs merge": ["out/merged", "study"],
}


def answer(words: str, arguments: list[str]) -> Any:
    """What a call prints with --json, run in this process and in the current folder."""
    outcome = called([*words.split(), *arguments, "--json"])
    if outcome.exit_code:
        raise RuntimeError(f"headcount {words} {' '.join(arguments)}: exit code {outcome.exit_code}: {outcome.stderr}")
    return json.loads(outcome.stdout)


def keys_of(value: Any, at: str = "") -> set[str]:
    """The keys of an answer, lists taken together.

    >>> sorted(keys_of({"a": [{"b": 1}, {"c": 2}]}))
    ['a', 'a[].b', 'a[].c']
    """
    if isinstance(value, dict):
        return {f"{at}{key}" for key in value}.union(*(keys_of(part, f"{at}{key}.") for key, part in value.items()))
    if isinstance(value, list):
        return set().union(*(keys_of(part, at.removesuffix(".") + "[].") for part in value))
    return set()


def _table(name: str, head: list[str], rows: Any) -> None:
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def write_data() -> None:
    """The data files, into the current folder."""
    g = np.random.default_rng(0)
    x = g.normal(size=(SEQUENCES, 4, 2)).round(3)
    y = (x[:, :, 0].max(axis=1) + x[:, :, 1].max(axis=1)).round(3)
    lengths = g.integers(2, 5, size=SEQUENCES)
    np.savez("sequences.npz", x=x, y=y)
    np.savez("new.npz", x=x[:5])
    np.savez("ragged.npz", x=x, y=y, lengths=lengths)
    tokens = [(k, a, b, y[k]) for k in range(SEQUENCES) for a, b in x[k, : lengths[k]]]
    _table("long.csv", ["id", "a", "b", "y"], tokens)
    _table(
        "holes.csv",
        ["id", "a", "b", "y"],
        [(k, "" if i % 9 == 0 else a, b, t) for i, (k, a, b, t) in enumerate(tokens)],
    )
    hours = np.arange(120)
    load = (np.sin(hours / 4) + 0.1 * g.normal(size=120)).round(3)
    _table("series.csv", ["hour", "load"], zip(hours, load, strict=True))
    _table("wide.csv", ["a", "b", "c", "y"], [(*row, row.max()) for row in x[:, :3, 0]])
    words = ["".join(g.choice(list("abc"), size=24)) for _ in range(SEQUENCES)]
    _table("texts.csv", ["text", "label"], [(word, "yes" if word.count("a") > 8 else "no") for word in words])
    _table("rates.csv", ["parameters", "steps", "lr", "loss"], _rate_rows(g))
    short = ["".join(g.choice(list("abc"), size=6)) for _ in range(SEQUENCES)]
    _table("short_texts.csv", ["text", "label"], [(word, "yes" if "ab" in word else "no") for word in short])
    _write_lists(x, y, lengths)
    _write_shards(x, y)


def _rate_rows(g: np.random.Generator) -> Iterator[tuple[int, int, float, float]]:
    """Losses of a planted law: the best rate falls as steps^-0.35 and parameters^-0.2, three seeds of each run."""
    for parameters in (1_000, 4_000, 16_000):
        for steps in (500, 1000, 2000):
            best = 0.3 * parameters**-0.2 * steps**-0.35
            for lr in (2.0 ** np.arange(-11, -4)).tolist():
                for _ in range(3):
                    loss = 0.2 + 0.05 * np.log(lr / best) ** 2 + 0.004 * g.normal()
                    yield parameters, steps, lr, round(float(loss), 4)


def _write_lists(x: np.ndarray, y: np.ndarray, lengths: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [x[k, : lengths[k], 0].tolist() for k in range(SEQUENCES)]
    pq.write_table(pa.table({"values": rows, "y": y}), "lists.parquet")


def _write_shards(x: np.ndarray, y: np.ndarray) -> None:
    from safetensors.numpy import save_file

    Path("shards").mkdir(exist_ok=True)
    for k, part in enumerate((slice(0, 30), slice(30, 60))):
        save_file({"x": x[part], "y": y[part]}, f"shards/part{k}.safetensors")


def write_theory() -> None:
    """Files of the papers' commands: sequences to memorise, tokens to choose, a prompted layer, a network."""
    from headcount.nets import Architecture, Transformer, save_net

    g = np.random.default_rng(0)
    np.savez("pairs.npz", x=g.normal(size=(4, 3, 2)).round(2), y=np.array([0, 1, 0, 1]))
    np.savez(
        "selection.npz", tokens=g.normal(size=(3, 4, 6)), queries=g.normal(size=(3, 6)), chosen=np.array([0, 1, 2])
    )
    query, key, value = g.normal(size=(3, 4, 4)) / 2
    last, contexts, targets = g.normal(size=4), g.normal(size=(2, 3, 4)), g.normal(size=(2, 4))
    np.savez("prompt.npz", query=query, key=key, value=value, last=last, contexts=contexts, targets=targets)
    save_net(Transformer(Architecture(layers=((1, 2),), width=4), token_dim=1, seed=0), "net.safetensors")


def main() -> None:
    FORMATS.mkdir(parents=True, exist_ok=True)
    os.chdir(FORMATS)
    write_data()
    write_theory()
    Path("json").mkdir(exist_ok=True)
    write_text(
        "json/calls.json",
        json.dumps({words: {"arguments": arguments} for words, arguments in CALLS.items()}, indent=1) + "\n",
    )
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FORMATS, folder, dirs_exist_ok=True)
        os.chdir(folder)
        chosen = sys.argv[1:] or list(CALLS)
        for words, arguments in ((words, CALLS[words]) for words in chosen):
            printed = (
                json.dumps(answer(words, arguments), indent=1, ensure_ascii=False)
                .replace(folder, "FOLDER")
                .replace(str(Path.home()), "~")
            )
            write_text(FORMATS / f"json/{words.replace(' ', '-')}.json", printed + "\n")
            print(words, len(printed))
        shutil.copyfile("model.hc", FORMATS / "model.hc")
        shutil.rmtree(FORMATS / "study", ignore_errors=True)
        shutil.copytree("study", FORMATS / "study")
        shutil.rmtree(FORMATS / "study/rows.leases", ignore_errors=True)
        called(["runs", "export", "study", "--out", str(FORMATS / "rows")])
        os.chdir(FORMATS)


if __name__ == "__main__":
    main()
