"""The page of the study: `python -m studies.worst.page worst.json` keeps its columns in docs/data and writes the page.

Cells and checks of that file take the place of those of the same name; all others stay as they are. Without a file the
page is drawn anew from docs/data/worst.json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from pathlib import Path
from statistics import median
from typing import Any

from headcount.drawing.panels import figure_of, frames, legend, log_panel
from headcount.drawing.svg import Figure
from headcount.files import atomic_write
from headcount.report import Exhibit, Passage, article

DATA, ROADS, PAGE = Path("docs/data/worst.json"), Path("docs/data/worst_roads.json"), Path("docs/worst.html")
KEPT = ("nmse", "rms", "sampled", "attacked", "worst_lower", "worst_upper", "boxes", "open", "constant", "large_share")
KEPT += ("large_low", "large_high")
SETTLED = 0.95  # the share of closed proofs from which a median of proved errors speaks of errors
LOOKS = {"rms": "root mean square", "sampled": "worst of 20,000", "attacked": "attacked"}
LOOKS |= {"worst_lower": "met", "worst_upper": "proved"}


@dataclass(frozen=True)
class Group:
    """Cells taken together, member by member."""

    cells: tuple[dict[str, Any], ...]

    def column(self, name: str) -> list[float]:
        """One quantity of every member; None where a number was not finite."""
        return [v for cell in self.cells for v in cell["columns"].get(name, [])]

    def middle(self, name: str) -> float:
        """Its median."""
        return median(self.column(name))

    def ratio(self, one: str, other: str) -> float:
        """The median of one quantity over another, member by member."""
        pairs = zip(self.column(one), self.column(other), strict=True)
        return median(a / b for a, b in pairs if b > 0)

    @property
    def settled(self) -> float:
        """The share of proofs that closed."""
        return self.closed / max(1, self.networks)

    @property
    def networks(self) -> int:
        return len(self.column("open"))

    @property
    def closed(self) -> int:
        """How many proofs reached the ratio that was asked for."""
        return sum(o == 0 for o in self.column("open"))


def kept(raw: dict[str, Any]) -> dict[str, Any]:
    """What the page is made of: its columns, to four digits, bounds rounded outwards."""
    cells = {
        name: {
            **cell,
            "columns": {k: [_rounded(k, v) for v in cell["columns"][k]] for k in KEPT if k in cell["columns"]}
            | {"open": _still_open(cell)},
        }
        for name, cell in raw["cells"].items()
    }
    return {**raw, "cells": cells}


def with_cells(data: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """The data with cells and checks of a newer run in the place of those of the same name."""
    return {**newer, **{part: {**data.get(part, {}), **newer[part]} for part in ("cells", "checks")}}


def _still_open(cell: dict[str, Any]) -> list[int]:
    """Boxes left open; at least one where the proved end is not within the ratio of the other."""
    columns = cell["columns"]
    ends = zip(columns["open"], columns["worst_lower"], columns["worst_upper"], strict=True)
    return [left or int(upper > cell["ratio"] * lower) for left, lower, upper in ends]


def _rounded(column: str, value: float) -> float:
    """Four digits; what is proved from above never smaller, what is proved or met from below never larger.

    >>> _rounded("worst_upper", 0.123412), _rounded("worst_lower", 0.123496), _rounded("rms", 0.123496)
    (0.1235, 0.1234, 0.1235)
    """
    outwards = {
        "worst_upper": ROUND_CEILING,
        "large_high": ROUND_CEILING,
        "worst_lower": ROUND_FLOOR,
        "large_low": ROUND_FLOOR,
    }
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return float(Context(prec=4, rounding=outwards.get(column, ROUND_HALF_EVEN)).create_decimal(repr(value)))


def grouped(data: dict[str, Any], key: Callable[[dict[str, Any]], Any]) -> dict[Any, Group]:
    """The cells by a key, in its order; cells whose key is None are left out."""
    by_key: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for cell in data["cells"].values():
        if (at := key(cell)) is not None:
            by_key[at].append(cell)
    return {at: Group(tuple(by_key[at])) for at in sorted(by_key)}


def plain(cell: dict[str, Any], token_dim: int = 1) -> bool:
    """Whether it belongs to the grid of sizes."""
    return cell["variant"] == "plain" and cell["token_dim"] == token_dim


def page(data: dict[str, Any], roads: dict[str, Any] | None = None) -> str:
    """The whole page, a pure function of the data and of the bounds on the same boxes."""
    everyone = Group(tuple(data["cells"].values()))
    lengths = grouped(data, lambda c: c["length"] if plain(c) and c["heads"] >= c["retrievals"] else None)
    headline = f"{everyone.closed:,} trained networks, each with a proved worst error"
    sections = [
        _by_length(lengths),
        _by_heads(data),
        _by_variant(data),
        _shares(data),
        _plane(data),
        _soundness(data),
        _speed(data),
        *([] if roads is None else [_peers(roads), _to_the_end(roads)]),
    ]
    facts = {
        "networks": everyone.networks,
        "closed": everyone.closed,
        "device": data["about"]["device"],
        "torch": data["about"]["torch"],
    }
    return article(
        headline,
        f"So: {answer(lengths)}.",
        [s for s in sections if s is not None],
        subject="worst errors",
        facts=facts,
        command=data["about"]["command"],
        date=data["about"]["date"],
    )


def answer(lengths: dict[int, Group]) -> str:
    """What the factor between worst and average does with the length, in one sentence."""
    first, last = (lengths[at] for at in (min(lengths), max(lengths)))
    return (
        f"with as many heads as wells the worst error is at least {first.ratio('worst_lower', 'rms'):,.0f} times the "
        f"root mean square at length {min(lengths)} and at least {last.ratio('worst_lower', 'rms'):,.0f} times at "
        f"length {max(lengths)}, where it is at least {last.ratio('worst_lower', 'constant'):.2g} of what the best "
        f"constant answer has (medians of what was met; proofs of {last.closed} of {last.networks} closed there)"
    )


def _row(group: Group) -> dict[str, Any]:
    return {
        "networks": group.networks,
        "closed": group.closed,
        "NMSE": group.middle("nmse"),
        **{words: group.middle(name) for name, words in LOOKS.items()},
        "proved / rms": round(group.ratio("worst_upper", "rms"), 1),
        "attacked / met": round(group.ratio("attacked", "worst_lower"), 2),
        "proved / constant": round(group.ratio("worst_upper", "constant"), 2),
    }


def _by_length(lengths: dict[int, Group]) -> Passage:
    rows = tuple({"length": length, **_row(group)} for length, group in lengths.items())
    exhibit = Exhibit(
        _figure(lengths, 680), "Medians over networks with at least as many heads as wells.", _figure(lengths, 372)
    )
    note = "Medians, one-dimensional tokens. Constant: half the range that the target was seen to have."
    return Passage("Worst and average, by length", exhibits=(exhibit,), rows=rows, note=note)


def _figure(lengths: dict[int, Group], width: int) -> Figure:
    (frame,) = frames(1, width=width, height=360)
    looks = {words: name for name, words in LOOKS.items() if name not in ("worst_lower", "worst_upper")}
    lines = {words: [max(g.middle(name), 1e-9) for g in lengths.values()] for words, name in looks.items()}
    met, proved = ([g.middle(name) for g in lengths.values()] for name in ("worst_lower", "worst_upper"))
    heights = [y for line in lines.values() for y in line] + [*met, *proved]
    panel = log_panel(frame, [-0.4, len(lengths) - 0.6], [*heights, 30 * max(heights)])  # room for the legend
    parts = [panel.axes, panel.below([(i, str(T)) for i, T in enumerate(lengths)], "length")]
    for k, line in enumerate([*lines.values(), met]):
        points = list(enumerate(line))
        parts += [panel.line(points, f"line ks{k}"), panel.marks(points, k)]
    worst = len(lines)
    for i, ends in enumerate(zip(met, proved, strict=True)):
        parts.append(panel.line([(i, y) for y in ends], f"line ks{worst}"))
    parts += [panel.marks(list(enumerate(proved)), worst)]
    parts.append(legend([*lines, "worst: met to proved"], frame.left + 12, frame.top + 12))
    words = "Root mean square, worst sample, attack and proof against the length."
    return figure_of(parts, width=width, height=360, title="Errors against length", words=words)


def _by_heads(data: dict[str, Any]) -> Passage:
    groups = grouped(
        data, lambda c: (c["length"], c["retrievals"], c["heads"]) if plain(c) and c["length"] <= 10 else None
    )
    rows = []
    for length, wells in sorted({at[:2] for at in groups}):
        by = {at[2]: group for at, group in groups.items() if at[:2] == (length, wells)}
        row: dict[str, Any] = {"length": length, "wells": wells}
        for heads, group in by.items():
            row[f"{heads} heads: rms"] = group.middle("rms")
            row[f"{heads} heads: proved"] = group.middle("worst_upper")
        rows.append(row)
    words = transition(groups)
    return Passage(
        "Do heads matter in the worst norm?", paragraphs=(words,), rows=tuple(rows), note="Medians of each cell."
    )


def transition(groups: dict[tuple[int, int, int], Group]) -> str:
    """How much the head that completes h = D gains, in average and in the worst case, over cells with D >= 2.

    Only where nearly all proofs closed: a proof that is open bounds the worst error, and says little of its size.
    """
    gains: dict[str, list[float]] = {"rms": [], "worst_lower": [], "worst_upper": []}
    for (length, wells, heads), group in groups.items():
        fewer = groups.get((length, wells, heads - 1))
        if wells < 2 or heads != wells or fewer is None or min(group.settled, fewer.settled) < SETTLED:
            continue
        for name, ratios in gains.items():
            ratios.append(fewer.middle(name) / group.middle(name))
    if not gains["rms"]:
        return "No two neighbouring head counts were trained whose proofs nearly all closed."
    average, met, worst = (median(g) for g in gains.values())
    gain = "smaller" if max(met, worst) < average else "no smaller"
    return (
        f"The head that makes heads equal to wells divides the root mean square by {average:.2f}, the largest error "
        f"met by {met:.2f} and the proved worst error by {worst:.2f} (medians over {len(gains['rms'])} cells, with "
        f"{SETTLED:.0%} of all proofs closed): what it gains is {gain} in the worst norm than in the average."
    )


def _by_variant(data: dict[str, Any]) -> Passage | None:
    same = {(c["length"], c["retrievals"]) for c in data["cells"].values() if c["variant"] != "plain"}
    groups = grouped(
        data,
        lambda c: (
            (c["length"], c["variant"] != "plain", c["variant"])
            if c["token_dim"] == 1 and c["heads"] == c["retrievals"] and (c["length"], c["retrievals"]) in same
            else None
        ),
    )
    if not same:
        return None
    rows = tuple(
        {
            "length": T,
            "training": variant,
            "closed": f"{g.closed} of {g.networks}",
            "NMSE": g.middle("nmse"),
            "met": g.middle("worst_lower"),
            "proved": g.middle("worst_upper"),
            "proved / rms": round(g.ratio("worst_upper", "rms"), 1),
        }
        for (T, _, variant), g in groups.items()
    )
    paragraphs = tuple(gap_answer({v: g for (at, _, v), g in groups.items() if at == T}, T) for T in _lengths(groups))
    note = (
        "Heads as many as wells, one to three; medians. `met` is a lower end, `proved` an upper end of the worst error."
    )
    return Passage("What closes the gap", paragraphs=paragraphs, rows=rows, note=note)


def _lengths(groups: dict[tuple[int, bool, str], Group]) -> list[int]:
    """The lengths at which something but the plain training was done."""
    return sorted({T for T, other, _ in groups if other})


def gap_answer(trainings: dict[str, Group], length: int) -> str:
    """Which changes surely lower the worst error, by the ends that are met and proved, and at which cost in average.

    A change is sure to lower it where its proved end lies below what plain training was seen to have; one whose largest
    error met lies within a half of the plain one, either way, changes little.
    """
    plain_ones = trainings["plain"]
    met = plain_ones.middle("worst_lower")
    surely, little, unknown = [], [], []
    for name, group in trainings.items():
        if name == "plain":
            continue
        factor, cost = met / group.middle("worst_upper"), group.middle("nmse") / plain_ones.middle("nmse")
        if factor > 1.5:
            surely.append(f"{name} at least {factor:.1f} times, at {cost:.2g} times the NMSE")
        elif 1 / 1.5 < met / group.middle("worst_lower") < 1.5 or group.middle("worst_lower") > met:
            little.append(name)
        else:
            unknown.append(f"{name} ({group.closed} of {group.networks} proofs closed)")
    sentences = [f"At length {length} the worst error of plainly trained networks is at least {met:.2g} by the median."]
    sentences += [f"What surely lowers it: {'; '.join(surely)}."] if surely else []
    sentences += [f"What does not, or by less than a half: {', '.join(little)}."] if little else []
    sentences += [f"Smaller errors were met, and are not proved: {', '.join(unknown)}."] if unknown else []
    return " ".join(sentences)


def _shares(data: dict[str, Any]) -> Passage | None:
    groups = grouped(
        data, lambda c: (c["length"], c["retrievals"]) if "large_low" in c["columns"] and plain(c) else None
    )
    if not groups:
        return None
    rows = tuple(
        {
            "length": T,
            "wells": D,
            "networks": g.networks,
            "proved, at least": g.middle("large_low"),
            "proved, at most": g.middle("large_high"),
            "measured": g.middle("large_share"),
        }
        for (T, D), g in groups.items()
    )
    note = "Share of the domain in which |error| exceeds ten times the root mean square; medians."
    return Passage("How much of the domain is bad", rows=rows, note=note)


def _plane(data: dict[str, Any]) -> Passage | None:
    groups = grouped(data, lambda c: (c["length"], c["heads"] >= c["retrievals"]) if plain(c, 2) else None)
    if not groups:
        return None
    left_out = ("networks", "closed", "attacked / met", "proved / constant")
    rows = tuple(
        {
            "length": T,
            "heads": "as many as wells, or more" if enough else "fewer",
            "closed": f"{g.closed} of {g.networks}",
            **{k: v for k, v in _row(g).items() if k not in left_out},
        }
        for (T, enough), g in groups.items()
    )
    note = "Medians; one to three wells and one to four heads, in equal parts."
    return Passage("Tokens of the plane", rows=rows, note=note)


def _soundness(data: dict[str, Any]) -> Passage | None:
    if not data["checks"]:
        return None
    rows = []
    for kind in ("trained", "untrained", "broken"):
        checks = [check[kind] for check in data["checks"].values()]
        rows.append(
            {
                "networks": f"{kind}",
                "how many": sum(c["networks"] for c in checks),
                "beyond the proof": sum(c["beyond"] for c in checks),
                "nearest": max(c["nearest"] for c in checks),
                "left open": sum(c["open"] for c in checks),
            }
        )
    points = next(iter(data["checks"].values()))["points"]
    note = f"{points:,} points for each network; nearest: the largest error over the bound. Broken: weights times 100."
    return Passage("Trying to break the proofs", rows=tuple(rows), note=note)


def _speed(data: dict[str, Any]) -> Passage:
    groups = grouped(data, lambda c: (c["token_dim"], c["length"], c["ratio"]) if c["variant"] == "plain" else None)
    rows = tuple(
        {
            "token dim": d,
            "length": T,
            "ratio": ratio,
            "networks": g.networks,
            "boxes, median": int(g.middle("boxes")),
            "boxes, largest": int(max(g.column("boxes"))),
            "proved a second": round(g.networks / sum(c["took"]["proving"] for c in g.cells), 1),
        }
        for (d, T, ratio), g in groups.items()
    )
    return Passage("How fast", rows=rows, note=f"On {data['about']['device']}.")


def _peers(roads: dict[str, Any]) -> Passage:
    """Every bound over the largest error seen, on the same boxes; what a box takes stands below it."""
    names = [name for name in roads["same boxes"][0] if name != "half width" and "microseconds" not in name]
    rows = [
        {"half width": row["half width"], **{name: float(f"{row[name]:.3g}") for name in names}}
        for row in roads["same boxes"]
    ]
    took = {name: median(row[f"{name}, microseconds"] for row in roads["same boxes"]) for name in names}
    rows.append({"half width": "microseconds a box", **{name: float(f"{v:.3g}") for name, v in took.items()}})
    note = (
        "Four tokens, two wells, two heads, 256 boxes of each size: the median of the bound over the largest of 500 "
        f"errors sampled in the box (1 would be exact). {roads['device']}."
    )
    return Passage("Other bounds on the same boxes", rows=tuple(rows), note=note)


def _to_the_end(roads: dict[str, Any]) -> Passage:
    columns = {
        "length": "length",
        "wells": "wells",
        "heads": "heads",
        "width": "width",
        "nmse": "NMSE",
        "met": "met",
        "all tokens": "all tokens: proved / met",
        "all tokens, boxes": "boxes",
        "all tokens, seconds": "seconds",
        "winners": "winners: proved / met",
        "winners, boxes": "boxes ",
        "winners, seconds": "seconds ",
        "winners, open": "open",
    }
    note = f"Until 1.5 or until the time was spent. {roads['device']}."
    return Passage("Two roads, to the end", rows=tuple(roads["to the end"]), columns=columns, note=note)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.worst.page", description=__doc__)
    parser.add_argument("raw", nargs="?", type=Path, help="what a run wrote")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--roads", type=Path, default=ROADS, help="bounds on the same boxes, as studies.worst.roads wrote"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.raw is not None:
        known = json.loads(options.data.read_text()) if options.data.exists() else {}
        data = with_cells(known, kept(json.loads(options.raw.read_text())))
        with atomic_write(options.data) as scratch:
            scratch.write_text(json.dumps(data, separators=(",", ":")) + "\n")
    with atomic_write(options.page) as scratch:
        roads = json.loads(options.roads.read_text()) if options.roads.exists() else None
        scratch.write_text(page(json.loads(options.data.read_text()), roads), encoding="utf-8")
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
