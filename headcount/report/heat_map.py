"""NMSE over heads and length as a map: colour by its logarithm, the number in the cell."""

from __future__ import annotations

import numpy as np

from headcount.drawing.axes import Frame, decades
from headcount.drawing.palette import STEPS
from headcount.drawing.svg import Figure, path, power_of_ten, tag, text
from headcount.fits import Cells
from headcount.numerals import counted, short

LEFT, TOP = 54, 40
FITS = 46  # pixels that a number needs; a narrower cell shows its logarithm


def heat_map(cells: Cells, predicted: int | None = None, *, width: int = 520, label: str = "NMSE") -> Figure:
    """The level of every cell; a dashed line stands before the first head count that is predicted to be enough."""
    levels = cells.levels()
    low, high = decades([v for v in levels.ravel().tolist() if np.isfinite(v)])
    wide = (width - LEFT - 4) / len(cells.points)
    tall = max(30.0, min(50.0, 230 / len(cells.groups)))
    body = text("heads", LEFT, TOP - 24, "soft small")
    for j, heads in enumerate(cells.points):
        weight = "strong" if heads == predicted else "soft"
        body += text(str(heads), LEFT + wide * (j + 0.5), TOP - 8, weight, "middle")
    for i, length in enumerate(cells.groups):
        body += text(str(length), LEFT - 10, TOP + tall * (i + 0.5) + 4, "soft", "end")
        for j in range(len(cells.points)):
            box = Frame(LEFT + wide * j, LEFT + wide * (j + 1), TOP + tall * i, TOP + tall * (i + 1))
            body += _cell(float(levels[i, j]), int(cells.counts[i, j]), box, (low, high))
    body += text("length", LEFT - 10, TOP - 8, "soft small", "end")
    bottom = TOP + tall * len(cells.groups)
    body += _boundary(cells.points, predicted, wide, bottom) + _legend(low, high, width, bottom + 18)
    body += text("cells show log₁₀", width - 4, bottom + 26, "soft small", "end") if wide < FITS else ""
    words = (
        f"Map of {label} over {len(cells.points)} head counts and {len(cells.groups)} lengths, from {_range(levels)}."
    )
    return Figure(width, round(bottom) + 56, body, f"{label} over heads and length", words)


def _number(value: float) -> str:
    return short(value, 2, padded=True)


def _cell(level: float, seeds: int, place: Frame, span: tuple[int, int]) -> str:
    wide, tall = place.right - place.left, place.bottom - place.top
    box = {"x": place.left + 1, "y": place.top + 1, "width": wide - 2, "height": tall - 2, "rx": 3}
    middle = (place.left + wide / 2, place.top + tall / 2 + 4)
    if not seeds:
        return tag("rect", **box, class_="grid") + text("–", *middle, "soft", "middle")
    fraction = (span[1] - level) / (span[1] - span[0])
    tone = round(fraction * (STEPS - 1))
    label = _number(10**level) if wide >= FITS else f"{level:.1f}"
    hover = tag("title", f"{_number(10**level)}, best half of {counted(seeds, 'seed')}")
    return tag("rect", hover, **box, class_=f"f{tone}") + text(label, *middle, f"t{tone}", "middle")


def _boundary(points: tuple[int, ...], predicted: int | None, wide: float, bottom: float) -> str:
    enough = [j for j, heads in enumerate(points) if predicted is not None and heads >= predicted]
    if not enough:
        return ""
    x = LEFT + wide * enough[0]
    side = ("end", x - 6) if enough[0] > len(points) / 2 else ("start", x + 6)
    return path([(x, TOP - 34), (x, bottom + 4)], "predicted") + text(
        f"predicted {predicted}", side[1], TOP - 24, "strong small", side[0]
    )


def _legend(low: int, high: int, width: int, y: float) -> str:
    bar = min(220.0, width - LEFT - 150.0)
    step = bar / STEPS
    boxes = [tag("rect", x=LEFT + step * i, y=y, width=step + 0.5, height=8, class_=f"f{i}") for i in range(STEPS)]
    every = max(1, round((high - low) / 6))
    labels = [
        text(power_of_ten(e), LEFT + bar * (high - e) / (high - low), y + 24, "soft small", "middle")
        for e in range(high, low - 1, -every)
    ]
    return "".join(boxes + labels)


def _range(levels: np.ndarray) -> str:
    finite = levels[np.isfinite(levels)]
    return f"{_number(10 ** float(finite.min()))} to {_number(10 ** float(finite.max()))}"
