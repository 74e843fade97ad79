"""The probes on networks whose answer is known: built by hand, untrained, and trained for a moment."""

import json

import pytest
import torch

from headcount.cli import main
from headcount.nets import Architecture, Transformer, load_net, save_net
from headcount.papers.infoflow import asked_forms, class_attention, contained
from headcount.tasks import LinearMax, PairMax, PositionSum


def retrieving(token_dim: int = 2) -> Transformer:
    """A network whose first layer copies, at every token, the token with the largest first coordinate."""
    net = Transformer(Architecture(((1, 4), (1, 4)), width=8, embed_dim=6), token_dim, seed=0).double()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        for j in range(token_dim):  # state = (x_1, x_2, 1, ...) through pairs of hidden units
            net.encoder.inner.weight[2 * j, j], net.encoder.inner.weight[2 * j + 1, j] = 1.0, -1.0
            net.encoder.outer.weight[j, 2 * j], net.encoder.outer.weight[j, 2 * j + 1] = 1.0, -1.0
        net.encoder.outer.bias[2] = 1.0
        first = net.attention[0]
        first.query[0, 0, 2], first.key[0, 0, 0] = 200.0, 1.0
        for j in range(token_dim):
            first.value[0, j, j] = 1.0
            first.output[0, 3 + j, j] = 1.0
    return net


def test_a_retrieving_layer_contains_the_winner_and_not_the_runner_up():
    winner, runner_up = contained(retrieving(), LinearMax([[1.0, 0.0]], length=8))
    assert (winner.rank, runner_up.rank) == (1, 2)
    assert winner.gap < 0.01 and winner.ratio < 0.05
    assert runner_up.gap > 0.3


def test_an_untrained_network_has_ratio_one_with_itself():
    arch = Architecture(((2, 4), (1, 4)), width=8)
    net = Transformer(arch, 2, seed=10_000)
    assert all(row.ratio == pytest.approx(1.0) for row in contained(net, LinearMax([[1.0, 0.0]], length=6)))


def test_class_attention_is_a_distribution_over_positions():
    net = Transformer(Architecture(((2, 4),), width=8, positions=2), 2, seed=0)
    for row in class_attention(net, PositionSum((0, 1), length=5)):
        assert sum(row.mean) == pytest.approx(1.0, abs=1e-6) and len(row.mean) == 5


def test_layers_without_attending_tokens_are_refused():
    net = Transformer(Architecture(((2, 4),), width=8), 2, seed=0)
    with pytest.raises(ValueError, match="layer must lie"):
        contained(net, PositionSum((0,), length=4))
    with pytest.raises(ValueError, match="layer must lie"):
        class_attention(net, PositionSum((0,), length=4), layer=2)


def test_a_kept_network_is_the_same_network(tmp_path):
    net = Transformer(Architecture(((2, 4), (1, 3)), width=8, positions=2), 2, seed=3)
    again = load_net(save_net(net, tmp_path / "net.safetensors"))
    x = torch.randn(3, 5, 2)
    assert torch.equal(net(x), again(x)) and again.arch == net.arch


def test_the_command_trains_keeps_and_probes(capsys, tmp_path):
    kept = str(tmp_path / "net.safetensors")
    task = ["PositionSum", "--with", "positions=[0,1]", "--length", "4"]
    trained = ["probe", *task, "--layers", "1x4+1x4", "--positions", "3", "--epochs", "1", "--save", kept, "--json"]
    for arguments in (trained, ["probe", *task, "--net", kept, "--json"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert not left.value.code
        found = json.loads(capsys.readouterr().out)
        assert len(found["contains"]) == 2 and len(found["attends"][0]["mean"]) == 4


def test_probing_nothing_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["probe", "PositionSum", "--with", "positions=[0]", "--length", "4"])
    assert left.value.code == 2 and "--layers" in capsys.readouterr().err


def asking(task: PairMax, wanted: list[tuple[int, bool, float]]) -> Transformer:
    """A network whose heads score pairs by given forms: the states are the tokens, keys carry the form."""
    arch = Architecture(((len(wanted), 9), (1, 4)), width=8, embed_dim=9, embedding="linear")
    net = Transformer(arch, task.token_dim, seed=0).double()
    A, d = torch.tensor(task.matrices, dtype=torch.float64), task.token_dim
    with torch.no_grad():
        net.encoder.weight.zero_()
        net.encoder.weight[:d] = torch.eye(d)
        net.attention[0].query.zero_()
        for head, (look_up, turned, sharpness) in enumerate(wanted):
            form = A[look_up - 1].T if turned else A[look_up - 1]
            net.attention[0].query[head, :d, :d] = 3 * sharpness * torch.eye(d)  # the scale is 1 / 3
            net.attention[0].key[head, :d, :d] = form
    return net


def test_the_form_that_a_head_asks_is_read_off_its_matrices():
    task = PairMax.random(3, 4, 8)
    wanted = [(2, True, 4.0), (1, False, 0.5), (1, True, 2.0), (3, False, 1.0)]
    found = asked_forms(asking(task, wanted), task)
    assert [(a.head, a.look_up, a.turned) for a in found] == [(i + 1, k, t) for i, (k, t, _) in enumerate(wanted)]
    assert [a.sharpness for a in found] == pytest.approx([s for *_, s in wanted])
    assert [a.cosine for a in found] == pytest.approx([1.0] * 4)


def test_a_head_that_asks_two_forms_at_once_is_nearest_to_the_larger_and_far_from_both():
    task = PairMax([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]], length=8)
    net = asking(task, [(1, False, 1.0)])
    with torch.no_grad():
        net.attention[0].key[0, :2, :2] = torch.tensor([[2.0, 1.0], [0.0, 0.0]])
    (one,) = asked_forms(net, task)
    assert (one.look_up, one.sharpness) == (1, pytest.approx(2.0)) and one.cosine == pytest.approx(0.8**0.5)


def test_a_form_is_not_read_where_hidden_units_come_first_and_nothing_is_asked_by_zeros():
    task = PairMax([[[0.0, 0.0], [0.0, 0.0]]], length=4)
    with pytest.raises(ValueError, match="enter by one matrix"):
        asked_forms(retrieving(), task)
    (zero,) = asked_forms(asking(PairMax.random(1, 2, 4), [(1, False, 0.0)]), task)
    assert (zero.cosine, zero.sharpness) == (0.0, 0.0)
    with pytest.raises(ValueError, match="tokens have 2 numbers"):
        asked_forms(asking(PairMax.random(1, 2, 4), [(1, False, 0.0)]), PairMax.random(1, 3, 4))


def test_the_command_says_which_look_up_each_head_serves(tmp_path, capsys):
    task = PairMax.random(2, 2, 6)
    save_net(asking(task, [(2, True, 4.0), (1, False, 1.5)]), tmp_path / "net.safetensors")
    about = ["--with", "retrievals=2", "--length", "6", "--net", str(tmp_path / "net.safetensors")]
    with pytest.raises(SystemExit) as left:
        main(["probe", "PairMax", *about, "--json"])
    assert not left.value.code
    found = json.loads(capsys.readouterr().out)["asks"]
    assert [(a["head"], a["look_up"], a["turned"]) for a in found] == [(1, 2, True), (2, 1, False)]
    with pytest.raises(SystemExit):
        main(["probe", "PairMax", *about])
    assert "Which look-up each head of layer 1 serves" in capsys.readouterr().out
