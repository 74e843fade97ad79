"""The generalised induction head: within its certificate, attaining it, and the named case where nothing matched."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from headcount.certificates import Built, load
from headcount.papers.induction.networks import (
    MatchingNet,
    generalised_induction,
    matched_mean,
    soft_match_error,
    unmatched,
)
from headcount.tasks.ngrams import NGram, following_counts


def sampled(task: NGram, batch: int, seed: int = 0) -> torch.Tensor:
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).x


@torch.no_grad()
def rows(built: Built, x: torch.Tensor) -> torch.Tensor:
    assert isinstance(built.net, MatchingNet)
    return built.net.rows(x)


@pytest.mark.parametrize("parents", [(1,), (1, 2), (1, 3), (2,)])
@pytest.mark.parametrize("beta", [2.0, 8.0])
def test_every_sequence_is_within_the_bound_of_its_own_number_of_matches(parents, beta):
    task = NGram(parents=parents, length=100)
    built = generalised_induction(task, beta)
    x = sampled(task, 1000)
    x = x[~unmatched(x, parents)]
    gaps = (rows(built, x) - matched_mean(x, parents)).abs().amax(dim=1)
    matches = following_counts(x, parents).sum(dim=1).int().tolist()
    bounds = torch.tensor([soft_match_error(matches=m, length=100, gap=beta) for m in matches], dtype=torch.float64)
    assert (gaps <= bounds + 1e-12).all() and float((gaps / bounds).max()) > 0.5


def test_the_head_keeps_its_certificate_and_attains_it():
    """0 1 2 2 ... 2 0: one match, followed by 1; every other place holds another letter and agrees in nothing."""
    for beta in (1.0, 4.0, 9.0):
        built = generalised_induction(NGram(parents=(1,), length=30), beta)
        assert built.check().holds
        x = one_hot(torch.tensor([[0, 1, *[2] * 27, 0]]), 3).double()
        gap = float((rows(built, x) - matched_mean(x, (1,))).abs().max())
        assert gap <= built.certificate.error
        assert gap == pytest.approx(built.certificate.error, rel=1e-9)


def test_leaking_copies_are_paid_for():
    """A copier that puts a few percent on other lags: the promise grows, and holds."""
    task = NGram(parents=(1, 2), length=40)
    sharp, soft = generalised_induction(task, 6.0), generalised_induction(task, 6.0, sharpness=5.0)
    assert sharp.certificate["unequal copies"].value < 1e-15 < soft.certificate["unequal copies"].value
    x = sampled(task, 1500, seed=3)
    x = x[~unmatched(x, task.parents)]
    gaps = (rows(soft, x) - matched_mean(x, task.parents)).abs().max()
    assert 0.05 * soft.certificate.error < float(gaps) <= soft.certificate.error
    assert soft.check().holds


def test_where_nothing_matched_the_three_answers_are_three():
    """m = 0: best partial matches (the head), all letters (the product score), the uniform law (the posterior)."""
    task = NGram(parents=(1, 2), length=6)
    x = one_hot(torch.tensor([[0, 1, 0, 1, 2, 1]]), 3).double()  # pattern (1, 2) is new; 1 was followed by 0 and 2
    assert bool(unmatched(x, task.parents))
    head = rows(generalised_induction(task, 30.0), x)
    torch.testing.assert_close(head, torch.tensor([[0.5, 0, 0.5]], dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(matched_mean(x, task.parents), x.mean(dim=1))
    torch.testing.assert_close(task(x), torch.full((1, 3), 1 / 3, dtype=torch.float64))


def test_unmatched_sequences_are_rare_at_length_100():
    x = sampled(NGram(), 6000, seed=5)
    assert 0.002 < float(unmatched(x, (1, 2)).double().mean()) < 0.01


def test_the_begin_token_keeps_first_places_from_matching():
    """Without a begin token the first place would agree with letter 0; here its score lies a full gap below."""
    task = NGram(parents=(1,), length=4)
    x = one_hot(torch.tensor([[1, 0, 2, 0]]), 3).double()
    torch.testing.assert_close(
        rows(generalised_induction(task, 40.0), x), torch.tensor([[0, 0, 1.0]], dtype=torch.float64)
    )


def test_the_matched_mean_is_the_posterior_as_the_concentration_vanishes():
    x = sampled(NGram(), 200)
    x = x[~unmatched(x, (1, 2))]
    torch.testing.assert_close(NGram(concentration=1e-13)(x), matched_mean(x, (1, 2)), atol=1e-11, rtol=0)


def test_the_built_head_is_written_and_read(tmp_path):
    built = generalised_induction(NGram(length=12), 7.0)
    again = load(built.save(tmp_path / "head.safetensors"))
    x = sampled(NGram(length=12), 5)
    assert torch.equal(again.net(x), built.net(x)) and again.certificate.error == built.certificate.error


def test_a_broken_head_is_found_out():
    built = generalised_induction(NGram(length=30), 9.0)
    with torch.no_grad():
        built.net.get_parameter("copier")[1] = built.net.get_parameter("copier")[0]
    assert not built.check().holds


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: generalised_induction(NGram(), 0.0), "beta must be a finite number above 0"),
        (lambda: generalised_induction(NGram(), 5.0, sharpness=0.5), "take a larger one"),
        (lambda: soft_match_error(matches=0, length=5, gap=1.0), "with none the bound says nothing"),
    ],
)
def test_a_promise_that_cannot_be_made_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_the_first_form_of_the_bound_implies_the_second():
    for m in (1, 5, 50):
        assert soft_match_error(matches=m, length=100, gap=3.0) <= 100 * math.exp(-3.0) / m
