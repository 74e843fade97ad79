"""Candidate sets for text retrieval: one passage that answers the query among hard ones that do not.

Half of the wrong ones are BM25's best, half the nearest by pooled frozen word vectors, as the paper mines them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, Int8
from scipy import sparse

from studies.head_count.passages import Collection

Embed = Callable[[Sequence[str]], np.ndarray]
WORD = re.compile(r"[a-z0-9]+")
LONGEST = 128


@dataclass(frozen=True, eq=False)
class CandidateSets:
    """Queries with their candidates as rows of one table of frozen vectors, rounded to 8 bits and a scale a row.

    The first candidate of every set is the right one.
    """

    vectors: Int8[np.ndarray, "texts features"]
    scales: Float[np.ndarray, " texts"]
    queries: Int[np.ndarray, " sets"]
    candidates: Int[np.ndarray, "sets candidates"]
    validation: Bool[np.ndarray, " sets"]
    words: str

    def save(self, path: Path) -> None:
        """Write everything as one .npz."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        np.savez_compressed(path, **fields)

    @classmethod
    def load(cls, path: Path) -> CandidateSets:
        """What `save` wrote."""
        with np.load(path) as raw:
            missing = [name for name in cls.__dataclass_fields__ if name not in raw]
            if missing:
                raise ValueError(f"{path} holds no candidate sets: it lacks {missing[0]}")
            return cls(
                **{name: raw[name] for name in cls.__dataclass_fields__ if name != "words"}, words=str(raw["words"])
            )


def mine(
    collections: Sequence[Collection],
    embed: Embed,
    most: int = 32,
    words: str = "",
    pairs: int | None = None,
    seed: int = 0,
) -> CandidateSets:
    """Candidate sets of `most` passages for every (query, right passage); one query in ten is kept for validation.

    Queries are split, not pairs: a query whose right passages fell on both sides would leak.
    """
    texts: dict[str, int] = {}
    queries, candidates, validation = [], [], []
    for mined in (_mine(c, embed, most, pairs) for c in collections):
        for query, passages in mined:
            queries.append(texts.setdefault("query: " + query, len(texts)))
            candidates.append([texts.setdefault(p, len(texts)) for p in passages])
            validation.append(zlib.crc32(f"{seed}:{query}".encode()) % 10 == 0)
    if not queries:
        raise ValueError(f"no query has a right passage and {most - 1} others: give a larger collection")
    vectors = embed([t.removeprefix("query: ") for t in texts])
    scales = np.abs(vectors).max(axis=1).clip(1e-9) / 127
    rounded = np.round(vectors / scales[:, None]).astype(np.int8)
    return CandidateSets(
        rounded, scales.astype(np.float32), np.array(queries), np.array(candidates), np.array(validation), words
    )


def _mine(collection: Collection, embed: Embed, most: int, pairs: int | None) -> list[tuple[str, list[str]]]:
    chosen = collection.pairs[:pairs]
    query_ids = list(dict.fromkeys(q for q, _ in chosen))
    ids = list(collection.passages)
    wrong = _hard_negatives(collection, query_ids, ids, embed, most - 1)
    right_text = collection.passages
    return [
        (collection.queries[q], [right_text[p], *(right_text[ids[n]] for n in wrong[q][: most - 1])])
        for q, p in chosen
        if len(wrong[q]) >= most - 1
    ]


def _hard_negatives(
    collection: Collection, query_ids: list[str], ids: list[str], embed: Embed, count: int
) -> dict[str, list[int]]:
    texts = [collection.queries[q] for q in query_ids]
    bags = bm25(list(collection.passages.values()))
    passages, queries = (_unit(embed(t)) for t in (list(collection.passages.values()), texts))
    out = {}
    for q, text, query in zip(query_ids, texts, queries, strict=True):
        barred = set(collection.relevant[q]) | collection.doubtful.get(q, frozenset())
        wanted = 2 * count + len(barred)
        by_words, by_vectors = (_best(scores, wanted) for scores in (bags(text), passages @ query))
        allowed = [[n for n in order if ids[n] not in barred] for order in (by_words, by_vectors)]
        mixed = dict.fromkeys(n for pair in zip(*allowed, strict=False) for n in pair)  # in turns: half of each kind
        out[q] = list(mixed)[:count]
    return out


