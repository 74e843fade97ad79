"""Random mixed banks: gradients in kernels, member by member, against the plain bank in float64.

    python -m benchmarks.fuzz --cases 300 --processes 14 --limit 150 --json fuzz.json
    python -m benchmarks.fuzz --inside --cases 150 --processes 14 --limit 150 --json fuzz_inside.json
    TRITON_INTERPRET=1 python -m benchmarks.fuzz --device cpu --cases 3 --processes 1

Banks come in families that are padded to the same sizes, so that a family is compiled once; what is padded differs.
Those `--inside` are deep, and of sizes that the CUDA programs hold.
Every process writes what it found after each bank, so that a stop loses nothing.
The family that once met an illegal address comes first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headcount.kernels import fused, parts
from headcount.kernels.backend import Backend, Problem, by_differentiation, reference
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cuda import class_network
from headcount.kernels.plain import Batch, Touch, collapsed
from headcount.kernels.preference import backends
from headcount.nets import Architecture

FAMILY, FAILED = 5, 185  # banks of one family; the bank that met an illegal address
EMBED, HEADS, DIM, LONGEST, WIDTH = 64, 16, 16, 64, 256  # the most that the CUDA programs hold


class Drawn(NamedTuple):
    """A bank's members, the members' lengths, the tokens' dimension, samples in a batch."""

    archs: list[Architecture]
    lengths: list[int]
    token_dim: int
    batch: int
    seed: int


