"""Theorems as functions: hypotheses in, a network and a certificate of its error out."""

from headcount.constructions.attempts import in_box, on_samples
from headcount.constructions.bounded import weight_bounded
from headcount.constructions.build import build
from headcount.constructions.built import Built, load
from headcount.constructions.certificate import Certificate, Term
from headcount.constructions.collisions import Collision, collide
from headcount.constructions.domains import Box, Drawn
from headcount.constructions.enough_heads import enough_heads
from headcount.constructions.gated import gated_second_largest
from headcount.constructions.induction import induction_head
from headcount.constructions.kth_largest import kth_largest
from headcount.constructions.memorise import memorise
from headcount.constructions.network import ClassTokenNet, ReluNet, Shape
from headcount.constructions.pair import opposite_pair
from headcount.constructions.pair_max import pair_max
from headcount.constructions.positions import position_sum, retrievals_by_position
from headcount.constructions.riding import riding_retrievals
from headcount.constructions.trial import Check, Trial

__all__ = [
    "Box",
    "Built",
    "Certificate",
    "Check",
    "ClassTokenNet",
    "Collision",
    "Drawn",
    "ReluNet",
    "Shape",
    "Term",
    "Trial",
    "build",
    "collide",
    "enough_heads",
    "gated_second_largest",
    "in_box",
    "induction_head",
    "kth_largest",
    "load",
    "memorise",
    "on_samples",
    "opposite_pair",
    "pair_max",
    "position_sum",
    "retrievals_by_position",
    "riding_retrievals",
    "weight_bounded",
]
