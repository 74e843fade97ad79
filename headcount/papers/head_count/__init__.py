"""The Effect of Attention Head Count on Transformer Approximation (Yu et al., ICLR 2026, arXiv 2510.06662).

A target that looks up D things in a sequence needs D heads: with fewer, a one-layer network pays with feed-forward
parameters that grow like a power of 1/eps whose exponent grows with the length (Theorem 2(2), `few_heads_exponent`);
with enough heads, or one head that keeps the whole sequence, it does not (Theorem 2(1) and 2(3), `enough_heads` and
`memorise`: networks with certificates). `collide` shows the lower bound: two sequences that too few heads confuse.

Bounds need no torch; networks load it when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.certificates.excess import gibbs_excess
    from headcount.papers.head_count.bounds import (
        bites_from,
        enough_heads_rate,
        few_heads_exponent,
        few_heads_table,
        intrinsic_from,
        linear_max_exponent,
        log_mean_rate,
        memorise_rate,
    )
    from headcount.papers.head_count.collisions.collision import Collision, collide
    from headcount.papers.head_count.density import selector_error, subset_minima
    from headcount.papers.head_count.first_study import FirstLook, first_look
    from headcount.papers.head_count.networks.bounded import weight_bounded
    from headcount.papers.head_count.networks.enough_heads import enough_heads
    from headcount.papers.head_count.networks.gate_mass import mass_outside
    from headcount.papers.head_count.networks.log_mean import log_mean_exp
    from headcount.papers.head_count.networks.memorise import memorise
    from headcount.papers.head_count.steepness import steepness_width

__all__ = [
    "Collision",
    "FirstLook",
    "bites_from",
    "collide",
    "enough_heads",
    "enough_heads_rate",
    "few_heads_exponent",
    "few_heads_table",
    "first_look",
    "gibbs_excess",
    "intrinsic_from",
    "linear_max_exponent",
    "log_mean_exp",
    "log_mean_rate",
    "mass_outside",
    "memorise",
    "memorise_rate",
    "selector_error",
    "steepness_width",
    "subset_minima",
    "weight_bounded",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "bounds": (
            "bites_from",
            "enough_heads_rate",
            "few_heads_exponent",
            "few_heads_table",
            "intrinsic_from",
            "linear_max_exponent",
            "log_mean_rate",
            "memorise_rate",
        ),
        "density": (
            "selector_error",
            "subset_minima",
        ),
        "steepness": ("steepness_width",),
        "headcount.certificates.excess": ("gibbs_excess",),
        "networks.gate_mass": ("mass_outside",),
        "networks.bounded": ("weight_bounded",),
        "networks.enough_heads": ("enough_heads",),
        "networks.log_mean": ("log_mean_exp",),
        "networks.memorise": ("memorise",),
        "collisions.collision": (
            "Collision",
            "collide",
        ),
        "first_study": (
            "FirstLook",
            "first_look",
        ),
    },
)
