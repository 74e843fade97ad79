"""The one drawing kit: elements, scales, axes and colours as small pure functions that return SVG text."""

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.drawing.svg import Figure

__all__ = ["Figure"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "svg": ("Figure",),
    },
)
