"""docs/performance.md and its picture, drawn from docs/data/bank_speed.json, deep_speed.json and
fuzz_by_backend.json.

python -m benchmarks.performance_page --add RUN.json       take a new run of bank_speed in (with --deep or
                                                           not)
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.bank_speed import OURS, PEER, REFERENCE, slope
from benchmarks.cpu_race import cpu_decoder_lines, cpu_lines, patience_lines
from benchmarks.deep_page import again_lines, deep_lines, gpu_decoder_lines
from benchmarks.measuring import ALONE
from headcount.drawing.axes import Frame, below, beside, decades
from headcount.drawing.panels import Panel, figure_of, legend
from headcount.drawing.svg import Figure, Scale, power_of_ten, tag, text
from headcount.report.tabular import table_lines

DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE, PICTURE = DOCS / "data/bank_speed.json", DOCS / "performance.md", DOCS / "images/bank_speed.svg"
DEEP_DATA, FUZZ_DATA = DOCS / "data/deep_speed.json", DOCS / "data/fuzz_by_backend.json"
DECODERS_ON_GPU, AGAIN = DOCS / "data/decoder_speed.json", DOCS / "data/published_again.json"
DECODERS_ON_CPU, PATIENCE = DOCS / "data/decoder_speed_cpu.json", DOCS / "data/patience.json"
TITLES = {"cuda": "On a GPU", "cpu": "On a CPU"}

HEAD = """# How fast a bank is

Written by `make docs` from `docs/data/bank_speed.json`; measured by
`python -m benchmarks.bank_speed` (`make bench` runs the CPU part). Every contestant starts from the same parameters
and visits the same samples in the same order, in one run; the loss each reached after two epochs stands beside its
speed. One layer, 4 heads of dimension 8, width 32, 4-dimensional tokens and a position, AdamW, float32 (the peers'
products in TF32 on a GPU).

## What a step does

Collapsed (`headcount/kernels/plain.py`), a token costs d N + 2 N h products, 416 instead of 3,232 here. Fused
(`headcount/kernels/fused.py`), a step is seven kernels: compose each member's small matrices; features,
scores, softmax and pooling; the tail with the squared gap and its gradient; the pooling backwards, with everything
recomputed; the composition backwards; AdamW's schedule and its update. From width 17 on a head stays two thin maps
instead of one matrix (`split_heads.py`), which is one kernel more. Between them only one vector per head and sample
goes to memory and back. The tables below are of the pooling before it was transposed; since then one-layer banks are 5
to 39% faster at these shapes (docs/log.md, "one bank", and docs/data/race_one_bank.json).
Stretches of up to 32 steps are recorded as one CUDA graph. Factors of products are rounded to float16 and summed in
float32 ("half"): as many bits as TF32, but rounded instead of cut off; the first layer and the composed matrices keep
twice the bits, gradients are scaled to size one, and evaluation pools with twice the bits ("fine").
"""


DEEP_CELL = ("models", "length", "heads", "width")
DEEPER = """
In banks of several layers, part by part (`headcount/kernels/parts.py`), tokens attend to tokens, the class
token attends to them and feed-forwards run in kernels that keep scores and hidden activations on the chip, forwards and
backwards; queries, keys, values and outputs stay batched products. PyTorch's own fused attention was tried first and
left: in float32 with heads of dimension 8 its backward made the whole step slower than scores in memory (7,764 against
12,280 model-steps per second at K=128, T=32, in one run), and the compiler brought 8% to 10% on top of it.
"""


def add(file: Path) -> None:
    """Take one run's measurements in, in place of the last on that kind of device."""
    run = json.loads(file.read_text())
    if "ratios" in run:  # the race of deep and wide banks
        DEEP_DATA.write_text(json.dumps(run, indent=1) + "\n")
        return
    content = json.loads(DATA.read_text()) if DATA.exists() else {}
    if all(r["layers"] > 1 for r in run["cells"]):  # the group "two layers" by itself
        content["deep"] = run
    else:
        busy = "cpu busy" if "processor time" in run["device"] else "cpu"
        content[busy if run["device"].startswith("CPU") else "cuda"] = run
    DATA.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def speeds(run: dict[str, Any], kind: str) -> list[str]:
    """The table of one device: model-steps per second and losses, ratios, shares."""
    rows = [r for r in run["cells"] if r["layers"] == 1]
    cells = list(dict.fromkeys((r["models"], r["length"]) for r in rows))
    at = {(r["way"], r["models"], r["length"]): r for r in rows}
    names = sorted({r["way"] for r in rows}, key=lambda name: max(r["rate"] for r in rows if r["way"] == name))
    lines: list[list[str]] = []
    for name in names:
        measured = [at.get((name, *cell)) for cell in cells]
        lines.append([f"**{name}**" if name == OURS[kind] else name, *(_entry(r, name) for r in measured)])
    for peer in PEER[kind]:
        pairs = [(at.get((OURS[kind], *cell)), at.get((peer, *cell))) for cell in cells]
        shown = [
            f"{own_row['rate'] / peer_row['rate']:.1f}x" if own_row and peer_row else "" for own_row, peer_row in pairs
        ]
        lines.append([f"ours over {peer}", *shown])
    for ceiling, rate in run["ceilings"].items():
        kind_of = "traffic" if ceiling == "copy" else "operations"
        own_row = [at.get((OURS[kind], *cell)) for cell in cells]
        shown = [f"{r['rate'] * r[kind_of] / rate:.1%}" if r else "" for r in own_row]
        lines.append([f"share of the {ceiling} ceiling, {rate:.3g}/s", *shown])
    return table_lines(["way", *(f"K={k}, T={t}" for k, t in cells)], lines)


