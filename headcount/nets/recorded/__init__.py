"""A forward pass of any module recorded, and replayed on other inputs with all that is not linear in them frozen.

`TapeSize` says before what recording will keep, `Recording` writes the tape of one pass, `Replay` runs another by it,
`refuse_nonlinear` names what would still not be linear. Nothing here is written for a model: the calls of torch are.
"""

from __future__ import annotations

from headcount.nets.recorded.linearity import refuse_nonlinear
from headcount.nets.recorded.tape import (
    NotAffine,
    Recording,
    Replay,
    Site,
    Tape,
    own_backwards_opened,
    parameters_still,
)
from headcount.nets.recorded.tape_size import TapeSize

__all__ = [
    "NotAffine",
    "Recording",
    "Replay",
    "Site",
    "Tape",
    "TapeSize",
    "own_backwards_opened",
    "parameters_still",
    "refuse_nonlinear",
]
