"""One sound file or folder of every kind that a command reads, and ways to spoil a copy of it.

`python -m tests.faults.fuzz_pool FOLDER LIST` makes them, and a list of the modules that were loaded for it.
"""

import contextlib
import io
import json
import os
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headcount.cli import main
from headcount.results.database import checksum
from tests.faults.sweep_specs import SPEC

__all__ = ["SOUND", "fill_pool", "mutated_spec", "spoil_file", "spoil_folder"]

ODD_VALUES = (
    "0 -1 1 2 2.5 1e400 nan inf true false [] [[]] [1] [1,2.5] [true] [[1,2]] [[[1,2]]] {} {a=1} '' 'x' '../x' 'a:b' "
    "'best' 'LinearMax' 999999999999999999999 -9223372036854775809 1_000_000 1979-05-27 '1x4' '0x0' ''' [ ] = # [[a]] "
    "1e-400 [0] 'os:system' 'json:JSONDecoder' '1x4,1x4' [-1] '\\u0000' [[],[]] [[1],[2,3]] 07:32:00"
)
ODD_TOML = ODD_VALUES.split()
ODD_KEYS = ("lr", "layers", "shapes", "embed_dim", "positions", "x", "weight_decay", "base", "search", "batch", "dtype")
ODD_JSON: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, 10**400, float("nan"), float("inf"), "", "x", "../x", "1e9", "\0", "\ud800", [],
    {}, [[]], [1, 2], {"a": 1}, [None], "a" * 5000, {"": {}}, "os:system", "headcount.cli:main", [[[[[[]]]]]], -1e308,
)  # fmt: skip


SOUND = {  # the sound files, by the word that stands for each
    "SPEC": "spec.toml", "DATA": "data.npz", "TABLE": "data.csv", "LABELS": "labels.npz", "TEXT": "text.txt",
    "SELECTION": "selection.npz", "SYSTEM": "system.json", "STORE": "store", "STUDY": "exported/study.json",
    "BUILT": "built/net.safetensors", "NET": "net.safetensors", "MEMORY": "memory/net.safetensors",
    "MEASURED": "measured/study.json", "MODEL": "model.safetensors", "PROMPT": "prompted/prompt.npz",
    "BERT": "bert", "GPT2": "gpt2",
}  # fmt: skip
MODELS = ("BERT", "GPT2")  # where transformers are installed
TEXT = "cat sat on mat and ran away again today"


# What is sound -------------------------------------------------------------------------------------------------------


