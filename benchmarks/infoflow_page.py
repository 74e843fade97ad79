"""Draw the page of the stored InfoFlow measurements: `python -m benchmarks.infoflow_page`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headcount.files import whole
from headcount.papers.infoflow_page import page

DATA = Path("docs/data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/infoflow.html"))
    out = parser.parse_args().out
    names = ("infoflow_tables.json", "infoflow_battery.json", "infoflow_disagreements.json")
    with whole(out) as scratch:
        scratch.write_text(page(*map(stored, names)))
    print(f"written: {out}")


def stored(name: str) -> dict[str, Any]:
    path = DATA / name
    return json.loads(path.read_text()) if path.is_file() else {}


if __name__ == "__main__":
    main()
