"""When a trained shape counts as having solved its task: one rule for the battery and for the page that tells it."""

from __future__ import annotations

FACTOR = 5.0  # a shape has solved a task when its NMSE is within this factor of the reference's,
FLOOR = 3e-5  # or below this: nobody asks for more;
FAILED = 0.3  # and never above this, whatever the reference does


def solved(nmse: float, reference: float, factor: float = FACTOR) -> bool:
    """Whether a shape's best NMSE counts as solved beside that of the reference shape.

    >>> solved(4e-4, reference=1e-4), solved(6e-4, reference=1e-4), solved(2e-5, reference=1e-6)
    (True, False, True)
    >>> solved(0.5, reference=0.4)
    False
    """
    return nmse <= FLOOR or (nmse <= factor * reference and nmse <= FAILED)
