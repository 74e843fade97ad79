"""docs/measure.md: what `measure` says of data whose answer is known, and whether it keeps to its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headcount.numerals import short

__all__ = ["page"]

HEAD = """# What `measure` says of data whose answer is known

Written by `python -m benchmarks.docs` from `docs/data/measure_table.json`, `time_kept.json` and `measure_planted.json`;
measured by `python -m benchmarks.measure_table`, `time_kept` and `measure_planted`.

## Digits, ETTh1, spoken digits, planted look-ups, noise

Each measured as `headcount measure DATA --budget TIME` and nothing else. The level is the validation error over that of
the best constant guess: NMSE for numbers, relative cross-entropy for classes, with the share of wrong classes in
brackets. The baseline is the best of those without attention; *network* is the best head count. Measured on two cores
beside two or three other processes, once each; on two cores that twenty others wanted, 120 s were too short for digits
(networks stopped at 0.25: "worth nothing") and for the planted set ("4 heads").

| data | best baseline | level | network | knee | seeds | verdict | seconds (given) |
|---|---|---:|---:|---:|---:|---|---:|"""
TIMES = """Counted is the whole process, from its start to
its end, the loading of torch included. *busy loops* were added for the measurement. *on* says where it ran: on a core
of its own, which it shares with the loops alone, or on two cores among all else that ran there, with the number of
processes that wanted a core in the minute before. What is left of the time after the plan goes into seeds.

| given | on | busy loops | took | share | steps | seeds | head counts |
|---:|---|---:|---:|---:|---:|---:|---:|"""


def page(data: Path) -> str:
    """The page from the committed tables."""
    known, times, planted = (
        json.loads((data / f"{name}.json").read_text()) for name in ("measure_table", "time_kept", "measure_planted")
    )
    kept = sum(0.8 <= row["share"] <= 1.2 for row in times)
    said = (
        f"{planted['found']} of {planted['cases']} planted numbers of look-ups lie in the interval of the knee, "
        f"{planted['exact']} are the knee itself."
    )
    parts = [
        HEAD,
        *(_known(row) for row in known),
        "",
        *(f"- **{row['data']}**: {row['sequences']} of {row['tokens']}. {row['advice']}" for row in known),
        f"\n## Is the time kept?\n\n{kept} of {len(times)} times were kept within a fifth. {TIMES}",
        *(_time(row) for row in sorted(times, key=lambda row: (not row["own_core"], row["busy_loops"], row["budget"]))),
        f"\n## Twenty planted data sets\n\n{said}\n",
        "| family | look-ups | knee | interval | found | seconds |",
        "|---|---:|---:|---:|---|---:|",
        *(_planted(row) for row in planted["rows"]),
        "",
    ]
    return "\n".join(parts)


def _known(row: dict[str, Any]) -> str:
    network = f"{short(row['level'])}{_wrong(row['wrong'])}"
    base = f"{short(row['baseline_level'])}{_wrong(row['baseline_wrong'])}"
    seeds = f"{row['seeds'][0]}" if row["seeds"][0] == row["seeds"][1] else f"{row['seeds'][0]} to {row['seeds'][1]}"
    took = f"{row['seconds']:.0f} ({row['budget']:.0f})"
    cells = (row["data"], row["baseline"], base, network, row["knee"], seeds, row["headline"], took)
    return f"| {' | '.join(cells)} |"


def _wrong(share: float | None) -> str:
    return "" if share is None else f" ({share:.1%})"


def _time(row: dict[str, Any]) -> str:
    few, many = row["seeds"]
    seeds = f"{few}" if few == many else f"{few} to {many}"
    where = "a core of its own" if row["own_core"] else f"two cores, load {row['load_before']:.0f}"
    cells = (
        f"{row['budget']:.0f} s", where, str(row["busy_loops"]), f"{row['seconds']:.1f} s",
        f"{row['share']:.0%}", str(row["steps"]), seeds, str(len(row["heads"])),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _planted(row: dict[str, Any]) -> str:
    high = "..." if row["high"] is None else str(row["high"])
    cells = (
        row["family"], str(row["retrievals"]), str(row["knee"]), f"{row['low']} to {high}",
        "yes" if row["found"] else "no", f"{row['seconds']:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
