"""Five filters people know in four forms at equal bits: who keeps the response best.

python -m studies.ssm_forms            # prints the table; --out FILE writes the rows as JSON
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import scipy.signal

from headcount.papers.ssm import DiagonalSSM
from headcount.papers.ssm.interchange import from_sos
from headcount.papers.ssm.rival_forms import form_rows, winners
from headcount.papers.ssm.speech import made_up_vowel, prediction_filter


def filters() -> dict[str, DiagonalSSM]:
    """Butterworth of order 8, elliptic of order 6, a notch, two pairs of close poles, and a vowel's filter."""
    notch = scipy.signal.tf2sos(*scipy.signal.iirnotch(0.1, 30))
    return {
        "Butterworth 8": from_sos(scipy.signal.butter(8, 0.1, output="sos")),
        "elliptic 6": from_sos(scipy.signal.ellip(6, 0.5, 60, 0.2, output="sos")),
        "notch": from_sos(notch),
        "close poles": DiagonalSSM([0.99, 0.985, 0.98, 0.975], [400.0, -900.0, 700.0, -199.0]),
        "speech filter": prediction_filter(made_up_vowel(), 10),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    by_filter: dict[str, Any] = {}
    for name, system in filters().items():
        rows = form_rows(system)
        by_filter[name] = rows
        for row in rows:
            print(f"{name:14} {row['budget']:3} {row['form']:14} {row['numbers']:4} numbers {row['bits']:3} bits "
                  f"gap {row['gap']:.2e} worst {row['worst dB']:.2f} dB", flush=True)  # fmt: skip
        print(f"{name}: {winners(rows)}")
    if options.out:
        options.out.write_text(json.dumps(by_filter, indent=1, default=str).replace("Infinity", "null") + "\n")


if __name__ == "__main__":
    main()
