"""Pure arithmetic: sizes in, a `Bound` with its side, hypotheses and source out. No torch."""

from headcount.bounds.density import selector_error, subset_minima
from headcount.bounds.excess import gibbs_excess, mass_outside
from headcount.bounds.head_count import (
    bites_from,
    enough_heads_rate,
    few_heads_exponent,
    few_heads_table,
    intrinsic_from,
    memorise_rate,
)
from headcount.bounds.steepness import steepness_width

__all__ = [
    "bites_from",
    "enough_heads_rate",
    "few_heads_exponent",
    "few_heads_table",
    "gibbs_excess",
    "intrinsic_from",
    "mass_outside",
    "memorise_rate",
    "selector_error",
    "steepness_width",
    "subset_minima",
]
