"""Banks of networks and how their gradients are computed; one door, `best`. See README.md beside this file."""

from headcount.kernels.backend import Backend, Problem
from headcount.kernels.bank import Bank, Network
from headcount.kernels.preference import best

__all__ = ["Backend", "Bank", "Network", "Problem", "best"]
