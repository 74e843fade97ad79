"""Loaders on tiny files in the official formats and the packed ones; missing and damaged files are one line each."""

import gzip
import io
import json
import pickle

import numpy as np
import pytest
import torch

from studies.head_count.candidates import CandidateSets, bm25, mine, random_words
from studies.head_count.images import Images, OnCanvas, read_cifar
from studies.head_count.passages import read_collections, read_msmarco
from studies.head_count.text_retrieval import TextSets


def write_batch(path, count, first):
    pixels = (np.arange(count * 3072) + first).astype(np.uint8).reshape(count, 3072)
    path.write_bytes(pickle.dumps({b"data": pixels, b"labels": [i % 10 for i in range(count)]}))
    return pixels


@pytest.fixture
def official(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for n in range(1, 6):
        write_batch(folder / f"data_batch_{n}", 4, n)
    write_batch(folder / "test_batch", 3, 9)
    return tmp_path


def test_official_cifar_batches_are_read_in_order(official):
    train, test, what = read_cifar(official)
    raw = pickle.loads((official / "cifar-10-batches-py" / "data_batch_2").read_bytes())[b"data"]
    assert what == "official pixels"
    assert len(train.labels) == 20 and len(test.labels) == 3
    # Channels first in the file, last here; row by row.
    assert train.pixels[4, 3, 5].tolist() == [raw[0][c * 1024 + 3 * 32 + 5] for c in range(3)]


def test_packed_jpegs_are_read(tmp_path):
    image = pytest.importorskip("PIL.Image")
    parts = {}
    for part, colours in (("train", (10, 200)), ("test", (120,))):
        blobs = []
        for colour in colours:
            file = io.BytesIO()
            image.new("RGB", (32, 32), (colour, colour, colour)).save(file, "JPEG")
            blobs.append(np.frombuffer(file.getvalue(), np.uint8))
        parts |= {f"jpeg_{part}": np.concatenate(blobs), f"offsets_{part}": np.cumsum([0, *map(len, blobs)])}
        parts[f"y_{part}"] = np.arange(len(colours))
    np.savez(tmp_path / "cifar10_jpeg_full.npz", **parts)
    train, test, what = read_cifar(tmp_path)
    assert "lossy" in what
    assert abs(int(train.pixels[1].mean()) - 200) <= 2 and abs(int(test.pixels[0].mean()) - 120) <= 2


def test_missing_and_damaged_images_are_one_line(tmp_path, official):
    for folder in (None, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"https://www\.cs\.toronto\.edu"):
            read_cifar(folder)
    (official / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"not a pickle")
    with pytest.raises(ValueError, match="data_batch_3 is not a CIFAR-10 python batch"):
        read_cifar(official)


def test_an_image_on_a_canvas_is_whole_and_its_border_goes_on():
    rng = np.random.default_rng(0)
    images = Images(rng.integers(0, 255, (3, 32, 32, 3), dtype=np.uint8), np.arange(3))
    data = OnCanvas(images, 48)
    data.begin(0, [0, 1])
    patches, labels = data.batch(torch.tensor([[2], [2]]))
    assert patches.shape == (2, 1, 144, 48) and labels.tolist() == [[2], [2]]
    whole = (patches * 63 + 121).round().view(2, 12, 12, 4, 4, 3).transpose(2, 3).reshape(2, 48, 48, 3)
    for model in range(2):
        top, left = data.corner[model, 2].tolist()
        inside = whole[model, top : top + 32, left : left + 32]
        assert torch.equal(inside, torch.from_numpy(images.pixels[2]).float())
        assert torch.equal(whole[model, 0, left : left + 32], inside[0])
    assert data.corner[0].tolist() != data.corner[1].tolist()


def test_places_depend_on_seed_and_epoch_alone():
    images = Images(np.zeros((5, 32, 32, 3), dtype=np.uint8), np.arange(5))
    alone, together = OnCanvas(images, 64), OnCanvas(images, 64)
    alone.begin(3, [7])
    together.begin(3, [1, 7])
    assert torch.equal(alone.corner[0], together.corner[1])


def test_a_canvas_smaller_than_an_image_is_refused():
    with pytest.raises(ValueError, match="at least 32 and a multiple of the patch 4"):
        OnCanvas(Images(np.zeros((1, 32, 32, 3), dtype=np.uint8), np.zeros(1, dtype=np.int64)), 30)


WORDS = ["flea", "cycle", "heart", "valve", "river", "delta", "engine", "piston", "orchid", "petal", "cloud", "rain"]


@pytest.fixture
def msmarco(tmp_path):
    passages = [f"{a} {b} passage {i}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS if a < b)]
    (tmp_path / "collection.tsv").write_text("".join(f"{i}\t{p}\n" for i, p in enumerate(passages)))
    (tmp_path / "queries.train.tsv").write_text("".join(f"{q}\twhat is {w}\n" for q, w in enumerate(WORDS)))
    right = {q: next(i for i, p in enumerate(passages) if w in p) for q, w in enumerate(WORDS)}
    (tmp_path / "qrels.train.tsv").write_text("".join(f"{q}\t0\t{p}\t1\n" for q, p in right.items()))
    return tmp_path


def test_official_msmarco_files_become_candidate_sets(msmarco):
    (collection,) = read_collections(msmarco)
    assert collection == read_msmarco(msmarco)
    assert len(collection.pairs) == len(WORDS)
    sets = mine([collection], random_words(16), most=8)
    assert sets.candidates.shape == (len(WORDS), 8)
    assert all(len(set(row)) == 8 for row in sets.candidates.tolist())  # no passage twice, the right one included


def test_candidates_survive_their_file_and_the_right_one_is_the_label(msmarco, tmp_path):
    sets = mine(read_collections(msmarco), random_words(16), most=8, words="random")
    sets.save(tmp_path / "sets.npz")
    again = CandidateSets.load(tmp_path / "sets.npz")
    assert again.words == "random" and np.array_equal(again.vectors, sets.vectors)
    data = TextSets(again, np.ones(len(WORDS), dtype=bool), 4, "cpu")
    x, labels = data.batch(torch.arange(len(WORDS))[None])
    right = data.vectors[torch.from_numpy(again.candidates[:, 0])]
    assert torch.equal(x[0, torch.arange(len(WORDS)), 1 + labels[0]], right)


def test_a_limit_keeps_the_first_queries(msmarco):
    assert len(read_msmarco(msmarco, limit=3).relevant) == 3


def test_missing_and_damaged_collections_are_one_line(tmp_path, msmarco):
    for folder in (None, tmp_path / "empty"):
        with pytest.raises(FileNotFoundError, match=r"https://microsoft\.github\.io/msmarco"):
            read_collections(folder)
    (msmarco / "queries.train.tsv").write_text("one column only\n")
    with pytest.raises(ValueError, match=r"queries\.train\.tsv line 1 has 1 columns, not 2"):
        read_collections(msmarco)


def test_packed_collections_are_read_and_damaged_ones_refused(tmp_path):
    (tmp_path / "wikiqa").mkdir()
    (tmp_path / "pubmedqa").mkdir()
    questions = [{"question": f"q {w}", "answers": [f"{w} yes", "no"], "labels": [1, 0]} for w in WORDS]
    with gzip.open(tmp_path / "wikiqa" / "wikiqa.json.gz", "wt") as file:
        json.dump({"train": questions[:6], "dev": questions[6:8], "test": questions[8:]}, file)
    (collection,) = read_collections(tmp_path)
    assert collection.name == "WikiQA" and len(collection.pairs) == len(WORDS)
    with gzip.open(tmp_path / "pubmedqa" / "pubmedqa_l.json.gz", "wt") as file:
        file.write("{")
    with pytest.raises(ValueError, match="pubmedqa_l"):
        read_collections(tmp_path)


def test_bm25_prefers_rare_words_and_short_passages():
    scores = bm25(["common words here", "common rare", "common filler filler filler rare", "common"])("common rare")
    assert scores.argmax() == 1 and scores[2] > scores[0]
