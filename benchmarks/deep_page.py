"""The part of docs/performance.md on deep and wide banks, from docs/data/deep_speed.json and docs/data/fuzz.json."""

from __future__ import annotations

from statistics import median
from typing import Any

__all__ = ["deep_lines"]

HEAD = """Of a layer before the last, the attention of all tokens is one kernel where a program can hold it
(`headcount/training/backends/kernels/token_layer.py`): projections, scores, softmax, mixing, output and residual of a
tile of samples, forwards and backwards with everything computed again; the feed-forward is another. A bank's first
batch decides between this and the kernels part by part: whichever of the two has the plain bank's gradient, member by
member, and is faster. A way that is off by more than rounding is left out with one line."""


def deep_lines(run: dict[str, Any] | None, fuzz: list[dict[str, Any]] | None) -> list[str]:
    """The race and the fuzz as Markdown; nothing where nothing was measured."""
    lines = []
    if run is not None:
        lines += ["### Deep and wide banks against JAX", "", HEAD, "", *_race(run), *_ways(run), *_failed(run)]
        lines += _kernels(run)
    if fuzz is not None:
        lines += ["### Random mixed banks", "", *_fuzz(fuzz), ""]
    return lines


def _shape(row: dict[str, Any]) -> str:
    layers = f"{row['layers']} layer{'s' * (row['layers'] > 1)}"
    return f"{layers}, K={row['models']}, T={row['length']}, {row['heads']}x8, width {row['width']}"


def _race(run: dict[str, Any]) -> list[str]:
    about = f"{run['device']}, torch {run['torch']}, {run['date']}. Model-steps per second, a batch of 256:"
    about = f"{run['note']} {about}" if "note" in run else about
    lines = [about, "", "| shape | ours | way | JAX | ratio | losses agree |", "|---|---|---|---|---|---|"]
    for row in run["ratios"]:
        peer, ratio, agree = "", "", ""
        if "peer" in row:
            peer, ratio = f"{row['peer rate']:,.0f} ({row['peer']})", f"{row['ratio']:.1f}"
            agree = "to 4 digits" if row["agree"] else "no"
        lines.append(f"| {_shape(row)} | {row['rate']:,.0f} | {row['ours']} | {peer} | {ratio} | {agree} |")
    return [*lines, ""]


def _ways(run: dict[str, Any]) -> list[str]:
    """Everything of ours that ran at a shape where several ways did."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in run["cells"]:
        if not row["way"].startswith("JAX"):
            found.setdefault(_shape(row), []).append(row)
    lines = [
        f"- {shape}: " + "; ".join(f"{r['way']} {r['rate']:,.0f}" for r in sorted(rows, key=lambda r: -r["rate"])) + "."
        for shape, rows in found.items()
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


def _fuzz(rows: list[dict[str, Any]]) -> list[str]:
    done = [r for r in rows if "gap" in r]
    beyond, lost = [r for r in done if r["beyond"]], [r for r in rows if "error" in r]
    gaps = [r["gap"] for r in done]
    members = sum(r["members"] for r in done)
    finite = [gap for gap in gaps if gap != float("inf")]
    lines = [
        f"{len(done)} random banks ({members} members; one to three layers, lengths to 100, 12 heads, width 128),",
        "every member's gradient in kernels against the plain bank in float64 (`python -m benchmarks.fuzz`).",
        f"Not finite: {len(gaps) - len(finite)}. Largest gap of a bank, median over banks: {median(finite):.1e}.",
        f"Beyond rounding: {len(beyond)} banks, {sum(r['beyond'] for r in beyond)} members, which the proof on a",
        f"bank's first batch is there to catch. Could not run: {len(lost)}.",
    ]
    lines += ["", *(f"- bank {r['bank']}: {r['error']}" for r in lost)] if lost else []
    return lines
