"""Exponents, knees and verdicts, with intervals: what stored rows say, and how sure they are. No torch."""

from headcount.fits.cells import Cells, variants
from headcount.fits.knee import Knee, knee, knees
from headcount.fits.verdict import Estimate, Verdict, judge

__all__ = ["Cells", "Estimate", "Knee", "Verdict", "judge", "knee", "knees", "variants"]