def _best(scores: Float[np.ndarray, " passages"], count: int) -> list[int]:
    count = min(count, len(scores))
    top = np.argpartition(-scores, count - 1)[:count]
    return top[np.argsort(-scores[top], kind="stable")].tolist()


def bm25(passages: Sequence[str], k1: float = 0.9, b: float = 0.4) -> Callable[[str], np.ndarray]:
    """Scores of every passage for a query: sum over its words of idf * tf (k1 + 1) / (tf + k1 (1 - b + b len / mean)).

    >>> scores = bm25(["the cat sat", "a dog ran", "the dog and the cat"])("cat")
    >>> bool(scores[0] > scores[2] > scores[1])
    True
    """
    index: dict[str, int] = {}
    bags = [[index.setdefault(w, len(index)) for w in WORD.findall(p.lower())] for p in passages]
    rows = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    columns = np.array([w for bag in bags for w in bag], dtype=np.int64)
    counts = sparse.coo_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(bags), max(1, len(index)))).tocsr()
    counts.sum_duplicates()
    long = np.array([len(bag) for bag in bags]) / max(1e-9, np.mean([len(bag) for bag in bags]))
    owner = np.repeat(np.arange(len(bags)), np.diff(counts.indptr))
    weight = counts.data * (k1 + 1) / (counts.data + k1 * (1 - b + b * long[owner]))
    holders = np.bincount(counts.indices, minlength=max(1, len(index)))
    idf = np.log1p((len(bags) - holders + 0.5) / (holders + 0.5))
    by_word = sparse.csr_matrix((weight * idf[counts.indices], counts.indices, counts.indptr), counts.shape).tocsc()

    def scores(query: str) -> np.ndarray:
        known = sorted({index[w] for w in WORD.findall(query.lower()) if w in index})
        return np.asarray(by_word[:, known].sum(axis=1)).ravel()

    return scores


def random_words(features: int = 128) -> Embed:
    """Frozen vectors that were trained nowhere: a word's vector is drawn from its own hash; a text is their mean.

    >>> random_words(8)(["a b", "b a"]).std(axis=0).max() < 1e-12
    np.True_
    """
    known: dict[str, np.ndarray] = {}

    def vector(word: str) -> np.ndarray:
        if word not in known:
            known[word] = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(features)
        return known[word]

    def embed(texts: Sequence[str]) -> np.ndarray:
        bags = [WORD.findall(t.lower())[:LONGEST] or ["empty"] for t in texts]
        return np.stack([np.mean([vector(w) for w in bag], axis=0) for bag in bags])

    return embed


def bert_words(folder: Path) -> Embed:
    """The frozen embedding layer of a BERT: word, position and segment vectors, normed; a text is their mean.

    `folder` holds model.safetensors and the tokenizer's files, as the model hub ships them.
    """
    from safetensors import safe_open
    from transformers import AutoTokenizer

    with safe_open(folder / "model.safetensors", framework="np") as weights:
        prefix = "bert." if "bert.embeddings.LayerNorm.weight" in weights.keys() else ""  # noqa: SIM118
        table = {
            key: weights.get_tensor(f"{prefix}embeddings.{name}").astype(np.float32)
            for key, name in {
                "word": "word_embeddings.weight",
                "place": "position_embeddings.weight",
                "kind": "token_type_embeddings.weight",
                "scale": "LayerNorm.weight",
                "shift": "LayerNorm.bias",
            }.items()
        }
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def pooled(ids: list[int]) -> np.ndarray:
        x = table["word"][ids] + table["place"][: len(ids)] + table["kind"][0]
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-12)
        return (x * table["scale"] + table["shift"]).mean(axis=0)

    def embed(texts: Sequence[str]) -> np.ndarray:
        batches = [list(texts[n : n + 1000]) for n in range(0, len(texts), 1000)]
        encoded = [tokenizer(part, truncation=True, max_length=LONGEST)["input_ids"] for part in batches]
        return np.stack([pooled(ids) for part in encoded for ids in part])

    return embed


def _unit(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=0)  # the mean of all word vectors says nothing about a text
    return centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-9)
