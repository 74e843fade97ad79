"""Models kept as one quantised .gguf file: written out once as a folder of float32 weights, which says what it was."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.files import kept_folder, text_in, user_cache
from headcount.refusals import RefusalError

ORIGIN = "headcount_origin.json"
BITS = {"F32": 32, "F16": 16, "BF16": 16, "Q8": 8, "Q6": 6, "Q5": 5, "Q4": 4, "Q3": 3, "Q2": 2}


@dataclass(frozen=True)
class Origin:
    """The quantised file that a folder of weights was made from."""

    file: str
    bytes: int

    @property
    def bits(self) -> int | None:
        """Bits of a weight, as the file's name states them.

        >>> Origin("SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432).bits
        4
        """
        parts = self.file.upper().replace("-", ".").replace("_", ".").split(".")
        return next((BITS[part] for part in reversed(parts) if part in BITS), None)

    @property
    def sentence(self) -> str:
        """What every table of this model says of it.

        >>> Origin("SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432).sentence
        'SmolLM2-135M-Instruct, dequantised from 4 bits'
        """
        name = self.file.removesuffix(".gguf")
        name = name if self.bits is None else name.rpartition(".")[0] or name
        return f"{name}, dequantised from {'a .gguf file' if self.bits is None else f'{self.bits} bits'}"


def origin_of(folder: str | Path) -> Origin | None:
    """The file that a converted folder came from; None for any other folder."""
    path = Path(folder) / ORIGIN
    return Origin(**json.loads(text_in(path))) if path.is_file() else None


def converted(file: Path) -> Path:
    """The folder of float32 weights that a .gguf file holds; made the first time it is asked for, then kept."""
    return kept_folder(
        user_cache() / "models" / f"{file.stem}-{_fingerprint(file)}", lambda part: _write_out(file, part)
    )


def _write_out(file: Path, part: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from headcount.nets.pretrained.quiet_library import quietly

    where = {"gguf_file": file.name}
    try:
        with quietly():
            AutoTokenizer.from_pretrained(str(file.parent), **where).save_pretrained(part)
            read: Any = AutoModelForCausalLM.from_pretrained(str(file.parent), dtype=torch.float32, **where)
    except ImportError as cause:
        message = str(cause).strip().splitlines()[0]
        raise RefusalError(
            f"{file.name} needs gguf and accelerate to be read: pip install 'headcount[hf,lm]' ({message})"
        ) from None
    config = type(read.config)(**{k: v for k, v in read.config.to_dict().items() if k != "quantization_config"})
    model = type(read)(config)  # the same weights without the memory of having been quantised
    model.load_state_dict(read.state_dict())
    with quietly():
        model.save_pretrained(part)
    (part / ORIGIN).write_text(json.dumps(asdict(Origin(file.name, file.stat().st_size))), encoding="utf-8")


def _fingerprint(file: Path) -> str:
    """Eight digits that another file of the same name does not have: of its size and its first megabyte."""
    with file.open("rb") as raw:
        return hashlib.sha256(str(file.stat().st_size).encode() + raw.read(2**20)).hexdigest()[:8]
