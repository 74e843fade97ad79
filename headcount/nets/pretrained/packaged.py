"""A trained model of any name with its tokenizer, as large as memory allows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from headcount.nets.pretrained.batches import predicts_tokens
from headcount.nets.pretrained.folders import LAYOUT, filled_model, folder_of, load_compact, stated_config, tokenizer_of
from headcount.numerals import spoken_bytes


def free_memory() -> int:
    """Bytes of memory that the system could give now (64 GB where it does not say)."""
    try:
        words = Path("/proc/meminfo").read_text()
    except OSError:
        return 2**36
    return int(re.findall(r"MemAvailable:\s+(\d+) kB", words)[0]) * 1024


def model_and_tokenizer(name: str) -> tuple[Any, Any]:
    """The trained model of that name in float32, with its tokenizer; one larger than memory is refused before."""
    where = folder_of(name)
    size = sum(p.stat().st_size for kind in ("*.safetensors", "*.bin") for p in Path(where).glob(kind))
    if size > free_memory():
        raise ValueError(
            f"{name} has {spoken_bytes(size)} of weights and {spoken_bytes(free_memory())} of memory are free"
        )
    if (Path(where) / LAYOUT).is_file():
        return load_compact(where), tokenizer_of(where)
    from transformers import AutoModel, AutoModelForCausalLM

    config = stated_config(where, name)
    kind = AutoModelForCausalLM if any(map(predicts_tokens, config.architectures or ())) else AutoModel
    return filled_model(where, kind, config, name, unused=("pooler.",), dtype=torch.float32), tokenizer_of(where)
