"""Exact targets that sample themselves, one family per file.

A task is a frozen value; see `Task` for what it answers.
"""

from headcount.tasks.alternation import Alternation
from headcount.tasks.catalogue import catalogue, describe, named, sentence
from headcount.tasks.copies import Copy
from headcount.tasks.languages import Dyck, Language, Majority, Parity, Recognition, Spoken
from headcount.tasks.linear_max import LinearMax
from headcount.tasks.lookups import LipschitzOuter, Lookups, MaxOf, PlaceOf, RankOf, WellOf
from headcount.tasks.neighbours import Neighbour
from headcount.tasks.ngrams import NGram
from headcount.tasks.opposite import OppositePair
from headcount.tasks.own_function import FunctionTask, task
from headcount.tasks.pairs import Gaussian, PairMax, TriangleCentre, UnitSphere
from headcount.tasks.places import Induction, PositionSum
from headcount.tasks.ranks import KthLargest
from headcount.tasks.ridges import Affine, Exponential, Ridges, Sine, Square
from headcount.tasks.task import Task
from headcount.tasks.wells import Wells

__all__ = [
    "Affine",
    "Alternation",
    "Copy",
    "Dyck",
    "Exponential",
    "FunctionTask",
    "Gaussian",
    "Induction",
    "KthLargest",
    "Language",
    "LinearMax",
    "LipschitzOuter",
    "Lookups",
    "Majority",
    "MaxOf",
    "Neighbour",
    "NGram",
    "OppositePair",
    "PairMax",
    "Parity",
    "PlaceOf",
    "PositionSum",
    "RankOf",
    "Recognition",
    "Ridges",
    "Sine",
    "Spoken",
    "Square",
    "Task",
    "TriangleCentre",
    "UnitSphere",
    "WellOf",
    "Wells",
    "catalogue",
    "describe",
    "named",
    "sentence",
    "task",
]