def drawn(number: int) -> Drawn:
    """The bank with this number; number 0 is the one that once came out as NaN."""
    if number == 0:
        shapes = [((9, 16), (10, 9)), ((4, 15), (12, 15)), ((1, 3), (2, 16)), ((6, 7), (3, 12))]
        widths = (9, 128, 2, 60)
        archs = [Architecture(layers=s, width=w, positions=5) for s, w in zip(shapes, widths, strict=True)]
        return Drawn(archs, [16] * 4, 5, 16, 0)
    family = torch.Generator().manual_seed(10_000 + number // FAMILY)
    own = torch.Generator().manual_seed(number)
    depth, longest = _between(1, 3, family), _between(1, 100, family)
    room, width = 1 << _between(3, 8, family), 1 << _between(2, 7, family)
    ragged, features = _between(0, 1, family), _between(0, 5, family)
    members = _between(1, 17, own)
    archs = [
        Architecture(
            layers=tuple(_layer(room, own) for _ in range(depth)), width=_between(2, width, own), positions=features
        )
        for _ in range(members)
    ]
    lengths = [_between(1, longest, own) if ragged else longest for _ in range(members)]
    return Drawn(archs, lengths, _between(1, 6, family), _between(2, 24, own), number)


def drawn_inside(number: int) -> Drawn:
    """The deep bank with this number, within what the CUDA programs hold; its first member has the family's sizes."""
    family = torch.Generator().manual_seed(20_000 + number // FAMILY)
    own = torch.Generator().manual_seed(1_000_000 + number)
    layers = [(_between(1, HEADS, family), _between(1, DIM, family)) for _ in range(_between(2, 3, family))]
    embed, width, longest = (_between(2, most, family) for most in (EMBED, WIDTH, LONGEST))
    ragged, positions, token_dim = _between(0, 1, family), _between(0, 5, family), _between(1, 6, family)
    members = _between(1, 17, own)
    archs = [Architecture(tuple(layers), width, positions, embed)]
    for _ in range(members - 1):
        narrow = tuple((_between(1, heads, own), _between(1, dim, own)) for heads, dim in layers)
        archs.append(Architecture(narrow, _between(2, width, own), positions, _between(1, embed, own)))
    lengths = [longest] + [_between(1, longest, own) if ragged else longest for _ in range(members - 1)]
    return Drawn(archs, lengths, token_dim, _between(2, 24, own), number)


def _between(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _layer(room: int, generator: torch.Generator) -> tuple[int, int]:
    dim = _between(1, min(16, room), generator)
    return _between(1, max(1, min(12, room // dim)), generator), dim


def batch_of(case: Drawn, dtype: torch.dtype, device: str) -> Batch:
    """Random tokens in one set for each member, random targets; the same numbers in every dtype."""
    generator = torch.Generator().manual_seed(case.seed)
    longest, features, models = max(case.lengths), case.token_dim + case.archs[0].positions, len(case.archs)
    data = torch.randn(models, case.batch, longest, features, generator=generator).to(device, dtype)
    target = torch.randn(models, case.batch, generator=generator).to(device, dtype)
    rows = torch.stack([torch.randperm(case.batch, generator=generator) for _ in range(models)]).to(device)
    present = None
    if min(case.lengths) < longest:
        present = (torch.arange(longest) < torch.tensor(case.lengths)[:, None]).to(device)
    return Batch(data, torch.arange(models, device=device), rows, target, present)


def bank_of(case: Drawn, dtype: torch.dtype, device: str) -> Bank:
    """The members, one seed after the other."""
    nets = [arch.reading(case.token_dim) for arch in case.archs]
    return Bank(nets, [case.seed + k for k in range(len(nets))], dtype=dtype, device=device)


def gaps(case: Drawn, backend: Backend, device: str) -> Tensor:
    """|g - g*| / |g*| of every member, g* the plain bank's in float64; infinite where g is not finite."""
    got, true = (
        way.gradient(ClassToken(), bank_of(case, dtype, device), batch_of(case, dtype, device)).double()
        for way, dtype in ((backend, torch.float32), (reference, torch.float64))
    )
    return ((got - true).norm(dim=1) / true.norm(dim=1).clamp(min=1e-20)).nan_to_num(nan=torch.inf)


def first_that_holds(case: Drawn, device: str) -> Backend:
    """The backend that a training of this bank would try first; on a CPU, which emulates it, the one of a GPU."""
    bank, batch = bank_of(case, torch.float32, device), batch_of(case, torch.float32, device)
    if device == "cuda":
        return next(backend for backend in backends(device) if backend.holds(ClassToken(), bank, batch))
    if bank.depth == 1:
        return fused.backend
    return class_network.backend if class_network.held(bank, batch) else parts.backend


def by_kernel() -> dict[str, Backend]:
    """The kernels of a deeper bank one at a time, everything else by batched products; then all of them."""
    whole = parts.in_kernels()
    alone = {name: replace(Touch(), **{name: getattr(whole, name)}) for name in ("mix", "ask", "feed")}
    return {**{name: _touching(touch) for name, touch in alone.items()}, parts.backend.name: parts.backend}


def _touching(touch: Touch) -> Backend:
    def forward(problem: Problem, bank: Bank, p: Stacked, batch: Batch) -> Tensor:
        return collapsed(bank, p, batch, touch=touch)

    return replace(parts.backend, gradient=by_differentiation(forward))


def examined(number: int, device: str, inside: bool) -> dict[str, Any]:
    """One bank: the backend that ran, its worst member, and which kernel it is where the gap is beyond rounding."""
    case, began = (drawn_inside if inside else drawn)(number), time.perf_counter()
    if device == "cpu":  # the interpreter is slow
        case = case._replace(archs=case.archs[:2], lengths=case.lengths[:2], batch=min(3, case.batch))
    depth = case.archs[0].depth
    backend = first_that_holds(case, device)
    tolerance = backend.tolerance(bank_of(case, torch.float32, device))
    found = gaps(case, backend, device)
    worst = int(found.argmax())
    row: dict[str, Any] = {
        "bank": number, "members": len(case.archs), "layers": depth, "longest": max(case.lengths),
        "ragged": min(case.lengths) < max(case.lengths), "embed_dim": max(a.embed_dim for a in case.archs),
        "width": max(a.width for a in case.archs), "batch": case.batch, "backend": backend.name, "tolerance": tolerance,
        "gap": float(found.max()), "median gap": float(found.median()), "worst": case.archs[worst].name,
        "worst width": case.archs[worst].width, "beyond": int((found > tolerance).sum()),
    }  # fmt: skip
    if row["beyond"] and depth > 1:
        row["kernels"] = {name: float(gaps(case, part, device).max()) for name, part in by_kernel().items()}
    return {**row, "seconds": time.perf_counter() - began}


def examine(numbers: list[int], device: str, inside: bool, limit: float, file: Path) -> None:
    """These banks one after the other, in this process."""
    began, rows = time.perf_counter(), []
    for number in numbers:
        if time.perf_counter() - began > limit:
            break
        try:
            rows.append(examined(number, device, inside))
        except Exception as error:  # one bank that cannot run must not cost the others
            rows.append(
                {"bank": number, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}
            )
            if "CUDA error" in str(error) or "illegal" in str(error):
                file.write_text(json.dumps(rows))
                return
        file.write_text(json.dumps(rows))


def apart(cases: int, processes: int, limit: float, device: str, inside: bool, file: Path) -> list[dict[str, Any]]:
    """All banks, dealt family by family to processes; what was found so far is in the file at all times.

    A process that an illegal address has spoiled ends, and another takes the rest of its banks.
    """
    families = [list(range(k, min(k + FAMILY, cases))) for k in range(0, cases, FAMILY)]
    families.sort(key=lambda family: inside or FAILED not in family)
    shares = [[k for family in families[n::processes] for k in family] for n in range(processes)]
    end, found = time.perf_counter() + limit, {}

    def work(numbers: list[int], part: Path) -> None:
        while numbers and (left := end - time.perf_counter()) > 5:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz", "--device", device]
            command += ["--inside"] * inside
            command += ["--limit", str(left - 2), "--numbers", ",".join(str(k) for k in numbers), "--json", str(part)]
            part.unlink(missing_ok=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, check=False, timeout=left)
            rows = json.loads(part.read_text()) if part.exists() else []
            found.update({row["bank"]: row for row in rows})
            file.write_text(json.dumps([found[k] for k in sorted(found)], indent=1) + "\n")
            if not rows:
                return
            numbers = [k for k in numbers if k not in found]

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        list(pool.map(work, shares, (Path(folder) / f"{n}.json" for n in range(processes))))
    return [found[k] for k in sorted(found)]


def run(file: Path, cases: int, processes: int, limit: float, device: str = "cuda", inside: bool = False) -> None:
    """The whole fuzz, written and summed up."""
    rows = apart(cases, processes, limit, device, inside, file)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    print(summary(rows))


def summary(rows: list[dict[str, Any]]) -> str:
    """How many banks, how many beyond rounding, and which."""
    done = [r for r in rows if "gap" in r]
    bad, failed = [r for r in done if r["beyond"]], [r for r in rows if "error" in r]
    ran = Counter(r["backend"] for r in done)
    lines = [f"{len(done)} banks, {sum(r['members'] for r in done)} members: {len(bad)} banks beyond rounding"]
    lines += ["ran: " + ", ".join(f"{name} {count}" for name, count in ran.most_common())]
    lines += [f"largest gap {max((r['gap'] for r in done), default=0):.1e}; {len(failed)} banks could not run"]
    lines += [json.dumps(r) for r in [*bad, *failed][:20]]
    return "\n".join(lines)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    ask.add_argument("--cases", type=int, default=300)
    ask.add_argument("--processes", type=int, default=14)
    ask.add_argument("--limit", type=float, default=150.0, help="seconds a process may take")
    ask.add_argument("--numbers", default="", help="only these banks, in this process")
    ask.add_argument("--inside", action="store_true", help="deep banks that the CUDA programs hold, numbered from 0")
    ask.add_argument("--json", type=Path, default=Path("fuzz.json"))
    asked = ask.parse_args()
    torch.set_num_threads(1)
    if asked.numbers:
        examine([int(n) for n in asked.numbers.split(",")], asked.device, asked.inside, asked.limit, asked.json)
        return
    run(asked.json, asked.cases, asked.processes, asked.limit, asked.device, asked.inside)


if __name__ == "__main__":
    main()
