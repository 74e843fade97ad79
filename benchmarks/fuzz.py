"""Random mixed banks: gradients in kernels, member by member, against the plain bank in float64.

    python -m benchmarks.fuzz --processes 4 --seconds 280 --rows fuzz.jsonl
    python -m benchmarks.fuzz --rows fuzz.jsonl --keep docs/data/fuzz_by_backend.json
    TRITON_INTERPRET=1 python -m benchmarks.fuzz --device cpu --all 3 --inside 2 --processes 1 --rows fuzz.jsonl

300 banks are drawn from `all`, and 150 deep ones `inside` what the CUDA programs hold. Banks come in families: the
first member has the family's sizes, so that a family is compiled once; the others are padded to it. Banks that once
were off stay as they were drawn. Every bank is a line of the file as soon as it is examined; the same command goes on
where a stop left it.

A member is beyond rounding if its gap is more than twice what half precision does to it, the largest of some draws
(`half_rounding`), and more than one rounding for every layer and the read-out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.half_rounding import rounded_gaps
from headcount.kernels import fused, parts
from headcount.kernels.backend import Backend, reference, rounding
from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cuda import class_network
from headcount.kernels.plain import Batch
from headcount.kernels.preference import backends
from headcount.nets import Architecture

FAMILY = 5  # banks
AS_DRAWN = (0, 33, 44, 61, 91, 92, 185)  # these were NaN, off by more than 0.05, or met an illegal address
EMBED, HEADS, DIM, LONGEST, WIDTH = 64, 16, 16, 64, 256  # the most that the CUDA programs are written for
TWICE = 2.0  # times the largest of the draws: another order of sums, and products that a kernel rounds once more
FEW, MANY = 8, 256  # draws for every member, and for one that they do not explain
EPS16 = torch.finfo(torch.float16).eps


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
    most, width = 1 << _between(3, 8, family), 1 << _between(2, 7, family)
    ragged, features = _between(0, 1, family), _between(0, 5, family)
    token_dim, members = _between(1, 6, family), _between(1, 17, own)
    archs = [
        Architecture(
            layers=tuple(_layer(most, own) for _ in range(depth)), width=_between(2, width, own), positions=features
        )
        for _ in range(members)
    ]
    lengths = [_between(1, longest, own) if ragged else longest for _ in range(members)]
    if number not in AS_DRAWN:
        archs, lengths = _in_family(archs, lengths, width, longest, family, most)
    return Drawn(archs, lengths, token_dim, _between(2, 24, own), number)


def _in_family(
    archs: list[Architecture], lengths: list[int], width: int, longest: int, family: torch.Generator, most: int
) -> tuple[list[Architecture], list[int]]:
    """The same members cut down to sizes of the family, which its first member has."""
    sizes = tuple(_layer(most, family) for _ in archs[0].layers)
    embed = max(heads * dim for heads, dim in sizes)

    def cut(arch: Architecture) -> Architecture:
        layers = tuple((min(h, H), min(n, N)) for (h, n), (H, N) in zip(arch.layers, sizes, strict=True))
        return Architecture(layers, arch.width, arch.positions)

    largest = Architecture(sizes, width, archs[0].positions, embed)
    return [largest, *(cut(arch) for arch in archs[1:])], [longest, *lengths[1:]]


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


def _layer(most: int, generator: torch.Generator) -> tuple[int, int]:
    dim = _between(1, min(16, most), generator)
    return _between(1, max(1, min(12, most // dim)), generator), dim


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


def first_that_holds(case: Drawn, device: str) -> Backend:
    """The backend that a training of this bank would try first; on a CPU, which emulates it, the one of a GPU."""
    bank, batch = bank_of(case, torch.float32, device), batch_of(case, torch.float32, device)
    if device == "cuda":
        return next(backend for backend in backends(device) if backend.holds(ClassToken(), bank, batch))
    if bank.depth == 1:
        return fused.backend
    return class_network.backend if class_network.held(bank, batch) else parts.backend


class Examined(NamedTuple):
    """A member's gap in kernels, what half precision does to it (the largest of `draws`), and its verdict."""

    gap: float
    rounding: float
    draws: int
    beyond: bool


