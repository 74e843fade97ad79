"""Systems for other programs: real outputs, a torch module, ONNX, second-order sections, and what deepening says."""

import json

import numpy as np
import pytest
import scipy.signal
import torch

import headcount as hc
from headcount.cli.door import main
from headcount.papers.ssm.streaming import StreamingFilter

SOS = scipy.signal.cheby1(6, 1, 0.2, output="sos")


def systems():
    shallow = hc.ssm.from_sos(SOS)
    return {"one layer": shallow, "depth 3": shallow.deepen(3), "stages": shallow.gain_stages(0.3)}


def signal(length=300):
    return np.random.default_rng(0).standard_normal(length)


@pytest.mark.parametrize("form", ["one layer", "depth 3", "stages"])
def test_a_real_filter_gives_real_numbers_and_those_of_scipy(form):
    system, x = systems()[form], signal()
    wanted = scipy.signal.sosfilt(SOS, x)
    for y in (system.scan(x), system.convolve(x)):
        assert y.dtype == np.float64 and np.abs(y - wanted).max() < 1e-12
    assert system.impulse(16).dtype == np.float64
    assert np.iscomplexobj(system.scan(1j * x)), "a complex input has a complex output"


def test_a_complex_filter_stays_complex():
    system = hc.ssm.DiagonalSSM([0.5j], [1.0])
    assert not system.is_real and np.iscomplexobj(system.impulse(4))
    deep = hc.ssm.DeepSSM([hc.ssm.Layer([0.5j], [[1]]), hc.ssm.Layer([0.25], [[1]])], [1])
    assert not deep.is_real and np.iscomplexobj(deep.impulse(4))
    with pytest.raises(ValueError, match="the response is complex"):
        StreamingFilter(system)


@pytest.mark.parametrize("form", ["one layer", "depth 3", "stages"])
def test_the_torch_module_filters_as_scipy_does_with_no_larger_numbers(form):
    system, x = systems()[form], signal()
    net = hc.ssm.to_module(system)
    y = net.filter(torch.tensor(x)[None])[0].detach().numpy()
    assert np.abs(y - scipy.signal.sosfilt(SOS, x)).max() < 1e-12
    weights = [p for name, p in net.named_parameters() if not name.startswith("hold")]
    assert max(float(p.detach().abs().max()) for p in weights) <= system.largest_entry * (1 + 1e-12)


def test_onnx_and_the_torch_program_give_the_same_samples(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    system, x = systems()["depth 3"], signal(60)
    wanted = scipy.signal.sosfilt(SOS, x)
    session = runtime.InferenceSession(hc.ssm.export(system, tmp_path / "filter.onnx"))
    program = torch.export.load(hc.ssm.export(system, tmp_path / "filter.pt2")).module()
    names = [given.name for given in session.get_inputs()]
    states = session.get_inputs()[1].shape[1]
    state, own = np.zeros((1, states), np.float32), torch.zeros(1, states)
    for sample, right in zip(x.astype(np.float32), wanted, strict=True):
        (y,), state = session.run(None, dict(zip(names, (sample[None], state), strict=True)))
        also, own = program(torch.tensor(sample[None]), own)
        assert abs(y - right) < 1e-5 and abs(also.item() - right) < 1e-5
    assert not list(tmp_path.glob("part.*"))


def test_second_order_sections_are_written_for_scipy_and_read_back(tmp_path):
    path = hc.ssm.export(systems()["depth 3"], tmp_path / "filter.json")
    sos = np.array(json.loads(path.read_text())["sos"])
    x = signal()
    assert np.abs(scipy.signal.sosfilt(sos, x) - scipy.signal.sosfilt(SOS, x)).max() < 1e-9
    assert np.allclose(hc.ssm.load(path).impulse(32), systems()["one layer"].impulse(32))
    with pytest.raises(ValueError, match=r"export writes .onnx, .pt2, .json"):
        hc.ssm.export(systems()["depth 3"], tmp_path / "filter.txt")


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert not stop.value.code
    return capsys.readouterr().out


def test_what_is_small_already_stays_and_leaves_no_files(capsys, tmp_path):
    hc.ssm.save(systems()["one layer"], tmp_path / "filter.json")
    out = call(capsys, "ssm", "deepen", tmp_path / "filter.json", "--max-entry", "2")
    assert "So: already small: stay at depth 1" in out
    assert [p.name for p in tmp_path.iterdir()] == ["filter.json"]
    facts = json.loads(call(capsys, "ssm", "deepen", tmp_path / "filter.json", "--max-entry", "2", "--json"))
    assert facts["already small"] and facts["files"] == []


def test_a_depth_that_raises_the_entries_says_so(capsys, tmp_path):
    hc.ssm.save(systems()["one layer"], tmp_path / "filter.json")
    out = call(capsys, "ssm", "deepen", tmp_path / "filter.json", "--depth", "3")
    said = " ".join(out.split())
    assert "So: stay at depth 1: depth 3 raises the largest entry from 0.413 to 0.556; the response" in said
    page = (tmp_path / "filter-deep.html").read_text()
    for words in ("larger numbers", "Frequency response, decibels", "Before: one layer", "Few bits"):
        assert words in page


def test_onnx_names_its_outputs_and_is_written_in_float64_where_asked(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    system, x = systems()["depth 3"], signal(60)
    session = runtime.InferenceSession(hc.ssm.export(system, tmp_path / "filter.onnx", precision="float64"))
    assert [made.name for made in session.get_outputs()] == ["y", "next_state"]
    names = [given.name for given in session.get_inputs()]
    state = np.zeros((1, session.get_inputs()[1].shape[1]))
    for sample, right in zip(x, scipy.signal.sosfilt(SOS, x), strict=True):
        (y,), state = session.run(["y", "next_state"], dict(zip(names, (sample[None], state), strict=True)))
        assert abs(y - right) < 1e-12
    with pytest.raises(ValueError, match="precision is float32 or float64, got 'half'"):
        hc.ssm.export(system, tmp_path / "filter.onnx", precision="half")
