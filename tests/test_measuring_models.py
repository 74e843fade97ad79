"""A model at the end: saved, loaded in a fresh process, exported and applied, it answers the same."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headcount as hc
from headcount.cli import main
from headcount.measuring import Classifier, Regressor, StudyPlan
from headcount.measuring.applying import predictions
from headcount.measuring.fitted import FittedModel, load
from headcount.measuring.preparing import Scaling
from headcount.measuring.tables import Reading, from_columns
from headcount.nets.standard import EncoderShape

SMALL = {"steps": 200, "embed_dim": 16, "width": 16, "rates": (4e-3,)}


def fitted(classes=False, ragged=False):
    rng = np.random.default_rng(0)
    x = 1000 + 50 * rng.standard_normal((300, 4, 2))
    y = x[:, :, 0].max(axis=1)
    lengths = 2 + np.arange(300) % 3 if ragged else None
    target = np.where(y > np.median(y), "high", "low") if classes else y
    seen = x if lengths is None else [one[:n] for one, n in zip(x, lengths, strict=True)]
    return x, target, lengths, (Classifier if classes else Regressor)(1, **SMALL).fit(seen, target).model_


def test_predictions_are_in_the_users_units_and_follow_the_target():
    x, y, _, model = fitted()
    assert np.corrcoef(model.predict(x), y)[0, 1] > 0.9
    assert abs(model.predict(x).mean() - y.mean()) < 20


def test_classes_come_back_by_name_with_their_shares():
    x, y, _, model = fitted(classes=True)
    assert (model.predict(x) == y).mean() > 0.8
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="predicts numbers"):
        fitted()[3].predict_proba(x)


def test_what_is_padded_changes_nothing():
    x, _, lengths, model = fitted(ragged=True)
    cut = [one[:count] for one, count in zip(x, lengths, strict=True)]
    one_by_one = np.concatenate([model.predict([one]) for one in cut[:9]])
    np.testing.assert_allclose(model.predict(cut)[:9], one_by_one, rtol=1e-6)


def test_a_fresh_process_and_onnx_give_the_same(tmp_path):
    import onnxruntime

    x, _, _, model = fitted()
    path = model.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", x)
    code = "import sys, numpy as np, headcount as hc; p = hc.load(sys.argv[1]).predict(np.load(sys.argv[2]))"
    code += "; np.save(sys.argv[3], p)"
    names = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "p.npy")]
    subprocess.run([sys.executable, "-c", code, *names], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), model.predict(x))
    session = onnxruntime.InferenceSession(model.export(tmp_path / "model.onnx"))
    (out,) = session.run(None, {"x": x})
    np.testing.assert_allclose(out[:, 0], model.predict(x), rtol=1e-5)
    code = "import sys, numpy as np, torch; net = torch.export.load(sys.argv[1]).module()"
    code += "; np.save(sys.argv[3], net(torch.as_tensor(np.load(sys.argv[2]))).detach().numpy())"
    code += "; assert 'headcount' not in sys.modules"
    names[0] = str(model.export(tmp_path / "model.pt2"))
    subprocess.run([sys.executable, "-c", code, *names], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy")[:, 0], model.predict(x), rtol=1e-5)


def test_measure_saves_a_model_and_apply_reads_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((200, 2)).cumsum(axis=0)
    Path("mine.csv").write_text("target,other\n" + "\n".join(f"{a},{b}" for a, b in walk))
    small = ["--heads", "1-2", "--layers", "1", "--splits", "2", "--steps", "20", "--width", "8", "--window", "3"]
    with pytest.raises(SystemExit) as stop:
        main(["measure", "mine.csv", *small, "--model", "m.safetensors"])
    assert stop.value.code == 0
    with pytest.raises(SystemExit) as stop:
        main(["apply", "m.safetensors", "mine.csv"])
    assert stop.value.code == 0 and "So: 198 predictions are in predictions.csv." in capsys.readouterr().out
    with Path("predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    model = hc.load("m.safetensors")
    assert model.features == ("target", "other") and model.window == 3
    assert float(rows[-1]["prediction"]) == pytest.approx(model.predict(walk[None, -3:])[0], rel=1e-6)


def test_measure_takes_arrays_and_lists():
    x = np.random.default_rng(0).standard_normal((60, 3))
    tiny = StudyPlan(heads=(1, 2), layers=1, splits=2, steps=10, embed_dim=4, width=8, rates=(4e-3,))
    arrays, lists = hc.measure(x, x.sum(axis=1), plan=tiny), hc.measure(x.tolist(), x.sum(axis=1).tolist(), plan=tiny)
    assert arrays.levels == lists.levels
    with pytest.raises(ValueError, match=r"measure\(x, y\)"):
        hc.measure(x)


def test_a_saved_model_is_as_open_to_others_as_any_file(tmp_path):
    path = fitted()[3].save(tmp_path / "m.hc")
    beside = tmp_path / "beside"
    beside.touch()
    assert path.stat().st_mode == beside.stat().st_mode


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "m").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a safetensors file"):
        hc.load(tmp_path / "m")
    with pytest.raises(ValueError, match="2 features per token, x has 1"):
        fitted()[3].predict(np.zeros((3, 4, 1)))


def test_labels_keep_their_type_and_letters_their_table(tmp_path):
    words = ["ab", "ba", "aab", "bba"] * 20
    model = Classifier(1, tokens="letters", **{**SMALL, "steps": 60}).fit(words, [7, 9] * 40)
    again = hc.load(model.model_.save(tmp_path / "m.safetensors"))
    assert again.classes == (7, 9) and again.predict(words).dtype.kind == "i" and again.letters == ("a", "b")
    np.testing.assert_array_equal(again.predict_proba(words), model.predict_proba(words))
    assert again.predict(["az"]).shape == (1,)  # a letter never seen has an id of its own
    np.savez(tmp_path / "x.npz", x=np.array([["a", "b"]] * 3))
    assert set(predictions(again, tmp_path / "x.npz")[0]) == {"sequence", "prediction", "p(7)", "p(9)"}


@pytest.mark.parametrize(
    ("by", "letters"), [("words", ("a", "b", "hot")), ("characters", (" ", "a", "b", "h", "o", "t"))]
)
def test_a_model_of_texts_is_applied_to_a_table_of_texts(tmp_path, by, letters):
    texts, labels = ["a hot b", "a b b", "b hot", "b a a"] * 20, [1, 0, 1, 0] * 20
    table = {"words": texts, "target": labels}
    data = from_columns(table, Reading(text=by, kind="classification"), "texts")
    assert (data.text, data.features, data.letters) == (by, ("words",), letters)
    shape = EncoderShape(((1, 8),), embed_dim=8, width=8, vocab=len(letters) + 1, positions=9, outputs=2)
    scale = Scaling([], [], [0.0, 0.0], [1.0, 1.0], [])
    model = FittedModel(shape.module(), scale, data.classes, data.features, data.letters, text=data.text)
    path = model.save(tmp_path / "m")
    (tmp_path / "t.csv").write_text("\n".join(["words,more", *(f"{text},1" for text in texts)]) + "\n")
    rows = predictions(load(path), tmp_path / "t.csv")
    cut = [text.split() if by == "words" else list(text) for text in texts]
    assert [row["prediction"] for row in rows] == load(path).predict(cut).tolist()
    (tmp_path / "t.csv").write_text("word,more\na,1\n")
    with pytest.raises(ValueError, match="lacks the model's column 'words'; did you mean 'word'"):
        predictions(load(path), tmp_path / "t.csv")