def _entry(row: dict[str, Any] | None, name: str) -> str:
    if row is None:
        return ""
    first = f"first member {row['first loss']:.4f}"
    loss = first if name in ALONE else f"{row['loss']:.4f}" + (f", {first}" if name == REFERENCE else "")
    return f"{row['rate']:,.0f} ({loss})"


def growing(run: dict[str, Any]) -> list[str]:
    """Slopes of time, and what memory grows with."""
    lines = []
    for axis in dict.fromkeys(g["axis"] for g in run["growth"]):
        points = [g for g in run["growth"] if g["axis"] == axis]
        if len(points) < 2:
            continue
        times = [(g["value"], g["models"] / g["rate"]) for g in points]
        shown = ", ".join(f"{value}: {1e6 * t:,.0f}" for value, t in times)
        lines.append(f"- {axis}: a step takes {axis}^{slope(times):.2f}; microseconds at {shown}.")
        first, last = points[0], points[-1]
        if axis == "models":
            each = (last["peak bytes"] - first["peak bytes"]) / (last["models"] - first["models"])
            per = [1e6 / g["rate"] for g in points]
            lines.append(f"  Memory: {each / 2**20:.2f} MiB per member, linear. Time of a model-step varies by "
                         f"{max(per) / min(per) - 1:.0%} over the range.")  # fmt: skip
        if axis == "length":
            beyond = (last["peak bytes"] - last["data bytes"]) - (first["peak bytes"] - first["data bytes"])
            lines.append(f"  Memory beyond the data grows by {beyond / 2**20:,.0f} MiB from length {first['value']} to "
                         f"{last['value']} (the packed copy of the data among it).")  # fmt: skip
    return lines


def checked(check: dict[str, Any]) -> list[str]:
    """What a check of the fused step found: it alone, kernel by kernel, and where training ends."""
    timed = [row for row in check["rates"] if "kernels_us" in row]
    parts = list(timed[0]["kernels_us"])
    about = (
        f"{check['device']}, torch {check['torch']}, Python {check['python']}, {check['date']}, `{check['command']}`"
    )
    rows = (
        (f"K={row['models']}, T={row['length']}", *(f"{row['kernels_us'][part]:.0f}" for part in parts))
        for row in timed
    )
    lines = [f"The fused step by itself ({about}), in microseconds:", ""]
    return [*lines, *table_lines(("members, length", *parts), rows), "", *_losses(check), ""]


def deeper(run: dict[str, Any]) -> list[str]:
    """Banks of two layers: rows of model-steps per second."""
    about = f"{run['device']}, torch {run['torch']}, {run['date']}"
    cells = list(dict.fromkeys(tuple(r[key] for key in DEEP_CELL) for r in run["cells"]))
    of_rows = list(dict.fromkeys(r["way"] for r in run["cells"]))
    at = {(r["way"], *(r[key] for key in DEEP_CELL)): r for r in run["cells"]}
    names = [f"K={k}, T={t}, {h} heads, width {w}" for k, t, h, w in cells]
    lines = [DEEPER.strip(), "", f"{about}. Model-steps per second (median member's loss after two epochs):", ""]
    rows = (
        (name.removeprefix("two layers, "), *(_entry(at.get((name, *cell)), name) for cell in cells))
        for name in of_rows
    )
    return [*lines, *table_lines(("way", *names), rows), ""]


def _losses(check: dict[str, Any]) -> list[str]:
    study = check["study"]
    lines = [
        "The losses are the reference's. NMSE of 24 seeds (4 heads, length 8, 31,000 steps): smallest, median, 20th:"
    ]
    lines.append("")
    for name, levels in check["nmse of 24 seeds"].items():
        lines.append(f"- {name}: {levels[0]:.1e}, {(levels[11] + levels[12]) / 2:.1e}, {levels[19]:.1e}")
    lines += [
        "",
        f"`headcount sweep {study['file']}` ({study['networks']} networks of 31,000 steps), from the start of the",
    ]
    lines.append(f"program to the report, compilation included: {study['seconds']} s.")
    return lines


