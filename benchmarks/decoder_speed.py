# pyright: reportMissingImports=false
"""Banks of decoders against JAX, vmap + scan of the same one: `python -m benchmarks.decoder_speed --device cuda`.

Both take the same starting parameters and the same strings; products in TF32 on a GPU for both, ours also in bfloat16
and, in programs, of float16 factors, which have as many bits as TF32 ones.
The losses after the timed steps are compared. The faster of JAX's two ways of attention counts. On a CPU everyone runs
again and again in turn, and medians count.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import torch

from benchmarks.ceilings import ceilings
from headcount.kernels.backend import Backend, complaint, eager, recorded
from headcount.kernels.cpp import compiled_decoders
from headcount.kernels.cpp.native_library import native_library
from headcount.kernels.next_letter import answer_loss, logits
from headcount.kernels.optimiser import BETA1, BETA2
from headcount.kernels.optimiser import EPS as ADAM_EPS
from headcount.nets.causal import EPS, DecoderShape
from headcount.numerals import now, today
from headcount.tasks.letters import OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training import Member
from headcount.training.loop import _Run
from headcount.training.strings import CHUNK, LetterStrings, string_recipe

LR, DECAY, WARMUP = 1e-3, 1e-2, 0.05


@dataclass(frozen=True)
class Case:
    """One size of the race."""

    models: int
    depth: int
    heads: int
    head_dim: int
    embed_dim: int
    length: int
    batch: int = 64

    @property
    def name(self) -> str:
        return (
            f"K={self.models}, {self.depth} layers of {self.heads}x{self.head_dim}, E={self.embed_dim}, n={self.length}"
        )

    @property
    def operations(self) -> int:
        """Of a model-step that leaves no place out: products of every layer, forwards and twice backwards."""
        E, rows, places = self.embed_dim, self.heads * self.head_dim, Neighbour().longest(self.length)
        layer = 4 * E * rows + 2 * E * 4 * E + places * rows
        return 6 * (self.depth * layer + E * self.shape.vocab) * self.batch * places

    @property
    def shape(self) -> DecoderShape:
        layers = ((self.heads, self.head_dim),) * self.depth
        context = max(2 * self.length, Neighbour().longest(self.length))
        return DecoderShape(layers, self.embed_dim, 4 * self.embed_dim, vocab=8, context=context)


CASES = (
    Case(24, 2, 4, 16, 64, 20),
    Case(24, 4, 4, 16, 64, 20),
    Case(24, 4, 4, 16, 64, 50),
    Case(12, 4, 4, 32, 128, 50),
)
CPU_CASES = (Case(8, 2, 4, 16, 64, 20), Case(8, 4, 4, 16, 64, 20), Case(8, 4, 4, 16, 64, 50))
TINY = (Case(2, 1, 2, 4, 8, 4, batch=2),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunks", type=int, default=12)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="on a CPU")
    parser.add_argument("--cases", default="0,1,2,3", help="on a GPU, by number")
    parser.add_argument("--ways", help="ours, all by default: full, bfloat16, warps")
    options = parser.parse_args()
    if options.device == "cpu" and not options.tiny:
        in_turn(options)
        return
    one_by_one(TINY if options.tiny else [CASES[int(n)] for n in options.cases.split(",")], options)


def one_by_one(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """The race on a GPU; what is measured is written at once."""
    about = {
        "date": today(),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "torch": torch.__version__,
        "command": f"python -m benchmarks.decoder_speed --device {options.device} --cases {options.cases}",
    }
    rows: list[dict[str, Any]] = []
    for case in cases:
        measured = race(case, options.device, 2 if options.tiny else options.chunks, asked=options.ways)
        rows.append({**measured, "date": about["date"]})
        print(json.dumps(rows[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def in_turn(options: argparse.Namespace) -> None:
    """The race on a CPU: rounds of everyone, medians, the share of what products can reach."""
    about = {
        "date": now(),
        "device": f"CPU, {torch.get_num_threads()} threads, wall-clock time",
        "torch": torch.__version__,
        "command": "python -m benchmarks.decoder_speed --device cpu",
        "ceilings": ceilings("cpu"),
    }
    rows: list[dict[str, Any]] = []
    for case in CPU_CASES:
        measured = [race(case, "cpu", 1) for _ in range(options.rounds)]
        row = {
            k: median(r[k] for r in measured) if isinstance(measured[0][k], (int, float)) else measured[0][k]
            for k in measured[0]
        }
        row["share of the product ceiling, no place left out"] = round(
            row["ours compiled"] * case.operations / about["ceilings"]["float32 product"], 2
        )
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def race(case: Case, device: str, chunks: int, again: bool = True, asked: str | None = None) -> dict[str, Any]:
    """Model-steps per second of every way, and each way's loss at the end; JAX's of an earlier run unless `again`."""
    row: dict[str, Any] = {"case": case.name, "operations": case.operations}
    strings = None
    for name, backend in ways(device).items():
        if asked is not None and name not in asked.split(","):
            continue
        precision = "bfloat16" if name == "bfloat16" else "full"
        rate, loss, strings = ours(case, device, chunks, backend, precision)
        row |= {f"ours {name}": _digits(rate), f"loss {name}": loss}
    assert strings is not None
    row |= {} if again else earlier(case)
    for attention in ("plain", "library") if "jax plain" not in row else ():
        try:
            rate, loss = in_jax(case, device, chunks, attention, strings)
            row |= {f"jax {attention}": _digits(rate), f"loss jax {attention}": loss}
        except Exception as problem:  # a peer that cannot run here is said, not hidden
            row[f"jax {attention}"] = f"{type(problem).__name__}: {str(problem)[:120]}"
    peers = [v for k, v in row.items() if k.startswith("jax") and isinstance(v, (int, float))]
    if peers:
        row["ratio"] = round(max(v for k, v in row.items() if k.startswith("ours")) / max(peers), 2)
        equal = [v for k, v in row.items() if k.startswith("ours") and "bfloat16" not in k]
        row["ratio at equal precision"] = round(max(equal) / max(peers), 2)
    return row


def _digits(rate: float) -> float:
    return round(rate) if rate > 1000 else round(rate, 1)


def ways(device: str) -> dict[str, Backend]:
    """Our ways: float16 factors have as many bits as TF32 ones, bfloat16 ones fewer."""
    if device == "cuda":
        from headcount.kernels.cuda import decoder_network

        return {"full": recorded, "bfloat16": recorded, "warps": decoder_network.backend}
    there = native_library("float32", "decoders") is not None
    return {"full": eager, **({"compiled": compiled_decoders.backend} if there else {})}


def earlier(case: Case) -> dict[str, Any]:
    """What JAX did at this size in the committed race, with its date."""
    file = Path("docs/data/decoder_speed.json")
    known = json.loads(file.read_text()) if file.exists() else {"rows": [], "date": ""}
    rows = [r for r in known["rows"] if r["case"] == case.name]
    return {k: v for k, v in rows[0].items() if "jax" in k} | {"peers of": known["date"]} if rows else {}


def ours(
    case: Case, device: str, chunks: int, backend: Backend, precision: Literal["full", "bfloat16"]
) -> tuple[float, float, Any]:
    torch.set_float32_matmul_precision("high")
    recipe = string_recipe(chunks * CHUNK, case.batch, warmup=WARMUP, precision=precision)
    task = OnLengths(Neighbour(), (case.length, case.length), offsets=False)
    members = [Member(task, case.shape, k, k, LR, DECAY) for k in range(case.models)]
    run = _Run(members, recipe, device, backend, LetterStrings, None)
    source = run.source
    assert isinstance(source, LetterStrings)
    if doubt := complaint(backend, run.problem, run.bank, source.step(0)):
        raise RuntimeError(f"{backend.name}: {doubt}")
    start = run.bank.theta.clone()
    run.round(0)
    strings = [t.cpu().numpy().astype(np.int32) for t in (source.ids, source.targets, source.judged)]
    for state, value in ((run.bank.theta, start), (run.optimiser.first, 0), (run.optimiser.second, 0)):
        state.detach().copy_(torch.as_tensor(value, device=device))
    run.optimiser.step.zero_()
    _wait(device)
    began = time.perf_counter()
    for _ in range(chunks):  # the same strings every time: the race is about steps, not about drawing
        run.advance()
    _wait(device)
    took = time.perf_counter() - began
    with torch.no_grad():
        predicted = logits(case.shape, run.bank.named(), source.ids[0])
        lost = answer_loss(predicted, source.targets[0], source.judged[0])
    return case.models * chunks * CHUNK / took, float(f"{lost.mean().item():.5g}"), (start.cpu().numpy(), *strings)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def in_jax(case: Case, device: str, chunks: int, attention: str, strings: Any) -> tuple[float, float]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if device == "cuda" else "float32")
    theta, ids, targets, counted = (jnp.asarray(a) for a in strings)
    shape, steps = case.shape, chunks * CHUNK
    sizes = shape.tensors()
    cuts = np.cumsum([int(np.prod(size)) for size in sizes.values()])[:-1]

    def named(row):
        return {n: part.reshape(size) for (n, size), part in zip(sizes.items(), jnp.split(row, cuts), strict=True)}

    def normed(p, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPS)
        return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attend(q, k, v):
        if attention == "library":
            return jax.nn.dot_product_attention(q, k, v, is_causal=True)
        scores = jnp.einsum("bthn,bshn->bhts", q, k) * q.shape[-1] ** -0.5
        mask = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        return jnp.einsum("bhts,bshn->bthn", weights, v)

    def logits(p, ids):
        x = p["token"][ids] + p["place"][: ids.shape[1]]
        for i, (heads, head_dim) in enumerate(shape.layers):
            three = (normed(p, f"layer{i}.norm", x) @ p[f"layer{i}.read"].T).reshape(*ids.shape, 3, heads, head_dim)
            mixed = attend(three[:, :, 0], three[:, :, 1], three[:, :, 2]).reshape(*ids.shape, -1)
            x = x + mixed @ p[f"layer{i}.write"].T
            hidden = normed(p, f"layer{i}.before", x) @ p[f"layer{i}.inner.weight"].T + p[f"layer{i}.inner.bias"]
            x = x + jax.nn.gelu(hidden, approximate=False) @ p[f"layer{i}.outer.weight"].T + p[f"layer{i}.outer.bias"]
        return normed(p, "last", x) @ p["logits"].T

    def loss(row, ids, targets, loss_mask):
        log_p = jax.nn.log_softmax(logits(named(row), ids))
        right = jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
        return -(right * loss_mask).sum() / loss_mask.sum()

    slope = jax.vmap(jax.grad(loss))
    rise = max(1, round(WARMUP * steps))

    def step(state, batch):
        theta, first, second, count = state
        count = count + 1
        gradient = slope(theta, *batch)
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        down = 0.5 * (1 + jnp.cos(jnp.pi * jnp.maximum(count - rise, 0) / max(1, steps - rise)))
        rate = LR * jnp.minimum(count / rise, down)
        size = jnp.sqrt(second / (1 - BETA2**count)) + ADAM_EPS
        theta = theta * (1 - rate * DECAY) - rate * (first / (1 - BETA1**count)) / size
        return (theta, first, second, count), None

    run = jax.jit(lambda state, *batches: jax.lax.scan(step, state, batches)[0], donate_argnums=0)
    state = (jnp.array(theta), jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros(()))
    jax.block_until_ready(run(state, ids, targets, counted))
    state = (jnp.array(theta), jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros(()))
    began = time.perf_counter()
    for _ in range(chunks):
        state = run(state, ids, targets, counted)
    jax.block_until_ready(state)
    took = time.perf_counter() - began
    lost = jax.vmap(loss)(state[0], ids[0], targets[0], counted[0])
    return case.models * steps / took, float(f"{float(lost.mean()):.5g}")


if __name__ == "__main__":
    main()
