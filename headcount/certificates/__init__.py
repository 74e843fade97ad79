"""A network, its promise, the attack on it, and the independent recheck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.certificates.attack import Check, Trial
    from headcount.certificates.attempts import in_box, on_samples
    from headcount.certificates.built import Built, load
    from headcount.certificates.certificate import Certificate, Term
    from headcount.certificates.coverage import Coverage
    from headcount.certificates.domains import Box, Drawn
    from headcount.certificates.excess import gibbs_excess, mass_outside
    from headcount.certificates.network import ClassTokenNet, NetworkShape, ReluNet
    from headcount.certificates.worst_case.worst_error import Worst, certify

__all__ = [
    "Box",
    "Built",
    "Certificate",
    "Check",
    "ClassTokenNet",
    "Coverage",
    "Drawn",
    "NetworkShape",
    "ReluNet",
    "Term",
    "Trial",
    "Worst",
    "certify",
    "gibbs_excess",
    "in_box",
    "load",
    "mass_outside",
    "on_samples",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "attempts": (
            "in_box",
            "on_samples",
        ),
        "built": (
            "Built",
            "load",
        ),
        "certificate": (
            "Certificate",
            "Term",
        ),
        "coverage": ("Coverage",),
        "domains": (
            "Box",
            "Drawn",
        ),
        "network": (
            "ClassTokenNet",
            "NetworkShape",
            "ReluNet",
        ),
        "attack": (
            "Check",
            "Trial",
        ),
        "excess": (
            "gibbs_excess",
            "mass_outside",
        ),
        "worst_case.worst_error": (
            "Worst",
            "certify",
        ),
    },
)
