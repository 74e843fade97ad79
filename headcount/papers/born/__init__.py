"""Born a Transformer - Always a Transformer? (Jobanputra et al., NeurIPS 2025, arXiv 2505.21785).

Six retrievals and four copies of letters. Where a counting program solves a task at every length (`task.program()`),
length generalisation is proved in the limit; where none does nothing follows. Programs are values with an interpreter
and a text form (`headcount.tasks.counting`, `parse_program`), become networks that are exact up to a certified length
(`compile`), and are compared (`difference`). `neighbour` is the softmax circuit with its certificate; `head_scores` and
`cut` look into trained decoders; `generalise` trains short and tests long; `asked_in_context` asks a language model.
With Knee-Deep in C-RASP (Yang et al. 2025): how many layers alternation languages take (`by_depth`, `knees`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.born.ablations import AblationSetting, ablation, ablation_summary
    from headcount.papers.born.alternation_study import AlternationSetting, by_depth, knees
    from headcount.papers.born.circuits import NeighbourCircuit, content_weight, neighbour, planted
    from headcount.papers.born.compiler import CompiledProgram, certified_length, compile
    from headcount.papers.born.edges import EDGES, CutDecoder, attentions, cut, head_scores, right_share
    from headcount.papers.born.equivalence import difference
    from headcount.papers.born.experiments import BornSetting, from_scratch, summary
    from headcount.papers.born.in_context import Alphabet, ContextSetting, asked_in_context
    from headcount.papers.born.length_study import LengthStudy, generalise, letter_task
    from headcount.tasks.counting import CountingProgram, LengthVerdict
    from headcount.tasks.counting_text import parse_condition, parse_program

__all__ = [
    "EDGES",
    "AblationSetting",
    "Alphabet",
    "AlternationSetting",
    "BornSetting",
    "CompiledProgram",
    "ContextSetting",
    "CountingProgram",
    "CutDecoder",
    "LengthStudy",
    "LengthVerdict",
    "NeighbourCircuit",
    "ablation",
    "ablation_summary",
    "asked_in_context",
    "attentions",
    "by_depth",
    "certified_length",
    "compile",
    "content_weight",
    "cut",
    "difference",
    "from_scratch",
    "generalise",
    "head_scores",
    "knees",
    "letter_task",
    "neighbour",
    "parse_condition",
    "parse_program",
    "planted",
    "right_share",
    "summary",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ablations": ("AblationSetting", "ablation", "ablation_summary"),
        "alternation_study": ("AlternationSetting", "by_depth", "knees"),
        "circuits": ("NeighbourCircuit", "content_weight", "neighbour", "planted"),
        "compiler": ("CompiledProgram", "certified_length", "compile"),
        "equivalence": ("difference",),
        "experiments": ("BornSetting", "from_scratch", "summary"),
        "edges": ("EDGES", "CutDecoder", "attentions", "cut", "head_scores", "right_share"),
        "in_context": ("Alphabet", "ContextSetting", "asked_in_context"),
        "length_study": ("LengthStudy", "generalise", "letter_task"),
        "headcount.tasks.counting": ("CountingProgram", "LengthVerdict"),
        "headcount.tasks.counting_text": ("parse_condition", "parse_program"),
    },
)
