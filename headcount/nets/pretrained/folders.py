"""Models from their folders: configuration, weights and tokenizer, with every doubt about them refused in a line."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from headcount.files import text_in
from headcount.frozen import decode, field_of
from headcount.nets import Architecture, Transformer
from headcount.nets.pretrained.families import FAMILIES, family_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.model_places import folder_of
from headcount.nets.pretrained.quiet_library import quietly
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.refusals import RefusalError, at_least_one

LAYOUT = "headcount_layout.json"  # beside the weights of a compact checkpoint
WEIGHTS = "model.safetensors"
FEWEST_BYTES = 4  # of a layer
KERNEL = re.compile(r"implementation|^_?(use_)?kernels?(_config)?$|^auto_map$")  # fields that may name code
SHIPPED = ("eager", "sdpa")
OWN = "modeling_headcount."  # the file that `compress` writes beside its weights; read here by ours, never run
COUNTS = ("num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim", "n_head", "n_embd", "vocab_size")


@dataclass(frozen=True)
class _StoredLayout:
    """What stands beside the weights: the family of the model, and the heads of every layer."""

    family: str
    layers: tuple[HeadLayout, ...]


def config_of(name: str | Path) -> Any:
    """The model's configuration; a ValueError where its architecture is not one we can read."""
    where = folder_of(str(name))
    local = Path(where) / "config.json"
    if local.is_file():
        data = _json_table(local)
        if data.get("model_type") == "headcount":
            return data
    config = stated_config(where, str(name))
    if config.model_type not in FAMILIES:
        known = ", ".join(n for n in FAMILIES if n != "headcount")
        raise ValueError(f"{name} is of type {config.model_type!r}, which cannot be shrunk; known: {known}")
    return config


def stated_config(where: str, name: str) -> Any:
    """The configuration in a folder, of whatever family the library knows."""
    from transformers import AutoConfig

    try:
        with quietly():
            config = AutoConfig.from_pretrained(where, trust_remote_code=False)
    except Exception as cause:  # whatever a library makes of a stranger's file
        raise RefusalError(f"no model can be read from {name!r}: {_first_line(cause)}") from None
    for count in COUNTS:
        value = vars(config).get(count)
        if isinstance(value, int | float) and value < 1:
            raise RefusalError(f"no model can be read from {name!r}: {count} must be at least 1, got {value}")
    return _without_kernels(config, name)


def _without_kernels(config: Any, name: str) -> Any:
    """The configuration without the implementations that it names: a name may be that of code on a hub, to be fetched.

    Which one computes attention is for whoever runs the model to say, and none of ours names any.
    """
    settings = vars(config)
    named = [key for key in settings if KERNEL.search(key) and _names_code(settings[key])]
    for key in named:
        warnings.warn(f"{name}: the configuration names {key} {str(settings[key])[:60]!r}; dropped", stacklevel=3)
        settings[key] = None
    for inner in [value for value in settings.values() if hasattr(value, "to_dict") and value is not config]:
        _without_kernels(inner, name)
    return config


def _names_code(value: Any) -> bool:
    """Whether a choice of implementation is anything but one that ships with the library, or with `compress`."""
    choices = list(value.values()) if isinstance(value, dict) else [value]
    ours = [one for one in choices if isinstance(one, str) and one.startswith(OWN)]
    return any(isinstance(one, str | dict | list) and one not in (*SHIPPED, *ours) for one in choices)


def build(config: Any) -> nn.Module:
    """An untrained model of that configuration."""
    if isinstance(config, dict):
        arch = Architecture.from_json(json.dumps(field_of(config, "architecture", "config.json")))
        token_dim = field_of(config, "token_dim", "config.json")
        at_least_one(token_dim=token_dim)
        return Transformer(arch, token_dim, seed=0).eval()
    return _kind(config)(config).eval()


def load(name: str | Path) -> nn.Module:
    """The trained model of that name, in evaluation mode, as the class its configuration names.

    A compact checkpoint, as `shrinking.save_compact` writes it, comes back with its ragged heads.
    """
    where = folder_of(str(name))
    if (Path(where) / LAYOUT).is_file():
        return load_compact(where)
    config = config_of(where)
    if isinstance(config, dict):
        raise ValueError(f"{name} names headcount's own network but has no {LAYOUT}, so no weights can be placed")
    return filled_model(where, _kind(config), config, str(name))


