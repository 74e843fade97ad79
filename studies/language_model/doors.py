"""A cut model read by others: by transformers with the file beside it, in a fresh process, and as an ONNX program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from headcount.nets.pretrained import load, tokenizer_of
from studies.language_model.device_steps import Figures

TEXT = "The kidneys keep the balance of water and salt in the body, and"
LENGTHS = (3, 14)  # tokens of the two sequences that a program is asked about, one of them filled up
WRITTEN = 40
LOADED = """
import json, sys, torch, transformers
torch.set_num_threads(1)
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True, dtype="float32").eval()
ids = torch.tensor(json.loads(sys.argv[2]))
with torch.no_grad():
    torch.save(model(input_ids=ids).logits, sys.argv[3])
    print(json.dumps(model.generate(ids, max_new_tokens=int(sys.argv[4]), do_sample=False, use_cache=True).tolist()))
"""


def doors(folder: Path, scratch: Path) -> Figures:
    """What others make of the folder that `compress --cast none --onnx --out` wrote, beside what we make of it."""
    ours: Any = load(folder / "compact")
    ids = torch.tensor([tokenizer_of(folder / "compact")(TEXT)["input_ids"]])
    with torch.no_grad():
        wanted = ours(input_ids=ids).logits
        written = ours.generate(ids, max_new_tokens=WRITTEN, do_sample=False, use_cache=True)
    scratch.mkdir(parents=True, exist_ok=True)
    logits = scratch / "logits.pt"
    run = [sys.executable, "-c", LOADED, str(folder / "compact"), json.dumps(ids.tolist()), str(logits), str(WRITTEN)]
    printed = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    their_tokens = json.loads(printed)[0][ids.shape[1] :]
    own_tokens = written[0, ids.shape[1] :].tolist()
    equal = sum(a == b for a, b in zip(their_tokens, own_tokens, strict=True))
    differences = {
        "logits": float((torch.load(logits) - wanted).abs().max()),
        "tokens": len(own_tokens),
        "equal tokens": equal,
    }
    return {"transformers": differences, "onnx": _as_program(folder / "model.onnx", ours, ids)}


def _as_program(path: Path, ours: Any, ids: torch.Tensor) -> Figures:
    """The largest difference of a logit, over two sequences of which the first is filled up."""
    import onnxruntime

    most = min(LENGTHS[1], ids.shape[1])
    rows = torch.stack([ids[0, :most], ids[0, :most]])
    there = torch.ones_like(rows)
    there[0, LENGTHS[0] :] = 0
    session = onnxruntime.InferenceSession(str(path))
    inputs = {"input_ids": rows.numpy(), "attention_mask": there.numpy()}
    answer = torch.from_numpy(session.run(None, inputs)[0])
    with torch.no_grad():
        wanted = ours(input_ids=rows, attention_mask=there).logits
    gaps = [float((answer[i] - wanted[i])[there[i] > 0].abs().max()) for i in range(2)]
    size = float(wanted.abs().max())
    return {"logits": max(gaps), "largest logit": size, "bytes": path.stat().st_size}
