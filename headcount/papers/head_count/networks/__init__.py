"""Theorem 2(1) and 2(3) of the head-count paper as networks with certificates, and one outside its assumptions."""

from headcount.papers.head_count.networks.bounded import weight_bounded
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.head_count.networks.log_mean import log_mean_exp
from headcount.papers.head_count.networks.memorise import memorise

__all__ = ["enough_heads", "log_mean_exp", "memorise", "weight_bounded"]
