"""Real sets: four of scikit-learn's wheel, eight of aeon's, six files; at most 64 tokens and 1,800 sequences each."""

from __future__ import annotations

import csv
import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headcount.measuring import Sequences, sequences
from headcount.measuring.tables import cut_windows
from headcount.numerals import counted

MOST_TOKENS = 64  # longer series are cut into patches
MOST = 1800  # sequences, of which a split trains on 1,200
Series = list[np.ndarray]


def digits() -> Sequences:
    """Rows of 8 x 8 images as tokens."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return sequences(bunch.images, bunch.target, name="digits")  # pyright: ignore


def _wide(name: str, bunch: Any) -> Sequences:
    x = np.asarray(bunch.data, dtype=float)[:, :, None]
    return sequences(x, bunch.target, name=name, wide=True)


def breast_cancer() -> Sequences:
    """Thirty measurements, each a token."""
    from sklearn.datasets import load_breast_cancer

    return _wide("breast cancer", load_breast_cancer())


def wine() -> Sequences:
    """Thirteen measurements, each a token."""
    from sklearn.datasets import load_wine

    return _wide("wine", load_wine())


def diabetes() -> Sequences:
    """Ten measurements, each a token, and the course of a year as a number."""
    from sklearn.datasets import load_diabetes

    return _wide("diabetes", load_diabetes())


def read_ts(text: str) -> tuple[Series, list[str]]:
    """Series as (length, channels) and their labels, of a .ts file: `@` lines, then `values:values:label`.

    >>> series, labels = read_ts("@classLabel true a b\\n@data\\n1,2,?:4,5,6:a\\n7,8:9,10:b\\n")
    >>> [one.shape for one in series], labels, series[1].tolist()
    ([(3, 2), (2, 2)], ['a', 'b'], [[7.0, 9.0], [8.0, 10.0]])
    """
    body = text.split("@data", 1)[-1] if "@data" in text else text[text.lower().index("@data") + 5 :]
    series, labels = [], []
    for line in filter(None, (line.strip() for line in body.splitlines())):
        *channels, label = line.split(":")
        rows = [[np.nan if v.strip() == "?" else float(v) for v in one.split(",")] for one in channels]
        series.append(np.array(rows).T)
        labels.append(label)
    return series, labels


def patches(series: Series, most: int = MOST_TOKENS) -> tuple[Series, int]:
    """As many moments on end as it takes to have at most 64 tokens; what does not fill a patch ends as missing.

    >>> cut, size = patches([np.arange(6.0)[:, None], np.arange(3.0)[:, None]], most=3)
    >>> size, [one.tolist() for one in cut][0]
    (2, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    """
    size = -(-max(map(len, series)) // most)
    return [_in_patches(one, size) for one in series], size


def _in_patches(one: np.ndarray, size: int) -> np.ndarray:
    padded = np.full((-(-len(one) // size) * size, one.shape[1]), np.nan)
    padded[: len(one)] = one
    return padded.reshape(-1, size * one.shape[1])


def time_series(training: Path) -> Sequences:
    """Both official parts of a set in aeon's wheel, together; labels are classes, or numbers where they are many."""
    parts = [read_ts(p.read_text()) for p in (training, Path(str(training).replace("_TRAIN", "_TEST")))]
    series, labels = [s for one in parts for s in one[0]], [y for one in parts for y in one[1]]
    cut, size = patches(series)
    name = training.stem.removesuffix("_TRAIN")
    target = np.array(labels)
    if len(set(labels)) > len(labels) / 4:
        target = target.astype(float)
    return sequences(cut, target, name=name, notes=(f"a token is {counted(size, 'moment')} on end",))


def _some(rows: int, seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(rows)[:MOST])


def spoken_digits(path: Path) -> Sequences:
    """Frames of 20 ms as tokens: the logarithm of energy in 16 bands; speakers stay on one side of a split."""
    archive = np.load(path)
    audio, offsets, digit, speaker = (archive[k] for k in ("audio", "offsets", "digit", "speaker"))
    clips = [audio[a:b].astype(float) for a, b in pairwise(offsets)]
    frames = [_bands(clip) for clip in clips]
    return sequences(frames, digit.astype(int), groups=speaker.astype(int), name="FSDD")


def _bands(clip: np.ndarray, frame: int = 160, bands: int = 16) -> np.ndarray:
    count = max(1, min(len(clip) // frame, MOST_TOKENS))
    cut = np.zeros(count * frame)
    cut[: min(len(clip), len(cut))] = clip[: len(cut)]
    power = np.abs(np.fft.rfft(cut.reshape(count, frame) * np.hanning(frame), axis=1)) ** 2
    return np.log1p(np.stack([part.sum(axis=1) for part in np.array_split(power, bands, axis=1)], axis=1))


def mnist_rows(path: Path) -> Sequences:
    """Rows of 28 x 28 images as tokens."""
    archive = np.load(path)
    x, y = archive["x_train"], archive["y_train"]
    rows = _some(len(x))
    return sequences(x[rows].astype(float), y[rows].astype(int), name="MNIST rows")


def oil_temperature(path: Path) -> Sequences:
    """A day of seven hourly numbers, and the oil temperature six hours after it; every ninth window."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    values = np.array([row[1:] for row in rows[1:]], dtype=float)
    x, y = cut_windows(values, values[:, -1], 24, 6)
    return sequences(x[::9], y[::9], apart=4, past=6, name="ETTh1 windows")


def next_vowel(path: Path) -> Sequences:
    """Thirty-two characters, and whether the next is a vowel, another letter, or none."""
    text = path.read_text()
    places = np.sort(np.random.default_rng(0).permutation(len(text) // 33)[:MOST]) * 33
    return sequences([text[i : i + 32] for i in places], [_kind(text[i + 32]) for i in places], name="tiny Shakespeare")


def _kind(character: str) -> str:
    return "vowel" if character in "aeiouAEIOU" else "letter" if character.isalpha() else "none"


def _words(text: str, known: set[str]) -> list[str]:
    return [word if word in known else "?" for word in text.lower().split()[:MOST_TOKENS]] or ["?"]


def _frequent(texts: list[str], count: int = 500) -> set[str]:
    words, sizes = np.unique([w for text in texts for w in text.lower().split()], return_counts=True)
    return set(words[np.argsort(-sizes, kind="stable")[:count]].tolist())


def questions(path: Path) -> Sequences:
    """A question and a sentence, in the 500 commonest words, and whether it answers; a question stays on one side."""
    with gzip.open(path, "rt") as file:
        entries = json.load(file)["train"]
    pairs = [(n, f"{one['question']} | {text}", bool(ok)) for n, one in enumerate(entries) for text, ok in _judged(one)]
    rows = [pairs[i] for i in _some(len(pairs))]
    known = _frequent([text for _, text, _ in rows])
    x = [_words(text, known) for _, text, _ in rows]
    return sequences(x, [ok for *_, ok in rows], groups=[n for n, *_ in rows], tokens="letters", name="WikiQA")


def _judged(one: dict[str, Any]) -> list[tuple[str, int]]:
    return list(zip(one["answers"], one["labels"], strict=True))


def abstracts(path: Path) -> Sequences:
    """The last words of a conclusion, in the 500 commonest, and whether it says yes, no or maybe."""
    with gzip.open(path, "rt") as file:
        entries = json.load(file)
    texts = [" ".join(one["long_answer"].split()[:MOST_TOKENS]) for one in entries]
    known = _frequent(texts)
    x = [_words(text, known) for text in texts]
    return sequences(x, [one["decision"] for one in entries], tokens="letters", name="PubMedQA")
