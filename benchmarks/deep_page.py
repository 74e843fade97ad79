"""The part of docs/performance.md on deep and wide banks: deep_speed.json and fuzz_by_backend.json in docs/data."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from headcount.report.tabular import table_lines

HEAD = """Banks of several layers are programs of warps in CUDA C++ (`headcount/kernels/cuda/`), compiled for
their shape by PyTorch's own run-time compiler when it is first met and kept in the user's cache. A warp has 16 tokens:
what one product gives on the tensor cores is, rounded to float16 and packed in pairs, the left factor of the next, so
that projections, scores, weights and hidden units never leave its registers; keys and values pass from warp to warp
through shared memory. Backwards everything is computed again, a warp's tokens first as those who ask, then as those
who are asked, so that nothing is added up between warps but the gradients of the matrices, which stay in registers from
tile to tile. What a program cannot hold (more than 64 tokens or coordinates, heads of more than 16) goes through
kernels in Triton (`headcount/kernels/parts.py`). On a bank's first batch a way must have the plain
bank's gradient, member by member; one that is off by more than rounding is left out with one line.

What was tried and left: Triton for all of it pads heads of 8 to 16 and passes every product's result through shared
memory; it kept an eighth of the warps busy that fit a multiprocessor, at 1.2 of 4 instructions a cycle, and reached
2.2 to 3.7 times JAX in a run of the same day. More programs at a time with fewer registers for each were slower by a
tenth to a fifth. Reading states four numbers at a time instead of two brought 3% to 7%, the next tile while one is
computed and samples read where they lie another 4%. The class token's own rows are some thirty small launches, which
is what makes small banks slower by the member: at 64 members, 12.9 microseconds of a model-step against 10.0 at 1024.
Shares of gradients that are kept from step to step need not be zeroed, only those that a parameter has are added up,
small products are one kernel each instead of a copy and a call of the library, and what nothing waits for (gradients
of the class token's heads) goes in a second stream beside other small work: 11.6 against 9.8. Beside a kernel that
fills the device it only waits, and given the higher priority it makes that one wait: both were slower.

Clocks inside the programs, phase by phase, showed what a profile by kernel does not: an exact division is a call behind
a branch, around which nothing overlaps; the compiler splits stores of four numbers; a matrix that is staged number by
number waits for each; a load that stands after a fence in the source is not moved before it; a warp that waits for its
own rows has nobody to take its place, so they are sent for a tile ahead. Together that is 9% to 16% for banks of
several layers and 2.2 times for decoders. Left to do: attention and feed-forward of a layer in one program would save a
third of the traffic."""


FLOAT32, FLOAT16 = 5.08e13, 7.46e14  # measured ceilings of products, operations a second (docs/data/bank_speed.json)
CEILING = """The shares are of the measured ceilings of large products in float32 and of float16 factors on the tensor
cores, with all operations of a step counted as if no width or length were padded. `ours` is the way that is chosen
without being asked."""


def deep_lines(run: dict[str, Any] | None, fuzz: dict[str, Any] | None) -> list[str]:
    """The race and the fuzz as Markdown; nothing where nothing was measured."""
    lines = []
    if run is not None:
        lines += [
            "### Deep and wide banks against JAX",
            "",
            HEAD,
            "",
            *_race(run),
            *_after(run),
            *_growth(run),
            *_record(run),
            *_ways(run),
            *_failed(run),
        ]
        lines += _kernels(run)
    if fuzz is not None:
        lines += ["### Random mixed banks", "", *_fuzz(fuzz), ""]
    return lines


def again_lines(made: dict[str, Any] | None) -> list[str]:
    """Published cells trained again on a CPU; nothing where there are none."""
    if made is None:
        return []
    rows = made["rows"]
    low, high = (find(row["median ratio"] for row in rows) for find in (min, max))
    return [
        f"Published cells once more: {len(rows)} that a GPU had trained, named before looking, were trained on a CPU,",
        f"which shares no kernel with it (`{made['command']}`). Medians over seeds are {low:.2f} to {high:.2f} times",
        "the published ones.",
        "",
    ]


OURS = {
    "ours kernels": "Triton's kernels",
    "ours warps": "programs of warps",
    "ours full": "products in TF32",
    "ours bfloat16": "products in bfloat16",
}


def gpu_decoder_lines(run: dict[str, Any] | None) -> list[str]:
    """Decoders over letters against JAX on a GPU; nothing where nothing was measured."""
    if run is None:
        return []
    lines = [
        "### Decoders on a GPU",
        "",
        f"{run['device']}, model-steps per second, a batch of 64 (`{run['command']}`).",
        "",
    ]
    rows = []
    titles = ("shape", "our ways", "share of float16 products", "JAX vmap + scan", "ratio", "date")
    for row in run["rows"]:
        ours = sorted(((row[key], name) for key, name in OURS.items() if key in row), reverse=True)
        shown = "; ".join(f"{name} {rate:,}" for rate, name in ours)
        peer = max(row["jax plain"], row["jax library"])
        fraction = f"{ours[0][0] * row['operations'] / FLOAT16:.0%}"
        rows.append((row["case"], shown, fraction, f"{peer:,}", f"{ours[0][0] / peer:.1f}", row["date"]))
    return [
        *lines,
        *table_lines(titles, rows),
        "",
        "Losses after the timed steps agree with JAX's to 4 digits. Wider states (E = 128) fit neither programs nor",
        "kernels, so that batched products are left for them; they are not in the race.",
        "",
    ]


def _shape(row: dict[str, Any]) -> str:
    layers = f"{row['layers']} layer{'s' * (row['layers'] > 1)}"
    return f"{layers}, K={row['models']}, T={row['length']}, {row['heads']}x8, width {row['width']}"


def _race(run: dict[str, Any]) -> list[str]:
    about = f"{run['device']}, torch {run['torch']}, {run['date']}. Model-steps per second, a batch of 256:"
    about = f"{run['note']} {about}" if "note" in run else about
    titles = ("shape", "ours", "way", "share of float32, float16 products", "JAX", "ratio", "losses agree")
    rows = []
    for row in run["ratios"]:
        peer, ratio, agree = "", "", ""
        if "peer" in row:
            peer, ratio = f"{row['peer rate']:,.0f} ({row['peer']})", f"{row['ratio']:.1f}"
            agree = "to 4 digits" if row["agree"] else f"to {row['loss gap']:.0e}"
        done = row["rate"] * _operations(run, row)
        fractions = f"{done / FLOAT32:.0%}, {done / FLOAT16:.0%}"
        rows.append((_shape(row), f"{row['rate']:,.0f}", row["ours"], fractions, peer, ratio, agree))
    return [about, "", *table_lines(titles, rows), "", CEILING, ""]


def _after(run: dict[str, Any]) -> list[str]:
    """Our figures since the race, where something changed after it."""
    rows = run.get("after", [])
    if not rows:
        return []
    shown = "; ".join(f"{_shape(row)}: {row['rate']:,.0f}" for row in rows)
    why = f"; {rows[0]['note']}" if "note" in rows[0] else ""
    return [f"Since the race ({rows[0]['date']}{why}): {shown}.", ""]


def _record(run: dict[str, Any]) -> list[str]:
    """The long run, with its wall time."""
    if (entry := run.get("record")) is None:
        return []
    rate = entry["members"] * entry["steps"] / entry["seconds"]
    return [
        f"A recorded run ({entry['device']}, {entry['date']}): the pair task, {entry['members']} members, T=64, E=64,",
        f"width 128, two heads of 16 in a layer, {entry['steps']:,} steps of 256 fresh samples drawn on the device,",
        f"with validation and a checkpoint every minute: {entry['seconds']:,.0f} seconds, {rate:,.0f} model-steps",
        "per second (`python -m studies.infoflow.pair_table --parts draws`; what it found is on the InfoFlow page).",
        "",
    ]


def _operations(run: dict[str, Any], row: dict[str, Any]) -> float:
    return next(cell["operations"] for cell in run["cells"] if _shape(cell) == _shape(row))


def _growth(run: dict[str, Any]) -> list[str]:
    """How the time of a model-step changes with the bank, two layers."""
    rows = run.get("growth", [])
    if not rows:
        return []
    shown = ", ".join(f"{row['models']}: {row['microseconds']:.1f}" for row in rows)
    times, sizes = [row["microseconds"] for row in rows], [row["bytes"] / 2**20 for row in rows]
    return [
        f"Two layers, T=32, 4x8, width 32: microseconds of a model-step at so many members {shown}.",
        f"The slowest takes {max(times) / min(times) - 1:.0%} more than the fastest (asked: 20%). A member takes",
        f"{min(sizes):.1f} to {max(sizes):.1f} MiB, data, order, states and shares of gradients included.",
        "",
    ]


def _ways(run: dict[str, Any]) -> list[str]:
    """Everything of ours that ran at a shape where several ways did."""
    by_shape: dict[str, list[dict[str, Any]]] = {}
    for row in run["cells"]:
        if not row["way"].startswith("JAX"):
            by_shape.setdefault(_shape(row), []).append(row)
    lines = [
        f"- {shape}: " + "; ".join(f"{r['way']} {r['rate']:,.0f}" for r in sorted(rows, key=lambda r: -r["rate"])) + "."
        for shape, rows in by_shape.items()
        if len(rows) > 1
    ]
    return ["Our ways where there are several:", "", *lines, ""] if lines else []


def _failed(run: dict[str, Any]) -> list[str]:
    lines = [f"- {row['way']} at {_shape(row)}: {row['error']}" for row in run.get("failed", [])]
    return ["What could not run:", "", *lines, ""] if lines else []


def _kernels(run: dict[str, Any]) -> list[str]:
    """Where a gradient's time goes, for the shapes that were profiled."""
    lines = []
    for row in run["cells"]:
        if times := row.get("by kernel"):
            shown = ", ".join(f"`{name}` {us:,.0f}" for name, us in list(times.items())[:6])
            lines.append(f"- {_shape(row)}, {row['way']}: {shown}.")
    return ["Microseconds of one gradient by kernel, the longest six:", "", *lines, ""] if lines else []


def _fuzz(run: dict[str, Any]) -> list[str]:
    done = [r for r in run["rows"] if "gaps" in r]
    beyond, lost = [r for r in done if r["beyond"]], [r for r in run["rows"] if "error" in r]
    largest = [max(r["gaps"]) for r in done]
    by = Counter((r["kind"], r["backend"]) for r in done)
    ran = "; ".join(
        f"{kind}: " + ", ".join(f"{backend} {n}" for (k, backend), n in sorted(by.items()) if k == kind)
        for kind in run["asked"]
    )
    lines = [
        f"{len(done)} random banks ({sum(len(r['gaps']) for r in done)} members; one to three layers, lengths to 100),",
        "every member's gradient by the backend that ran against the plain bank in float64 (`python -m",
        f"benchmarks.fuzz`; {run['on']}). By backend, drawn from all or inside what the CUDA programs hold: {ran}.",
        f"Largest gap of a bank, median over banks: {median(largest):.1e}, largest {max(largest):.1e}. Half precision",
        "is ill-conditioned in some banks: a member counts as beyond rounding where its gap is more than twice what",
        f"random rounding of the plain bank does to it. Beyond rounding: {len(beyond)} banks,",
        f"{sum(len(r['beyond']) for r in beyond)} members. Left to a slower backend by the check on the first batch:",
        f"{sum(bool(r['left out in training']) for r in done)} banks. Could not run: {len(lost)}.",
    ]
    return lines + (["", *(f"- bank {r['bank']}: {r['error']}" for r in lost)] if lost else [])
