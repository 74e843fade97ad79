"""Drawing by hand: elements, scales and axes as small pure functions that return SVG text."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headcount.drawing.palette import PLAIN_FONT, plain_stylesheet, stylesheet

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scale:
    """A map from data to pixels, straight in `of(value)`.

    >>> import math
    >>> Scale(1.0, 100.0, 0.0, 200.0, of=math.log10)(10.0)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    of: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        low, high = self.of(self.low), self.of(self.high)
        fraction = (self.of(value) - low) / (high - low) if high != low else 0.5
        return self.start + fraction * (self.end - self.start)


@dataclass(frozen=True)
class Figure:
    """A drawing with its size and its description for those who cannot see it."""

    width: int
    height: int
    body: str = field(repr=False)
    title: str
    description: str

    def inline(self, name: str) -> str:
        """The figure for a page that carries the stylesheet; `name` must be unique on the page."""
        head = f'<svg class="hc" viewBox="0 0 {self.width} {self.height}" role="img" aria-labelledby="{name}">'
        return f'{head}<title id="{name}">{html.escape(self.description)}</title>{self.body}</svg>'

    def standalone(self) -> str:
        """The figure as a file of its own, right on a light and on a dark ground."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="hc" {size} role="img">'
        words = f"<title>{html.escape(self.title)}</title><desc>{html.escape(self.description)}</desc>"
        return f"{head}{words}<style>{stylesheet()}</style>{self.body}</svg>\n"

    def _repr_svg_(self) -> str:
        return self.standalone()

    def printed(self, width: str = "") -> str:
        """The figure for paper and other programs: plain colours and fonts on white, `width` such as 3.25in.

        >>> Figure(10, 5, "", "t", "d").printed("2in").count('width="2in" height="1in"')
        1
        """
        size = f'width="{self.width}" height="{self.height}"' if not width else _sized(width, self.height / self.width)
        view = f'viewBox="0 0 {self.width} {self.height}" font-family="{PLAIN_FONT}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view}>'
        words = f"<title>{html.escape(self.title)}</title><desc>{html.escape(self.description)}</desc>"
        ground = f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        return f"{head}{words}<style>{plain_stylesheet()}</style>{ground}{self.body}</svg>\n"


def inches(width: str) -> float:
    """A width on paper in inches.

    >>> inches("3.25in"), round(inches("84mm"), 2), inches("36pt")
    (3.25, 3.31, 0.5)
    """
    number, unit = _measure(width)
    return number / {"in": 1, "cm": 2.54, "mm": 25.4, "pt": 72, "px": 96}[unit]


def _measure(width: str) -> tuple[float, str]:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(in|cm|mm|pt|px)", width.strip())
    if match is None or not float(match[1]) > 0:
        raise ValueError(f"a width is a number with in, cm, mm, pt or px, as 3.25in; got {width!r}")
    return float(match[1]), match[2]


def _sized(width: str, ratio: float) -> str:
    number, unit = _measure(width)
    return f'width="{number:g}{unit}" height="{number * ratio:.4g}{unit}"'


def tag(name: str, content: str = "", **attributes: object) -> str:
    """One element; attributes that are numbers are written short, `class_` and `stroke_width` as SVG spells them.

    >>> tag("circle", cx=1.0, cy=2.345678, class_="dot")
    '<circle cx="1" cy="2.35" class="dot"/>'
    """
    words = "".join(f' {key.rstrip("_").replace("_", "-")}="{_short(v)}"' for key, v in attributes.items())
    return f"<{name}{words}>{content}</{name}>" if content else f"<{name}{words}/>"


def text(content: str, x: float, y: float, class_: str = "", anchor: str = "start") -> str:
    """A line of text at its baseline."""
    return tag("text", html.escape(content), x=x, y=y, class_=class_, text_anchor=anchor)


def path(points: Iterable[tuple[float, float]], class_: str) -> str:
    """A polygonal line through the points.

    >>> path([(0, 0), (1, 2)], "line")
    '<path d="M0 0L1 2" class="line"/>'
    """
    return tag("path", d="M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points), class_=class_)


def power_of_ten(exponent: int) -> str:
    """A tick label.

    >>> power_of_ten(-4), power_of_ten(0)
    ('10⁻⁴', '1')
    """
    return "1" if exponent == 0 else "10" + str(exponent).translate(SUPERSCRIPTS)


def dodged(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, in the same order, at least `apart` from each other, between `low` and `high`.

    >>> dodged([10.0, 11.0, 40.0], apart=6.0, low=0.0, high=50.0)
    [7.5, 13.5, 40.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[list[int], float]] = []  # labels pushed together, and the middle they want
    for i in order:
        block, middle = [i], wanted[i]
        while blocks and blocks[-1][1] + apart * (len(blocks[-1][0]) + len(block)) / 2 > middle:
            other, centre = blocks.pop()
            middle = (centre * len(other) + middle * len(block)) / (len(other) + len(block))
            block = other + block
            middle = _inside(middle, apart * (len(block) - 1) / 2, low, high)  # what is moved inside may push again
        blocks.append((block, _inside(middle, apart * (len(block) - 1) / 2, low, high)))
    places = dict[int, float]()
    for block, middle in blocks:
        places |= {i: middle + apart * (n - (len(block) - 1) / 2) for n, i in enumerate(block)}
    return [places[i] for i in range(len(wanted))]


def _inside(middle: float, half: float, low: float, high: float) -> float:
    return max(min(middle, high - half), low + half)


def _short(value: object) -> str:
    if isinstance(value, float):
        short = f"{value:.2f}".rstrip("0").rstrip(".")
        return "0" if short == "-0" else short
    return html.escape(str(value))
