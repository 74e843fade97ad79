"""What the paper states in numbers: a rate, in its abstract. It prints no error and no experiment in the length."""

from __future__ import annotations

from headcount.results.literature import Difference, Published
from headcount.sources import Source

# In the abstract; theorem, hypotheses and proof could not be seen, and the code stores no numbers.
RATE_CLAIM = Published(
    "claimed decay", Source("ghosh2025consistent", "the rate of consistency"), "dimension", (1, 2, 3, 4),
    "quantity", ("exponent",), ((0.5,), (0.25,), (0.1667,), (0.125,)),
    read_to=5e-5, quantity="decay exponent of the error", measure=Difference(0.001), origin="same formula",
)  # fmt: skip
