"""The from-scratch table beside the published one with our corrected row, and the depth of alternation languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from headcount.papers.born.alternation_study import (
    AlternationSetting,
    DepthRow,
    by_depth,
    depth_summary,
    knees,
    small_alternation,
)
from headcount.papers.born.experiments import LONG, SHORT, TASKS, ScratchLine, ScratchRow, from_scratch, summary
from headcount.papers.born.published import BINS, FROM_SCRATCH, KNEE_DEEP, MISLABELLED
from headcount.results.literature import Cells
from headcount.results.record import Measured, Reproduction, Setting, Stated

PROVED = ("UR", "UL", "NRFirst", "NLFirst")
OPEN = ("NRLast", "NLLast")
BAR = 0.95
CPU = "networks of width 16 were trained on a core of a CPU by studies.born.alternation"
OTHER_TASK = (
    f"{MISLABELLED} is another task: in a quarter of its samples the answer is the last letter of the context; ours is "
    "the corrected one, in its own table"
)


class ScratchRun(TypedDict):
    """The rows of one setting and its sizes, as `studies.born.table` writes them."""

    rows: list[ScratchRow]
    steps: int
    width: int
    seeds: int


TableLine = TypedDict(
    "TableLine",
    {
        "setting": str,
        "code": str,
        "proved": str,
        "in range": float,
        "medians": list[float],
        "seeds": list[list[float]],
        "bins": list[str],
        "letters": float,
        "published": tuple[float | None, ...],
        "generalises": bool,
        "verdict": str,
    },
)
"""A task at one setting, ours beside the published; `medians`, `seeds` and `bins` are of the longer ranges."""


def table_rows(stored: Mapping[str, ScratchRun]) -> list[TableLine]:
    """A line for every task measured, short and long: our medians beside the published, the verdict of both kinds.

    `stored` is what `studies.born.table` wrote; what is not in it yet is left out.
    """
    table = []
    for setting in ("short", "long", "wide"):
        for code in TASKS:
            lines = [line for line in summary(_rows(stored, setting)) if line["code"] == code]
            if lines:
                table.append(_line(setting, code, lines))
    return table


def _line(setting: str, code: str, lines: Sequence[ScratchLine]) -> TableLine:
    inside, *outside = lines
    proved = TASKS[code].length_verdict.proved
    printed = tuple(FROM_SCRATCH.at(code, name) for name in BINS) if setting == "long" else ()
    return {
        "setting": setting,
        "code": code,
        "proved": "proved" if proved else "no guarantee",
        "in range": inside["median"],
        "medians": [line["median"] for line in outside],
        "seeds": [line["seeds"] for line in outside],
        "bins": [_bin(line) for line in outside],
        "letters": outside[-1]["letters"],
        "published": printed,
        "generalises": inside["median"] >= BAR and outside[-1]["median"] >= BAR,
        "verdict": _verdict(bool(proved), inside["median"], outside[-1]["median"]),
    }


def _verdict(proved: bool, inside: float, far: float) -> str:
    """What was seen in the last range, in the light of the proof; a missing proof predicts nothing."""
    if inside < BAR:
        return "not learnt in range"
    if far >= BAR:
        return "generalises, as in the limit" if proved else "generalises, beyond what is known"
    return "falls; the limit names no length" if proved else "falls; nothing was promised"


def scratch_measured(stored: Mapping[str, ScratchRun]) -> Measured:
    """The cells of the published table, our other tables, and the statements, from the rows that are there."""
    tables: dict[str, Cells] = {}
    long = _cells(_rows(stored, "long"))
    if long:
        tables[FROM_SCRATCH.title] = {key: values for key, values in long.items() if key[0] != "NLFirst"}
        corrected = {key: values for key, values in long.items() if key[0] == "NLFirst"}
        tables |= {"left of the first copy, corrected": corrected} if corrected else {}
    short = _cells(_rows(stored, "short"))
    tables |= {"from scratch, trained on lengths 4-20": short} if short else {}
    setup = {name: {k: v for k, v in stored[name].items() if k != "rows"} for name in stored}
    notes = (OTHER_TASK, "UF and UB are reported without a bar: the published lines have no seed")
    steps = ", ".join(dict.fromkeys(f"{stored[name]['steps']:,} steps" for name in stored))
    return Measured(tables, _claims(stored), setup, notes, f"width 64 in place of 256, {steps}" if steps else "")


def _claims(stored: Mapping[str, ScratchRun]) -> tuple[Stated, ...]:
    claims = []
    for name in ("short", "long"):
        lines = {code: line for line in table_rows(stored) if line["setting"] == name for code in (line["code"],)}
        firsts = [lines[code]["medians"][-1] for code in ("NRFirst", "NLFirst") if code in lines]
        for code, line in lines.items():
            learnt, far = line["in range"] >= BAR, line["medians"][-1]
            if code in PROVED:
                claims.append(_claim(f"{code} is right on longer strings", line, learnt and far >= BAR))
            elif code in OPEN and firsts:
                claims.append(_claim(f"{code} falls behind First", line, learnt and far < min(firsts) - 0.05))
    return tuple(claims)


def _claim(says: str, line: TableLine, holds: bool) -> Stated:
    seeds = ", ".join(f"{value:.3f}" for value in line["seeds"][-1])
    learnt = "" if line["in range"] >= BAR else f"; not learnt in range ({line['in range']:.3f})"
    return Stated(f"{says} ({line['bins'][-1]})", f"median {line['medians'][-1]:.3f} of {seeds}{learnt}", holds)


def alternation_measured(rows: Sequence[DepthRow], *others: Sequence[DepthRow]) -> Measured:
    """Words right by depth and k, in range and on the longest words, and the measured knee beside the proved one.

    `others` are rows of other widths or steps, in tables and claims of their own.
    """
    tables = {KNEE_DEEP.title: _words(rows, 0), "the same on the longest words": _words(rows, -1)}
    claims = _knee_claims(rows, "")
    for other in others:
        sizes = f"width {other[0]['embed_dim']}, {other[0]['steps']:,} steps"
        tables |= {f"{sizes}, in range": _words(other, 0), f"{sizes}, longest words": _words(other, -1)}
        claims += _knee_claims(other, f" ({sizes})")
    notes = (CPU,) if others else ()
    return Measured(tables, claims, {"positions": "none"}, notes, "width 32 in place of 256, words of 51-100 letters")


def _words(rows: Sequence[DepthRow], which: int) -> Cells:
    """By depth and k: words right in one range, seed by seed."""
    lines = depth_summary(rows)
    return {(line["depth"], line["blocks"]): tuple(seed[which] for seed in line["seeds"]) for line in lines}


def _knee_claims(rows: Sequence[DepthRow], sizes: str) -> tuple[Stated, ...]:
    """In range, where short words may be told with fewer layers, and in all ranges, which is nearer to the theorem."""
    return tuple(
        Stated(f"L_{knee['blocks']} takes depth {knee['proved']:g}, {where}{sizes}",
              f"the least depth right is {knee[where] or 'none of those tried'}", knee[where] == knee["proved"])
        for knee in knees(rows)
        for where in ("in range", "all ranges")
    )  # fmt: skip


def _scratch(setting: Setting) -> Measured:
    """Three seeds of every task, trained on 4-20 and on 4-50."""
    stored: dict[str, ScratchRun] = {}
    for name, full in (("short", SHORT), ("long", LONG)):
        chosen = full
        if setting.quick:
            if name == "long":
                continue
            chosen = replace(full, train=(4, 10), tests=((11, 16), (17, 24)), depth=2, heads=2, embed_dim=32,
                             steps=800, lr=4e-3)  # fmt: skip
        codes = PROVED + OPEN if setting.quick else tuple(TASKS)
        rows = list(from_scratch(chosen, codes, device=setting.device, folder=setting.folder / "born"))
        stored[name] = {"rows": rows, "steps": chosen.steps, "width": chosen.embed_dim, "seeds": len(chosen.seeds)}
    return scratch_measured(stored)


def _alternation(setting: Setting) -> Measured:
    """Depths 1 to 6 on L_3 to L_6."""
    chosen = AlternationSetting()
    if setting.quick:
        small = small_alternation(chosen)
        chosen = replace(small, train=(8, 16), tests=((17, 24),), embed_dim=16, steps=400, batch=32, lrs=(4e-3,))
    return alternation_measured(list(by_depth(chosen, device=setting.device)))


def _rows(stored: Mapping[str, ScratchRun], name: str) -> list[ScratchRow]:
    return stored[name]["rows"] if name in stored else []


def _cells(rows: Sequence[ScratchRow]) -> dict[tuple[Any, Any], tuple[float, ...]]:
    """By task and range longer than those trained on: the share of strings right, seed by seed."""
    trained = {tuple(row["train"]) for row in rows}
    return {
        (line["code"], _bin(line)): tuple(line["seeds"])
        for line in summary(rows)
        if tuple(line["lengths"]) not in trained
    }


def _bin(line: ScratchLine) -> str:
    return f"{line['lengths'][0]}-{line['lengths'][1]}"


BORN = (
    Reproduction("born:from-scratch", "retrieval and copying from scratch, trained short and tested long", _scratch,
                 (FROM_SCRATCH,), "Width 64, rate 1e-3, 10,000 steps, fresh strings, no early stop; published: width "
                 "256, rate 1e-4, at most 30,000 steps, stopped at full accuracy in range.", "training lengths",
                 ("2 min", "hours", "5 min")),
    Reproduction("born:depth", "alternation languages predicted by decoders of depth 1 to 6", _alternation,
                 (KNEE_DEEP,), "Width 32, one head, pre-norm, no dropout, words of 51-100; published: width 256 "
                 "or 512, words of 201-250.", "depth and blocks", ("1 min", "hours", "10 min")),
)  # fmt: skip
