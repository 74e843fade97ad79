"""Shrunk models on disk: compact for our loader, padded for stock `transformers`, both written whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from headcount.frozen import decode
from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.folders import build, config_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Weights

__all__ = ["load_compact", "save_compact", "save_padded", "tensor_bytes", "write_safetensors"]

LAYOUT = "headcount_layout.json"
WEIGHTS = "model.safetensors"
KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
CARRIED = (".json", ".txt", ".model", ".md")  # tokenizers and pooling settings, next to the weights


@dataclass(frozen=True)
class _StoredLayout:
    """What stands beside the weights: the family of the model, and the heads of every layer."""

    family: str
    layers: tuple[HeadLayout, ...]


def save_compact(model: nn.Module, folder: str | Path, source: str | Path | None = None) -> Path:
    """Write the reduced model so that `load_compact` runs it: ragged matrices, nothing padded."""
    family = family_of(model)
    layouts = [family.read(layer).layout.to_json() for layer in family.layers(model)]
    with _whole(Path(folder)) as scratch:
        write_safetensors(scratch / WEIGHTS, _state(model))
        (scratch / LAYOUT).write_text(json.dumps({"family": family.name, "layers": layouts}, indent=1))
        _settings(model, scratch, source)
    return Path(folder)


def save_padded(model: nn.Module, folder: str | Path, head_dim: int, source: str | Path | None = None) -> Path:
    """Write the reduced model in the stock shapes, heads filled up with zeros: plain `transformers` loads it."""
    family = family_of(model)
    with _whole(Path(folder)) as scratch:
        write_safetensors(scratch / WEIGHTS, stock_state(model, family, head_dim))
        _settings(model, scratch, source)
    return Path(folder)


def load_compact(folder: str | Path) -> nn.Module:
    """The model that `save_compact` wrote, ready to run.

    For our own network, give the folder too: it carries the architecture.
    """
    folder = Path(folder)
    if not (folder / LAYOUT).is_file():
        raise FileNotFoundError(f"{folder} is no compact checkpoint: it has no {LAYOUT}")
    stored_layout = decode(_StoredLayout, json.loads((folder / LAYOUT).read_text()), LAYOUT)
    model = build(config_of(folder))
    family = family_of(model)
    for layer, layout in zip(family.layers(model), stored_layout.layers, strict=True):
        family.write(layer, _blank(family.read(layer), layout))
    own = model.state_dict(keep_vars=True)
    with safe_open(str(folder / WEIGHTS), framework="pt") as stored:
        _check_names(set(stored.keys()), own, folder)
        with torch.no_grad():
            for name in stored.keys():  # noqa: SIM118 (a file, not a dictionary)
                own[name].copy_(stored.get_tensor(name))
    return model.eval()


def tensor_bytes(model: nn.Module) -> int:
    """Bytes of all stored tensors, tied ones once: what the weights file holds beside its header."""
    return sum(t.numel() * t.element_size() for t in _state(model).values())


def stock_state(model: nn.Module, family: Family, head_dim: int) -> dict[str, Tensor]:
    """The state of the stock model: everything but attention as it is, attention padded."""
    state = _state(model)
    prefixes = _prefixes(model, family)
    kept = {name: t for name, t in state.items() if not any(name.startswith(p) and _ours(name, p) for p in prefixes)}
    for layer, prefix in zip(family.layers(model), prefixes, strict=True):
        kept |= family.stock(layer, prefix, head_dim)
    return kept


def write_safetensors(path: Path, state: Mapping[str, Tensor]) -> int:
    """Write tensors one after the other, so that no second copy of the model is ever held; returns the bytes.

    The format: eight bytes of header length, a JSON header of (dtype, shape, offsets), then the raw tensors.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in state.items():
        if tensor.dtype not in KINDS:
            raise ValueError(f"tensor {name!r} has type {tensor.dtype}, which this writer does not know")
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for tensor in state.values():
            out.write(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return 8 + len(text) + at


def _state(model: nn.Module) -> dict[str, Tensor]:
    """The stored tensors, each memory once: of tied weights the first name."""
    seen: set[int] = set()
    state = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        state[name] = tensor.detach()
    return state


def _prefixes(model: nn.Module, family: Family) -> list[str]:
    names = {id(module): name for name, module in model.named_modules()}
    if family.name == "headcount":
        return [f"attention.{i}." for i in range(len(family.layers(model)))]
    return [names[id(layer)] + "." for layer in family.layers(model)]


def _ours(name: str, prefix: str) -> bool:
    """Whether a tensor below a layer belongs to the attention that `stock` writes anew."""
    rest = name.removeprefix(prefix)
    parts = ("attention.self.", "attention.output.dense.", "attn.", "self_attn.", "heads.", "output.")
    return rest.startswith(parts) and not rest.startswith("output.dense.") and not rest.startswith("output.LayerNorm.")


def _blank(stock: Weights, layout: HeadLayout) -> Weights:
    """Weights of the right shapes, to be filled from a file."""
    embed = stock.value.shape[1]
    rotary = stock.query is None
    return Weights(
        layout,
        None if rotary else torch.empty(layout.query_rows, embed),
        None if stock.query_bias is None else torch.empty(layout.query_rows),
        None if rotary else torch.empty(layout.key_rows, embed),
        torch.empty(layout.value_rows, embed),
        torch.empty(embed, layout.output_columns),
        None if stock.output_bias is None else torch.empty(embed),
        stock.scale,
    )


def _check_names(stored: set[str], own: Mapping[str, Tensor], folder: Path) -> None:
    unknown = stored - set(own)
    if unknown:
        raise ValueError(f"{folder / WEIGHTS} holds {sorted(unknown)[0]!r}, which its configuration has no place for")
    pointers = {own[name].data_ptr() for name in stored}
    missing = [name for name, t in own.items() if name not in stored and t.numel() and t.data_ptr() not in pointers]
    if missing:
        raise ValueError(f"{folder / WEIGHTS} lacks {missing[0]!r}")


def _settings(model: Any, scratch: Path, source: str | Path | None) -> None:
    """The configuration, and the small files beside the weights: tokenizer, pooling."""
    if source is not None and Path(source).is_dir():
        for file in Path(source).rglob("*"):
            if file.is_file() and file.suffix in CARRIED and not file.name.endswith(".index.json"):
                to = scratch / file.relative_to(source)
                if not to.exists():
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, to)
    if hasattr(model, "config"):
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(scratch)
    else:
        own = {"architecture": json.loads(model.arch.to_json()), "token_dim": model.token_dim}
        (scratch / "config.json").write_text(json.dumps({"model_type": "headcount", **own}, indent=1))


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A scratch folder beside the wanted one that takes its name when all is written, and vanishes otherwise."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; give a new folder for the checkpoint")
    scratch = folder.with_name(folder.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
        if folder.exists():
            folder.rmdir()
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
