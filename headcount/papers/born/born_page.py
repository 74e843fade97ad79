"""Pages: one task's curve over lengths, and the whole table beside the published one with programs and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headcount.drawing.axes import Frame
from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.papers.born.ablations import ABLATED, AblationRow, ablation_summary
from headcount.papers.born.alternation_study import DepthLine, DepthRow, depth_summary, knees
from headcount.papers.born.edges import EDGES
from headcount.papers.born.experiments import TASKS
from headcount.papers.born.in_context import ContextRow
from headcount.papers.born.length_study import LengthStudy
from headcount.papers.born.published import BINS, FROM_SCRATCH, IN_CONTEXT, MISLABELLED
from headcount.papers.born.reproduce import ScratchRun, TableLine, table_rows
from headcount.report import Exhibit, Passage, article
from headcount.results.claim import conclusion

LIMIT = "The proof is about the limit of long training lengths; it names no length. A missing proof predicts nothing."
EDGE = "An induction edge leads to the place after an earlier copy of the letter, an anti-induction edge to the copy."
CUT = "With keys cut the edge is masked; with values cut it keeps its attention and brings nothing."


def length_page(study: LengthStudy, *, command: str = "", date: str = "") -> str:
    """The page of one task: verdict, curve, every seed, and the program where there is one."""
    curve = study.curve
    rows = tuple({**line, "seeds": " ".join(f"{v:.3f}" for v in line["seeds"])} for line in curve)
    columns = {"lengths": "lengths", "strings": "strings right (median)", "least": "smallest seed",
               "letters": "letters right", "seeds": "seeds"}  # fmt: skip
    program = study.task.program()
    text = "" if program is None else str(program)
    parts = [
        Passage("What is known", (f"{study.verdict}.", LIMIT)),
        Passage("What was measured", (), (_curve(study),), rows, columns,
                "Whole strings right, medians over seeds; the first range is the one trained on."),
        *([Passage("The program", (f"Depth {program.depth}, {program.counts} counts.",),
                   code=text if len(text) < 3000 else text[:3000] + " ...")] if program else []),
    ]  # fmt: skip
    facts = {"layers": study.setting.depth, "width": study.setting.embed_dim, "seeds": len(study.rows),
             "steps": study.setting.steps}  # fmt: skip
    headline = f"{study.name}: trained on {curve[0]['lengths']}, tested on longer strings"
    return article(
        headline, conclusion(study.sentence), parts, subject="length", facts=facts, command=command, date=date
    )


def born_page(
    stored: Mapping[str, ScratchRun],
    depths: Mapping[str, Sequence[DepthRow]] | None = None,
    ablations: Sequence[AblationRow] = (),
    contexts: Mapping[str, Sequence[ContextRow]] | None = None,
    *,
    date: str = "",
) -> str:
    """The page of the paper from the rows at hand, `depths` by their sizes; what was not measured yet is said so."""
    layers = [_depth(rows, sizes) for sizes, rows in (depths or {"": ()}).items()]
    parts = [_verdicts(), *_tables(stored), _edges(ablations), *layers, _context(), *_in_context(contexts or {})]
    lines = table_rows(stored)
    generalising = [line for line in lines if line["proved"] == "proved" and line["generalises"]]
    proved = [line for line in lines if line["proved"] == "proved"]
    lead = f"of {len(proved)} rows with a proof, {len(generalising)} are right in the longest range tested"
    lead = conclusion(lead if lines else "the table has not been measured yet")
    headline = "Retrieval and copying: what a program says of every length, and what small networks learn"
    return article(headline, lead, parts, subject="born", date=date, command="python -m studies.born.table")


def _verdicts() -> Passage:
    rows = tuple(
        {"task": code, "verdict": "proved" if task.length_verdict.proved else "no guarantee",
         "why": task.length_verdict.why}
        for code, task in TASKS.items()
    )  # fmt: skip
    words = "A counting program for all lengths guarantees length generalisation in the limit; no program, no claim."
    return Passage("Ten tasks", (words,), rows=rows, note=str(TASKS["UR"].length_verdict.source))


def _tables(stored: Mapping[str, ScratchRun]) -> list[Passage]:
    passages = []
    for setting, trained in (("short", "4-20"), ("long", "4-50"), ("wide", "4-20, width 128")):
        lines = [line for line in table_rows(stored) if line["setting"] == setting]
        if not lines:
            if setting != "wide":
                passages.append(Passage(f"Trained on {trained}", ("Not measured yet.",)))
            continue
        near, far = lines[0]["bins"]
        rows = tuple(_row(line) for line in lines) + ((_mislabelled(),) if setting == "long" else ())
        columns = {"code": "task", "proved": "proof", "inside": "in range", "near": near, "far": far,
                   "letters": f"letters, {far}", "seeds": f"seeds, {far}",
                   **({"printed": "published"} if setting == "long" else {}), "verdict": "verdict"}  # fmt: skip
        note = "Whole strings right, medians over seeds. The published row of NLFirst is about another task: ours is "
        note += "the corrected one and has no published number beside it."
        passages.append(Passage(f"Trained on {trained}", (), rows=rows, columns=columns, note=note))
    return passages


def _mislabelled() -> dict[str, str]:
    """The published row of another task, with nothing of ours."""
    printed = ", ".join(f"{FROM_SCRATCH.at(MISLABELLED, name):.3f}" for name in BINS)
    return {"code": MISLABELLED, "printed": printed, "verdict": "another task in a quarter of its samples"}


def _row(line: TableLine) -> dict[str, str | float]:
    near, far = line["medians"]
    printed = ", ".join("-" if v is None else f"{v:.3f}" for v in line["published"]) or "-"
    seeds = " ".join(f"{v:.3f}" for v in line["seeds"][-1])
    return {"code": line["code"], "proved": line["proved"], "inside": line["in range"], "near": near, "far": far,
            "letters": line["letters"], "seeds": seeds, "printed": printed, "verdict": line["verdict"]}  # fmt: skip


def _edges(rows: Sequence[AblationRow]) -> Passage:
    words = (EDGE, CUT)
    if not rows:
        return Passage("Edges cut", (*words, "Not measured yet."))
    columns = {"code": "task", "whole": "whole"} | {f"{name}, {part}": f"{name} {part}"
                                                    for part in ("keys", "values") for name in EDGES}  # fmt: skip
    order = [line for code in ABLATED for line in ablation_summary(rows) if line["code"] == code]
    note = f"Strings right on the training lengths, medians over {order[0]['seeds']} seeds."
    return Passage("Edges cut", (*words, _against_statement(order)), rows=tuple(order), columns=columns, note=note)


STATEMENT = {"induction": "UF", "anti-induction": "UB"}  # a secondary source: each kind of edge kills one copy alone
KILLED = 0.5  # strings right below which an edge is said to matter


def _against_statement(lines: Sequence[Mapping[str, Any]]) -> str:
    """The paper's sentence on copying beside what the table shows."""
    by = {line["code"]: line for line in lines}
    if not {"UF", "UB"} <= set(by):
        return "Copies were not trained, so what the paper says of them is not looked at."
    killed = {edge: [c for c in ("UF", "UB") if by[c][f"{edge}, keys"] < KILLED] for edge in STATEMENT}
    parts = [f"{edge} keys cut leave UF at {by['UF'][f'{edge}, keys']:.2f} and UB at {by['UB'][f'{edge}, keys']:.2f}"
             for edge in STATEMENT]  # fmt: skip
    same = all(killed[edge] == [code] for edge, code in STATEMENT.items())
    outcome = "The table shows the same" if same else "The table does not show that"
    says = "The paper is reported to say that cutting induction edges kills UF only, anti-induction edges UB only."
    return f"{says} {outcome}: {'; '.join(parts)}."


