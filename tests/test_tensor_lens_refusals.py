"""The certificate's holes, each closed: what is not affine is refused by naming the operation that broke it."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import headcount as hc
from headcount.nets import Architecture, Transformer
from headcount.papers.tensor_lens import NotAffine
from tests.plain_blocks import Blocks


def tokens(length=5, width=4, seed=0):
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Around(nn.Module):
    """x + W f(x), so that a branch can be frozen whole beside a residual."""

    def __init__(self, f):
        super().__init__()
        self.f, self.out = f, nn.Linear(4, 4, dtype=torch.float64)
        self.eval()

    def forward(self, x):
        return x + self.out(self.f(x))


def spelt_leaky(x):
    return torch.where(x > 0, x, 0.1 * x)


def spelt_softmax(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) * x


def routed(x):
    values, places = x.topk(2, dim=-1)
    return torch.zeros_like(x).scatter(-1, places, values)


def spelt_norm(x):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def spelt_rms(x):
    return x * (x * x).mean(-1, keepdim=True).add(1e-6).pow(-0.5)


def recurrent(kind, **sizes):
    """The outputs of a recurrent layer of torch, added over its directions."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = kind(4, 4, batch_first=True, dtype=torch.float64, **sizes).eval().requires_grad_(False)
    return lambda x: layer(x)[0].unflatten(-1, (-1, 4)).sum(-2)


GOOD = {
    "leaky relu": F.leaky_relu,
    "where": spelt_leaky,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "clamp": lambda x: x.clamp(-0.3, 0.5),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "spelt-out gelu": lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.04 * torch.pow(x, 3)))),
    "squared relu": lambda x: F.relu(x).square(),
    "top-k": routed,
    "exp over sum": spelt_softmax,
    "x over sqrt": spelt_norm,
    "pow(-0.5)": spelt_rms,
    "normalize": lambda x: F.normalize(x, dim=-1),
    "glu": lambda x: F.glu(torch.cat([x, x.flip(-1)], -1)),
    "in place": lambda x: F.relu(x.clone(), inplace=True),
    "in place method": lambda x: x.clone().relu_().mul_(2.0),
    "soft cap": lambda x: 3.0 * torch.tanh(x / 3.0),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "silu spelt out": lambda x: x * (1 / (1 + torch.exp(-x))),
    "lstm": recurrent(nn.LSTM),
    "gru in two layers, both ways": recurrent(nn.GRU, num_layers=2, bidirectional=True),
    "rnn without biases": recurrent(nn.RNN, bias=False, nonlinearity="relu"),
    "fused attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_can_be_frozen_is_affine_far_from_the_input(name):
    found = hc.operator(Around(GOOD[name]), tokens())
    assert found.gap < 1e-12 and found.certificate.affine < 1e-13
    branch = hc.operator(_Alone(GOOD[name]), tokens())
    assert branch.certificate.dependence > 0.1  # the branch itself still depends on its input


