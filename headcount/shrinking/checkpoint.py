"""Shrunk models on disk: compact for our loader, padded for stock `transformers`, both written whole or not at all."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from headcount.files import whole_folder
from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.folders import LAYOUT, WEIGHTS

__all__ = ["save_compact", "save_padded", "tensor_bytes"]

CARRIED = (".json", ".txt", ".model", ".md")  # tokenizers and pooling settings, next to the weights


def save_compact(model: nn.Module, folder: str | Path, source: str | Path | None = None) -> Path:
    """Write the reduced model so that `load` reads it: ragged matrices, nothing padded."""
    family = family_of(model)
    layouts = [family.read(layer).layout.to_json() for layer in family.layers(model)]
    with whole_folder(Path(folder)) as scratch:
        _write(scratch / WEIGHTS, _state(model))
        (scratch / LAYOUT).write_text(
            json.dumps({"family": family.name, "layers": layouts}, indent=1), encoding="utf-8"
        )
        _settings(model, scratch, source)
    return Path(folder)


def save_padded(model: nn.Module, folder: str | Path, head_dim: int, source: str | Path | None = None) -> Path:
    """Write the reduced model in the stock shapes, heads filled up with zeros: plain `transformers` loads it."""
    family = family_of(model)
    with whole_folder(Path(folder)) as scratch:
        _write(scratch / WEIGHTS, stock_state(model, family, head_dim))
        _settings(model, scratch, source)
    return Path(folder)


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


def _write(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write the tensors; what is a view into a larger storage is copied first, as the format holds whole tensors."""
    own = {name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t.contiguous() for name, t in state.items()}
    save_file(own, path, {"format": "pt"})


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


def _is_within(file: Path, source: Path) -> bool:
    """Whether a file lies in the model's folder, or among the blobs of a hub's cache that its snapshot links to."""
    place, folder = file.resolve(), source.resolve()
    blobs = folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else folder
    return place.is_relative_to(folder) or place.is_relative_to(blobs)


def _settings(model: Any, scratch: Path, source: str | Path | None) -> None:
    """The configuration, and the small files beside the weights: tokenizer, pooling."""
    if source is not None and Path(source).is_dir():
        for file in Path(source).rglob("*"):
            if file.is_file() and file.suffix in CARRIED and not file.name.endswith(".index.json"):
                if not _is_within(file, Path(source)):
                    warnings.warn(f"{file} is a link that leads outside; it is left out", stacklevel=2)
                    continue
                to = scratch / file.relative_to(source)
                if not to.exists():
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, to)
    if hasattr(model, "config"):
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(scratch)
    else:
        own = {"architecture": json.loads(model.arch.to_json()), "token_dim": model.token_dim}
        (scratch / "config.json").write_text(json.dumps({"model_type": "headcount", **own}, indent=1), encoding="utf-8")
