"""The lower bound made visible: two sequences that too few heads cannot tell apart, found, measured and drawn."""

from headcount.papers.head_count.collisions.collision import Collision, collide

__all__ = ["Collision", "collide"]
