"""Colours, for light and dark: one sequential ramp that the colour-blind can read, one accent, and inks."""

from __future__ import annotations

from collections.abc import Sequence

STEPS = 16  # shades of the heat map and of ordered lines

# Lightness runs one way in each, so that order survives without hue; blue-green against the orange accent is safe
# for every common colour blindness. Low error is far from the ground in both: deep on light, bright on dark.
LIGHT_RAMP = ("#eef3ea", "#c3e2d3", "#83c5c6", "#4299b8", "#23679f", "#182f63")
DARK_RAMP = ("#1e2935", "#21496a", "#28789b", "#36a0a8", "#7ccbad", "#e2f3bd")
LIGHT = {"ink": "#1b2430", "soft": "#5b6675", "rule": "#d5dae1", "ground": "#ffffff", "accent": "#c2410c"}
CATEGORIES = (("#c2410c", "#23679f", "#0f766e", "#7c3aed"), ("#ff9a5c", "#6db3e8", "#4cc9a8", "#b79cff"))
DARK = {"ink": "#e6eaf0", "soft": "#9aa6b5", "rule": "#313b48", "ground": "#12171e", "accent": "#ff9a5c"}
LABELS = ("#000000", "#ffffff")  # on any colour one of the two has contrast 4.5 or more
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

PLAIN_FONT = "Helvetica,Arial,sans-serif"

SHAPES = """
.hc{font-family:FONT;font-variant-numeric:tabular-nums}
.hc text{fill:var(--ink);font-size:12px}
.hc .halo{paint-order:stroke;stroke:var(--ground);stroke-width:5px;stroke-linejoin:round}
.hc .soft{fill:var(--soft)}.hc .small{font-size:11px}.hc .strong{font-weight:600}.hc .accent{fill:var(--accent)}
.hc .axis{stroke:var(--soft);stroke-width:1;fill:none}.hc .grid{stroke:var(--rule);stroke-width:1;fill:none}
.hc .predicted{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 4;fill:none}
.hc .interval{stroke:var(--accent);stroke-width:5;stroke-linecap:round;opacity:.35;fill:none}
.hc .open{stroke:var(--accent);stroke-width:2;fill:none;opacity:.6}
.hc .knee{fill:var(--accent);stroke:var(--ground);stroke-width:1.5}
.hc .band{fill:var(--accent);opacity:.10}
.hc .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.hc .seed{opacity:.55;stroke:none}.hc .level{stroke:var(--ground);stroke-width:1.25}
.hc .ring{fill:none;stroke-width:1.75}.hc .thin{fill:none;stroke-width:1.25}
.hc .bold{fill:none;stroke-width:4;opacity:.5}.hc .dots{stroke-dasharray:2 4}
.hc .lost{stroke:var(--accent);stroke-width:1.5;fill:none}.hc .lead{fill:none;stroke-width:1;opacity:.6}
"""


def ramp(anchors: Sequence[str], steps: int = STEPS) -> list[str]:
    """Colours evenly spaced along the anchors.

    >>> ramp(("#000000", "#ffffff"), 3)
    ['#000000', '#808080', '#ffffff']
    """
    return [_between(anchors, i / (steps - 1) * (len(anchors) - 1)) for i in range(steps)]


def stylesheet() -> str:
    """The rules every figure relies on, dark ones included."""
    light = ".hc,:root{" + _inks(LIGHT) + "}" + _shades(LIGHT_RAMP) + _categories(CATEGORIES[0])
    dark = ".hc,:root{" + _inks(DARK) + "}" + _shades(DARK_RAMP) + _categories(CATEGORIES[1])
    shapes = SHAPES.replace("FONT", FONT).replace("\n", "")
    return f"{light}{shapes}@media(prefers-color-scheme:dark){{{dark}}}"


def plain_stylesheet() -> str:
    """The light rules with plain colours and one named font: no variables, no media queries, for any reader of SVG.

    >>> "var(" in plain_stylesheet() or "@media" in plain_stylesheet()
    False
    """
    rules = SHAPES.replace("FONT", PLAIN_FONT).replace("\n", "")
    for name, colour in LIGHT.items():
        rules = rules.replace(f"var(--{name})", colour)
    # Readers that know classes but no descendants see every rule: figures in files stand alone.
    return (_shades(LIGHT_RAMP) + _categories(CATEGORIES[0]) + rules).replace(".hc ", "")


def _inks(inks: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in inks.items())


def _shades(anchors: Sequence[str]) -> str:
    rules = []
    for i, colour in enumerate(ramp(anchors)):
        label = max(LABELS, key=lambda ink: contrast(ink, colour))
        rules.append(f".hc .f{i}{{fill:{colour}}}.hc .s{i}{{stroke:{colour}}}.hc .t{i}{{fill:{label}}}")
    return "".join(rules)


def _categories(colours: Sequence[str]) -> str:
    return "".join(f".hc .kf{i}{{fill:{c}}}.hc .ks{i}{{stroke:{c}}}" for i, c in enumerate(colours))


def _between(anchors: Sequence[str], place: float) -> str:
    first = min(int(place), len(anchors) - 2)
    fraction = place - first
    pairs = zip(_channels(anchors[first]), _channels(anchors[first + 1]), strict=True)
    return "#" + "".join(f"{round(a + fraction * (b - a)):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 counts it, from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of a colour, from 0 to 1."""
    channels = (c / 255 for c in _channels(colour))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
