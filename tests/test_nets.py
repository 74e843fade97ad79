"""The plain network against its formula, and its parameter count against its tensors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.nets import Architecture, Transformer, hardmax, parameters, softmax
from headcount.nets.transformer import position_features

SHAPES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=3)


@given(SHAPES, st.integers(1, 9), st.integers(0, 4), st.integers(0, 9), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_both_parameter_counts_equal_what_the_tensors_say(layers, width, positions, embed_dim, token_dim):
    arch = Architecture(layers=tuple(layers), width=width, positions=positions, embed_dim=embed_dim)
    net = Transformer(arch, token_dim)
    forwards = [net.encoder, *net.between, net.read_out]
    total = sum(p.numel() for p in net.parameters())
    feedforward = sum(p.numel() for module in forwards for p in module.parameters())
    assert parameters(arch, token_dim) == (total, feedforward)


@given(SHAPES, st.integers(1, 64), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_canonical_json_brings_an_architecture_back(layers, width, positions):
    arch = Architecture(layers=tuple(layers), width=width, positions=positions)
    assert Architecture.from_json(arch.to_json()) == arch


@given(SHAPES, st.integers(1, 64), st.integers(0, 4), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_name_of_an_architecture_is_parsed_back(layers, width, positions, outputs):
    arch = Architecture(tuple(layers), width, positions, 0, outputs)
    assert Architecture.parse(arch.name, width=width, positions=positions, outputs=outputs) == arch


@pytest.mark.parametrize(
    "text", ["", "2", "2x", "x8", "2x8+", "+2x8", "2x8x3", "2.0x8", "2,8", "twox8", "\u00b2x8", "9" * 99]
)
def test_text_that_is_no_architecture_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="layers must read heads x head_dim, layer by layer, as 2x8"):
        Architecture.parse(text)


def test_text_with_no_heads_or_no_dimension_is_refused_by_its_layer():
    for text, says in (("2x8+0x8", "layer 2 has 0 heads"), ("2x-1", "layer 1 has 2 heads of dimension -1")):
        with pytest.raises(ValueError, match=says):
            Architecture.parse(text)


def test_one_layer_is_the_formula_of_the_paper():
    arch = Architecture(layers=((3, 5),), width=16)
    net = Transformer(arch, 4, weigh=softmax(0.7), seed=3).double()
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for b in range(2):
        tokens = [net.encoder(x[b, t]) for t in range(6)]
        heads = []
        for i in range(3):
            q, k, v = (getattr(net.attention[0], name)[i] for name in ("query", "key", "value"))
            scores = [0.7 * (q @ net.cls) @ (k @ token) for token in tokens]
            weights = [s.exp() for s in scores]
            heads.append(sum(w * (v @ token) for w, token in zip(weights, tokens, strict=True)) / sum(weights))
        # W_O acts on the concatenation of the heads
        full = torch.cat([net.attention[0].output[i] for i in range(3)], dim=1)
        y = net.read_out(net.cls + full @ torch.cat(heads))
        torch.testing.assert_close(net(x)[b], y[0], atol=1e-12, rtol=1e-12)


def test_every_layer_may_have_its_own_heads():
    net = Transformer(Architecture(layers=((3, 5), (1, 7), (2, 2)), width=8), 4, seed=0)
    assert net(torch.zeros(2, 6, 4)).shape == (2,)
    assert len(net.states(torch.zeros(2, 6, 4))) == 3


def test_without_positions_the_order_of_tokens_does_not_matter_and_with_them_it_does():
    x = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for positions, same in ((0, True), (3, False)):
        net = Transformer(Architecture(layers=((2, 4), (2, 4)), width=8, positions=positions), 4, seed=1).double()
        assert torch.allclose(net(x), net(x.flip(1)), atol=1e-12) is same


def test_absent_tokens_are_not_seen():
    net = Transformer(Architecture(layers=((2, 4), (3, 4)), width=8), 4, seed=1).double()
    x = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    present = torch.arange(7).expand(2, -1) < 4
    torch.testing.assert_close(net(x, present), net(x[:, :4]))


def test_softmax_tends_to_hardmax():
    scores = torch.tensor([0.1, 0.9, 0.3], dtype=torch.float64)
    assert torch.allclose(softmax(1e3)(scores), hardmax(scores))
    assert hardmax(torch.tensor([2.0, 2.0, 1.0])).tolist() == [0.5, 0.5, 0.0]


def test_position_features_are_distinct_for_every_place():
    table = position_features(12, 3, dtype=torch.float64)
    assert torch.pdist(table).min() > 0.05
    assert table.shape == (12, 3)


def test_the_same_seed_gives_the_same_network():
    arch = Architecture(layers=((2, 3),), width=4)
    one, two, other = (Transformer(arch, 2, seed=s) for s in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.cls, other.cls)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Architecture(layers=()), "at least one layer"),
        (lambda: Architecture(layers=((0, 8),)), "layer 1 has 0 heads of dimension 8"),
        (lambda: Architecture(layers=((2, 8), (3, 0))), "layer 2 has 3 heads of dimension 0"),
        (lambda: Architecture(layers=((1, 2),), width=0), "width must be at least 1"),
        (lambda: Architecture.from_json('{"layers": [[1, 2]], "widht": 3}'), "did you mean 'width'"),
        (lambda: softmax(-1.0), "beta must be at least 0"),
    ],
)
def test_a_bad_architecture_is_refused_in_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_class_token_of_the_last_layer_hears_nothing_before_and_one_of_every_layer_does():
    shapes = {c: Architecture(((2, 4), (1, 4)), width=8, class_token=c) for c in ("every", "last")}
    every, last = (Transformer(arch, token_dim=3, seed=0).double() for arch in shapes.values())
    x = torch.randn(5, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens, cls = last.states(x)[-1]
    assert torch.equal(cls, last.cls.expand(5, 1, -1))
    assert torch.allclose(tokens, every.states(x)[-1][0]), "the tokens do not know where the class token attends"
    assert not torch.allclose(last(x), every(x))
    assert torch.allclose(last(x), last.read_out((cls + last.attention[-1](cls, tokens))[:, 0])[:, 0])
    assert Architecture.from_json(shapes["last"].to_json()) == shapes["last"]


def test_without_residuals_a_token_is_what_its_layer_made_of_it():
    arch = Architecture(((2, 4), (1, 4)), width=8, class_token="last", residual=False)
    net = Transformer(arch, token_dim=3, seed=0).double()
    x = torch.randn(5, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (before, _), (after, _) = net.states(x)
    assert torch.equal(after, net.between[0](net.attention[0](before, before)))
    assert Architecture.from_json(arch.to_json()) == arch and '"residual":false' in arch.to_json()
    assert Architecture(((2, 4),), residual=False) == Architecture(((2, 4),)), "with one layer there is none"
