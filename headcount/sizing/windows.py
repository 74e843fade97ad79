"""Text as windows of tokens: those to train on, each seen once in an order that the seed fixes, and those held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, Integer, Shaped

from headcount.files import arrays_in


@dataclass(frozen=True, eq=False)
class TokenWindows:
    """Windows of T + 1 tokens, so that each gives T predictions; `source` names where each held-out one comes from.

    `bytes_per_token` turns nats per token into bits per byte.

    >>> ids = np.arange(40).reshape(8, 5) % 7
    >>> text = TokenWindows(ids, ids[:2], np.array(["a", "b"]), vocab=7, bytes_per_token=1.0)
    >>> text.length, text.order(seed=3).tolist() == text.order(seed=3).tolist()
    (4, True)
    """

    train: Integer[np.ndarray, "windows long"]
    valid: Integer[np.ndarray, "held long"]
    source: Shaped[np.ndarray, " held"]
    vocab: int
    bytes_per_token: float

    @property
    def length(self) -> int:
        """How many tokens a prediction may look at, at most."""
        return self.train.shape[1] - 1

    def order(self, seed: int) -> Int[np.ndarray, " windows"]:
        """The order in which a seed sees the windows, each once: the same for every shape and rate."""
        return np.random.default_rng(seed).permutation(len(self.train))

    def digest(self) -> str:
        """A fingerprint of every window."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid):
            digest.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
        return digest.hexdigest()[:16]

    def facts(self) -> dict[str, object]:
        return {
            "train_windows": len(self.train),
            "valid_windows": len(self.valid),
            "length": self.length,
            "vocab": self.vocab,
            "bytes_per_token": self.bytes_per_token,
        }

    @classmethod
    def of_bytes(cls, path: str | Path, length: int = 256, held: float = 0.05) -> TokenWindows:
        """A plain text file as windows of bytes; the last part is held out."""
        content = np.frombuffer(Path(path).read_bytes(), dtype=np.uint8)
        count = (len(content) - 1) // length
        if count < 20:
            raise ValueError(f"{path} holds {len(content):,} bytes: fewer than twenty windows of {length}")
        cut = max(1, round(held * count))
        windows = content[np.arange(count)[:, None] * length + np.arange(length + 1)]
        return cls(windows[:-cut], windows[-cut:], np.array([Path(path).stem] * cut), 256, 1.0)

    @classmethod
    def read(cls, path: str | Path) -> TokenWindows:
        """Windows as `write` has kept them."""
        arrays = arrays_in(path)
        missing = [name for name in ("train", "valid", "source", "sizes") if name not in arrays]
        if missing:
            raise ValueError(f"{path} holds no {missing[0]}: it is no file of token windows")
        vocab, bytes_per_token = arrays["sizes"]
        if arrays["train"].ndim != 2 or arrays["train"].shape[1:] != arrays["valid"].shape[1:]:
            raise ValueError(
                f"{path}: windows of {arrays['train'].shape} and {arrays['valid'].shape} do not fit together"
            )
        return cls(arrays["train"], arrays["valid"], arrays["source"], int(vocab), float(bytes_per_token))

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        sizes = np.array([self.vocab, self.bytes_per_token])
        np.savez_compressed(path, train=self.train, valid=self.valid, source=self.source, sizes=sizes)
        return path
