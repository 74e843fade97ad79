"""One affine map, three roads: pushing by the formulas, one backward pass, record and replay; and the whole matrix."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import headcount as hc
from headcount.nets import Architecture, Transformer
from headcount.nets.recorded import TapeSize
from headcount.papers.tensor_lens.token_maps import logit, norm, share
from tests.frozen_maps import frozen_maps, push, pushed, whole
from tests.plain_blocks import Blocks

NETS = {
    "pre-norm causal gelu": Blocks(3, 8, 2, 12, causal=True),
    "deep": Blocks(6, 16, 4, 24, causal=True, seed=1),
    "post-norm": Blocks(3, 8, 2, 12, pre_norm=False),
    "relu": Blocks(2, 8, 2, 12, activation=F.relu),
    "rms gated": Blocks(3, 8, 2, 12, norm=nn.RMSNorm, activation=F.silu, gated=True, causal=True),
    "rms post-norm silu": Blocks(2, 8, 4, 12, norm=nn.RMSNorm, activation=F.silu, pre_norm=False),
    "sigmoid": Blocks(2, 8, 2, 12, activation=F.silu, causal=True, seed=2),
}


def tokens(length, width, seed=0):
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("freeze", ["gate", "branch"])
@pytest.mark.parametrize("name", NETS)
def test_contributions_and_constant_add_up_to_the_output(name, freeze):
    net, x = NETS[name], tokens(6, NETS[name].blocks[0]["out"].in_features)
    found = hc.operator(net, x, freeze=freeze)
    assert found.gap < 1e-12
    torch.testing.assert_close(found.output, net(x).detach(), atol=1e-12, rtol=0)
    slice_, constant = push(frozen_maps(net, x, freeze=freeze), x)
    torch.testing.assert_close(found.contributions(), slice_, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.constant, constant, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["pre-norm causal gelu", "post-norm", "rms gated"])
def test_the_matrix_its_kronecker_form_the_slice_and_one_backward_pass_agree(name):
    net, x = NETS[name], tokens(6, 8)
    found = hc.operator(net, x)
    T = found.matrix()
    product = whole(frozen_maps(net, x)).reshape(6, 8, 6, 8)
    torch.testing.assert_close(T, product, atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.einsum("iajb,jb->ija", T, x), found.contributions(), atol=1e-12, rtol=0)
    direction = tokens(1, 8, seed=5)[0]
    read = found.read(direction, place=4)
    torch.testing.assert_close(read.tokens, found.tokens(logit(direction))[4], atol=1e-12, rtol=0)
    assert read.tokens.sum() + read.constant == pytest.approx(read.value, abs=1e-12)


def test_gated_units_have_two_splits_with_one_sum():
    net, x = NETS["rms gated"], tokens(6, 8)
    one, other = (hc.operator(net, x, freeze=part) for part in ("gate", "branch"))
    assert (one.contributions() - other.contributions()).abs().max() > 1e-2
    assert (one.constant - other.constant).abs().max() > 1e-2
    torch.testing.assert_close(one.output, other.output, atol=1e-12, rtol=0)


@pytest.mark.parametrize("layers", [((2, 4),), ((2, 4), (3, 2)), ((1, 4), (2, 2), (2, 3))])
@pytest.mark.parametrize("positions", [0, 3])
@pytest.mark.parametrize(
    "kind", [{}, {"class_token": "last"}, {"residual": False}, {"embedding": "linear"}, {"activation": "gelu"}], ids=str
)
def test_our_own_network_by_three_roads(layers, positions, kind):
    net = Transformer(Architecture(layers, width=8, positions=positions, **kind), 3, seed=0).double().eval()
    x = tokens(7, 3)
    found = hc.operator(net, x)
    slice_, constant = pushed(net, x)
    torch.testing.assert_close(found.contributions()[0], slice_, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.constant[0], constant, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.read(torch.ones(1, dtype=torch.float64)).tokens, slice_[:, 0], atol=1e-12, rtol=0)


def test_under_a_causal_mask_later_tokens_give_exactly_nothing():
    x = tokens(6, 8)
    later = torch.ones(6, 6).triu(1).bool()
    assert (hc.operator(NETS["pre-norm causal gelu"], x).matrix().permute(0, 2, 1, 3)[later] == 0).all()
    slice_, _ = push(frozen_maps(NETS["pre-norm causal gelu"], x), x)
    assert (slice_[later] == 0).all()
    assert (hc.operator(NETS["post-norm"], x).matrix().permute(0, 2, 1, 3)[later] != 0).any()


def jacobian(net, x):
    return torch.func.jacrev(net)(x)


def test_a_relu_network_without_attention_and_norms_is_its_own_jacobian():
    net = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)).double().eval()
    x = tokens(3, 4)
    torch.testing.assert_close(hc.operator(net, x).matrix(), jacobian(net, x).detach(), atol=0, rtol=0)


@pytest.mark.parametrize("name", ["pre-norm causal gelu", "deep", "post-norm", "rms gated"])
def test_with_attention_the_operator_is_not_the_jacobian(name):
    net = NETS[name]
    x = tokens(6, net.blocks[0]["out"].in_features)
    J = jacobian(net, x).detach()
    assert (hc.operator(net, x).matrix() - J).norm() / J.norm() > 0.3


def test_the_distance_to_the_jacobian_falls_with_the_scale_of_the_weights():
    net, x = Blocks(3, 8, 2, 12, causal=True, scale=0.3), tokens(6, 8)
    J = jacobian(net, x).detach()
    assert (hc.operator(net, x).matrix() - J).norm() / J.norm() < 0.3


def test_the_jacobian_predicts_and_the_operator_explains():
    net, x = NETS["pre-norm causal gelu"], tokens(6, 8)
    found, J = hc.operator(net, x), jacobian(net, x).detach()
    step = tokens(6, 8, seed=3)
    errors = []
    for size in (1e-3, 1e-2):
        e = size * step / step.norm() * x.norm()
        true = net(x + e).detach()
        errors.append(((found.apply(x + e) - true).norm(), (net(x) + torch.einsum("iajb,jb->ia", J, e) - true).norm()))
    (few, few_j), (many, many_j) = errors
    assert 8 < many / few < 12 and 80 < many_j / few_j < 120  # first order, second order
    assert few > 20 * few_j


@pytest.mark.parametrize("part", ["value bias", "norm bias"])
def test_a_missing_constant_cannot_hide(part):
    net = Blocks(2, 8, 2, 12)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("bias"):
                p.zero_()
        for block in net.blocks:
            bias = block["qkv"].bias[16:] if part == "value bias" else block["norm1"].bias
            bias.copy_(tokens(1, 8)[0])
    x = tokens(5, 8)
    found = hc.operator(net, x)
    assert found.gap < 1e-12
    missing = (found.contributions().sum(1) - found.output).abs().max()
    assert missing > 1e4 * 10 * found.certificate.tolerance
    assert (found.constant.norm() / found.output.norm()) > 0.01


def test_without_biases_there_is_no_constant():
    net = Blocks(2, 8, 2, 12)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("bias"):
                p.zero_()
    assert hc.operator(net, tokens(5, 8)).constant.abs().max() < 1e-13


def test_token_maps_are_norms_shares_and_logits():
    net, x = NETS["deep"], tokens(6, 16)
    found = hc.operator(net, x)
    shares = found.tokens(share).sum(1) + (found.constant * found.output).sum(-1) / found.output.square().sum(-1)
    torch.testing.assert_close(shares, torch.ones(6, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.tokens(norm), found.contributions().norm(dim=-1))


def test_singular_directions_are_those_of_the_matrix():
    net, x = NETS["pre-norm causal gelu"], tokens(6, 8)
    found = hc.operator(net, x)
    few = found.singular(3)
    _, s, V = torch.linalg.svd(found.matrix().reshape(48, 48))
    torch.testing.assert_close(few.values, s[:3], rtol=1e-10, atol=0)
    for one, other in zip(few.tokens.flatten(1), V, strict=False):
        assert abs(one @ other) == pytest.approx(1.0, abs=1e-8)
    with pytest.raises(ValueError, match=r"k must lie in 1\.\.47"):
        found.singular(48)


def test_pieces_give_the_same_numbers():
    net, x = NETS["deep"], tokens(12, 16)
    at_once = hc.operator(net, x)
    result = 12 * 12 * 16 * 8
    need = at_once.budget.tape + 3 * at_once.budget.row + result
    in_pieces = replace(at_once, budget=replace(at_once.budget, limit=need))
    assert "in 1 piece:" in str(at_once.cost) and "in 4 pieces:" in str(in_pieces.cost)
    seen = []
    found = in_pieces.contributions(lambda done, total: seen.append((done, total)))
    assert seen == [(3, 12), (6, 12), (9, 12), (12, 12)]
    torch.testing.assert_close(found, at_once.contributions(), atol=1e-13, rtol=0)


@pytest.mark.parametrize("name", NETS)
def test_what_a_recording_keeps_is_known_before(name):
    """Counted on a plain pass: at least what the tape then holds, and not twice as much."""
    net, x = NETS[name], tokens(24, NETS[name].blocks[0]["out"].in_features)
    with torch.no_grad(), TapeSize() as size:
        net(x[None])
    tape = hc.operator(net, x).tape
    assert tape.bytes <= size.bytes < 2 * tape.bytes
    assert tape.largest <= size.largest < 4 * tape.largest


def test_the_cost_is_told_before_anything_is_kept():
    net, x, told = NETS["deep"], tokens(6, 16), []
    with pytest.raises(ValueError, match=r"recording 6 tokens needs \d+ kB, the limit is 2 kB; cut the text"):
        hc.operator(net, x, memory="2K", forecast=told.append)
    assert len(told) == 1 and told[0].limit == 2048 and told[0].bytes > 2048 and told[0].seconds > 0
    found = hc.operator(net, x, memory="1G")
    assert found.cost.seconds == pytest.approx(7 * found.budget.seconds) and found.cost.limit == 2**30
    assert found.cost.bytes < 2**22


def test_products_that_only_frozen_values_were_made_of_are_left_out_of_a_replay():
    """Queries, keys and the gate: with the weights frozen nothing reads them, and the numbers stay the same."""
    net, x = Blocks(2, 8, 2, 12, norm=nn.RMSNorm, activation=F.silu, gated=True), tokens(5, 8)
    found = hc.operator(net, x)
    assert len(found.tape.idle) == 4  # in each block the gate's matrix, and queries and keys beside the values
    without = replace(found, tape=replace(found.tape, idle=set()))
    torch.testing.assert_close(found.contributions(), without.contributions(), atol=1e-14, rtol=0)


def test_a_bar_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    net, x = NETS["deep"], tokens(6, 16)
    slow = hc.operator(net, x)
    slow = replace(slow, budget=slow.budget.timed(60.0))
    slow.contributions()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    slow.contributions()
    assert "6/6 tokens" in capsys.readouterr().err
