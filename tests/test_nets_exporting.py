"""Programs for other runtimes: an interruption waits for torch, and a file is whole or not there."""

import signal

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.measuring.estimators import Regressor
from headcount.nets.exporting import holding_interruptions
from headcount.tasks import Wells


@pytest.fixture(autouse=True)
def interruptions_as_at_a_terminal():
    """A program that a script started in the background ignores them, and so may what a test before this one left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def built():
    return hc.head_count.enough_heads(Wells.random(3, 2, 16, windows=True), 1e-3)


def fitted():
    x = np.random.default_rng(0).standard_normal((60, 4, 1))
    return Regressor(1, steps=10, embed_dim=8, width=8, rates=(4e-3,)).fit(x, x.max(axis=(1, 2))).model_


class Filter:
    def export(self, path):
        return hc.ssm.export(hc.ssm.DiagonalSSM([0.5], [1.0]), path)


@pytest.mark.parametrize(("made", "name"), [(built, "net.pt2"), (fitted, "model.onnx"), (Filter, "filter.pt2")])
def test_an_interruption_waits_until_torch_has_traced(tmp_path, monkeypatch, made, name):
    """Torch calls Python from C++ there, and an exception aborts the process, or spoils it for good."""
    traced, exporter = [], made()

    def export(*rest, **more):
        signal.raise_signal(signal.SIGINT)
        traced.append("to the end")

    monkeypatch.setattr(torch.export, "export", export)
    with pytest.raises(KeyboardInterrupt):
        exporter.export(tmp_path / name)
    assert traced == ["to the end"] and list(tmp_path.iterdir()) == []


def test_a_second_interruption_is_not_held():
    went = []
    with pytest.raises(KeyboardInterrupt), holding_interruptions():
        signal.raise_signal(signal.SIGINT)
        went.append(1)
        signal.raise_signal(signal.SIGINT)
        went.append(2)
    assert went == [1] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*rest, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.export, "save", full)
    program = object.__new__(torch.export.ExportedProgram)
    monkeypatch.setattr(torch.export, "export", lambda *rest, **more: program)
    with pytest.raises(OSError, match="No space"):
        built().export(tmp_path / "net.pt2")
    assert list(tmp_path.iterdir()) == []
