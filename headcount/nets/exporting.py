"""Networks as programs for other runtimes: traced by torch, written as `.pt2` or `.onnx`, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from headcount.files import atomic_write


def traced(net: nn.Module, inputs: tuple[Tensor, ...], shapes: Any) -> torch.export.ExportedProgram:
    """The program that torch finds in a network by running it once on stand-ins for its inputs.

    >>> program = traced(nn.Linear(2, 1), (torch.zeros(3, 2),), ({0: torch.export.Dim("batch")},))
    >>> program.module()(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """
    with holding_interruptions():
        return torch.export.export(net, inputs, dynamic_shapes=shapes)


def write_program(
    program: torch.export.ExportedProgram, path: Path, facts: Mapping[str, object], outputs: Sequence[str] = ()
) -> None:
    """Write a program as its file's ending says, in one file, with facts as text in the metadata `headcount`.

    `outputs` are the names of what it gives, in ONNX.
    """
    with TemporaryDirectory() as folder, atomic_write(path) as scratch:
        exported = Path(folder) / f"program{path.suffix}"  # the exporter looks at the ending
        with holding_interruptions():
            if path.suffix == ".pt2":
                torch.export.save(program, exported, extra_files={"headcount": json.dumps(facts)})
            else:
                _write_onnx(program, exported, facts, outputs)
        shutil.copyfile(exported, scratch)


def _write_onnx(
    program: torch.export.ExportedProgram, path: Path, facts: Mapping[str, object], outputs: Sequence[str]
) -> None:
    chatter = logging.getLogger("torch.onnx")  # the exporter speaks of packages we do not use, and of its own future
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.onnx.export(program, dynamo=True, verbose=False)
    finally:
        chatter.setLevel(level)
    assert exported is not None
    for value, name in zip(exported.model.graph.outputs, outputs, strict=bool(outputs)):
        value.name = name
    exported.model.metadata_props["headcount"] = json.dumps(facts)
    exported.save(str(path), external_data=False)


@contextlib.contextmanager
def holding_interruptions() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended; a second one is not held.

    Torch traces by calling Python from C++ where nothing may be raised: an interruption there aborts the process, or
    leaves it in a state in which no later operation works.

    >>> done, _ = [], signal.signal(signal.SIGINT, signal.default_int_handler)
    >>> try:
    ...     with holding_interruptions():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all of it")
    ... except KeyboardInterrupt:
    ...     done.append("then interrupted")
    >>> done
    ['all of it', 'then interrupted']
    """
    came = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, hold)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
