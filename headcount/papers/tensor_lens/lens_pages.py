"""The page of one text in one model: coloured text, a map by layer, the constant, shares, the certificate."""

from __future__ import annotations

from markupsafe import Markup, escape

from headcount.drawing.svg import Figure, tag, text
from headcount.papers.tensor_lens.views import LensView
from headcount.report.rendering import both, render

__all__ = ["layer_map", "lens_page"]

ROW, LEFT, BARS = 16, 62, 120


def lens_page(view: LensView, *, command: str = "") -> str:
    """The page as HTML that needs no other file, no network and no script; hovering shows numbers."""
    largest = max((abs(v) for v in view.tokens), default=1.0) or 1.0
    return render(
        "lens.html",
        "headcount.papers.tensor_lens",
        view=view,
        coloured=Markup("").join(_word(p, v, largest) for p, v in zip(view.pieces, view.tokens, strict=True)),
        bars=[(p, v, 100 * abs(v) / max(largest, abs(view.constant))) for p, v in _ranked(view)],
        constant_width=100 * abs(view.constant) / max(largest, abs(view.constant)),
        figure=both("map", *(layer_map(view, width) for width in SIZES)),
        frozen=", ".join(f"{n} {kind}" for kind, n in view.certificate["frozen"].items()),
        command=command,
    )


SIZES = (820, 360)  # pixels: on a desk and on a phone


def _ranked(view: LensView) -> list[tuple[str, float]]:
    pairs = sorted(zip(view.pieces, view.tokens, strict=True), key=lambda pair: -abs(pair[1]))
    return pairs[:12]


def _word(piece: str, value: float, largest: float) -> Markup:
    """One token, its ground as deep as its contribution is large."""
    share = round(70 * abs(value) / largest)
    tone = "up" if value >= 0 else "down"
    shown = escape(piece.replace("\n", "⏎"))
    return Markup('<span class="tok {}" style="--share:{}%" tabindex="0" title="{:+.4g}">{}</span>').format(
        tone, share, value, shown
    )


def layer_map(view: LensView, width: int) -> Figure:
    """Layers upwards, tokens to the right: what each attention layer takes from each token; beside it the shares."""
    layers, length = len(view.attention), len(view.pieces)
    plot = width - LEFT - BARS - 16
    cell, top = plot / max(length, 1), 26
    height = top + ROW * layers + 64
    largest = max((abs(v) for row in view.attention for v in row), default=1.0) or 1.0
    body = [text("attention takes", LEFT, 14, "small soft"), text("att | ff", LEFT + plot + 16, 14, "small soft")]
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
    tone = "up" if value >= 0 else "down"
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
        tone = "up" if value >= 0 else "down"
        size = {"width": 1 + (BARS / 2 - 12) * abs(value) / largest, "height": ROW - 5.0}
        drawn.append(tag("rect", hover, x=x + at * BARS / 2, y=y + 2.0, **size, class_=f"cell {tone}"))
    return drawn
