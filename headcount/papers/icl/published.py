"""What the paper states in numbers, and where each was seen. It prints exponents; its tables could not be seen."""

from __future__ import annotations

from headcount.results.literature import Difference, Published
from headcount.sources import Source

# Where: the exponent in a secondary source, step and shape in the abstract; the transition's place in a secondary
# source, that there is one in the abstract.
EXPONENT_CLAIM = Published(
    "claimed exponents", Source("mehta2025icl", "the exponent of in-context learning"), "levels", (0, 1, 2, 3),
    "quantity", ("exponent",), ((0.5,), (0.25,), (0.1667,), (0.125,)),
    read_to=5e-5, quantity="exponent of the error", measure=Difference(0.001), origin="same formula",
)  # fmt: skip
SHAPE_CLAIM = Published(
    "claimed powers of the budget", Source("mehta2025icl", "the best shape"), "size", ("depth", "width"),
    "budget", ("depth x width",), ((0.6667,), (0.3333,)),
    read_to=5e-5, quantity="power of the budget", measure=Difference(0.001), origin="same formula",
)  # fmt: skip