def picture(whole: dict[str, Any]) -> Figure:
    """Bars for every way at the first cell, and how a step's time grows with each size."""
    kind = "cuda" if "cuda" in whole else "cpu"
    run = whole[kind]
    cell = (run["cells"][0]["models"], run["cells"][0]["length"])
    rows = [r for r in run["cells"] if (r["models"], r["length"]) == cell and r["layers"] == 1]
    rows.sort(key=lambda r: -r["rate"])
    left = 24 + 6.4 * max(len(row["way"]) for row in rows)
    width, height = round(left) + (740 if run["growth"] else 360), 80 + 26 * max(8, len(rows))
    parts = [_bars(Frame(left, left + 350, 34, height - 46), rows, OURS[kind], cell)]
    parts += [_growth(Frame(left + 420, left + 720, 34, height - 46), run["growth"])] if run["growth"] else []
    words = "Model-steps per second of every way, and how the time of a step grows with each size."
    return figure_of(parts, width=width, height=height, title="How fast a bank is", words=words)


def _bars(frame: Frame, rows: list[dict[str, Any]], ours: str, cell: tuple[int, int]) -> str:
    rates = [row["rate"] for row in rows]
    low, high = decades([math.log10(rate) for rate in rates])
    x = Scale(10.0**low, 10.0 ** (high + 0.5), frame.left, frame.right, math.log10)
    tall = (frame.bottom - frame.top) / len(rows)
    body = text(f"Model-steps per second, K={cell[0]}, T={cell[1]}", 8, frame.top - 12, "strong")
    for i, row in enumerate(rows):
        y, tone = frame.top + tall * i, "kf0" if row["way"] == ours else "kf1"
        wide = x(row["rate"]) - frame.left
        body += tag("rect", x=frame.left, y=y + 3, width=wide, height=tall - 6, rx=3, class_=tone)
        body += text(row["way"], frame.left - 8, y + tall / 2 + 4, "strong" if row["way"] == ours else "", "end")
        body += text(f"{row['rate']:,.0f}", frame.left + wide + 6, y + tall / 2 + 4, "soft")
    return body + below(frame, [(x(10.0**e), power_of_ten(e)) for e in range(low, high + 1)], "")


def _growth(frame: Frame, growth: list[dict[str, Any]]) -> str:
    curves: dict[str, list[tuple[float, float]]] = {}
    for axis in dict.fromkeys(g["axis"] for g in growth):
        points = [g for g in growth if g["axis"] == axis]
        first = points[0]
        curves[f"{axis} from {first['value']}"] = [
            (g["value"] / first["value"], g["models"] / g["rate"] / (first["models"] / first["rate"])) for g in points
        ]
    most = max(v for curve in curves.values() for point in curve for v in point)
    powers = [2**k for k in range(math.ceil(math.log2(most)) + 1)]
    x = Scale(1, powers[-1], frame.left + 16, frame.right - 16, math.log2)
    y = Scale(1, powers[-1], frame.bottom - 16, frame.top + 8, math.log2)
    panel = Panel(frame, x, y, beside(frame, [(y(p), str(p)) for p in powers]))
    body = panel.axes + panel.title("Time of a step, relative")
    for i, curve in enumerate(curves.values()):
        body += panel.line(curve, f"line ks{i}") + panel.marks(curve, i)
    body += legend(list(curves), frame.left + 14, frame.top + 14)
    return body + panel.below([(p, str(p)) for p in powers], "times larger")


def page(whole: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    lines = [HEAD]
    if "cuda" in whole or "cpu" in whole:
        lines += ["![Model-steps per second and how a step's time grows](images/bank_speed.svg)", ""]
    for kind, title in TITLES.items():
        lines += [f"## {title}", ""]
        if kind not in whole:
            lines += [f"The race is still to be run: `python -m benchmarks.bank_speed --device {kind}`.", ""]
            continue
        run = whole[kind]
        lines += [f"{run['device']}, torch {run['torch']}, Python {run['python']}, {run['date']}. Model-steps per",
                  "second (in brackets the median member's loss after two epochs).", ""]  # fmt: skip
        lines += [*(speeds(run, kind) if kind == "cuda" else cpu_lines(run, whole.get("cpu busy"))), ""]
        lines += [*growing(run), ""] if run["growth"] else []
        if kind == "cuda" and "check" in whole:
            lines += checked(whole["check"])
        if kind == "cuda" and "deep" in whole:
            lines += ["### Deeper banks", "", *deeper(whole["deep"])]
        if kind == "cuda":
            lines += deep_lines(_read(DEEP_DATA), _read(FUZZ_DATA)) + again_lines(_read(AGAIN))
            lines += gpu_decoder_lines(_read(DECODERS_ON_GPU))
        else:
            lines += cpu_decoder_lines(_read(DECODERS_ON_CPU)) + patience_lines(_read(PATIENCE))
    return "\n".join(lines).rstrip() + "\n"


def _read(file: Path) -> Any:
    return json.loads(file.read_text()) if file.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, action="append", default=[])
    for file in parser.parse_args().add:
        add(file)
    print("So: `make docs` draws the page.")


if __name__ == "__main__":
    main()