def fill_pool(folder: Path) -> None:
    """Make the sound files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.toml").write_text(SPEC)
    x = np.random.default_rng(0).standard_normal((64, 4, 2))
    np.savez(folder / "data.npz", x=x, y=x[:, :, 0].max(axis=1))
    (folder / "data.csv").write_text(
        "s,a,b,target\n" + "".join(f"{i // 4},{i % 7},{i % 5},{i // 4 % 3}\n" for i in range(240))
    )
    np.savez(folder / "labels.npz", x=x[:5, :, :], y=np.array(list("abcab")))
    rng = np.random.default_rng(1)
    selection = {"tokens": rng.standard_normal((3, 4, 2)), "queries": rng.standard_normal((3, 2))}
    np.savez(folder / "selection.npz", **selection, chosen=np.zeros(3, dtype=int))
    (folder / "system.json").write_text(json.dumps(_system()))
    (folder / "text.txt").write_text("\n".join([TEXT] * 40))
    _said("sweep", folder / "spec.toml", "--store", folder / "store", "--save", "best")
    _said("runs", "export", folder / "store", "--out", folder / "exported")
    _said("build", "--retrievals", 2, "--length", 8, "--eps", 0.1, "--no-check", "--out", folder / "built")
    _said("probe", "LinearMax", "--with", "retrievals=2", "--with", "token_dim=2", "--length", 6, "--layers", "1x2",
          "--epochs", 1, "--save", folder / "net.safetensors")  # fmt: skip
    _said("theory", "interpolate", folder / "labels.npz", "--out", folder / "memory")
    _said("measure", folder / "data.npz", "--heads", "1-2", "--splits", 2, "--steps", 20, "--out", folder / "measured",
          "--model", folder / "model.safetensors")  # fmt: skip
    _said("theory", "prompt", "--tokens", "1", "--starts", 1, "--out", folder / "prompted")
    with contextlib.suppress(ImportError):
        _models(folder)
    lacking = [name for word, name in SOUND.items() if word not in MODELS and not (folder / name).exists()]
    assert not lacking, lacking


def _said(*words: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            assert not end.code, f"{words}: {err.getvalue()}"


def _system() -> dict[str, Any]:
    from headcount.papers import ssm

    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"headcount-system-{os.getpid()}.json"
    ssm.save(ssm.DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0]), file)
    content = json.loads(file.read_text())
    file.unlink()
    return content


def _models(folder: Path) -> None:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.split()]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)).save_pretrained(folder / "bert")
    (folder / "bert" / "vocab.txt").write_text("\n".join(words))
    (folder / "bert" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    small = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **small)).save_pretrained(folder / "gpt2")


# What is not ---------------------------------------------------------------------------------------------------------


def mutated_spec(rng: random.Random, text: str = SPEC) -> str:
    """A spec with one to three lines changed, doubled, dropped or added."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        choice = rng.random()
        if choice < 0.6 and equals:
            lines[at] = f"{key} = {rng.choice(ODD_TOML)}"
        elif choice < 0.7 and len(lines) > 1:
            del lines[at]
        elif choice < 0.8:
            lines.insert(at, rng.choice(lines))
        elif choice < 0.9:
            lines.insert(at, f"{rng.choice(ODD_KEYS)} = {rng.choice(ODD_TOML)}")
        else:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + chr(rng.randrange(1, 0x2FF)) + lines[at][cut:]
    return "\n".join(lines)


def mutated_json(rng: random.Random, content: Any) -> Any:
    """A value of JSON with one node changed, dropped or added."""
    if isinstance(content, dict) and content and rng.random() < 0.8:
        key = rng.choice(list(content))
        choice = rng.random()
        if choice < 0.1:
            return {k: v for k, v in content.items() if k != key}
        if choice < 0.15:
            return {**content, rng.choice(("", "x", "nmse", "layers")): rng.choice(ODD_JSON)}
        return {**content, key: mutated_json(rng, content[key])}
    if isinstance(content, list) and content and rng.random() < 0.8:
        at = rng.randrange(len(content))
        return [mutated_json(rng, value) if i == at else value for i, value in enumerate(content)]
    return rng.choice(ODD_JSON)


