"""Two hundred bugs planted by place and kind, and ten frozen branches: each is refused, or does no harm at all."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import headcount as hc
from headcount.papers.tensor_lens import NotAffine
from tests.frozen_maps import frozen_maps, whole
from tests.plain_blocks import Blocks


def without_gradient(f):
    def call(*args):
        with torch.no_grad():
            return f(*args)

    return call


def in_inference(f):
    def call(*args):
        with torch.inference_mode():
            return f(*args)

    return call


def after(change):
    return lambda f: lambda *args: change(f(*args))


def rounded(y):
    return torch.round(y * 8) / 8


HARMLESS = {  # the same numbers: an operator may be given, if it is the right one
    "no_grad": without_gradient,
    "inference_mode": in_inference,
    "detach": after(lambda y: y.detach()),
    "detach, halves": after(lambda y: 0.5 * y + 0.5 * y.detach()),
    ".data": after(lambda y: y.data),
    "numpy": after(lambda y: torch.from_numpy(y.detach().numpy().copy())),
    "list": after(lambda y: torch.tensor(y.tolist(), dtype=y.dtype)),
}
HARMFUL = {  # other numbers, that no frozen factor explains: to be refused
    "scale of the whole tensor": after(lambda y: y * float(y.abs().max())),
    "scale by item": after(lambda y: y / (1 + y.square().mean().item())),
    "a quantiser": after(rounded),
    "straight through": after(lambda y: y + (rounded(y) - y).detach()),
}
PLACES = ("norm1", "qkv", "out", "norm2", "inner", "outer", "activation", "attend", "hidden", "weights")


class Wrapped(nn.Module):
    def __init__(self, part, change):
        super().__init__()
        self.part, self.call = part, change(part)

    def forward(self, x):
        return self.call(x)


def planted(net, place, layer, change):
    """The network with one of its parts changed."""
    net = copy.deepcopy(net)
    if place in net.blocks[layer]:
        net.blocks[layer][place] = Wrapped(net.blocks[layer][place], change)
        return net.eval()
    kept = getattr(net, place)
    calls = itertools.count()

    def chosen(*args):
        mine = next(calls) % len(net.blocks) == layer
        return (change(kept) if mine else kept)(*args)

    setattr(net, place, chosen)
    return net.eval()


NETS = {"pre": Blocks(2, 8, 2, 12, causal=True), "post": Blocks(2, 8, 2, 12, pre_norm=False, activation=F.silu)}
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
TRUTH = {name: whole(frozen_maps(net, X)).reshape(5, 8, 5, 8) for name, net in NETS.items()}


def asked(net):
    """The operator's matrix by all its roads, each compared with the others."""
    found = hc.operator(net, X)
    T, direction = found.matrix(), torch.arange(8.0, dtype=torch.float64) - 3
    slice_ = found.contributions()
    torch.testing.assert_close(torch.einsum("iajb,jb->ija", T, X), slice_, atol=1e-11, rtol=0)
    torch.testing.assert_close(found.read(direction, 4).tokens, slice_[4] @ direction, atol=1e-11, rtol=0)
    return T


def answer(name, place, layer, change):
    try:
        return asked(planted(NETS[name], place, layer, change))
    except NotAffine as refusal:
        assert "\n" not in str(refusal)
        return None


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("place", PLACES)
def test_a_bug_that_keeps_the_numbers_is_refused_or_does_no_harm(name, place):
    given = 0
    for kind, layer in itertools.product(HARMLESS, (0, 1)):
        T = answer(name, place, layer, HARMLESS[kind])
        if T is not None:
            given += 1
            torch.testing.assert_close(T, TRUTH[name], atol=1e-11, rtol=0, msg=f"{kind} at {place} of block {layer}")
    assert given >= 8  # no_grad, detach and .data change nothing that a forward pass computes


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("place", PLACES)
def test_a_bug_that_changes_the_numbers_is_refused(name, place):
    for kind, layer in itertools.product(HARMFUL, (0, 1)):
        if place == "weights" and "quantiser" in kind:
            continue  # rounded weights are weights: frozen, and multiplied
        assert answer(name, place, layer, HARMFUL[kind]) is None or place == "weights", (kind, place, layer)


