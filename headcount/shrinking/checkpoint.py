"""Shrunk models on disk: compact for our loader and for `transformers` with the code beside it, padded for stock code.

All are written whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from headcount.files import atomic_folder
from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.folders import LAYOUT, WEIGHTS
from headcount.nets.pretrained.gguf_files import ORIGIN

CODE = Path(__file__).with_name("modeling_headcount.py")
UNCARRIED = (".index.json", LAYOUT, ORIGIN)
CARRIED = (".json", ".txt", ".model", ".jinja")  # tokenizers and pooling settings, next to the weights


def save_compact(
    model: nn.Module,
    folder: str | Path,
    source: str | Path | None = None,
    *,
    dtype: torch.dtype | None = None,
    card: str = "",
) -> Path:
    """Write the reduced model so that `load` reads it: ragged matrices, nothing padded, cast to `dtype` where given.

    Beside it lies the code with which `AutoModel.from_pretrained(..., trust_remote_code=True)` loads it.
    """
    family = family_of(model)
    layouts = [asdict(family.read(layer).layout) for layer in family.layers(model)]
    with atomic_folder(Path(folder)) as scratch:
        _write(scratch / WEIGHTS, _cast(_state(model), dtype))
        (scratch / LAYOUT).write_text(
            json.dumps({"family": family.name, "layers": layouts}, indent=1), encoding="utf-8"
        )
        _settings(model, scratch, source, dtype, card)
        if hasattr(model, "config"):
            _write_code(model, scratch, layouts)
    return Path(folder)


def save_padded(
    model: nn.Module,
    folder: str | Path,
    head_dim: int,
    source: str | Path | None = None,
    *,
    dtype: torch.dtype | None = None,
    card: str = "",
) -> Path:
    """Write the reduced model in the stock shapes, heads filled up with zeros: plain `transformers` loads it."""
    family = family_of(model)
    with atomic_folder(Path(folder)) as scratch:
        _write(scratch / WEIGHTS, _cast(stock_state(model, family, head_dim), dtype))
        _settings(model, scratch, source, dtype, card)
    return Path(folder)


def _cast(state: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    return {name: t.to(dtype) if dtype and t.is_floating_point() else t for name, t in state.items()}


def _write_code(model: Any, scratch: Path, layouts: Sequence[Mapping[str, object]]) -> None:
    """The modelling file, with one class for this architecture and one for what lies inside it, and where they are."""
    outer, inner = type(model).__name__, type(model.base_model).__name__
    code = CODE.read_text(encoding="utf-8") + f"\n\nimport transformers  # noqa: E402\n{_class(inner)}"
    code += _class(outer) if outer != inner else ""
    (scratch / CODE.name).write_text(code, encoding="utf-8")
    path = scratch / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModel": f"{CODE.stem}.Smaller{inner}"}
    if outer != inner:
        config["auto_map"]["AutoModelForCausalLM"] = f"{CODE.stem}.Smaller{outer}"
    path.write_text(json.dumps(config | {"headcount": list(layouts)}, indent=1), encoding="utf-8")


def _class(stock: str) -> str:
    return f"""

class Smaller{stock}(transformers.{stock}):
    def __init__(self, config, *rest, **settings):
        super().__init__(config, *rest, **settings)
        made_smaller(self, config)
"""


def stock_state(model: nn.Module, family: Family, head_dim: int) -> dict[str, Tensor]:
    """The state of the stock model: everything but attention as it is, attention padded."""
    state = _state(model)
    prefixes = _prefixes(model, family)
    stock = {name: t for name, t in state.items() if not any(name.startswith(p) and _ours(name, p) for p in prefixes)}
    for layer, prefix in zip(family.layers(model), prefixes, strict=True):
        stock |= family.stock(layer, prefix, head_dim)
    return stock


def _write(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write the tensors; what is a view into a larger storage is copied first, as the format holds whole tensors."""
    own = {name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t.contiguous() for name, t in state.items()}
    save_file(own, path, {"format": "pt"})


def _state(model: nn.Module) -> dict[str, Tensor]:
    """The stored tensors, each memory once: of tied weights the first name."""
    pointers: set[int] = set()
    state = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.numel() and tensor.data_ptr() in pointers:
            continue
        pointers.add(tensor.data_ptr())
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


def _settings(
    model: Any, scratch: Path, source: str | Path | None, dtype: torch.dtype | None = None, card: str = ""
) -> None:
    """The configuration, and the small files beside the weights: tokenizer, pooling; the card is our own."""
    if card:
        (scratch / "README.md").write_text(card, encoding="utf-8")
    if source is not None and Path(source).is_dir():
        for file in Path(source).rglob("*"):
            if file.is_file() and file.suffix in CARRIED and not file.name.endswith(UNCARRIED):
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
        if dtype is not None:
            path = scratch / "config.json"
            config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": str(dtype).removeprefix("torch.")}
            path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    else:
        own = {"architecture": json.loads(model.arch.to_json()), "token_dim": model.token_dim}
        (scratch / "config.json").write_text(json.dumps({"model_type": "headcount", **own}, indent=1), encoding="utf-8")