def examined_members(case: Drawn, backend: Backend, device: str) -> list[Examined]:
    """Every member's gradient by a backend against the plain bank in float64."""
    bank, batch = bank_of(case, torch.float64, device), batch_of(case, torch.float64, device)
    true = reference.gradient(ClassToken(), bank, batch)
    narrow = bank_of(case, torch.float32, device), batch_of(case, torch.float32, device)
    got = backend.gradient(ClassToken(), *narrow).double()
    gaps = ((got - true).norm(dim=1) / true.norm(dim=1).clamp(min=1e-20)).nan_to_num(nan=torch.inf)
    draws = rounded_gaps(ClassToken(), bank, batch, true, case.seed)
    most = torch.stack([next(draws) for _ in range(FEW)]).amax(dim=0)
    floor = EPS16 * (bank.depth + 1)
    return [_judged(case, k, device, float(gaps[k]), float(most[k]), floor) for k in range(len(case.archs))]


def _judged(case: Drawn, k: int, device: str, gap: float, most: float, floor: float) -> Examined:
    """More draws of one member until they explain its gap, or do not."""
    draws = FEW
    if not _explained(gap, most, floor) and gap < torch.inf:
        bank, batch = alone(case, k, device)
        true = reference.gradient(ClassToken(), bank, batch)
        for one in rounded_gaps(ClassToken(), bank, batch, true, case.seed + 1):
            draws, most = draws + 1, max(most, float(one))
            if _explained(gap, most, floor) or draws == MANY:
                break
    return Examined(gap, most, draws, not _explained(gap, most, floor))


def _explained(gap: float, most: float, floor: float) -> bool:
    return gap <= max(floor, TWICE * most)


def alone(case: Drawn, k: int, device: str) -> tuple[Bank, Batch]:
    """One member and its batch, in float64."""
    batch, net = batch_of(case, torch.float64, device), case.archs[k].reading(case.token_dim)
    present = None if batch.present is None else batch.present[k : k + 1]
    which = torch.zeros(1, dtype=torch.int64, device=device)
    own = Batch(batch.data[k : k + 1], which, batch.rows[k : k + 1], batch.target[k : k + 1], present)
    return Bank([net], [case.seed + k], dtype=torch.float64, device=device), own


DRAWS = {"all": drawn, "inside": drawn_inside}


