"""Exponents, knees and verdicts, with intervals: what stored rows say, and how sure they are. No torch."""

from headcount.fits.broken_law import Transition, transition
from headcount.fits.cells import Cells, variants
from headcount.fits.knee import Knee, knee, knees, predicted_heads
from headcount.fits.power_law import PowerLaw, power_law, power_laws
from headcount.fits.starts import StartVerdict, starts
from headcount.fits.verdict import Estimate, Verdict, judge

__all__ = [
    "Cells",
    "Estimate",
    "Knee",
    "PowerLaw",
    "StartVerdict",
    "Transition",
    "Verdict",
    "judge",
    "knee",
    "knees",
    "power_law",
    "power_laws",
    "predicted_heads",
    "starts",
    "transition",
    "variants",
]