def _depth(rows: Sequence[DepthRow], sizes: str) -> Passage:
    words = (
        "Without positions or the place before, L_k takes k - 2 counts inside each other to predict, and not fewer.",
        "With the place before, counting changes of letter does every L_k at depth 1, in two layers.",
    )
    if not rows:
        return Passage("Depth", (*words, "Not measured yet."))
    lines = depth_summary(rows)
    bins = ["-".join(map(str, lengths)) for lengths in lines[0]["bins"]]
    by_depth = tuple(
        {"language": f"L_{line['blocks']}", "proved": f"{line['proved']:g}", "layers": line["depth"],
         **dict(zip(bins, line["medians"], strict=True)),
         "seeds, longest": " ".join(f"{seed[-1]:.3f}" for seed in line["seeds"])}
        for line in lines
    )  # fmt: skip
    turns = [
        f"L_{knee['blocks']}: {knee['proved']:g} by theory, measured {knee['in range'] or 'none'} in range and "
        f"{knee['all ranges'] or 'none'} in all ranges."
        for knee in knees(rows)
    ]
    note = f"Whole words right by length, medians of {len(lines[0]['seeds'])} seeds; trained on {bins[0]} letters. "
    note += "A knee is the least number of layers with at least 0.95."
    title = f"Depth: {sizes}" if sizes else "Depth"
    return Passage(title, (*words, *turns), (_depths(lines),), by_depth, note=note)