def filled_model(
    where: str, kind: Any, config: Any, name: str, unused: tuple[str, ...] = (), **settings: Any
) -> nn.Module:
    """A model of this class with every weight from its folder; one that the library would fill in is refused.

    Weights whose name begins with one of `unused` may be missing: nothing is read from them.
    """
    _refuse_index_outside(Path(where))
    _refuse_endless_layers(Path(where), config)
    try:
        with quietly():
            model, info = kind.from_pretrained(
                where, config=config, trust_remote_code=False, output_loading_info=True, **settings
            )
    except Exception as cause:  # whatever a library makes of a stranger's file
        reason = _first_mismatch(Path(where), kind, config) or _said_of_weights(cause)
        raise RefusalError(f"no weights can be read from {name!r}: {reason}") from None
    read = [key for key in info.get("missing_keys") or () if not key.startswith(unused)]
    _refuse_random({**info, "missing_keys": read}, config, name)
    refuse_not_finite(model.state_dict(), name)
    return model.eval()


def load_compact(folder: str | Path) -> nn.Module:
    """The model of a compact checkpoint, ready to run: ragged matrices where the layout says so."""
    folder = Path(folder)
    if not (folder / LAYOUT).is_file():
        raise FileNotFoundError(f"{folder} is no compact checkpoint: it has no {LAYOUT}")
    stored_layout = decode(_StoredLayout, _json_table(folder / LAYOUT), LAYOUT)
    config = config_of(folder)
    _refuse_endless_layers(folder, config)
    model = build(config)
    family = family_of(model)
    layers = family.layers(model)
    if len(layers) != len(stored_layout.layers):
        raise ValueError(f"{LAYOUT} speaks of {len(stored_layout.layers)} layers and the model has {len(layers)}")
    for layer, layout in zip(layers, stored_layout.layers, strict=True):
        family.write(layer, _blank(family.read(layer), layout))
    own = model.state_dict(keep_vars=True)
    try:
        stored = load_file(folder / WEIGHTS)
    except SafetensorError as cause:
        raise RefusalError(f"{folder / WEIGHTS} is not a readable safetensors file: {cause}") from None
    _check_names(set(stored), own, folder)
    refuse_not_finite(stored, folder / WEIGHTS)
    with torch.no_grad():
        for name, tensor in stored.items():
            if own[name].shape != tensor.shape:
                shapes = f"{tuple(tensor.shape)}, and the layout asks for {tuple(own[name].shape)}"
                raise RefusalError(f"{folder / WEIGHTS}: {name!r} is {shapes}")
            own[name].copy_(tensor)
    return model.eval()


