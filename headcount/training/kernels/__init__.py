"""A bank's step as Triton kernels; importing this needs Triton."""

from typing import Any

from headcount.training.kernels import composition, descent, pooling
from headcount.training.kernels import tail as samples

__all__ = ["adamw", "compose_backward", "compose_forward", "pool_backward", "pool_forward", "tail"]

# Any: a launch takes options, such as num_warps, that no kernel's signature shows.
compose_forward: Any = composition.compose_forward
compose_backward: Any = composition.compose_backward
pool_forward: Any = pooling.pool_forward
pool_backward: Any = pooling.pool_backward
tail: Any = samples.tail
adamw: Any = descent.adamw