class _Alone(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
        self.eval()

    def forward(self, x):
        return self.f(x)


BAD = {
    "exp": (torch.exp, "exp"),
    "log_softmax": (lambda x: F.log_softmax(x, -1), "log_softmax"),
    "sin": (torch.sin, "sin"),
    "a product of two": (lambda x: x * x.flip(-1), r"product \(mul\)"),
    "linear attention": (lambda x: (x @ x.mT) @ x, r"product \(bmm\)"),
    "the largest of all": (lambda x: x.max() + x, "max"),
    "a scan": (lambda x: torch.cumprod(x, 1), "cumprod"),
    "a number read by Python": (lambda x: x * x.detach().sum().item(), r"item\(\) hands a number"),
    "a quantiser": (lambda x: torch.sign(x) * 0.5, "a sign is added"),
    "a sigmoid spelt out, alone": (lambda x: 1 / (1 + torch.exp(-x)), "rdiv is added"),
    "softmax as an activation": (lambda x: torch.softmax(x, -1), "softmax is added"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_is_refused_by_the_name_of_the_operation(name):
    f, said = BAD[name]
    with pytest.raises(NotAffine, match=said):
        hc.operator(Around(f), tokens())


def test_a_scripted_module_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double().eval())
    with pytest.raises(ValueError, match="scripted module"):
        hc.operator(nn.Sequential(scripted).eval(), tokens())


def test_one_clear_line_each():
    net = Blocks(1, 4, 2, 8)
    with pytest.raises(ValueError, match=r"training mode.*model.eval\(\)"):
        hc.operator(Blocks(1, 4, 2, 8).train(), tokens())
    with pytest.raises(ValueError, match=r"float16.*model.float\(\)"):
        hc.operator(Blocks(1, 4, 2, 8).half(), tokens().half())
    with pytest.raises(ValueError, match="bfloat16"):
        hc.operator(Blocks(1, 4, 2, 8).bfloat16(), tokens())
    with pytest.raises(ValueError, match=r"one text at a time.*\(3, 5, 4\)"):
        hc.operator(net, tokens().expand(3, 5, 4))
    with pytest.raises(ValueError, match="the text is empty"):
        hc.operator(net, tokens()[:0])
    with pytest.raises(ValueError, match="freeze must be"):
        hc.operator(net, tokens(), freeze="up")
    with pytest.raises(ValueError, match="recording 5 tokens needs"):
        hc.operator(net, tokens(), memory="1K")
    with pytest.raises(ValueError, match="the slice of 5 tokens in 5 pieces needs"):
        found = hc.operator(net, tokens())
        tight = replace(found.budget, limit=found.budget.tape + found.budget.row + 10)
        replace(found, budget=tight).contributions()


def test_the_whole_matrix_is_refused_above_a_stated_size():
    net = nn.Linear(600, 600, dtype=torch.float64).eval()
    with pytest.raises(ValueError, match=r"would take 275 MB.*contributions"):
        hc.operator(net, tokens(10, 600)).matrix()


def test_a_module_of_torch_with_fused_attention_is_opened():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    x = tokens(6, 8)
    found = hc.operator(net, x)
    assert found.gap < 1e-12 and dict(found.certificate.frozen)["softmax"] == 2


def test_a_fully_masked_row_gives_nothing_and_rows_below_one_are_exact():
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[0] = False  # the first place sees nothing: its weights are 0, not NaN
    net = _Alone(lambda x: F.scaled_dot_product_attention(x, x, x + 1.0, attn_mask=mask))
    found = hc.operator(net, tokens())
    assert found.gap < 1e-12
    assert (found.contributions()[0] == 0).all() and (found.constant[0] == 0).all()
    torch.testing.assert_close(found.constant[1:], torch.ones(4, 4, dtype=torch.float64))


def test_padding_belongs_to_a_mask():
    net = Transformer(Architecture(((2, 4), (2, 4)), width=8), 3, seed=0).double().eval()
    x = tokens(6, 3)
    present = torch.tensor([True] * 4 + [False] * 2)
    padded = hc.operator(net, x, attention_mask=present)
    short = hc.operator(net, x[:4])
    torch.testing.assert_close(padded.output, short.output)
    torch.testing.assert_close(padded.contributions()[:, :4], short.contributions())
    assert padded.contributions()[:, 4:].abs().max() < 1e-14


def test_a_function_with_its_own_backward_is_seen_through():
    class Squash(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, grad):
            raise AssertionError("nobody asks for it")

    before = torch.autograd.Function.__dict__["apply"]
    assert hc.operator(Around(lambda x: Squash.apply(x)), tokens()).gap < 1e-12
    assert torch.autograd.Function.__dict__["apply"] is before


@pytest.mark.parametrize("seed", [0, 1])
def test_the_far_input_is_as_large_as_the_tokens_and_independent_of_them(seed):
    from headcount.papers.tensor_lens.operators import _rows_far_apart

    x = tokens(9, 8, seed)
    here, far, between = _rows_far_apart(x)
    assert abs((here * far).sum()) < 1e-12 * x.square().sum()
    assert hc.operator(Around(F.leaky_relu), tokens(5, 4, seed)).certificate.dependence > 0.1
    torch.testing.assert_close(between, 0.37 * here + 0.63 * far)


def test_parameters_are_left_as_they_were():
    net = Blocks(1, 4, 2, 8)
    net.blocks[0]["out"].weight.requires_grad_(False)
    asked = [p.requires_grad for p in net.parameters()]
    hc.operator(net, tokens()).read(torch.ones(4, dtype=torch.float64))
    assert [p.requires_grad for p in net.parameters()] == asked
