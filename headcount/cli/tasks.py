"""`headcount tasks`: the tasks that ship, with what each one asks."""

from __future__ import annotations

from headcount.cli.printing import Listing, Printout
from headcount.listings import listed


def tasks() -> Printout:
    """List the tasks that ship: the exact target and its look-ups."""
    rows = listed("tasks")
    so = f"{len(rows)} tasks ship, and examples/own_task.py shows how to state your own"
    return Printout(rows, [Listing(rows, ("task", "target", "looks up"))], so)
