"""Standard encoders: a shape says its tensors, refuses what it cannot be, and starts as torch's own layers do."""

import math
from dataclasses import replace

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from torch import nn

from benchmarks.torch_encoder import TorchEncoder
from headcount.nets.standard import EncoderShape

SHAPE = EncoderShape(((3, 5), (2, 4)), embed_dim=9, width=20, token_dim=4, positions=6, outputs=2)
KINDS = [{}, {"pooling": "class token"}, {"token_dim": 0, "vocab": 7}, {"positions": 0}, {"outputs": 1}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_tensors_are_the_parameters_of_the_plain_network(kind):
    shape = replace(SHAPE, **kind)
    named = {name: tuple(p.shape) for name, p in shape.module(0).named_parameters()}
    assert named == shape.tensors() and shape.parameters == sum(math.prod(size) for size in named.values())


def test_a_start_depends_on_its_seed_alone():
    one, same, other = (torch.cat([p.flatten() for p in SHAPE.module(seed).parameters()]) for seed in (3, 3, 4))
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("entry", [{"token_dim": 4}, {"vocab": 50}], ids=str)
def test_a_start_has_the_spread_of_torch_s_own_layers(entry):
    shape = EncoderShape(((4, 16),), embed_dim=64, width=128, outputs=30, **entry)
    ours, theirs = dict(shape.module(0).named_parameters()), TorchEncoder(shape).named()
    for name, p in theirs.items():
        assert ours[name].shape == p.shape
        if p.numel() > 100 and p.std() > 0:
            assert ours[name].std().item() == pytest.approx(p.std().item(), rel=8 / math.sqrt(p.numel())), name
            assert ours[name].abs().max().item() == pytest.approx(p.abs().max().item(), rel=0.4), name
        if p.std() == 0:
            assert torch.equal(ours[name], p), name


def test_shapes_that_cannot_be_are_refused_with_their_numbers():
    wrong = {
        "layers is empty": {"layers": ()},
        "heads must be at least 1, got 0": {"layers": ((0, 4),)},
        "one of the two; got token_dim=4, vocab=3": {"vocab": 3},
        "dropout must be at least 0 and below 1, got 1.0": {"dropout": 1.0},
        "activation must be": {"activation": "tanh"},
        "pooling must be": {"pooling": "max"},
    }
    for said, kind in wrong.items():
        with pytest.raises((ValueError, BeartypeCallHintViolation), match=f"{said}|parameter (activation|pooling)="):
            replace(SHAPE, **kind)
    with pytest.raises(ValueError, match="sequences have 7 tokens and the encoder 6 positions"):
        SHAPE.module(0)(torch.zeros(1, 7, 4))


def test_training_mode_leaves_units_out_and_evaluation_does_not():
    net, x = replace(SHAPE, dropout=0.5).module(0), torch.randn(3, 5, 4)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert isinstance(net, nn.Module)
