"""Theorems as functions: hypotheses in, a network and a certificate of its error out."""

from headcount.constructions.attempts import in_box, on_samples
from headcount.constructions.build import build
from headcount.constructions.built import Built, load
from headcount.constructions.certificate import Certificate, Term
from headcount.constructions.domains import Box, Drawn
from headcount.constructions.enough_heads import enough_heads
from headcount.constructions.network import ClassTokenNet, ReluNet, Shape
from headcount.constructions.trial import Check, Trial

__all__ = [
    "Box",
    "Built",
    "Certificate",
    "Check",
    "ClassTokenNet",
    "Drawn",
    "ReluNet",
    "Shape",
    "Term",
    "Trial",
    "build",
    "enough_heads",
    "in_box",
    "load",
    "on_samples",
]
