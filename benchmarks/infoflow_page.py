"""Draw the page of the stored InfoFlow measurements: `python -m benchmarks.infoflow_page`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.battery_page import page
from benchmarks.infoflow_stored import stored
from headcount.reproduction.runner import keep

DATA = Path("docs/data")
INFOFLOW = (
    "infoflow_tables.json",
    "infoflow_battery.json",
    "infoflow_disagreements.json",
    "pair_table.json",
    "held_out_battery.json",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/infoflow.html"))
    out = parser.parse_args().out
    keep(out, page(*(stored(DATA / name) for name in INFOFLOW)))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
