"""The page of a system made deep: its poles, its response before and after, its entries, and what few bits cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from headcount.files import write_text
from headcount.notebook import AnswerInNotebook
from headcount.numerals import short
from headcount.papers.ssm.pictures import bits_picture, deep_picture, entries_picture, poles_picture, response_picture
from headcount.papers.ssm.quantise import BitsRow, bits_rows, rows_by_bits
from headcount.papers.ssm.responses import gap
from headcount.papers.ssm.rival_forms import FormRow, form_rows, winners
from headcount.papers.ssm.system_files import save
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM
from headcount.report import Exhibit, Passage, article
from headcount.results.claim import conclusion

BITS = (6, 8, 10, 12, 14, 16)
SAMPLES = 256
ROUNDING = 1e-12  # up to this share of its size a response is called the same
USE = """import headcount as hc

deep = hc.ssm.load("{file}")
y = deep.scan(x)                        # numpy: real for a real filter
net = hc.ssm.to_module(deep)            # torch: one sample in, one sample out
hc.ssm.export(deep, "filter.onnx")      # also .pt2, and .json for second-order sections"""


@dataclass(frozen=True, eq=False)
class DeepenedSystem(AnswerInNotebook):
    """A system before and after it was written deep."""

    shallow: DiagonalSSM
    deep: DeepSSM

    @property
    def rows(self) -> list[QuantityRow]:
        """The sizes before and after."""
        return comparison(self.shallow, self.deep)

    @cached_property
    def gap(self) -> float:
        """How far the responses differ, relative to their size."""
        return gap(self.deep.impulse(SAMPLES), self.shallow.impulse(SAMPLES))

    @cached_property
    def forms(self) -> list[FormRow]:
        """Other forms of the filter at equal bits; none of a complex one or of one mode."""
        several = self.shallow.is_real and self.shallow.merged().modes > 1
        return form_rows(self.shallow, deep=self.deep) if several else []

    @property
    def sentence(self) -> str:
        """What depth did, and which form keeps the response best."""
        finding = deepening_sentence(self.shallow, self.deep)
        return f"{finding}; {winners(self.forms)}" if self.forms else finding

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        sizes = {row["quantity"]: {"before": row["before"], "after": row["after"]} for row in self.rows}
        forms = [{k: v if v != math.inf else None for k, v in row.items()} for row in self.forms]
        return {**sizes, "gap": self.gap, "forms": forms}

    def files(self, out: Path, name: str = "system", command: str = "") -> list[Path]:
        """The deep system, its picture and its page."""
        picture = deep_picture(self.shallow, self.deep).standalone()
        page = deepening_page(self.shallow, self.deep, name=name, command=command)
        return [
            save(self.deep, out / f"{name}-deep.json"),
            write_text(out / f"{name}-deep.svg", picture),
            write_text(out / f"{name}-deep.html", page),
        ]


class QuantityRow(TypedDict):
    """A size of the system as it was, and as it is when written deep."""

    quantity: str
    before: float
    after: float


def comparison(system: DiagonalSSM, deep: DeepSSM) -> list[QuantityRow]:
    """The sizes before and after, a row for each quantity."""
    return [
        {"quantity": "depth", "before": 1, "after": deep.depth},
        {"quantity": "width", "before": system.modes, "after": deep.width},
        {"quantity": "largest entry", "before": system.largest_entry, "after": deep.largest_entry},
        {"quantity": "parameters", "before": system.parameters, "after": deep.parameters},
        {"quantity": "not zero", "before": system.parameters, "after": deep.used_parameters},
    ]


