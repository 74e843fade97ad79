"""A bank's step as Triton kernels; importing this needs Triton."""

from headcount.training.kernels.composition import compose_backward, compose_forward
from headcount.training.kernels.descent import adamw
from headcount.training.kernels.pooling import pool_backward, pool_forward
from headcount.training.kernels.tail import tail

__all__ = ["adamw", "compose_backward", "compose_forward", "pool_backward", "pool_forward", "tail"]
