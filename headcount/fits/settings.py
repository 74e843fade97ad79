"""The settings every fit shares, and what they may be."""

from __future__ import annotations


def refuse_settings(confidence: float, resamples: int = 1) -> None:
    """Raise a ValueError unless an interval can be made with these.

    >>> refuse_settings(95)
    Traceback (most recent call last):
    ...
    ValueError: confidence must lie between 0 and 1, got 95; for 95% write 0.95
    """
    if not 0 < confidence < 1:
        hint = f"; for {confidence:g}% write {confidence / 100:g}" if 1 < confidence < 100 else ""
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence:g}{hint}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
