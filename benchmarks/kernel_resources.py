"""What every kernel needs and how long it can take at best, without a device.

    python -m benchmarks.kernel_resources --shape 0 --json resources.json

Kernels are compiled for an H200 (sm_90) by whatever Triton is here, whose version is printed: registers, spills and
shared memory as the assembler reports them. The machine code is read loop by loop, and four times follow for a launch,
each a floor: issuing every instruction, matrix products, on-chip memory traffic, device memory traffic.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as File
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.kernel_launches import Launch, Steps, decoder_step, recorded_step

__all__ = ["Code", "Resources", "compiled", "resources"]

# One H200: multiprocessors, schedulers of each, cycles a second, bytes a second of the device's memory.
PROCESSORS, SCHEDULERS, CLOCK, MEMORY = 132, 4, 1.755e9, 4.3e12
WARPS, REGISTERS, SHARED = 64, 65536, 232448  # of a multiprocessor
KINDS = {
    "*fp32": torch.float32, "*fp16": torch.float16, "*bf16": torch.bfloat16, "*fp64": torch.float64,
    "*i64": torch.int64, "*i32": torch.int32, "*i16": torch.int16, "*i8": torch.int8, "*i1": torch.bool,
}  # fmt: skip
POINTERS = {kind: name for name, kind in KINDS.items()}
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);")


class Instruction(NamedTuple):
    """One instruction of a kernel."""

    at: int
    name: str
    rest: str
    sure: bool  # not predicated


class Code(NamedTuple):
    """A compiled kernel: registers of a thread, bytes spilled, shared bytes, and its instructions."""

    registers: int
    spilled: int
    shared: int
    warps: int
    body: list[Instruction]

    def loops(self) -> list[tuple[int, int]]:
        """(first, last) address of every loop: a jump back over at least eight instructions."""
        out = set()
        for line in self.body:
            if line.name.startswith("BRA") and (found := re.search(r"0x([0-9a-f]+)", line.rest)):
                to = int(found[1], 16)
                if to < line.at - 128:
                    out.add((to, line.at))
        return sorted(out)

    def weights(self, trips: Sequence[float]) -> list[float]:
        """How often each instruction is issued: a loop at depth d goes round trips[d] times."""
        loops, out = self.loops(), []
        for line in self.body:
            depth = sum(first <= line.at <= last for first, last in loops)
            weight = 1.0
            for trip in trips[:depth]:
                weight *= trip
            out.append(weight)
        return out


class Resources(NamedTuple):
    """What one launch needs, and the four floors of its time in microseconds."""

    kernel: str
    grid: tuple[int, ...]
    warps: int
    registers: int
    spilled: int
    shared: int
    resident: int  # programs of a multiprocessor at a time
    issued: float  # instructions of a warp
    issue: float
    products: float
    near: float  # shared memory and L1
    far: float  # device memory
    kinds: dict[str, int]

    @property
    def floor(self) -> float:
        return max(self.issue, self.products, self.near, self.far)


def compiled(launch: Launch) -> Code:
    """The launch's kernel for sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = _signature(launch)
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {key: value for key, value in launch.options.items() if value is not None}
    out = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return _read(out.asm["cubin"], out.metadata.shared, out.metadata.num_warps)