def spoilt_bytes(rng: random.Random, content: bytes) -> bytes:
    """The bytes cut, or some of them changed."""
    changed = bytearray(content)
    if not changed or rng.random() < 0.3:
        return bytes(changed[: rng.randrange(len(changed) + 1)])
    for _ in range(rng.choice((1, 5, 100))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def spoil_file(rng: random.Random, path: Path) -> None:
    """Spoil a file in the way that its kind invites: a value within it, its bytes, or the file itself."""
    choice = rng.random()
    if choice < 0.08:
        path.unlink()
        rng.choice(ODD_FILES)(path)
    elif choice < 0.6 and path.suffix in STRUCTURED:
        STRUCTURED[path.suffix](rng, path)
    else:
        path.write_bytes(spoilt_bytes(rng, path.read_bytes()))


def spoil_folder(rng: random.Random, folder: Path) -> None:
    """Spoil one file of a folder, or take it away, or put another in its place."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        return
    path = rng.choice(files)
    choice = rng.random()
    if choice < 0.1:
        path.unlink()
    elif choice < 0.2:
        path.write_bytes(rng.choice(files).read_bytes())
    else:
        spoil_file(rng, path)


def _spoil_json(rng: random.Random, path: Path) -> None:
    content = json.loads(path.read_text())
    for _ in range(rng.randint(1, 3)):
        content = mutated_json(rng, content)
    path.write_text(json.dumps(content), encoding="utf-8")


def _spoil_csv(rng: random.Random, path: Path) -> None:
    lines = path.read_text().splitlines()
    cells = lines[at := rng.randrange(len(lines))].split(",")
    odd = ("", "nan", "inf", "1e999", "x", '"', "1,2", "\0", "-", "0x1", "½", "9" * 400)
    cells[rng.randrange(len(cells))] = rng.choice(odd)
    lines[at] = ",".join(cells)
    path.write_text("\n".join(lines), encoding="utf-8")


def _spoil_npz(rng: random.Random, path: Path) -> None:
    with np.load(path, allow_pickle=True) as held:
        arrays = {name: held[name] for name in held.files}
    name = rng.choice(list(arrays))
    choice = rng.randrange(8)
    if choice == 0:
        del arrays[name]
    else:
        arrays[name] = _odd_array(choice, arrays[name])
    np.savez(path, **arrays)


def _odd_array(choice: int, array: np.ndarray) -> Any:
    odd: dict[int, Callable[[], Any]] = {
        1: lambda: array[:0],
        2: lambda: array[None],
        3: lambda: array.astype(object),
        4: lambda: np.full(array.shape, np.nan),
        5: lambda: array.astype(str),
        6: lambda: np.full(array.shape, 1e308),
        7: lambda: np.array(7),
    }
    return odd[choice]()


def _spoil_tensors(rng: random.Random, path: Path) -> None:
    """Change the header alone: names, shapes, offsets and the metadata that says what the file is."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    about = header.get("__metadata__")
    if about and rng.random() < 0.7:
        key = rng.choice(list(about))
        about[key] = _spoilt_text(rng, about[key])
    else:
        header = mutated_json(rng, header)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])


def _spoilt_text(rng: random.Random, text: str) -> str:
    try:
        return json.dumps(mutated_json(rng, json.loads(text)))
    except ValueError:
        return str(rng.choice(ODD_JSON))


def _spoil_store(rng: random.Random, path: Path) -> None:
    """Change a value of a store and its checksum with it: a store that a stranger wrote."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        if rng.random() < 0.7:
            for run, member, row, env in db.execute("SELECT run, member, row, environment FROM rows").fetchall():
                if rng.random() < 0.5:
                    odd = json.dumps(mutated_json(rng, json.loads(row)))
                    new = (odd, checksum(run, member, odd, env), run)
                    db.execute("UPDATE rows SET row = ?, checksum = ? WHERE run = ?", new)
        elif rng.random() < 0.7:
            for number, spec in db.execute("SELECT id, spec FROM specs").fetchall():
                db.execute(
                    "UPDATE specs SET spec = ? WHERE id = ?", (json.dumps(mutated_json(rng, json.loads(spec))), number)
                )
        else:
            column = rng.choice(("name", "asked", "kept", "turn", "stated", "content"))
            db.execute(f"UPDATE specs SET {column} = ?", (rng.choice(("", -1, "x" * 5000, 2.5, b"\xff", 2**62)),))


def _spoil_toml(rng: random.Random, path: Path) -> None:
    path.write_text(mutated_spec(rng, path.read_text()), encoding="utf-8")


STRUCTURED = {
    ".json": _spoil_json,
    ".csv": _spoil_csv,
    ".npz": _spoil_npz,
    ".safetensors": _spoil_tensors,
    ".sqlite": _spoil_store,
    ".toml": _spoil_toml,
}
ODD_FILES: tuple[Callable[[Path], object], ...] = (
    lambda path: path.touch(),
    lambda path: path.mkdir(),
    lambda path: path.symlink_to("nowhere"),
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: os.mkfifo(path),
    lambda path: path.write_bytes(b"\x00" * 3000),
    lambda path: path.write_bytes(b"PK\x03\x04" + b"\xff" * 60),
    lambda path: path.write_text("[" * 100_000),
    lambda path: path.write_text('{"a":' * 100_000),
)

if __name__ == "__main__":
    fill_pool(Path(sys.argv[1]))
    loaded = sorted(name for name in sys.modules if not name.startswith("__"))
    Path(sys.argv[2]).write_text(json.dumps(loaded))