def _context() -> Passage:
    rows = tuple(
        {"model": model, **{str(column): IN_CONTEXT.at(model, column) for column in IN_CONTEXT.columns}}
        for model in IN_CONTEXT.rows
    )
    words = ("Published, not measured here: copying in context by pretrained models, exact match.",)
    return Passage("Pretrained models", words, rows=rows, note=str(IN_CONTEXT.source))


def _in_context(contexts: Mapping[str, Sequence[ContextRow]]) -> list[Passage]:
    """What models said that were asked here: a line for every task, by length."""
    passages = []
    for model, rows in contexts.items():
        lengths = sorted({row["length"] for row in rows})
        cells = {(row["code"], row["length"]): row for row in rows}
        lines = []
        for code in dict.fromkeys(row["code"] for row in rows):
            by_length = [(n, cells[code, n]) for n in lengths if (code, n) in cells]
            line = {"task": code} | {f"strings, {n}": row["strings"] for n, row in by_length}
            lines.append(line | {f"letters, {n}": row["letters"] for n, row in by_length})
        words = (
            "Solved strings of the same task and length stand before each string that is asked for. Retrieval among "
            "26 letters, copies of 52; with repeats 0.3 of the places have a letter that came before."
        )
        note = f"{rows[0]['samples']} strings each, after {rows[0]['shots']} solved ones; greedy answers."
        passages.append(Passage(f"{model}, asked in context", (words,), rows=tuple(lines), note=note))
    return passages


def _curve(study: LengthStudy) -> Exhibit:
    caption = "Share of strings that are right against their length; dots are seeds, the line is their median."
    return Exhibit(_curve_figure(study, 720), caption, _curve_figure(study, 360))


def _curve_figure(study: LengthStudy, width: int) -> Figure:
    curve, height = study.curve, 300
    (frame,) = frames(1, width=width, height=height)
    places = list(range(len(curve)))
    panel = plain_panel(frame, places, [0.0, 1.0])
    dots = [(i, value) for i, line in enumerate(curve) for value in line["seeds"]]
    parts = [
        panel.axes,
        panel.below([(i, line["lengths"]) for i, line in enumerate(curve)], "length"),
        panel.line([(i, line["strings"]) for i, line in enumerate(curve)], "line ks0"),
        panel.marks(dots, 0),
        panel.title("strings right"),
    ]
    return figure_of(parts, width=width, height=height, title=f"{study.name} by length", words=study.sentence)


def _depths(lines: Sequence[DepthLine]) -> Exhibit:
    caption = (
        "Words right against the number of layers, one line for each language; a ring at the depth that theory needs."
    )
    return Exhibit(_depth_figure(lines, narrow=False), caption, _depth_figure(lines, narrow=True))


def _depth_figure(lines: Sequence[DepthLine], *, narrow: bool) -> Figure:
    """Two panels, in range and on the longest words: side by side, or `narrow` below each other."""
    width, height = (360, 560) if narrow else (760, 320)
    places = frames(2, width=width, height=height)
    if narrow:
        (place,) = frames(1, width=width, height=height // 2)
        places = [place, replace(place, top=place.top + height / 2, bottom=place.bottom + height / 2)]
    parts = [_depth_panel(places[0], lines, 0), _depth_panel(places[1], lines, -1)]
    words = "Share of words that are right, by layers and blocks, in range and on the longest words."
    return figure_of(parts, width=width, height=height, title="Alternation by depth", words=words)


def _depth_panel(frame: Frame, lines: Sequence[DepthLine], which: int) -> str:
    depths = sorted({line["depth"] for line in lines})
    kinds = sorted({line["blocks"] for line in lines})
    panel = plain_panel(frame, depths if len(depths) > 1 else [*depths, depths[0] + 1], [0.0, 1.0])
    lengths = "-".join(map(str, lines[0]["bins"][which]))
    parts = [panel.axes, panel.below([(d, str(d)) for d in depths], "layers"), panel.title(f"words right, {lengths}")]
    for i, blocks in enumerate(kinds):
        of_blocks = [line for line in lines if line["blocks"] == blocks]
        points = [(line["depth"], line["medians"][which]) for line in of_blocks]
        proved = [(line["depth"], line["medians"][which]) for line in of_blocks if line["depth"] == line["proved"]]
        parts += [panel.line(points, f"line ks{i % 4}"), panel.marks(points, i % 4)]
        parts.append(panel.marks(proved, i % 4, "ring", 8.0))
    parts.append(legend([f"L_{k}" for k in kinds], frame.right - 70, frame.bottom - 17 * len(kinds)))
    return "".join(parts)
