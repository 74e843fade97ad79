"""Theorem 2(1) and 2(3) of the head-count paper as networks with certificates."""

from headcount.papers.head_count.networks.bounded import weight_bounded
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.head_count.networks.memorise import memorise

__all__ = ["enough_heads", "memorise", "weight_bounded"]
