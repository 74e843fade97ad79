"""Tiny Shakespeare and the passages of MS MARCO as token windows, held-out passages kept clean of near copies."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from headcount.sizing.windows import TokenWindows

LENGTH = 256
VOCAB = 2048
HELD_PLAYS = 0.05  # the last lines of Shakespeare
HELD_PASSAGES = 33  # one passage of so many
RUN = 12  # words in a row that make two passages copies of each other
FILES = ("msmarco_v1_trecdl19_20.json.gz", "msmarco_v2_trecdl21.json.gz")
END = "<end>"


def passages(folder: Path) -> list[str]:
    """The passages, each text once, in the order of their names."""
    by_key: dict[str, str] = {}
    for name in FILES:
        content = json.loads(gzip.decompress((folder / "msmarco" / name).read_bytes()))["passages"]
        by_key |= {key: " ".join(text.split()) for key, text in content.items()}
    return list(dict.fromkeys(by_key[key] for key in sorted(by_key)))


def runs_of(text: str) -> Iterable[int]:
    """Every run of so many words, as a number."""
    words = text.lower().split()
    return (zlib.crc32(" ".join(words[i : i + RUN]).encode()) for i in range(max(1, len(words) - RUN + 1)))


def parted(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Passages to train on and passages held out; what shares a run of words with a held-out one is in neither."""
    held_out = [t for t in texts if zlib.crc32(t.encode()) % HELD_PASSAGES == 0]
    held_runs = {run for text in held_out for run in runs_of(text)}
    chosen = set(held_out)
    return [t for t in texts if t not in chosen and held_runs.isdisjoint(runs_of(t))], held_out


def windows_of(ids: Sequence[int]) -> np.ndarray:
    """The tokens cut into windows that share one token with the next: its last is the other's first."""
    count = (len(ids) - 1) // LENGTH
    flat = np.asarray(ids[: count * LENGTH + 1], dtype=np.uint16)
    return flat[np.arange(count)[:, None] * LENGTH + np.arange(LENGTH + 1)]


def prepare(folder: Path, limit: int = 0) -> TokenWindows:
    """Both texts as windows; byte-pair tokens are learnt from what is trained on alone. `limit` passages at most."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    train, held_out = parted(passages(folder)[: limit or None])
    plays = (folder / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    cut = plays.index("\n\n", int((1 - HELD_PLAYS) * len(plays)))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*train, plays[:cut]], trainer)
    end = tokenizer.token_to_id(END)

    def joined(texts: Sequence[str]) -> list[int]:
        return [i for one in tokenizer.encode_batch(list(texts)) for i in [*one.ids, end]]

    order = np.random.default_rng(0).permutation(len(train))
    both = [windows_of(joined([train[i] for i in order])), windows_of(joined([plays[:cut]]))]
    valid = [windows_of(joined(held_out)), windows_of(joined([plays[cut:]]))]
    names = np.array(["passages"] * len(valid[0]) + ["plays"] * len(valid[1]))
    texts = [*held_out, plays[cut:]]
    bytes_per_token = sum(len(t.encode()) for t in texts) / sum(len(joined([t])) for t in texts)
    return TokenWindows(np.concatenate(both), np.concatenate(valid), names, VOCAB, bytes_per_token)
