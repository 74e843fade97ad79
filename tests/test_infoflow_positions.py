"""Networks that read by place: sums, retrievals collected by position, and the induction head."""

import pytest
import torch

from headcount.certificates import load
from headcount.papers.infoflow import induction_head, position_sum, retrievals_by_position
from headcount.tasks import Induction, LinearMax, PositionSum


def test_position_sum_attains_its_certificate():
    built = position_sum(PositionSum((0, 1, 2), length=10))
    check = built.check()
    assert check.holds
    assert check.gap > 0.999 * built.certificate["mass outside"].value


def test_position_sum_attends_a_third_to_each_of_three_positions():
    task = PositionSum((0, 1, 2), length=10)
    built = position_sum(task)
    tokens = built.net.encode(task.sample(4, dtype=torch.float64)[0])
    weights = built.net.attention[0].weights(built.net.cls.expand(4, 1, -1), tokens)[:, 0, 0]
    assert torch.allclose(weights[:, :3], torch.full((4, 3), 1 / 3, dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize(("retrievals", "length"), [(2, 8), (5, 12)])
def test_two_layers_of_one_head_solve_all_retrievals(retrievals, length):
    built = retrievals_by_position(LinearMax.random(retrievals, 3, length), eps=0.1)
    check = built.check()
    assert check.holds
    assert check.gap > built.certificate.error / 2
    assert built.net.shape.layers == ((1, retrievals), (1, retrievals))


def test_more_retrievals_than_positions_are_refused():
    with pytest.raises(ValueError, match="needs a position of its own"):
        retrievals_by_position(LinearMax.random(5, 3, 4))


@pytest.mark.parametrize(("vocab", "length"), [(2, 6), (5, 16)])
def test_the_induction_head_keeps_and_nears_its_certificate(vocab, length):
    built = induction_head(Induction(vocab, length), eps=0.02)
    check = built.check()
    assert check.holds
    assert check.gap > built.certificate.error / 2


def test_a_saved_induction_head_promises_the_same(tmp_path):
    built = induction_head(Induction(3, 8), eps=0.02)
    again = load(built.save(tmp_path / "head.safetensors"))
    assert again.certificate.error == built.certificate.error
    assert again.check().holds