FROZEN = {
    "root": lambda z: torch.sqrt(1 + z**2),
    "reciprocal": lambda z: torch.reciprocal(5 + z),
    "power -1/2": lambda z: (1 + z**2) ** -0.5,
    "power -1": lambda z: (5 + z) ** -1,
    "deviation": lambda z: z.std(-1, keepdim=True).expand_as(z),
    "a comparison": lambda z: (z > 0).double(),
    "a softmax": lambda z: torch.softmax(z, -1),
    "a norm": lambda z: z.norm(dim=-1, keepdim=True) * torch.ones_like(z),
    "a sign": torch.sign,
    "a count": lambda z: (z > 0).sum(-1, keepdim=True) * torch.ones_like(z),
    "a division": lambda z: 1 / (1 + torch.exp(-z)),
    "places": lambda z: z.argsort(-1).double(),
}


class Branch(nn.Module):
    def __init__(self, phi, join):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 12).double(), nn.Linear(12, 8).double()
        self.phi, self.join = phi, join
        self.eval()

    def forward(self, x):
        return self.join(x, self.b(self.phi(self.a(x))))


@pytest.mark.parametrize("join", [torch.add, lambda x, y: torch.cat([x, y], -1), lambda x, y: torch.lerp(x, y, 0.3)])
@pytest.mark.parametrize("name", FROZEN)
def test_a_branch_that_would_be_frozen_whole_is_refused(name, join):
    with pytest.raises(NotAffine, match=r"is added to what depends on the tokens|not linear|cuts"):
        hc.operator(Branch(FROZEN[name], join), X)


@pytest.mark.parametrize("name", ["root", "power -1/2", "deviation", "a comparison", "a softmax", "a norm", "a sign"])
def test_the_same_branch_as_a_factor_is_right(name):
    found = hc.operator(Branch(FROZEN[name], torch.mul), X)
    assert found.gap < 1e-12 and (found.matrix().abs() > 0).any()


LINEAR = {
    "batch norm": nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)),
    "group norm": nn.GroupNorm(1, 5),
    "instance norm": nn.InstanceNorm1d(5, affine=True),
    "average pooling": nn.AdaptiveAvgPool1d(3),
    "strided pooling": nn.AvgPool1d(2),
    "largest pooling": nn.MaxPool1d(2),
    "largest pooling, adaptive": nn.AdaptiveMaxPool1d(3),
    "interpolation": nn.Upsample(scale_factor=2, mode="linear"),
    "convolution": nn.Sequential(nn.Conv1d(5, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(2)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_or_a_choice_is_taken_whatever_it_is_called(name):
    net = copy.deepcopy(LINEAR[name]).double().eval()
    found = hc.operator(net, X)
    assert found.gap < 1e-12
    torch.testing.assert_close(found.output.flatten(), net(X[None]).detach().flatten())


CHOICES = {
    "maximum with 0": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "max with 0": lambda x: torch.max(x, torch.tensor(0.0, dtype=x.dtype)),
    "minimum of two": lambda x: torch.minimum(x, x.flip(-1)),
    "max along": lambda x: x.max(-1, keepdim=True).values * torch.ones(8, dtype=x.dtype),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_frozen_and_its_value_read(name):
    class Chosen(nn.Module):
        def forward(self, x):
            return x + CHOICES[name](x)

    found = hc.operator(Chosen().eval(), X)
    J = torch.func.jacrev(Chosen())(X).detach()
    torch.testing.assert_close(found.matrix(), J, atol=1e-14, rtol=0)  # piecewise linear: the operator is the Jacobian


def test_rows_that_would_mix_are_replayed_alone():
    class Mixed(nn.Module):
        def forward(self, x):
            return x - x.mean()

    found = hc.operator(Mixed().eval(), X)
    assert found.together == "alone" and found.gap < 1e-13
    J = torch.func.jacrev(Mixed())(X).detach()
    torch.testing.assert_close(found.matrix(), J, atol=1e-14, rtol=0)
