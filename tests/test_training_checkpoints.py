"""Checkpoints: a bank cut anywhere and gone on with has the rows and networks of one left alone, bit for bit."""

import os
import signal

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from headcount.nets import Architecture
from headcount.tasks import KthLargest
from headcount.training import Member, Recipe, train
from headcount.training.checkpoints import Checkpoint, Terminated, heeding_termination

RECIPE = Recipe(samples=96, validation=32, epochs=7, batch=32, evaluations=4)
MEMBERS = [
    Member(KthLargest(rank=1, length=4), Architecture(layers=((heads, 4),), width=8), seed, seed, lr=lr)
    for heads, seed, lr in ((1, 0, 1e-2), (2, 1, 3e-3), (2, 2, 9.0))
]


class Cut(Exception):
    """The end of a process, at a moment of our choice."""


def cut_after(epochs, members, recipe, file):
    """Train, keep the state after every epoch, and stop dead after so many of them."""
    made = []

    def count(steps):
        made.append(steps)
        if len(made) > epochs:
            raise Cut

    with pytest.raises(Cut):
        train(members, recipe, checkpoint=Checkpoint(file, every=0), on_progress=count)


def same(one, other):
    return repr(one.rows) == repr(other.rows) and torch.equal(one.bank.theta, other.bank.theta)


@pytest.mark.parametrize("epochs", range(7))
def test_a_bank_cut_after_any_epoch_goes_on_bit_for_bit(tmp_path, epochs):
    file = tmp_path / "bank.safetensors"
    cut_after(epochs, MEMBERS, RECIPE, file)
    assert file.exists() == (epochs > 0)
    made = []
    again = train(MEMBERS, RECIPE, checkpoint=Checkpoint(file), on_progress=made.append)
    assert same(again, train(MEMBERS, RECIPE)) and len(made) == RECIPE.epochs - epochs


@pytest.mark.parametrize("change", [{"fresh": True}, {"patience": 1}, {"dtype": "float64"}])
def test_fresh_samples_patience_and_doubles_go_on_too(tmp_path, change):
    recipe = Recipe(samples=64, validation=32, epochs=6, batch=32, **change)
    members = [
        Member(KthLargest(rank=1, length=4), Architecture(layers=((2, 4), (1, 4)), width=8), s, s) for s in (0, 1)
    ]
    cut_after(3, members, recipe, tmp_path / "bank")
    assert same(train(members, recipe, checkpoint=Checkpoint(tmp_path / "bank")), train(members, recipe))


def test_a_bank_cut_again_and_again_goes_on_bit_for_bit(tmp_path):
    for _ in range(3):
        cut_after(2, MEMBERS, RECIPE, tmp_path / "bank")
    assert Checkpoint(tmp_path / "bank").path.exists()
    assert same(train(MEMBERS, RECIPE, checkpoint=Checkpoint(tmp_path / "bank")), train(MEMBERS, RECIPE))


def test_the_state_of_another_bank_and_a_broken_file_are_not_taken(tmp_path):
    file = tmp_path / "bank"
    cut_after(3, MEMBERS[:2], RECIPE, file)
    made = []
    train(MEMBERS[1:], RECIPE, checkpoint=Checkpoint(file), on_progress=made.append)
    assert len(made) == RECIPE.epochs
    file.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    assert same(train(MEMBERS, RECIPE, checkpoint=Checkpoint(file)), train(MEMBERS, RECIPE))


@pytest.mark.parametrize("change", ["epochs", "way", "no checksum", "a bit"])
def test_a_state_that_was_changed_is_not_taken(tmp_path, change):
    """Before: a state that said a billion epochs ended the training at once, and its rows were kept."""
    file, made = tmp_path / "bank", []
    cut_after(3, MEMBERS, RECIPE, file)
    with safe_open(file, framework="pt") as kept:
        about, tensors = kept.metadata(), {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    if change == "a bit":
        tensors["theta"].view(torch.int32).view(-1)[5] ^= 1
    elif change == "no checksum":
        del about["checksum"]
    else:
        about[change] = "1000000000"
    save_file(tensors, file, about)
    again = train(MEMBERS, RECIPE, checkpoint=Checkpoint(file), on_progress=made.append)
    assert same(again, train(MEMBERS, RECIPE)) and len(made) == RECIPE.epochs


def test_asked_to_end_a_bank_keeps_its_state_first(tmp_path):
    def end(steps):
        os.kill(os.getpid(), signal.SIGTERM)

    with heeding_termination() as termination, pytest.raises(Terminated, match="after 1 epochs is kept"):
        train(MEMBERS, RECIPE, checkpoint=Checkpoint(tmp_path / "bank", termination=termination), on_progress=end)
    assert same(train(MEMBERS, RECIPE, checkpoint=Checkpoint(tmp_path / "bank")), train(MEMBERS, RECIPE))


def test_by_the_clock_a_state_is_kept_no_more_often_than_asked(tmp_path):
    train(MEMBERS, RECIPE, checkpoint=Checkpoint(tmp_path / "bank", every=3600))
    assert not (tmp_path / "bank").exists()
