"""How to Set the Learning Rate for Large-Scale Pre-training? (Zhou et al. 2026, arXiv 2601.05049).

Near its best value the loss is a parabola in the logarithm of the learning rate, and the best rate is a product of
powers of the number of parameters and the number of steps: rate = scale * parameters^a * steps^b, published with
a = -0.2219 and b = -0.3509. `best_rate` reads the optimum of one size and horizon off its rows, `rate_law` the two
exponents off a grid of them, `plan` proposes a grid that a budget can pay, `PUBLISHED` is the law of the paper, used
from an anchor alone because its units are not known.

Fits, plans and pages need no torch; only the experiments do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily
from headcount.papers.lr_law.parabola import BestRate, best_rate, best_rates
from headcount.papers.lr_law.published import PUBLISHED, PublishedRates
from headcount.papers.lr_law.rate_grid import RateGrid, plan
from headcount.papers.lr_law.rate_page import rate_page
from headcount.papers.lr_law.two_roads import RateLaw, extrapolated_law, rate_law

if TYPE_CHECKING:
    from headcount.papers.lr_law.experiments import rate_study

__all__ = [
    "PUBLISHED",
    "BestRate",
    "PublishedRates",
    "RateGrid",
    "RateLaw",
    "best_rate",
    "best_rates",
    "extrapolated_law",
    "plan",
    "rate_law",
    "rate_page",
    "rate_study",
]

__getattr__, __dir__ = lazily(__name__, {"experiments": ("rate_study",)})
