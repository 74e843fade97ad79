"""The page of one text in one model: coloured text, a map by layer, the constant, shares, the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from headcount.drawing.svg import Figure, tag, text
from headcount.report.rendering import both, render
from headcount.results.claim import conclusion

if TYPE_CHECKING:
    from headcount.papers.tensor_lens.views import LensView

ROW, LEFT, BARS = 16, 62, 150
SIZES = (760, 360)  # pixels: on a desk and on a phone
SHOWN = 12  # of the largest parts
TONES = (  # what raises and what lowers, so that the map is right as a file of its own too
    ".hc .cell.up{fill:#0b7a6b}.hc .cell.down{fill:#c2410c}"
    "@media(prefers-color-scheme:dark){.hc .cell.up{fill:#5fd0b8}.hc .cell.down{fill:#ff9a5c}}"
)


def lens_page(view: LensView, *, command: str = "", date: str = "") -> str:
    """The page as HTML that needs no other file, no network and no script; hovering shows numbers."""
    return render(
        "lens.html",
        "headcount.papers.tensor_lens",
        view=view,
        conclusion=conclusion(view.sentence),
        coloured=_coloured(view),
        bars=_ranked(view),
        figure=both("map", *(layer_map(view, width) for width in SIZES)),
        frozen=", ".join(f"{n} {kind}" for kind, n in view.certificate["frozen"].items()),
        command=command,
        date=date,
    )


def _tone(value: float) -> str:
    return "up" if value >= 0 else "down"


def _argued(view: LensView, token: int) -> str:
    return ", ".join(word.strip() or repr(word) for word in view.argued[token]) if view.argued else ""


def _ranked(view: LensView) -> list[dict[str, object]]:
    """The largest parts with the widths of their bars, and the constant to the same scale."""
    order = sorted(range(len(view.tokens)), key=lambda i: -abs(view.tokens[i]))[:SHOWN]
    widest = max(*(abs(view.tokens[i]) for i in order), abs(view.constant)) or 1.0
    rows = [
        (view.pieces[i].strip(), view.tokens[i], _tone(view.tokens[i]), _argued(view, i), _change(view, i))
        for i in order
    ]
    rows.append(("constant", view.constant, "const", "", ""))
    return [
        {"name": n, "value": v, "tone": t, "argued": a, "change": c, "width": 100 * abs(v) / widest}
        for n, v, t, a, c in rows
    ]


def _change(view: LensView, token: int) -> str:
    """The change with other words in a token's place, in words for a column."""
    change = view.replaced[token] if view.replaced else None
    return "" if change is None else f"{change:+.3g}"


def _coloured(view: LensView) -> Markup:
    """The text, each token's ground as deep as its contribution is large, and the constant behind it."""
    widest = max(*(abs(v) for v in view.tokens), abs(view.constant)) or 1.0
    shown = '<span class="tok {}" style="--share:{}%" tabindex="0" title="{}">{}</span>'
    words = []
    for i, (piece, value) in enumerate(zip(view.pieces, view.tokens, strict=True)):
        change = _change(view, i)
        hover = f"{value:+.4g}" + (f"; replaced by other words {change}" if change else "")
        hover += f"; argues for {_argued(view, i)}" if view.argued else ""
        words.append((_tone(value), round(70 * abs(value) / widest), hover, piece.replace("\n", "⏎")))
    words.append(("const", round(70 * abs(view.constant) / widest), f"{view.constant:+.4g}", "constant"))
    return Markup("").join(Markup(shown).format(*word) for word in words)


def layer_map(view: LensView, width: int) -> Figure:
    """Layers upwards, tokens to the right: what each attention layer takes from each token; beside it the shares."""
    layers, length = len(view.attention), len(view.pieces)
    plot = width - LEFT - BARS - 16
    cell, top = plot / max(length, 1), 26
    height = top + ROW * layers + 64
    largest = max((abs(v) for row in view.attention for v in row), default=1.0) or 1.0
    body = [tag("style", TONES)]
    body += [text("attention takes", LEFT, 14, "small soft"), text("attention", LEFT + plot + 16, 14, "small soft")]
    body.append(text("feed-forward", LEFT + plot + 16 + BARS / 2, 14, "small soft"))
    for layer, row in enumerate(view.attention):
        y = top + ROW * (layers - 1 - layer)
        if layers <= 12 or layer % 5 == 4 or layer == 0:
            body.append(text(f"layer {layer + 1}", LEFT - 8, y + 12, "small soft", "end"))
        body += [_cell(LEFT + cell * t, y, cell, v, largest, layer, view.pieces[t]) for t, v in enumerate(row)]
        body += _bars(view, layer, LEFT + plot + 16, y)
    step = max(1, round(length * 16 / plot + 0.4))
    for t in range(0, length, step):
        x, y = LEFT + cell * (t + 0.5), top + ROW * layers + 8
        label = tag("text", str(escape(view.pieces[t].strip()[:9])), class_="small", text_anchor="end")
        body.append(f'<g transform="translate({x:.1f} {y}) rotate(-50)">{label}</g>')
    words = f"What each of {layers} attention layers takes from each of {length} tokens on the way to {view.read}"
    return Figure(width, height, "".join(body), "The map by layer", words)


def _cell(x: float, y: float, size: float, value: float, largest: float, layer: int, piece: str) -> str:
    strength = (abs(value) / largest) ** 0.5
    tone = _tone(value)
    hover = tag("title", str(escape(f"layer {layer + 1} takes {value:+.3g} from {piece.strip()}")))
    shape = {"x": x, "y": float(y), "width": max(size - 1, 0.5), "height": ROW - 1.0}
    return tag("rect", hover, **shape, class_=f"cell {tone}", opacity=round(0.06 + 0.94 * strength, 3))


def _bars(view: LensView, layer: int, x: float, y: float) -> list[str]:
    """The sums through attention and through the hidden units of a layer, to one scale."""
    sums = [(sum(row), hidden) for row, hidden in zip(view.attention, view.feed_forward, strict=True)]
    largest = max((abs(v) for pair in sums for v in pair), default=1.0) or 1.0
    drawn = []
    for at, (name, value) in enumerate(zip(("attention", "feed-forward"), sums[layer], strict=True)):
        hover = tag("title", f"layer {layer + 1}, through the {name}: {value:+.3g}")
        tone = _tone(value)
        size = {"width": 1 + (BARS / 2 - 12) * abs(value) / largest, "height": ROW - 5.0}
        drawn.append(tag("rect", hover, x=x + at * BARS / 2, y=y + 2.0, **size, class_=f"cell {tone}"))
    return drawn
