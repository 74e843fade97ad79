"""Random mixed banks: gradients in kernels, member by member, against the plain bank in float64.

    python -m benchmarks.fuzz --cases 300 --processes 14 --limit 150 --json fuzz.json
    TRITON_INTERPRET=1 python -m benchmarks.fuzz --device cpu --cases 3 --processes 1

Banks come in families that are padded to the same sizes, so that a family is compiled once; what is padded differs.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headcount.nets import Architecture
from headcount.training.backends import layered as kernels
from headcount.training.backends.choice import Path, differentiated, fused, layered, reference, rounding, warped
from headcount.training.backends.plain import Batch, Touch, collapsed
from headcount.training.bank import Bank

FAMILY, FAILED = 5, 185  # banks of one family; the bank that met an illegal address


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


def _between(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _layer(room: int, generator: torch.Generator) -> tuple[int, int]:
    dim = _between(1, min(16, room), generator)
    return _between(1, max(1, min(12, room // dim)), generator), dim


def problem(case: Drawn, device: str) -> tuple[Batch, Tensor]:
    """Random tokens in one set for each member, random targets."""
    generator = torch.Generator().manual_seed(case.seed)
    longest, features, models = max(case.lengths), case.token_dim + case.archs[0].positions, len(case.archs)
    data = torch.randn(models, case.batch, longest, features, generator=generator).to(device)
    target = torch.randn(models, case.batch, generator=generator).to(device)
    rows = torch.stack([torch.randperm(case.batch, generator=generator) for _ in range(models)]).to(device)
    present = None
    if min(case.lengths) < longest:
        present = (torch.arange(longest) < torch.tensor(case.lengths)[:, None]).to(device)
    return Batch(data, torch.arange(models, device=device), rows, present), target


def gaps(case: Drawn, path: Path, device: str) -> Tensor:
    """|g - g*| / |g*| of every member, g* the plain bank's in float64; infinite where g is not finite."""
    batch, target = problem(case, device)
    found = []
    for way, dtype in ((path, torch.float32), (reference, torch.float64)):
        bank = Bank(
            case.archs, case.token_dim, [case.seed + k for k in range(len(case.archs))], dtype=dtype, device=device
        )
        seen = Batch(batch.data.to(dtype), batch.which, batch.rows, batch.present)
        found.append(way.gradient(bank, seen, target.to(dtype)).double())
    got, true = found
    return ((got - true).norm(dim=1) / true.norm(dim=1).clamp(min=1e-20)).nan_to_num(nan=torch.inf)


def parts() -> dict[str, Path]:
    """The kernels of a deeper bank one at a time, everything else by batched products."""
    whole = kernels.in_kernels()
    each = {name: replace(Touch(), **{name: getattr(whole, name)}) for name in ("mix", "ask", "feed", "layer")}
    each["by parts"] = replace(whole, layer=None)
    alone = {
        name: replace(layered(), gradient=differentiated(partial(collapsed, touch=touch)))
        for name, touch in each.items()
    }
    return {"layers": layered(), **alone}


def examined(number: int, device: str) -> dict[str, Any]:
    """One bank: its worst member, and which kernel it is where the gap is beyond rounding."""
    case, began = drawn(number), time.perf_counter()
    if device == "cpu":  # the interpreter is slow
        case = case._replace(archs=case.archs[:2], lengths=case.lengths[:2], batch=min(3, case.batch))
    depth = case.archs[0].depth
    path, tolerance = (fused() if depth == 1 else warped()), rounding(depth)
    found = gaps(case, path, device)
    worst = int(found.argmax())
    row: dict[str, Any] = {
        "bank": number, "members": len(case.archs), "layers": depth, "longest": max(case.lengths),
        "ragged": min(case.lengths) < max(case.lengths), "embed_dim": max(a.embed_dim for a in case.archs),
        "width": max(a.width for a in case.archs), "batch": case.batch, "path": path.name, "tolerance": tolerance,
        "gap": float(found.max()), "median gap": float(found.median()), "worst": case.archs[worst].name,
        "worst width": case.archs[worst].width, "beyond": int((found > tolerance).sum()),
    }  # fmt: skip
    if row["beyond"] and depth > 1:
        row["kernels"] = {name: float(gaps(case, part, device).max()) for name, part in parts().items()}
    return {**row, "seconds": time.perf_counter() - began}


def examine(numbers: list[int], device: str, limit: float, file: File) -> None:
    """These banks one after the other, in this process."""
    began, rows = time.perf_counter(), []
    for number in numbers:
        if time.perf_counter() - began > limit:
            break
        try:
            rows.append(examined(number, device))
        except Exception as error:  # one bank that cannot run must not cost the others
            rows.append(
                {"bank": number, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}
            )
            if "CUDA error" in str(error) or "illegal" in str(error):
                file.write_text(json.dumps(rows))
                return
        file.write_text(json.dumps(rows))


def apart(cases: int, processes: int, limit: float, device: str, file: File) -> list[dict[str, Any]]:
    """All banks, dealt family by family to processes; what was found so far is in the file at all times.

    A process that an illegal address has spoiled ends, and another takes the rest of its banks.
    """
    families = [list(range(k, min(k + FAMILY, cases))) for k in range(0, cases, FAMILY)]
    families.sort(key=lambda family: FAILED not in family)
    shares = [[k for family in families[n::processes] for k in family] for n in range(processes)]
    end, found = time.perf_counter() + limit, {}

    def work(numbers: list[int], part: File) -> None:
        while numbers and (left := end - time.perf_counter()) > 5:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz", "--device", device]
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
        parts = [File(folder) / f"{n}.json" for n in range(processes)]
        list(pool.map(work, shares, parts))
    return [found[k] for k in sorted(found)]


def run(file: File, cases: int, processes: int, limit: float, device: str = "cuda") -> None:
    """The whole fuzz, written and summed up."""
    rows = apart(cases, processes, limit, device, file)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    print(summary(rows))


def summary(rows: list[dict[str, Any]]) -> str:
    """How many banks, how many beyond rounding, and which."""
    done = [r for r in rows if "gap" in r]
    bad, failed = [r for r in done if r["beyond"]], [r for r in rows if "error" in r]
    lines = [f"{len(done)} banks, {sum(r['members'] for r in done)} members: {len(bad)} banks beyond rounding"]
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
    ask.add_argument("--json", type=File, default=File("fuzz.json"))
    asked = ask.parse_args()
    torch.set_num_threads(1)
    if asked.numbers:
        examine([int(n) for n in asked.numbers.split(",")], asked.device, asked.limit, asked.json)
        return
    run(asked.json, asked.cases, asked.processes, asked.limit, asked.device)


if __name__ == "__main__":
    main()
