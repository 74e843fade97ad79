"""A text cut into windows of tokens: some to calibrate on, others to choose by, others to be judged on. None twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from headcount.files import text_in

CHOOSING = 0.2  # share of the calibration text that is kept for choosing, and again for judging where no other is given


@dataclass(frozen=True)
class TextSplit:
    """Windows of equal length for the three uses of text."""

    calibration: Int[Tensor, "calibrating length"]
    choosing: Int[Tensor, "choosing length"]
    judging: Int[Tensor, "judging length"]


def windows_of(path: str | Path, tokenizer: Any, length: int) -> Int[Tensor, "windows length"]:
    """The whole text as windows of `length` tokens, one after the other; the rest at the end is left out."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no text file at {path}")
    if length < 2:
        raise ValueError(f"a window must have at least 2 tokens, got {length}")
    ids = tokenizer(text_in(path, errors="replace"), truncation=False, verbose=False)["input_ids"]
    count = len(ids) // length
    if not count:
        raise ValueError(f"{path} gives {len(ids)} tokens, fewer than one window of {length}")
    return torch.tensor(ids[: count * length]).view(count, length)


def split_text(
    path: str | Path, tokenizer: Any, length: int, counts: tuple[int, int, int], other: str | Path | None = None
) -> TextSplit:
    """At most `counts` windows for calibrating, choosing and judging, spread evenly over their parts of the text.

    The text is divided in this order, the last fifth for judging; or `other` is a second text to be judged on.
    """
    windows = windows_of(path, tokenizer, length)
    judging = windows_of(other, tokenizer, length) if other is not None else None
    needed = 2 if judging is not None else 3
    if len(windows) < needed:
        raise ValueError(f"{path} gives {len(windows)} windows of {length} tokens; at least {needed} are needed")
    part = max(1, int(CHOOSING * len(windows)))
    if judging is None:
        windows, judging = windows[:-part], windows[-part:]
    calibration, chosen = windows[:-part], windows[-part:]
    return TextSplit(*(_spread(w, n) for w, n in zip((calibration, chosen, judging), counts, strict=True)))


def _spread(windows: Tensor, count: int) -> Tensor:
    """So many of them, evenly spaced.

    >>> _spread(torch.arange(10), 3).tolist()
    [0, 4, 9]
    """
    count = min(count, len(windows))
    return windows[torch.linspace(0, len(windows) - 1, count).long()]
