"""Ranking quality of a sentence encoder: nDCG@10 by query, with bootstrap intervals. Embeds each text once."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount.nets.pretrained.batches import TextBatch, pooled


@dataclass(frozen=True)
class RankingSet:
    """Queries with graded judgements (higher is better) and, for each, the documents to be ranked."""

    name: str
    queries: dict[str, str]
    documents: dict[str, str]
    grades: dict[str, dict[str, int]]
    candidates: dict[str, list[str]]

    def part(self, count: int) -> RankingSet:
        """The first `count` queries in the order of their hash-like ids, with the documents they need."""
        keep = (
            sorted(self.queries, key=lambda q: (int(q) * 2654435761) % 2**32)[:count] if count else list(self.queries)
        )
        needed = {d for q in keep for d in self.candidates[q]}
        return RankingSet(
            self.name,
            {q: self.queries[q] for q in keep},
            {d: self.documents[d] for d in sorted(needed)},
            self.grades,
            self.candidates,
        )


def collection_of(path: Path) -> RankingSet:
    """A set of judged queries from its file: MS MARCO with BM25's candidates, or documents as Cranfield has them."""
    if not path.is_file():
        raise FileNotFoundError(f"no ranking set at {path}")
    data = _unpacked(path)
    if "bm25_top100" in data:
        return trec_dl(path)
    if "docs" in data and "qrels" in data:
        return cranfield(path)
    raise ValueError(f"{path} is no ranking set: it must hold queries, qrels, and docs or passages with bm25_top100")


def trec_dl(path: Path) -> RankingSet:
    """TREC-DL 2019 + 2020 over MS MARCO passages: rerank BM25's top 100."""
    data = _unpacked(path)
    needed = {p for q in data["queries"] for p in data["bm25_top100"][q]}
    passages = {p: data["passages"][p] for p in sorted(needed)}
    return RankingSet("TREC-DL 19+20", data["queries"], passages, data["qrels"], data["bm25_top100"])


def cranfield(path: Path) -> RankingSet:
    """Cranfield 1400: rank all documents. Grades 1 (best) to 4 become 4 to 1; the undefined -1 is dropped."""
    data = _unpacked(path)
    documents = {d: entry["text"] or entry["title"] or "." for d, entry in data["docs"].items()}
    grades = {q: {d: 5 - g for d, g in judgements.items() if g > 0} for q, judgements in data["qrels"].items()}
    return RankingSet("Cranfield", data["queries"], documents, grades, {q: list(documents) for q in data["queries"]})


class Encoded:
    """A collection cut into token ids once, for every model that will be tried on it."""

    def __init__(self, collection: RankingSet, tokenizer: Any, length: int) -> None:
        self.collection = collection
        texts = [*collection.documents.values(), *collection.queries.values()]
        self.ids: list[list[int]] = tokenizer(texts, truncation=True, max_length=length)["input_ids"]
        self.order = sorted(range(len(texts)), key=lambda i: len(self.ids[i]))

    @torch.no_grad()
    def embed(self, model: nn.Module, device: str = "") -> Tensor:
        """One unit vector a text, documents first, in batches of equal length as far as can be; on a GPU if any."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        tokens = 4096 if device == "cpu" else 131_072
        model = model.to(device)
        out: Tensor | None = None
        at = 0
        while at < len(self.order):
            size = max(1, tokens // len(self.ids[self.order[min(at + 64, len(self.order)) - 1]]))
            rows = self.order[at : at + size]
            embeddings = pooled(model, _batch([self.ids[i] for i in rows], device)).float().cpu()
            out = torch.empty(len(self.ids), embeddings.shape[1]) if out is None else out
            out[rows] = embeddings
            at += size
        assert out is not None
        model.cpu()
        return out

    def quality(self, model: nn.Module, device: str = "") -> dict[str, float]:
        """nDCG@10 of every query."""
        vectors = self.embed(model, device)
        count = len(self.collection.documents)
        place = {d: i for i, d in enumerate(self.collection.documents)}
        scores = {}
        for vector, query in zip(vectors[count:], self.collection.queries, strict=True):
            candidates = self.collection.candidates[query]
            similarities = vectors[[place[d] for d in candidates]] @ vector
            ranked = [candidates[i] for i in torch.argsort(-similarities, stable=True).tolist()[:10]]
            scores[query] = ndcg(ranked, self.collection.grades.get(query, {}))
        return scores


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], depth: int = 10) -> float:
    """Discounted gain 2^grade - 1 of the first `depth`, over the best possible."""

    def gain(values: Sequence[int]) -> float:
        return sum((2**g - 1) / math.log2(i + 2) for i, g in enumerate(values[:depth]))

    best = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(d, 0) for d in ranked]) / best if best else 0.0


def interval(values: Sequence[float], draws: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """95% bootstrap interval of the mean over queries."""
    v = np.asarray(values)
    picks = np.random.default_rng(seed).integers(0, len(v), (draws, len(v)))
    low, high = np.percentile(v[picks].mean(1), [2.5, 97.5])
    return float(low), float(high)


def _batch(rows: list[list[int]], device: str) -> TextBatch:
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    present = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    ids, present = ids.to(device), present.to(device)
    return TextBatch({"input_ids": ids, "attention_mask": present.long()}, present)


def _unpacked(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with gzip.open(path) as packed:
            return json.load(packed)
    except (OSError, ValueError) as problem:
        raise ValueError(f"{path} is not a gzipped JSON file: {problem}") from None
