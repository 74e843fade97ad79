"""The files of a model made smaller: a folder that every command reads, and what stock code and other runtimes read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from torch import nn

from headcount.shrinking.card import card_of
from headcount.shrinking.checkpoint import save_compact, save_padded
from headcount.shrinking.file_bytes import CASTS, FileBytes
from headcount.shrinking.report_rows import BeforeAfter


class Stock(NamedTuple):
    """The model as it was given: its folder (or its name on a hub), and the dimension of its heads."""

    folder: str
    head_dim: int


@runtime_checkable
class Smaller(Protocol):
    """A model made smaller, as its files and its card need it."""

    @property
    def title(self) -> str: ...
    @property
    def model(self) -> nn.Module: ...
    @property
    def stock(self) -> Stock: ...
    @property
    def bytes(self) -> FileBytes: ...
    @property
    def headline(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def rows(self) -> Sequence[BeforeAfter]: ...


def write_smaller(cut: Smaller, out: Path, *, causal: bool, padded: bool, onnx: bool) -> list[Path]:
    """The folder `compact`; where asked for also `padded`, with heads of the stock size, and `model.onnx`."""
    folder, head_dim = cut.stock
    form = {"dtype": CASTS[cut.bytes.cast], "card": card_of(cut.title, cut.headline, cut.sentence, cut.rows, causal)}
    written = [save_compact(cut.model, out / "compact", folder, **form)]
    if padded:
        written.append(save_padded(cut.model, out / "padded", head_dim, folder, **form))
    if onnx:
        from headcount.shrinking.program import write_onnx

        written.append(write_onnx(cut.model, out / "model.onnx", {"headline": cut.headline}))
    return written
