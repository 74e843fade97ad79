"""The flow as a picture: tokens across, layers up, arrows coloured by mode with what each step costs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from headcount.files import write_json, write_text

if TYPE_CHECKING:
    from headcount.papers.infoflow.explain import Step
    from headcount.papers.infoflow.prediction import Prediction

COLOURS = {"max": "#2f7fc1", "positions": "#c9820a", "global": "#c8452f"}
MODES = {"max": "max-position retrieval", "positions": "specific positions", "global": "global aggregation"}
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#333}"
    ".faint{fill:#777}.node{fill:#fff;stroke:#666}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.faint{fill:#999}.node{fill:#222;stroke:#aaa}}"
)
LEFT, TOP, ROW, COLUMN, NOTES, WIDTH = 96, 84, 132, 54, 520, 1000
TOKENS = 6  # drawn; the last stands for position T
LINE = 56  # characters of a note's line


def draw(prediction: Prediction, title: str = "") -> str:
    """The prediction as an SVG, the same text for the same prediction.

    >>> from headcount.papers.infoflow import predict
    >>> from headcount.nets import Architecture
    >>> from headcount.structure import Retrieval, Structure
    >>> task = Structure(8, 2, (Retrieval("maxima", count=2),))
    >>> draw(predict(task, Architecture(layers=((2, 4),)))).startswith("<svg")
    True
    """
    depth = len(prediction.layers)
    height = TOP + depth * ROW + 96
    parts = [
        _opening(height, title),
        f"<style>{STYLE}</style>",
        _markers(),
        *_heading(prediction, title),
        *_arrows(prediction),
        *_nodes(prediction),
        *_notes(prediction),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write_flow(out: Path, name: str, facts: Mapping[str, Any], prediction: Prediction, title: str = "") -> list[Path]:
    """The picture of a prediction in `flow.svg`, and all facts in the file of this name."""
    return [write_text(out / "flow.svg", draw(prediction, title)), write_json(out / name, facts)]


def _opening(height: int, title: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    label = escape(title or "flow of information", quote=True)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'


def _markers() -> str:
    heads = "".join(
        f'<marker id="{mode}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for mode, colour in COLOURS.items()
    )
    return f"<defs>{heads}</defs>"


def _text(
    x: float, y: float, words: str, size: int = 13, *, faint: bool = False, anchor: str = "start", extra: str = ""
) -> str:
    kind = ' class="faint"' if faint else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{kind}{extra}>{escape(words)}</text>'


def _heading(prediction: Prediction, title: str) -> list[str]:
    shape, arch = prediction.arch.name, prediction.arch
    places = "with positions" if arch.positions else "without positions"
    first = f"{title + ': ' if title else ''}{prediction.verdict} ({prediction.warrant}), {prediction.cost}"
    limiting = _wrapped(prediction.limiting, 140)[:2]
    lines = [_text(24, 28, first, 17), _text(WIDTH - 24, 28, f"{shape}, {places}", 13, faint=True, anchor="end")]
    return lines + [_text(24, 48 + 16 * i, line, 12, faint=True) for i, line in enumerate(limiting)]


def _x(column: int) -> float:
    return LEFT + COLUMN * column + (18 if column == TOKENS else 0)


def _y(prediction: Prediction, layer: int) -> float:
    return TOP + 24 + (len(prediction.layers) - layer) * ROW


def _nodes(prediction: Prediction) -> list[str]:
    parts, names = [], _names(prediction.structure.length)
    for layer in range(len(prediction.layers) + 1):
        y = _y(prediction, layer)
        label = "input" if layer == 0 else f"layer {layer}"
        parts.append(_text(20, y - 2, label, 12))
        if layer < len(prediction.known):
            known = prediction.known[layer]
            parts.append(_text(20, y + 13, f"|I|={known.token}, {known.cls}", 11, faint=True))
        for column, name in enumerate(names):
            if name == "...":
                parts.append(_text(_x(column), y + 4, name, 14, faint=True, anchor="middle"))
                continue
            parts.append(f'<circle class="node" cx="{_x(column):g}" cy="{y:g}" r="15"/>')
            parts.append(_text(_x(column), y + 4, name, 11, anchor="middle"))
        x = _x(TOKENS)
        parts.append(f'<rect class="node" x="{x - 17:g}" y="{y - 14:g}" width="34" height="28" rx="4"/>')
        parts.append(_text(x, y + 4, "cls", 11, anchor="middle"))
    return parts


def _names(length: int) -> list[str]:
    if length <= TOKENS:
        return [str(i) for i in range(length)]
    return ["0", "1", "2", "3", "...", str(length - 1)]


def _arrows(prediction: Prediction) -> list[str]:
    parts = []
    columns = [c for c, name in enumerate(_names(prediction.structure.length)) if name != "..."]
    for number, step in enumerate(prediction.plan):
        low, high = _y(prediction, step.layer - 1) - 17, _y(prediction, step.layer) + 17
        winner = columns[(2 + number) % max(1, len(columns) - 1)]
        for start, end in _ends(step, columns, winner):
            parts.append(_arrow(step.mode, _x(start), low, _x(end), high, faint=end != TOKENS))
    return parts


def _ends(step: Step, columns: list[int], winner: int) -> list[tuple[int, int]]:
    """From whom to whom: representative columns, `winner` standing for the token of largest score."""
    everyone, to_cls = [(winner, c) for c in columns], [(winner, TOKENS)]
    match step.act:
        case "gather" if step.mode == "global":
            return [(c, TOKENS) for c in columns]
        case "gather" | "fetch":
            return [(c, TOKENS) for c in columns[:3]]
        case "read":
            places = columns[:3] if step.positions[:1] == (0,) else columns[-1:]
            readers = {"tokens": columns, "both": [*columns, TOKENS]}.get(step.at, [TOKENS])
            return [(c, to) for c in places for to in readers]
        case "shift":
            return [(a, b) for a, b in pairwise(columns) if b == a + 1]
        case "route":
            return [(columns[(c + 2) % len(columns)], c) for c in columns[:3]]
        case "partner" | "choose" | "jump":
            across = [(columns[(i + 2) % len(columns)], c) for i, c in enumerate(columns)]
            return across + (to_cls if step.at == "both" else [])
        case _:
            return {"tokens": everyone, "both": everyone + to_cls}.get(step.at, to_cls)


def _arrow(mode: str, x1: float, y1: float, x2: float, y2: float, *, faint: bool) -> str:
    opacity = "0.45" if faint else "0.95"
    return (
        f'<path d="M{x1:g},{y1:g} C{x1:g},{(y1 + y2) / 2:g} {x2:g},{(y1 + y2) / 2:g} {x2:g},{y2:g}" fill="none" '
        f'stroke="{COLOURS[mode]}" stroke-width="{1.2 if faint else 2}" opacity="{opacity}" marker-end="url(#{mode})"/>'
    )


def _notes(prediction: Prediction) -> list[str]:
    parts = []
    for layer in range(1, len(prediction.layers) + 1):
        y = _y(prediction, layer) + 14
        steps = [step for step in prediction.plan if step.layer == layer]
        for step in steps[:3]:
            first = f"{step.who} at {step.place}: {step.attends}"
            for line in _wrapped(first, LINE)[:2]:
                parts.append(_text(NOTES, y, line, 12))
                y += 15
            parts.append(
                _text(NOTES, y, f"{step.mode}, eps^-{step.exponent:.3g}: {step.knows}"[: LINE + 14], 11, faint=True)
            )
            y += 20
        if len(steps) > 3:
            parts.append(_text(NOTES, y, f"and {len(steps) - 3} more steps", 11, faint=True))
    return parts


def _legend(height: int) -> list[str]:
    parts, x = [], 24.0
    for mode, words in MODES.items():
        parts.append(f'<path d="M{x:g},{height - 22} h28" stroke="{COLOURS[mode]}" stroke-width="2.5"/>')
        parts.append(_text(x + 36, height - 18, words, 12, faint=True))
        x += 56 + 6.6 * len(words)
    parts.append(
        _text(WIDTH - 24, height - 18, "|I|: tokens known at a token, at the class token", 12, faint=True, anchor="end")
    )
    return parts


def _wrapped(words: str, width: int) -> list[str]:
    return wrap(words, width, break_long_words=False, break_on_hyphens=False)
