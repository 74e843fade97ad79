"""Compact checkpoints for our loader and padded ones for stock transformers, byte for byte what the plan said."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from headcount.nets.pretrained import load
from headcount.shrinking import compress, load_compact, save_compact, save_padded, size, tensor_bytes
from headcount.shrinking.checkpoint import _write
from headcount.shrinking.surgery import shrink_model
from tests.test_shrinking_models import MODELS

transformers = pytest.importorskip("transformers")
each_model = pytest.mark.parametrize("name", MODELS)


def reduced(name, keep=0.5):
    make, batch, read = MODELS[name]
    model = make().float()
    data = batch()
    if name == "own":
        data = type(data)({"x": data.inputs["x"].float()}, data.present)
    original = copy.deepcopy(model)
    done = shrink_model(model, keep, batches=[data], read=read)
    return original, model, data, read, done


@each_model
def test_the_compact_checkpoint_comes_back_as_it_was(name, tmp_path):
    original, model, data, read, done = reduced(name)
    save_compact(model, tmp_path / "compact")
    back = load_compact(tmp_path / "compact")
    torch.testing.assert_close(read(back, data), read(model, data), atol=1e-6, rtol=0)
    assert tensor_bytes(original) - tensor_bytes(model) == 4 * done.saved
    file = tmp_path / "compact" / "model.safetensors"
    header = int.from_bytes(file.read_bytes()[:8], "little")
    assert file.stat().st_size == 8 + header + tensor_bytes(model)


@each_model
def test_the_padded_checkpoint_loads_in_the_stock_model(name, tmp_path):
    original, model, data, read, _ = reduced(name)
    heads = {"bert": 8, "gpt2": 8, "llama": 8, "llama with biases": 8}
    if name == "own":
        pytest.skip("our own layers differ in head_dim; padding is for transformers")
    save_padded(model, tmp_path / "padded", heads[name])
    stock, said = type(original).from_pretrained(tmp_path / "padded", output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"]
    torch.testing.assert_close(read(stock.eval(), data), read(model, data), atol=2e-5, rtol=0)
    assert sum(p.numel() for p in stock.parameters()) == sum(p.numel() for p in original.parameters())


def test_a_view_into_a_larger_storage_is_written_as_the_tensor_it_is(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    state = {"a": whole[:2], "b": whole[2:], "c": whole[:, 1], "half": torch.ones(3).half(), "none": torch.zeros(0, 4)}
    _write(tmp_path / "x.safetensors", state)
    back = load_file(tmp_path / "x.safetensors")
    assert set(back) == set(state) and all(torch.equal(back[n], t) for n, t in state.items())


@each_model
def test_a_compact_checkpoint_is_loaded_like_any_other_model_and_shrunk_again(name, tmp_path):
    _, model, data, read, _ = reduced(name)
    save_compact(model, tmp_path / "compact")
    again = load(tmp_path / "compact")
    torch.testing.assert_close(read(again, data), read(model, data), atol=1e-6, rtol=0)
    found = compress(tmp_path / "compact", keep=0.3, measure="weights", cast="none", out=tmp_path / "again")
    rows = {row[""]: row for row in found.table}
    assert rows["parameters"]["compact"] < rows["parameters"]["original"] == size(model).parameters
    with pytest.raises(ValueError, match=r"attention parameters already, and keeping 0\.9 of the stock model's would"):
        compress(tmp_path / "compact", keep=0.9, measure="weights", rule="uniform")
    torch.testing.assert_close(read(load(tmp_path / "again/compact"), data), read(found.model, data), atol=1e-6, rtol=0)


def test_nothing_half_written_remains(tmp_path, monkeypatch):
    _, model, *_ = reduced("bert")
    monkeypatch.setattr("headcount.shrinking.checkpoint._settings", _broken)
    with pytest.raises(OSError, match="disk full"):
        save_compact(model, tmp_path / "compact")
    assert list(tmp_path.iterdir()) == []


def _broken(*_):
    raise OSError("disk full")


def test_a_folder_of_the_users_beside_the_checkpoint_stays(tmp_path):
    (tmp_path / "c.part").mkdir()
    (tmp_path / "c.part" / "mine.txt").write_text("mine")
    save_compact(reduced("bert")[1], tmp_path / "c")
    assert (tmp_path / "c.part" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "c.part"]


def test_loading_refuses_what_is_not_a_compact_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no compact checkpoint"):
        load_compact(tmp_path)
    _, model, *_ = reduced("bert")
    save_compact(model, tmp_path / "c")
    with pytest.raises(ValueError, match="is not empty"):
        save_compact(model, tmp_path / "c")
    layout = tmp_path / "c" / "headcount_layout.json"
    layout.write_text(json.dumps({"famly": "bert", "layers": []}))
    with pytest.raises(ValueError, match="did you mean 'family'"):
        load_compact(tmp_path / "c")
