"""A bank's step as Triton kernels; importing this needs Triton."""

from typing import Any

from headcount.training.kernels import asking, composition, descent, feeding, mixing, pooling
from headcount.training.kernels import tail as samples

__all__ = [
    "adamw",
    "ask_backward",
    "ask_forward",
    "compose_backward",
    "compose_forward",
    "feed_backward",
    "feed_forward",
    "mix_backward",
    "mix_forward",
    "pool_backward",
    "pool_forward",
    "tail",
]

# Any: a launch takes options, such as num_warps, that no kernel's signature shows.
compose_forward: Any = composition.compose_forward
compose_backward: Any = composition.compose_backward
pool_forward: Any = pooling.pool_forward
pool_backward: Any = pooling.pool_backward
tail: Any = samples.tail
adamw: Any = descent.adamw
feed_forward: Any = feeding.feed_forward
feed_backward: Any = feeding.feed_backward
mix_forward: Any = mixing.mix_forward
mix_backward: Any = mixing.mix_backward
ask_forward: Any = asking.ask_forward
ask_backward: Any = asking.ask_backward