def tokenizer_of(name: str | Path) -> Any:
    """The tokenizer beside the model."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder_of(str(name)), trust_remote_code=False)
    except Exception as cause:  # whatever a library makes of a stranger's file
        raise RefusalError(f"no tokenizer can be read from {name!r}: {_first_line(cause)}") from None


def readout_for(name: str | Path) -> Any:
    """What to keep unchanged: the sentence embedding where the folder says how to pool, all last states otherwise."""
    from headcount.nets.pretrained.batches import pooled, states

    return pooled if (Path(folder_of(str(name))) / "modules.json").is_file() else states


def refuse_not_finite(tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuse the first tensor that holds NaN or an infinity: nothing that is measured on it would mean anything."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise RefusalError(f"{where}: {name!r} holds NaN or infinity")


def _refuse_random(info: Mapping[str, Any], config: Any, name: object) -> None:
    """Refuse weights that the library filled in or left out, which it says where nobody looks."""
    if missing := sorted(info.get("missing_keys") or ()):
        raise RefusalError(f"the weights in {name} lack {missing[0]!r} ({len(missing)} tensors in all)")
    if mismatched := sorted(str(key) for key in info.get("mismatched_keys") or ()):
        raise RefusalError(f"the weights in {name} do not fit its config.json: {mismatched[0]}")
    layers = getattr(config, "num_hidden_layers", None)
    for key in sorted(info.get("unexpected_keys") or ()):
        number = re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.", key)
        if layers is not None and number and int(number[1]) >= layers:
            raise RefusalError(f"the weights in {name} hold {key!r}, and its config.json says {layers} layers")


def _refuse_endless_layers(folder: Path, config: Any) -> None:
    """Refuse more layers than the weights could fill with one number each: making them would never end."""
    layers = getattr(config, "num_hidden_layers", 0)
    files = [file for kind in ("*.safetensors", "*.bin") for file in folder.glob(kind)]
    size = sum(file.stat().st_size for file in files)
    if files and isinstance(layers, int) and layers > size // FEWEST_BYTES:
        raise RefusalError(f"the config.json in {folder} says {layers} layers, and its weights are {size} bytes")


def _first_mismatch(folder: Path, kind: Any, config: Any) -> str | None:
    """The first tensor whose shape is not the one that the configuration asks for, in words."""
    try:
        with torch.device("meta"), quietly():
            model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        inner = f"{model.base_model_prefix}."  # a file may hold the inner model alone, or the model around it
        wanted = shapes | {name.removeprefix(inner): shape for name, shape in shapes.items()}
        wanted |= {f"{inner}{name}": shape for name, shape in shapes.items()}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                for name in sorted(file.keys()):
                    shape = tuple(file.get_slice(name).get_shape())
                    if wanted.get(name, shape) != shape:
                        return f"{name!r} is {shape}, and its config.json asks for {wanted[name]}"
    except Exception:  # then the library's own words must do
        return None
    return None


def _said_of_weights(cause: BaseException) -> str:
    if isinstance(cause, pickle.UnpicklingError):  # the library's words advise to run what the file says
        return "a file of pickled weights holds more than tensors, and is not read; ask for safetensors"
    return _first_line(cause)


def _refuse_index_outside(folder: Path) -> None:
    """Refuse an index that names weights anywhere but beside it."""
    for index in sorted(folder.glob("*.index.json")) if folder.is_dir() else ():
        files = _json_table(index).get("weight_map", {})
        for file in files.values() if isinstance(files, dict) else [files]:
            if not isinstance(file, str) or Path(file).name != file:
                raise RefusalError(f"{index} leads to {str(file)[:80]!r}; weights must stand beside it")


def _json_table(path: Path) -> dict[str, object]:
    try:
        data = json.loads(text_in(path))
    except (ValueError, RecursionError) as problem:
        raise RefusalError(f"{path} is not readable JSON: {_first_line(problem)}") from None
    if not isinstance(data, dict):
        raise RefusalError(f"{path} must hold a table of keys and values")
    return data


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])[:300]


def _kind(config: Any) -> Any:
    """The class that a configuration names, or the plain one of its family."""
    import transformers

    named = str((config.architectures or [""])[0])
    return getattr(transformers, named, None) or transformers.MODEL_MAPPING[type(config)]


def _blank(stock: Weights, layout: HeadLayout) -> Weights:
    """Weights of the right shapes, to be filled from a file."""
    embed = stock.value.shape[1]

    def bias(stands: Tensor | None, rows: int) -> Tensor | None:
        return None if stands is None else torch.empty(rows)

    return Weights(
        layout,
        torch.empty(layout.query_rows, embed),
        bias(stock.query_bias, layout.query_rows),
        torch.empty(layout.key_rows, embed),
        torch.empty(layout.value_rows, embed),
        torch.empty(embed, layout.output_columns),
        bias(stock.output_bias, embed),
        stock.scale,
        bias(stock.key_bias, layout.key_rows),
        bias(stock.value_bias, layout.value_rows),
    )


def _check_names(stored: set[str], own: Mapping[str, Tensor], folder: Path) -> None:
    unknown = stored - set(own)
    if unknown:
        raise ValueError(f"{folder / WEIGHTS} holds {sorted(unknown)[0]!r}, which its configuration has no place for")
    pointers = {own[name].data_ptr() for name in stored}
    missing = [name for name, t in own.items() if name not in stored and t.numel() and t.data_ptr() not in pointers]
    if missing:
        raise ValueError(f"{folder / WEIGHTS} lacks {missing[0]!r}")
