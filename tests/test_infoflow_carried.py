"""More retrievals than layers times heads, without positions: a certificate against Conjecture 1's count."""

import pytest
import torch

from headcount.nets import Architecture
from headcount.papers.infoflow import carried_retrievals, predict
from headcount.structure import Retrieval, Structure
from headcount.tasks import LinearMax


def test_two_layers_of_one_head_solve_three_retrievals_without_positions():
    built = carried_retrievals(LinearMax.random(3, 3, 8), eps=0.1)
    check = built.check()
    assert built.net.shape.layers == ((1, 2), (1, 2))
    assert check.holds
    assert check.gap > built.certificate.error / 2


@pytest.mark.parametrize(("retrievals", "heads"), [(1, 1), (2, 1), (4, 2), (6, 2)])
def test_three_retrievals_a_head_and_fewer(retrievals, heads):
    built = carried_retrievals(LinearMax.random(retrievals, 3, 6), eps=0.2, heads=heads)
    assert built.check().holds
    assert built.net.shape.layers == ((heads, 2), (heads, 2))


def test_the_network_uses_no_positions():
    task = LinearMax.random(3, 3, 8)
    net = carried_retrievals(task, eps=0.1).net
    x = task.sample(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    shuffled = x[:, torch.randperm(8, generator=torch.Generator().manual_seed(1))]
    assert torch.allclose(net(x), net(shuffled), atol=1e-9)


def test_a_fourth_retrieval_is_refused():
    with pytest.raises(ValueError, match="3 x 1 retrievals, and the task has 4"):
        carried_retrievals(LinearMax.random(4, 3, 8), heads=1)


def test_the_calculus_counts_what_rides_along_and_no_more():
    arch = Architecture(((1, 8), (1, 8)), embed_dim=16)
    three, four = (predict(LinearMax.random(D, 4, 64), arch) for D in (3, 4))
    assert (three.verdict, three.warrant) == ("cheap", "constructed")
    assert {"hold", "ride"} <= {step.act for step in three.plan}
    assert (four.verdict, four.warrant) == ("costly", "calculus")


@pytest.mark.parametrize("kind", [{"beside": (1,)}, {"beside": (1,), "summed": 1}, {"offset": 1}])
@pytest.mark.parametrize("length", [8, 64, 1000])
def test_a_look_aside_takes_a_score_of_rank_two(kind, length):
    """By q_t k_s every token ranks the keys alike or in reverse, so that all together find at most two tokens."""
    target = Structure(length, 1, (Retrieval("r", **kind),))
    verdicts = [predict(target, Architecture(((1, n), (1, 2)), positions=3, embed_dim=4)).cheap for n in (1, 2)]
    assert verdicts == [False, True]
    queries, keys = torch.randn(2, length, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert len((queries @ keys.T).argmax(1).unique()) <= 2
    angle = 2 * torch.pi * torch.arange(length, dtype=torch.float64) / length
    circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    assert (circle.roll(-1, 0) @ circle.T).argmax(1).equal(torch.arange(length).roll(-1))


@pytest.mark.parametrize(("token_dim", "head_dim"), [(3, 2), (5, 2), (8, 3), (4, 4), (7, 2)])
def test_heads_that_look_at_one_place_carry_its_numbers_in_parts(token_dim, head_dim):
    """As many heads as hold all its numbers; a score that compares as many stays in one head."""
    aside = Structure(64, token_dim, (Retrieval("r", beside=(1,)),))
    needed = -(-token_dim // head_dim)

    def cheap(heads, target=aside):
        shape = Architecture(((heads, head_dim), (1, head_dim)), positions=3, embed_dim=64)
        return predict(target, shape).cheap

    assert [cheap(heads) for heads in range(1, needed + 2)] == [False] * (needed - 1) + [True] * 2
    first = predict(aside, Architecture(((needed, head_dim), (1, head_dim)), positions=3, embed_dim=64)).plan[0]
    assert first.heads == (1, needed) and first.carries * needed >= token_dim and first.carries <= head_dim
    one_number = Structure(64, token_dim, (Retrieval("r", beside=(1,), summed=1),))
    assert cheap(1, one_number)


@pytest.mark.parametrize(
    ("kind", "numbers"), [({"rank": 3}, 1), ({"order": 2}, 8), ({"count": 2}, 2), ({"count": 9}, 8)]
)
def test_what_is_gathered_for_scores_of_tokens_themselves_is_the_scores(kind, numbers):
    """Constant attention to <a, x_t> e_t gathers all T scores in T dimensions, exactly, whatever token_dim is."""
    length, d, dims = 12, 8, 4
    target = Structure(length, d, (Retrieval("r", **kind),))
    arch = Architecture(((1, dims),), positions=2)
    assert predict(target, arch).exponent == length * numbers / dims
    x = torch.randn(5, length, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    direction, places = torch.linspace(-1, 1, d, dtype=torch.float64), torch.eye(length, dtype=torch.float64)
    gathered = length * ((x @ direction)[..., None] * places).mean(1)
    assert torch.allclose(gathered.sort().values, (x @ direction).sort().values)
    wide = Architecture(((1, length * numbers),), positions=2)
    said = predict(target, wide)
    assert said.cheap and "a read-out that looks up among all numbers" in str(said.claim("x"))
