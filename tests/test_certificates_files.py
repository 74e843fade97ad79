"""A built network survives its file bit for bit, and other runtimes compute the same function."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headcount.certificates import load
from headcount.papers.head_count import enough_heads, memorise, weight_bounded
from headcount.tasks import Exponential, LinearMax, Ridges, Sine, Wells

CURVED = Ridges([[1.0, 1.0], [1.0, -0.5]], (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3)))
BUILT = {
    "wells": lambda: enough_heads(Wells.random(3, 2, 16, windows=True), 1e-3),
    "linear": lambda: enough_heads(LinearMax.random(2, 3, 16), 1e-2),
    "curved": lambda: enough_heads(Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=8, combine=CURVED), 1e-2),
    "memory": lambda: memorise(Wells.random(2, 1, 6), 0.2),
    "bounded": lambda: weight_bounded(enough_heads(LinearMax.random(2, 2, 8), 1e-2)),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_file_keeps_weights_task_certificate_and_attempts(name, tmp_path):
    built = BUILT[name]()
    again = load(built.save(tmp_path / "net.safetensors"))
    x = built.domain.sample(8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.net(x), built.net(x))
    assert again.task == built.task
    assert again.certificate == built.certificate
    assert again.certificate.error == built.certificate.error
    assert again.check(seed=3).gap == built.check(seed=3).gap
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def test_the_certificate_can_be_read_without_this_package(tmp_path):
    path = BUILT["wells"]().save(tmp_path / "net.safetensors")
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    certificate = json.loads(header["__metadata__"]["headcount"])["certificate"]
    assert sum(t["value"] for t in certificate["terms"]) <= certificate["error"] <= 1e-3


BOX = {"length": 16, "token_dim": 2, "low": 0.0, "high": 1.0}
EXPORT = """
import sys
import numpy as np, torch
from headcount.papers.head_count import enough_heads
from headcount.tasks import Wells
folder = sys.argv[1]
built = enough_heads(Wells.random(3, 2, 16, windows=True), 1e-3)
x = built.domain.sample(7, generator=torch.Generator().manual_seed(1))
built.export(folder + "/net.onnx")
built.export(folder + "/net.pt2")
np.savez(folder + "/expected.npz", x=x.numpy(), y=built.net(x).numpy())
"""


@pytest.mark.filterwarnings("ignore")  # the runtimes announce their own future
def test_onnx_and_plain_torch_compute_the_same_function(tmp_path):
    # In a process of its own: tracing does not go through the shape checks of the test run.
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    import numpy as np

    root = Path(__file__).parents[1]
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, str(tmp_path)], cwd=root, capture_output=True)
    assert made.returncode == 0, made.stderr.decode()[-2000:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["expected.npz", "net.onnx", "net.pt2"]
    expected = np.load(tmp_path / "expected.npz")
    session = runtime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    for batch in (7, 3):
        (y,) = session.run(None, {session.get_inputs()[0].name: expected["x"][:batch]})
        assert y.dtype == np.float64
        assert np.abs(y - expected["y"][:batch]).max() <= 1e-11
    extra = {"headcount": ""}
    plain = torch.export.load(tmp_path / "net.pt2", extra_files=extra).module()
    for text in (session.get_modelmeta().custom_metadata_map["headcount"], extra["headcount"]):
        promise = json.loads(text)["certificate"]
        assert promise["domain"] == {"is": "Box", **BOX}
        assert promise["coverage"]["share"] == 1.0 and promise["error"] <= 1e-3
    assert (plain(torch.from_numpy(expected["x"])) - torch.from_numpy(expected["y"])).abs().max() <= 1e-11
