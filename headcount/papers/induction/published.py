"""Numbers of the paper's repository: the run of the simplified model, and where its runs of the full model ended."""

from __future__ import annotations

from headcount.results.literature import Difference, Published
from headcount.sources import Source

RUN = Source("chen2024induction", "stored run of the simplified model, all parameters together")
STEPS = (0, 100, 500, 5000, 50000)

# Stored losses are divided once more by the number of samples; multiplied back here.
LOSS = Published("validation loss", RUN, "step", STEPS, "run", ("all together",),
                 ((0.9003,), (0.6715,), (0.6548,), (0.6525,), (0.6523,)),
                 quantity="cross-entropy with the output as logits", measure=Difference(clear=0.012))  # fmt: skip
SCALE = Published("scale of the second layer", RUN, "step", STEPS, "run", ("all together",),
                  ((0.01,), (4.28,), (6.49,), (8.98,), (11.35,)),
                  quantity="a", measure=Difference(clear=0.1))  # fmt: skip
SHARE = Published("share of {1,2}", RUN, "step", (1, 5, 10, 50), "run", ("all together",),
                  ((0.263,), (0.889,), (0.996,), (1.0,)), read_to=0.005,
                  quantity="c^2 of {1,2} over the sum", measure=Difference(clear=0.03))  # fmt: skip
OWN_LAGS = (3.358, 4.138, 3.000)
"""The own-lag weights of the three heads after 50,000 steps; they start at 3."""

FULL_SHARES, FULL_LOSSES = (0.57, 0.12, 0.00, 0.97, 0.75), (0.66, 0.76, 0.83, 0.70, 0.65)
"""Five stored runs of the full model: the share of {1,2} at the end, and the loss."""
