"""Pictures of attention: heads against retrievals as a matrix of hit rates, and maps of single inputs."""

from __future__ import annotations

from headcount.drawing.palette import STEPS
from headcount.drawing.svg import Figure, tag, text
from headcount.numerals import counted
from headcount.report.article import Exhibit, Passage, article
from headcount.results.attention_record import AttentionMap, AttentionRecord

LEFT, TOP = 66, 44


def hit_matrix(record: AttentionRecord, *, width: int = 500) -> Figure:
    """A row for each head, a column for each retrieval, the cell shaded by how often the head finds it."""
    wide = (width - LEFT - 4) / len(record.retrievals)
    tall = max(28.0, min(44.0, 260 / record.heads))
    body = text("head", LEFT - 10, TOP - 10, "soft small", "end")
    for j, name in enumerate(record.retrievals):
        body += text(name, LEFT + wide * (j + 0.5), TOP - 10, "soft small", "middle")
    for i, row in enumerate(record.hits):
        body += text(str(i + 1), LEFT - 10, TOP + tall * (i + 0.5) + 4, "soft", "end")
        for j, hit_rate in enumerate(row):
            body += _cell(hit_rate, LEFT + wide * j, TOP + tall * i, wide, tall, f"{hit_rate:.0%}")
    bottom = TOP + tall * record.heads
    words = f"How often each of {counted(record.heads, 'head')} looks at what each retrieval finds."
    return Figure(width, round(bottom) + 12, body, "Heads against retrievals", words)


def input_map(record: AttentionRecord, at: AttentionMap, *, width: int = 500) -> Figure:
    """The weight of every head on every position of one input; a ring marks what a retrieval finds."""
    length = len(at.weights[0])
    wide = (width - LEFT - 4) / length
    tall = max(20.0, min(30.0, 200 / record.heads))
    body = text("head", LEFT - 10, TOP - 10, "soft small", "end")
    every = max(1, round(22 / wide))
    for t in range(0, length, every):
        body += text(str(t + 1), LEFT + wide * (t + 0.5), TOP - 10, "soft small", "middle")
    for i, row in enumerate(at.weights):
        body += text(str(i + 1), LEFT - 10, TOP + tall * (i + 0.5) + 4, "soft", "end")
        for t, weight in enumerate(row):
            body += _cell(weight, LEFT + wide * t, TOP + tall * i, wide, tall, "")
    bottom = TOP + tall * record.heads
    for name, place in zip(record.retrievals, at.wanted, strict=True):
        mark = tag("title", f"{name} is at position {place + 1}")
        body += tag("circle", mark, cx=LEFT + wide * (place + 0.5), cy=bottom + 9, r=4.0, class_="knee")
    body += text("wanted", LEFT - 10, bottom + 13, "soft small", "end")
    words = f"Attention of {counted(record.heads, 'head')} over {length} positions of one input."
    return Figure(width, round(bottom) + 24, body, "Attention on one input", words)


def attention_page(record: AttentionRecord, *, command: str = "", date: str = "") -> str:
    """The page: the matrix, the maps, and the numbers."""
    sentence = f"{record.sentence[:1].upper()}{record.sentence[1:]}."
    matrix = Exhibit(
        hit_matrix(record, width=620),
        f"In how many of {record.samples} fresh sequences a head's largest weight lies on the token that the retrieval "
        f"finds. A guess would be right in {record.chance:.0%}.",
        hit_matrix(record, width=372),
    )
    maps = tuple(
        Exhibit(
            input_map(record, at, width=620),
            f"Input {i + 1}: target {at.target:.3g}, the network says {at.answer:.3g}. Colour is weight; dots below "
            "mark the positions that the retrievals find.",
            input_map(record, at, width=372),
        )
        for i, at in enumerate(record.maps)
    )
    facts = {"task": record.task, "layers": record.layers, "length": record.length, "NMSE": record.nmse}
    sections = [
        Passage("Heads against retrievals", exhibits=(matrix,), rows=tuple(_shown(record))),
        *([Passage("Single inputs", exhibits=maps)] if maps else []),
    ]
    missing = len(record.retrievals) - len(record.found)
    headline = "Every retrieval has a head of its own" if not missing else f"{missing} of the retrievals have no head"
    return article(headline, sentence, sections, subject="attention", facts=facts, command=command, date=date)


def _shown(record: AttentionRecord) -> list[dict[str, str]]:
    return [{k: str(v) if k == "head" else f"{v:.1%}" for k, v in row.items()} for row in record.rows]


def _cell(value: float, x: float, y: float, wide: float, tall: float, label: str) -> str:
    tone = round(min(max(value, 0.0), 1.0) * (STEPS - 1))
    hover = tag("title", f"{value:.1%}")
    box = tag("rect", hover, x=x + 0.5, y=y + 1, width=wide - 1, height=tall - 2, rx=2, class_=f"f{tone}")
    return box + (text(label, x + wide / 2, y + tall / 2 + 4, f"t{tone}", "middle") if label and wide > 34 else "")