def examined(kind: str, number: int, device: str) -> dict[str, Any]:
    """One bank: the backend that ran and its members."""
    case, began = DRAWS[kind](number), time.perf_counter()
    if device == "cpu":  # the interpreter is slow
        case = case._replace(archs=case.archs[:2], lengths=case.lengths[:2], batch=min(3, case.batch))
    backend, depth = first_that_holds(case, device), case.archs[0].depth
    tolerance, members = rounding(bank_of(case, torch.float32, device)), examined_members(case, backend, device)
    worst = max(range(len(members)), key=lambda k: members[k].gap)
    return {
        "kind": kind, "bank": number, "layers": depth, "longest": max(case.lengths),
        "ragged": min(case.lengths) < max(case.lengths), "embed_dim": max(a.embed_dim for a in case.archs),
        "width": max(a.width for a in case.archs), "batch": case.batch, "backend": backend.name,
        "gaps": [_short(m.gap) for m in members], "rounding": [_short(m.rounding) for m in members],
        "draws": [m.draws for m in members], "beyond": [k for k, m in enumerate(members) if m.beyond],
        "left out in training": sum(m.gap > tolerance for m in members),
        "worst": case.archs[worst].name, "worst width": case.archs[worst].width,
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def _short(number: float) -> float:
    return float(f"{number:.2e}")


def examine_family(kind: str, numbers: Iterable[int], device: str, end: float, rows: Path) -> None:
    """These banks one after the other; every one is a line as soon as it is examined."""
    torch.set_num_threads(1)
    for number in numbers:
        if time.time() > end:
            return
        spoilt = False
        try:
            row = examined(kind, number, device)
        except Exception as error:  # one bank that cannot run must not cost the others
            message = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
            row, spoilt = (
                {"kind": kind, "bank": number, "error": message},
                "CUDA error" in message or "illegal" in message,
            )
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if spoilt:  # nothing that this process asks of the device will be true
            os._exit(1)


def read(rows: Path) -> list[dict[str, Any]]:
    """The banks so far in order; of one examined twice the last."""
    lines = rows.read_text(encoding="utf-8").splitlines() if rows.exists() else []
    by_bank = {(row["kind"], row["bank"]): row for row in map(json.loads, lines)}
    return [by_bank[key] for key in sorted(by_bank)]


def families(counts: dict[str, int], done: Iterable[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """What is left, family by family: what takes longest to compile first.

    >>> families({"all": 12, "inside": 3}, [{"kind": "all", "bank": 11}])
    [('inside', [0, 1, 2]), ('all', [0, 1, 2, 3, 4]), ('all', [5, 6, 7, 8, 9]), ('all', [10])]
    """
    over = {(row["kind"], row["bank"]) for row in done}
    numbered = [
        (kind, [k for k in range(first, min(first + FAMILY, counts[kind])) if (kind, k) not in over])
        for kind in ("inside", "all")
        for first in range(0, counts[kind], FAMILY)
    ]
    return [(kind, numbers) for kind, numbers in numbered if numbers]


def run(rows: Path, counts: dict[str, int], processes: int, seconds: float, device: str) -> None:
    """All that is left within so many seconds; processes that an illegal address has spoilt are begun again."""
    end, spawn = time.time() + seconds, multiprocessing.get_context("spawn")
    for _ in range(3):
        left = families(counts, read(rows))
        if not left or time.time() > end:
            return
        with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
            try:
                begun = [pool.submit(examine_family, *family, device, end, rows) for family in left]
                for one in wait(begun).done:
                    one.result()
            except BrokenProcessPool:
                continue


def summary(rows: list[dict[str, Any]], counts: dict[str, int]) -> str:
    """How many banks, by which backends, how many beyond rounding, and which."""
    lines = []
    for kind, planned in counts.items():
        done = [row for row in rows if row["kind"] == kind and "gaps" in row]
        ran = ", ".join(f"{name} {count}" for name, count in Counter(r["backend"] for r in done).most_common())
        gaps, bad = [gap for r in done for gap in r["gaps"]], [r for r in done if r["beyond"]]
        out, seconds = sum(r["left out in training"] > 0 for r in done), sum(r["seconds"] for r in done)
        lines += [f"{kind}: {len(done)} of {planned} banks, {len(gaps)} members ({ran}), {seconds:.0f} s of a process"]
        lines += [f"  beyond rounding: {len(bad)} banks, {sum(len(r['beyond']) for r in bad)} members"]
        lines += [f"  largest gap {max(gaps, default=0):.1e}; {out} banks are left out by the check on the first batch"]
        lines += [json.dumps(r) for r in bad[:10]]
    lines += [json.dumps(row) for row in rows if "error" in row]
    return "\n".join(lines)


def kept(rows: list[Any], counts: Mapping[str, int], on: str) -> str:
    """The rows as one JSON file, a line for each bank."""
    head = json.dumps({"command": "python -m benchmarks.fuzz", "on": on, "asked": counts})
    return head[:-1] + ', "rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--all", type=int, default=300, help="banks of any size")
    parser.add_argument("--inside", type=int, default=150, help="deep banks of sizes that the CUDA programs hold")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument(
        "--rows", type=Path, required=True, help="a line for every bank; what is there is not done again"
    )
    parser.add_argument("--keep", type=Path, help="only write what is there as one JSON file")
    parser.add_argument("--on", default="", help="with --keep: date and device of the run")
    options = parser.parse_args()
    counts = {"all": options.all, "inside": options.inside}
    if options.keep:
        options.keep.write_text(kept(read(options.rows), counts, options.on))
    else:
        run(options.rows, counts, options.processes, options.seconds, options.device)
    print(summary(read(options.rows), counts))


if __name__ == "__main__":
    main()
