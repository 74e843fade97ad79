"""Text collections with judgements: MS MARCO's official TSV files, and the packed JSON files of small collections."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GET = (
    "get collection.tsv, queries.train.tsv and qrels.train.tsv of MS MARCO passage ranking from "
    "https://microsoft.github.io/msmarco/ and give their folder as the data folder"
)


@dataclass(frozen=True)
class Collection:
    """Queries, passages, and for each query the passages that answer it and those that must not count as wrong."""

    name: str
    queries: dict[str, str]
    passages: dict[str, str]
    relevant: dict[str, tuple[str, ...]]
    doubtful: dict[str, frozenset[str]]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every (query, passage that answers it) of which both texts are at hand."""
        return [(q, p) for q, ps in self.relevant.items() if q in self.queries for p in ps if p in self.passages]


def read_collections(folder: Path | None) -> list[Collection]:
    """All collections found in a folder: official MS MARCO files first, else the packed ones."""
    if folder is None:
        raise FileNotFoundError(f"no text collection given: {GET}")
    for place in (folder, folder / "msmarco"):
        if (place / "collection.tsv").exists():
            return [read_msmarco(place)]
    packed = [_read_packed(folder / where, read) for where, read in PACKED.items() if (folder / where).exists()]
    if not packed:
        raise FileNotFoundError(f"no text collection in {folder}: {GET}")
    return packed


def read_msmarco(folder: Path, part: str = "train", limit: int | None = None) -> Collection:
    """MS MARCO in its official format: collection.tsv, queries.PART.tsv, qrels.PART.tsv (qid 0 pid 1).

    With `limit`, the first so many judged queries; all passages are read, as negatives come from them.
    """
    relevant: dict[str, list[str]] = {}
    for words in _table(folder / f"qrels.{part}.tsv", 4):
        if int(words[3]) > 0 and (limit is None or words[0] in relevant or len(relevant) < limit):
            relevant.setdefault(words[0], []).append(words[2])
    queries = {qid: text for qid, text in _table(folder / f"queries.{part}.tsv", 2) if qid in relevant}
    passages = dict(_table(folder / "collection.tsv", 2))
    return Collection("MS MARCO", queries, passages, {q: tuple(ps) for q, ps in relevant.items()}, {})


def _table(path: Path, columns: int) -> Iterator[list[str]]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {GET}")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            words = line.rstrip("\n").split("\t") if columns == 2 else line.split()
            if len(words) != columns:
                raise ValueError(f"{path} line {number} has {len(words)} columns, not {columns}")
            yield words


def _read_packed(path: Path, read: Callable[[Any], Collection]) -> Collection:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as text:
            return read(json.load(text))
    except (ValueError, KeyError, TypeError, EOFError, AttributeError) as problem:
        raise ValueError(f"{path} is not the packed collection its name says: {problem}") from None


def _judged(name: str, good: Callable[[int], bool], doubtful: Callable[[int], bool]) -> Callable[[Any], Collection]:
    def read(raw: Any) -> Collection:
        texts = raw["passages"] if "passages" in raw else {k: d["text"] for k, d in raw["docs"].items()}
        relevant = {q: tuple(p for p, grade in ps.items() if good(grade)) for q, ps in raw["qrels"].items()}
        unsure = {q: frozenset(p for p, grade in ps.items() if doubtful(grade)) for q, ps in raw["qrels"].items()}
        return Collection(name, raw["queries"], {k: t for k, t in texts.items() if t.strip()}, relevant, unsure)

    return read


def _pairs(raw: Any) -> Collection:
    queries, passages = {r["qid"]: r["query"] for r in raw}, {r["pid"]: r["passage"] for r in raw}
    return Collection("MS MARCO pairs", queries, passages, {r["qid"]: (r["pid"],) for r in raw}, {})


def _questions(raw: Any) -> Collection:
    texts = {r["pmid"]: " ".join(r["contexts"]) for r in raw}
    return Collection("PubMedQA", {r["pmid"]: r["question"] for r in raw}, texts, {k: (k,) for k in texts}, {})


def _sentences(raw: Any) -> Collection:
    queries, passages, relevant = {}, {}, {}
    for number, r in enumerate(r for part in ("train", "dev", "test") for r in raw[part]):
        names = [f"{number}.{n}" for n in range(len(r["answers"]))]
        queries[str(number)] = r["question"]
        passages |= dict(zip(names, r["answers"], strict=True))
        right = [name for name, label in zip(names, r["labels"], strict=True) if label]
        relevant[str(number)] = tuple(right[:1])
    return Collection("WikiQA", queries, passages, relevant, {})


PACKED: dict[str, Callable[[Any], Collection]] = {
    "msmarco/msmarco_v1_trecdl19_20.json.gz": _judged("TREC-DL 2019 and 2020", lambda g: g >= 2, lambda g: g == 1),
    "msmarco/msmarco_v2_trecdl21.json.gz": _judged("TREC-DL 2021", lambda g: g >= 2, lambda g: g == 1),
    "msmarco/msmarco_v1_pairs.json.gz": _pairs,
    "wikiqa/wikiqa.json.gz": _sentences,
    "classic_ir/cranfield.json.gz": _judged("Cranfield", lambda g: 1 <= g <= 3, lambda g: g in (4, -1)),
    "pubmedqa/pubmedqa_l.json.gz": _questions,
}