def _signature(launch: Launch) -> tuple[dict[str, str], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
    """Types, constants and what is known of the arguments, as a launch would specialise them."""
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(launch.kernel.params):
        name, value = parameter.name, launch.arguments[parameter.name]
        if parameter.is_constexpr or (isinstance(value, int) and value == 1 and not parameter.do_not_specialize):
            signature[name], constants[(place,)] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
            if value.storage_offset() * value.element_size() % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
            if isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize:
                attributes[(place,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def _read(cubin: bytes, shared: int, warps: int) -> Code:
    import triton

    tools = File(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run([tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True).stdout
        text = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True).stdout
    registers = int(re.findall(r"REG:(\d+)", usage)[-1])
    stack = int(re.findall(r"STACK:(\d+)", usage)[-1])
    return Code(registers, stack, shared, warps, _body(text))


def _body(text: str) -> list[Instruction]:
    """Instructions, jumps resolved to addresses."""
    labels, body, waiting = {}, [], []
    for line in text.splitlines():
        if found := re.match(r"^(\.L_x_\d+):", line):
            waiting.append(found[1])
        elif found := LINE.match(line):
            at = int(found[1], 16)
            labels |= dict.fromkeys(waiting, at)
            waiting = []
            body.append(Instruction(at, found[3], found[4], found[2] is None))
    resolved = []
    for line in body:
        rest = re.sub(r"`\((\.L_x_\d+)\)", lambda m: hex(labels.get(m[1], 0)), line.rest)
        resolved.append(line._replace(rest=rest))
    return [line for line in resolved if line.name != "NOP"]


def _cycles(line: Instruction) -> tuple[float, float]:
    """Cycles of a scheduler's matrix unit, and of the multiprocessor's path to on-chip memory."""
    if line.name.startswith("HMMA"):
        return (6.5 if "16816" in line.name else 3.25), 0.0
    if line.name.startswith("HGMMA"):
        n = int(re.search(r"64x(\d+)x16", line.name)[1])  # pyright: ignore[reportOptionalSubscript]
        return n / 2, 0.0  # a warp group's product, on its four schedulers
    if line.name.startswith(("LDS", "STS", "LDG", "STG", "LDL", "STL", "LDSM", "STSM", "RED", "ATOM")):
        wide = 4 if "128" in line.name or "88.4" in line.name else 2 if "64" in line.name or ".2" in line.name else 1
        return 0.0, float(wide)
    if line.name.startswith("SHFL"):
        return 0.0, 1.0
    return 0.0, 0.0


def resources(launch: Launch, trips: Sequence[float], far: float) -> Resources:
    """A launch's needs and floors; `trips` of its nested loops, bytes from and to device memory."""
    code = compiled(launch)
    weights = code.weights(trips)
    total = launch.programs * code.warps
    issued = sum(weights)
    both = [_cycles(line) for line in code.body]
    products = sum(w * c[0] for w, c in zip(weights, both, strict=True))
    near = sum(w * c[1] for w, c in zip(weights, both, strict=True))
    kinds = Counter()
    for line, weight in zip(code.body, weights, strict=True):
        kinds[line.name.split(".")[0]] += round(weight)
    rate = PROCESSORS * CLOCK / 1e6
    blocks = [WARPS // code.warps, REGISTERS // (-(-code.registers // 8) * 8 * 32 * code.warps)]
    blocks += [SHARED // (code.shared + 1024)]
    return Resources(
        launch.name, launch.grid, code.warps, code.registers, code.spilled, code.shared, min(blocks), issued,
        issued * total / (rate * SCHEDULERS), products * total / (rate * SCHEDULERS), near * total / rate,
        far / MEMORY * 1e6, dict(kinds.most_common(14)),
    )  # fmt: skip


def far(launch: Launch) -> float:
    """Bytes of a launch's tensors, each once."""
    seen = {id(x): x.numel() * x.element_size() for x in launch.arguments.values() if isinstance(x, Tensor)}
    return float(sum(seen.values()))


def trips(launch: Launch) -> list[float]:
    """How often a launch's nested loops go round: blocks of a program, then heads."""
    a = launch.arguments
    heads = float(a.get("heads") or 1)
    rule: dict[str, Callable[[], list[float]]] = {
        "layer_forward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), heads],
        "layer_backward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), heads],
        "feed_forward": lambda: [_share(a["rows"], a["ROWS"], launch.grid[1])],
        "feed_backward": lambda: [_share(a["rows"], a["ROWS"], launch.grid[1])],
        "heads_forward": lambda: _heads_trips(launch),
        "heads_backward": lambda: _heads_trips(launch),
        "hidden_forward": lambda: [float(a["chunks"]), _share(a["rows"], a["ROWS"], launch.grid[1])],
        "hidden_backward": lambda: [float(a["chunks"]), _share(a["rows"], a["ROWS"], launch.grid[1])],
        "letters_backward": lambda: [_share(a["count"], a["ROWS"], launch.grid[1])],
        "say": lambda: [_share(a["count"], a["ROWS"], launch.grid[1])],
        "ask_forward": lambda: [heads],
        "ask_backward": lambda: [heads],
        "pool_forward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), 1.0],
        "turned_forward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), 1.0],
        "turned_backward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), 1.0],
        "pool_backward": lambda: [_share(a["batch"], a["SAMPLES"], launch.grid[1]), 1.0],
        "tail_by_heads": lambda: [heads],
        "maps_forward": lambda: [-(-a["embed"] // a["CHUNK"])],
        "maps_backward": lambda: [-(-a["embed"] // a["CHUNK"])],
        "states_backward": lambda: [-(-a["heads"] * a["head_dim"] // a["CHUNK"])],
        "compose_forward": lambda: [heads],
        "compose_backward": lambda: [heads, float(a.get("tail_parts", 1))],
    }
    made = rule.get(launch.name)
    return made() if made else [8.0, 4.0]


def _heads_trips(launch: Launch) -> list[float]:
    a = launch.arguments
    tiles = _share(a["batch"], a["ROWS"] // a["longest"], launch.grid[1])
    return [float(a["chunks"]), tiles, a["heads"] / a["chunks"]]


def _share(count: int, block: int, programs: int) -> float:
    return -(-count // block) / programs


def described(steps: Steps) -> list[dict[str, Any]]:
    """Every launch of a step, its needs and floors."""
    with ThreadPoolExecutor(2) as pool:
        rows = pool.map(lambda one: resources(one, trips(one), far(one)), steps.launches)
        return [{**row._asdict(), "floor": row.floor} for row in rows]


def table(rows: list[dict[str, Any]], steps: Steps) -> str:
    """A line for every launch, and the other operations in one."""
    head = f"{'kernel':18} {'grid':>14} warps regs spill  shared fit {'issue':>7} {'mma':>7} {'near':>7} {'far':>7} us"
    lines = [head]
    for r in rows:
        grid = "x".join(map(str, r["grid"]))
        lines.append(
            f"{r['kernel']:18} {grid:>14} {r['warps']:5} {r['registers']:4} {r['spilled']:5} {r['shared']:7} "
            f"{r['resident']:3} {r['issue']:7.1f} {r['products']:7.1f} {r['near']:7.1f} {r['far']:7.1f}"
        )
    traffic = sum(o.traffic for o in steps.others)
    lines.append(
        f"{len(rows)} launches of ours, floors {sum(r['floor'] for r in rows):.0f} us; {len(steps.others)} other "
        f"operations, {traffic / MEMORY * 1e6:.0f} us of traffic"
    )
    return "\n".join(lines)


def _shown(shape: str, way: str, steps: Steps) -> dict[str, Any]:
    rows = described(steps)
    print(f"\n{shape}\n{way}\n{table(rows, steps)}", flush=True)
    return {"shape": shape, "way": way, "launches": rows, "other operations": len(steps.others)}


def main() -> None:
    import triton

    from benchmarks.decoder_speed import CASES
    from benchmarks.gpu_round2 import SHAPES, ways
    from headcount.training.decoder_paths import by_products, in_decoder_kernels

    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--shape", type=int, action="append", help="number of a shape of the race; all without")
    ask.add_argument("--decoder", type=int, action="append", help="number of a size of the decoders' race")
    ask.add_argument("--way", default="", help="part of a way's name; the first without")
    ask.add_argument("--json", type=File)
    asked = ask.parse_args()
    print(f"Triton {triton.__version__}, sm_90")
    out = []
    for number in asked.shape if asked.shape is not None else () if asked.decoder else range(len(SHAPES)):
        named = ways(number)
        name = next(n for n in named if asked.way in n)
        out.append(_shown(str(SHAPES[number]), name, recorded_step(named[name], SHAPES[number])))
    for number in asked.decoder or ():
        path = in_decoder_kernels() if asked.way != "products" else by_products()
        out.append(_shown(CASES[number].name, path.name, decoder_step(CASES[number], path)))
    if asked.json:
        asked.json.write_text(json.dumps({"triton": triton.__version__, "steps": out}, indent=1) + "\n")


if __name__ == "__main__":
    main()
