"""The probes on networks whose answer is known: built by hand, untrained, and trained for a moment."""

import json

import pytest
import torch

from headcount.cli import main
from headcount.nets import Architecture, Transformer, load_net, save_net
from headcount.papers.infoflow import class_attention, contained
from headcount.tasks import LinearMax, PositionSum


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
