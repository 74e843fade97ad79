"""The race on a CPU: one and two layers, our ways and the usual ones, interleaved in one process; its table."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ceilings import ceilings
from benchmarks.measuring import ALONE, Contestant, Run, interleaved
from benchmarks.peers import one_by_one, vmapped
from benchmarks.problem import Size, of_backend
from headcount.kernels.backend import eager, reference
from headcount.kernels.cpp import compiled
from headcount.kernels.cpp import native_library as building
from headcount.report.tabular import table_lines

CPU_OURS = "compiled C++"
CPU_PLAIN, CPU_PRODUCTS = "plain batched products", "collapsed"  # the names under which races were kept
CPU_PEERS = (CPU_PRODUCTS, "one by one", "vmap", "JAX vmap + scan")
CPU_CELLS = [Size(16, 32, batch=128, steps_per_epoch=2, layers=layers) for layers in (1, 2)]

WORDS = """Where a C++ compiler is at hand, trainings of a thousand steps or more are compiled
(`headcount/kernels/cpp/`): a vector register holds a number of 16 samples (of 8 without AVX-512), and a
tile of samples goes through the whole network and back before the next one begins, in the member's own shape without
padding. Three products make up a step: a matrix times the tokens' columns, the sum over tokens and samples that is a
matrix's gradient, and the attention's, in which every lane has matrices of its own; each keeps 16 to 24 sums in
registers. In the layers before the last the class token is one more query; its last question is asked by directions, as
in the collapsed bank. Jobs are cut by the batch and the member alone and added in order: a member's numbers do not
depend on the threads, nor on the bank it is in."""


def cpu_contestants(layers: int) -> dict[str, Contestant]:
    """Our ways and the usual ones; JAX where it is installed."""
    ours = {CPU_OURS: compiled.backend} if building.native_library() is not None else {}
    backends = {**ours, CPU_PRODUCTS: eager, CPU_PLAIN: reference}
    ways: dict[str, Contestant] = {
        name: partial(of_backend, backend=replace(backend, name=name)) for name, backend in backends.items()
    }
    ways |= {"vmap": vmapped, "one by one": one_by_one}
    if importlib.util.find_spec("jax"):
        from benchmarks.peers_jax import scanned

        ways["JAX vmap + scan"] = partial(scanned, form="plain" if layers == 1 else "deep")
        if layers == 1:
            ways["JAX vmap + scan, collapsed"] = partial(scanned, form="collapsed")
    return ways


def cpu_race(run: Run, rounds: int) -> None:
    """Both shapes; the ceilings and the seconds of the compiler beside them."""
    run.about |= {"command": "python -m benchmarks.bank_speed --device cpu", **_compiler()}
    _raise_ceilings(run)
    for size in CPU_CELLS:
        interleaved(run, size, cpu_contestants(size.layers), rounds)
        _raise_ceilings(run)


def _raise_ceilings(run: Run) -> None:
    """The most that was seen at any time: on a machine with other work a single look may be far too low."""
    if run.clock is not time.process_time:  # they are wall-clock rates
        for _ in range(10):
            run.ceilings = {name: max(rate, run.ceilings.get(name, 0)) for name, rate in ceilings("cpu").items()}


def _compiler() -> dict[str, Any]:
    """Which compiler there is, and how long it takes for the library."""
    compiler = building.native_compiler()
    if compiler is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        building._build(compiler, "float32", "bank", Path(folder) / "bank.so")
        seconds = time.perf_counter() - start
    named = next((line for line in building._version(compiler).splitlines() if " version " in line), compiler)
    return {"compiler": named.strip(), "compile seconds": round(seconds, 1)}


def _rows(run: dict[str, Any], layers: int) -> list[dict[str, Any]]:
    return sorted((r for r in run["cells"] if r["layers"] == layers), key=lambda row: row["rate"])


def _figures(run: dict[str, Any], layers: int) -> list[tuple[str, str]]:
    """Ratios to the peers, of medians and of bests, and the share of what the machine can do."""
    rows = _rows(run, layers)
    of = {row["way"]: row for row in rows}
    ours = of.get(CPU_OURS)
    if ours is None:
        return []
    ratios = {peer: [ours[key] / of[peer][key] for key in ("rate", "best")] for peer in CPU_PEERS if peer in of}
    figures = [
        (f"ours over {peer}", f"{of_medians:.1f}x, of bests {of_bests:.1f}x")
        for peer, (of_medians, of_bests) in ratios.items()
    ]
    if ceiling := _ceiling(run):
        fraction = ours["rate"] * ours["operations"] / ceiling
        figures.append((f"share of the float32 product ceiling, {ceiling:.3g}/s", f"{fraction:.0%}"))
    return figures


def _ceiling(run: dict[str, Any]) -> float:
    """The most that products reached: in this run, or on the same machine when it was quiet, where that is known."""
    return max(part.get("float32 product", 0.0) for part in (run["ceilings"], run.get("quiet", {})))


def _loss(row: dict[str, Any]) -> str:
    """The median member's loss, and the first one's where somebody trains that alone."""
    first = f"first member {row['first loss']:.4f}"
    return first if row["way"] in ALONE else f"{row['loss']:.4f}" + (f", {first}" if row["way"] == CPU_PLAIN else "")


def _cell(row: dict[str, Any] | None) -> str:
    return f"{row['rate']:,.0f}, best {row['best']:,.0f} ({_loss(row)})" if row else ""


def cpu_table(run: dict[str, Any]) -> str:
    """The race as lines of text."""
    lines = [f"{run['device']}, torch {run['torch']}, {run['date']}; model-steps per second (loss after 2 epochs)"]
    for layers in (1, 2):
        lines.append(f"\n{layers} layer{'s' * (layers > 1)}")
        for row in _rows(run, layers):
            spread = f"+-{50 * row['spread']:.0f}%"
            lines.append(f"  {row['way']:44} {row['rate']:>10,.0f} {spread:6} best {row['best']:,.0f} ({_loss(row)})")
        lines += [f"  {name:44} {value:>10}" for name, value in _figures(run, layers)]
    return "\n".join(lines)


def busy_line(run: dict[str, Any]) -> str:
    """The ratios of a race in processor time, in a sentence."""
    phrases = []
    for layers, name in ((1, "one layer"), (2, "two layers")):
        rate = {row["way"]: row["rate"] for row in _rows(run, layers)}
        ratios = (f"{peer} {rate[CPU_OURS] / rate[peer]:.1f} times" for peer in CPU_PEERS if peer in rate)
        phrases.append(f"{name}, {', '.join(ratios)}")
    clock = "The machine had other work to do. In processor time on one thread, which depends less on that,"
    return f"{clock} ours is by the median faster ({run['date']}) than, with {'; with '.join(phrases)}."


def cpu_lines(run: dict[str, Any], busy: dict[str, Any] | None = None) -> list[str]:
    """The race as Markdown: both shapes beside each other; `busy` is the same in processor time."""
    ways = list(dict.fromkeys(row["way"] for layers in (1, 2) for row in _rows(run, layers)))
    at = {(row["way"], row["layers"]): row for row in run["cells"]}
    cell = run["cells"][0]
    shape = f"K={cell['models']}, T={cell['length']}, batch {cell['batch']}"
    rows = [
        (f"**{way}**" if way == CPU_OURS else way, *(_cell(at.get((way, layers))) for layers in (1, 2))) for way in ways
    ]
    figures = [dict(_figures(run, layers)) for layers in (1, 2)]
    names = dict.fromkeys(name for of_shape in figures for name in of_shape)
    rows += [(name, *(of_shape.get(name, "") for of_shape in figures)) for name in names]
    lines = table_lines(("way", f"one layer, {shape}", f"two layers, {shape}"), rows)
    if "quiet" in run:
        lines += ["", f"The ceiling is that of {run['quiet']['date']}, when the machine was quiet."]
    if "compiler" in run:
        lines += [
            "",
            f"{run['compiler']} makes the library in {run['compile seconds']} s, once for a user and processor.",
        ]
    if busy is not None:
        lines += ["", busy_line(busy)]
    return [WORDS, "", *lines]


DECODERS = """Decoders over letters (`headcount/kernels/cpp/decoder.h`) are made of the same products.
Nobody looks ahead, so what comes after a string's last judged place is left out; and in the last layer only the judged
places ask: every lane's are gathered, and queries, output, feed-forward and logits are computed for them alone. The
task judges one place of a string (`Neighbour`); where every place is judged, the last layer costs as much as the
others. Strings of length n and five marks, feed-forwards of width 4 E, a batch of 64. Rotary places stay with the
batched products."""


def cpu_decoder_lines(run: dict[str, Any] | None) -> list[str]:
    """The race of decoders on a CPU as Markdown; nothing where nothing was measured."""
    if run is None:
        return []
    lines = ["### Decoders on a CPU", "", DECODERS, ""]
    lines += [
        f"{run['device']}, torch {run['torch']}, {run['date']}, `{run['command']}`; medians of rounds in turn.",
        "",
    ]
    rows = []
    for row in run["rows"]:
        rates = (row["ours compiled"], row["ours full"], max(row["jax plain"], row["jax library"]))
        losses = f"{row['loss compiled']:.4f}, JAX {row['loss jax plain']:.4f}"
        rows.append((row["case"], *(f"{rate:,.0f}" for rate in rates), f"{row['ratio']:.1f}", losses))
    head = ("shape", "compiled C++", "batched products", "JAX vmap + scan", "ratio", "losses")
    return [*lines, *table_lines(head, rows), ""]


PATIENCE = """A member that `patience` has stopped takes no more time: its gradient is left out. A model-step costs
about the same in a bank of four as in one of 64 here, so nobody need take its place. With the cosine schedule patience
is not free: errors fall late, and a member that is stopped keeps the larger one."""


def patience_lines(run: dict[str, Any] | None) -> list[str]:
    """Finished answers per second as Markdown; nothing where nothing was measured."""
    if run is None:
        return []
    heads = list(run["rows"][0]["nmse"])
    lines = ["### Who is stopped", "", PATIENCE, ""]
    lines += [f"{run['device']}, torch {run['torch']}, {run['date']}, `{run['command']}`; median NMSE by heads.", ""]
    rows = []
    for row in run["rows"]:
        done = (f"{row['answers per second']:.1f}", f"{row['stopped']} of {row['answers']}")
        rows.append((row["way"], *done, *(f"{row['nmse'][h]:.1e}" for h in heads)))
    return [*lines, *table_lines(("way", "answers per second", "stopped", *(f"heads {h}" for h in heads)), rows), ""]