def deepening_sentence(system: DiagonalSSM, deep: DeepSSM) -> str:
    """What depth did to the entries, and whether it was worth it.

    >>> system = DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0])
    >>> deepening_sentence(system, system.deepen(3))
    'depth 3 brings the largest entry from 10 down to 3.53, with the same response'
    >>> small = DiagonalSSM([0.9, 0.8], [0.01, 0.02])
    >>> deepening_sentence(small, small.deepen(2))
    'stay at depth 1: depth 2 raises the largest entry from 0.141 to 0.271'
    """
    before, after = system.largest_entry, deep.largest_entry
    if deep.depth == 1:
        return f"already small: stay at depth 1, where the largest entry is {before:.3g}"
    if after > before:
        return f"stay at depth 1: depth {deep.depth} raises the largest entry from {before:.3g} to {after:.3g}"
    lost = gap(deep.impulse(SAMPLES), system.impulse(SAMPLES))
    brings = f"depth {deep.depth} brings the largest entry from {before:.3g} down to {after:.3g}"
    return f"{brings}, with {same_response(lost)}"


def same_response(lost: float) -> str:
    """The same response, where it is that to rounding; else how far away.

    >>> same_response(2e-15), same_response(3.6e-10)
    ('the same response', 'a response that differs by 3.6e-10 of its size over 256 samples')
    """
    if lost <= ROUNDING:
        return "the same response"
    return f"a response that differs by {short(lost, 2)} of its size over {SAMPLES} samples"


def deepening_page(
    system: DiagonalSSM, deep: DeepSSM, *, name: str = "system", command: str = "", date: str = ""
) -> str:
    """The page as self-contained HTML."""
    lost = gap(deep.impulse(SAMPLES), system.impulse(SAMPLES))
    rows = bits_rows(system, {"one layer": system, f"depth {deep.depth}": deep}, BITS)
    sentence = deepening_sentence(system, deep)
    small = deep.largest_entry <= system.largest_entry
    headline = f"The same filter, {'smaller' if small else 'larger'} numbers"
    sections = [
        Passage("Entries", (ENTRIES,), (_exhibit(entries_picture, system, deep, "Every weight, by layer."),),
                tuple(comparison(system, deep))),
        Passage("The response stays", (SAME.format(lost=lost),), (_exhibit(response_picture, system, deep, RESPONSE),)),
        Passage("Poles", (POLES,), (_exhibit(poles_picture, system, deep, "Poles in the unit circle."),)),
        Passage("Few bits", (FEW,), (_bits(rows),), tuple(rows_by_bits(rows))),
        Passage("How to use it", code=USE.format(file=f"{name}-deep.json")),
    ]  # fmt: skip
    facts = {"modes": system.modes, "kernel": "real" if system.is_real else "complex",
             "depth": deep.depth, "width": deep.width, "largest entry": f"{deep.largest_entry:.3g}"}  # fmt: skip
    return article(headline, conclusion(sentence), sections, subject=name, facts=facts, command=command, date=date)


SAME = f"The impulse responses differ by {{lost:.1e}} of their size over {SAMPLES} samples."
ENTRIES = (
    "A system of one layer with large residues is the same as several layers, one after the other, whose weights are "
    "smaller: a product of small numbers does what one large number did. Zeros are left out of the picture."
)
POLES = (
    "Deepening deals the poles out to the layers; it moves none, and adds only poles at 0, which pass their "
    "input at once and are not drawn."
)
RESPONSE = "The magnitude of the transfer function, and the impulse response: after (thin) lies upon before (bold)."
FEW = (
    "Every pole and weight is rounded to so many bits in fixed point, with the least reach that holds the form. What "
    "is lost is the root mean square of the difference over that of the response; above 1, everything is."
)


def _exhibit(draw: Any, system: DiagonalSSM, deep: DeepSSM, caption: str) -> Exhibit:
    return Exhibit(draw(system, deep), caption, draw(system, deep, narrow=True))


def _bits(rows: list[BitsRow]) -> Exhibit:
    wide, narrow = (bits_picture({"share of the response lost": rows}, each=each) for each in (640, 370))
    return Exhibit(wide, "A line for each form; above the dotted line nothing of the response is left.", narrow)
