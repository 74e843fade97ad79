"""Rates side by side, decays with intervals and one-sided verdicts, and the trained comparison of curvature."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.papers.consistency.ball import Ball
from headcount.papers.consistency.decays import NOISY, QUIET, decay_of, one_sided
from headcount.papers.consistency.experiments import (
    BallRecipe,
    SmootherBlock,
    _functions,
    trained_errors,
)
from headcount.results.record import Record

KEPT = Path(__file__).parent.parent / "docs/data/reproduction"


def test_the_claim_is_impossible_at_one_dimension_sharp_at_two_and_loose_beyond():
    claimed, possible = ([rate(d).value for d in (1, 2, 3, 4)] for rate in (
        hc.consistency.consistency_rate, hc.consistency.lipschitz_rate))  # fmt: skip
    assert claimed == [1 / 2, 1 / 4, 1 / 6, 1 / 8] and possible == [1 / 3, 1 / 4, 1 / 5, 1 / 6]
    assert claimed[0] > possible[0] and claimed[1] == possible[1] and claimed[2] < possible[2]
    assert all(hc.consistency.spacing_rate(d) >= hc.consistency.consistency_rate(d).value for d in range(1, 9))
    assert "claimed, without a proof here" in str(hc.consistency.consistency_rate(2))


def test_a_planted_decay_lies_in_its_interval_in_ninety_of_a_hundred_studies():
    generator, lengths = np.random.default_rng(0), (64, 256, 1024, 4096)
    held = 0
    for _ in range(100):
        errors = np.exp(0.1 * generator.standard_normal((20, 4))) * np.array(lengths, float) ** -0.4
        found = decay_of(errors, lengths)
        held += found.low <= 0.4 <= found.high
    assert 90 <= held <= 99


def test_verdicts_are_one_sided():
    assert one_sided(decay_of(np.array([[1, 0.5], [1, 0.51]]), (1, 4)), 0.6) == "slower"
    assert one_sided(decay_of(np.array([[1, 0.5], [1, 0.51]]), (1, 4)), 0.4) == "not slower"


def test_the_claim_is_refuted_for_this_smoother_at_one_dimension_with_noise():
    """The small sibling of the committed run, which goes to 262144 tokens."""
    found = hc.consistency.decay(replace(NOISY[0], lengths=(256, 1024, 4096, 16384)), repetitions=20)
    assert found.verdict == "not comparable" and 1 / 3 < found.exponent.value < 0.45
    assert found.as_row()["possible"] == 1 / 3


def test_small_noise_makes_a_false_pass_at_one_dimension():
    short = replace(NOISY[0], noise=0.1, lengths=(64, 256, 1024, 4096))
    assert hc.consistency.decay(short, repetitions=8).exponent.high > 0.45


@pytest.mark.parametrize("case", (*NOISY[1:], *QUIET), ids=lambda c: c.name)
def test_the_claim_is_not_refuted_elsewhere(case):
    found = hc.consistency.decay(replace(case, lengths=(64, 256, 1024)), repetitions=6)
    assert found.verdict == "not slower"


def test_without_noise_no_rate_is_called_impossible():
    row = hc.consistency.decay(replace(QUIET[0], lengths=(64, 256)), repetitions=3).as_row()
    assert row["possible"] is None and row["claimed"] == 0.5


def test_the_committed_decays_are_of_twenty_repetitions_and_one_lies_below():
    record = Record.read(KEPT / "consistency_smoother.json")
    assert record.measured.setup["repetitions"] == 20 and not record.quick
    failed = [claim for claim in record.measured.claims if not claim.holds]
    assert len(record.measured.claims) == 8
    assert [claim.says.split(":")[0] for claim in failed] == [NOISY[0].name]
    cells = record.measured.tables["decay exponents"]
    assert cells[NOISY[0].name, "decay"][0] == pytest.approx(1 / 3, abs=0.03)  # what Lipschitz functions allow
    assert cells[QUIET[0].name, "low"][0] <= 1.0 <= cells[QUIET[0].name, "high"][0]  # the spacing of the points
    assert failed[0].ours.endswith("of one smoother: below it") and failed[0].statement == "ours"
    assert NOISY[0].lengths[-1] == 262144


def test_training_improves_the_block_in_every_curvature():
    recipe = BallRecipe(steps=15, batch=4, tests=32)
    for c in (0.0, 1.0):
        after, before = trained_errors(64, c, (0,), recipe)
        assert after < before


def test_seeds_side_by_side_are_trained_as_each_alone():
    recipe = BallRecipe(steps=10, batch=4, tests=16)
    together, _ = trained_errors(32, 1.0, (0, 3), recipe)
    assert together == pytest.approx([trained_errors(32, 1.0, (seed,), recipe)[0][0] for seed in (0, 3)], rel=1e-3)


def few_steps(curvature, *, unread=False):
    """A block's parameters after six steps of Adam; `unread`: channels beside the answer's start without a reader."""
    block = SmootherBlock(32, Ball(curvature), (0, 1)).double()
    if unread:
        with torch.no_grad():
            block.answer[:, :, [i for i in range(12) if i != 5]] = 0
    adam = torch.optim.Adam(block.parameters(), lr=3e-2)
    generator, recipe = torch.Generator().manual_seed(0), BallRecipe()
    for _ in range(6):
        tokens, truth = (part.double().expand(2, *part.shape) for part in _functions(4, 32, recipe, generator))
        adam.zero_grad()
        (block(tokens, 32) - truth).square().mean(dim=(1, 2)).sum().backward()
        adam.step()
    return torch.cat([p.detach().flatten() for p in block.parameters()])


def test_nearly_flat_space_is_trained_as_flat_space_and_would_not_be_with_channels_that_nobody_reads():
    assert (few_steps(1e-9) - few_steps(0.0)).abs().max() < 1e-3
    apart = [(few_steps(c, unread=True) - few_steps(0.0, unread=True)).abs().max() for c in (1e-4, 1e-5, 1e-6)]
    assert min(apart) > 3e-2, "a gradient of size c is a whole step of Adam, one of size 0 is none"


def test_a_planted_difference_of_curvature_is_seen_and_none_is_not():
    lengths, generator = [64, 128, 256, 512], np.random.default_rng(1)

    def row(c, power):
        noise = np.exp(0.02 * generator.standard_normal((5, 4)))
        return {"curvature": c, "lengths": lengths, "errors": (noise * np.array(lengths, float) ** -power).tolist()}

    verdict = hc.consistency.curvature_verdict([row(0.0, 0.3), row(1e-4, 0.3), row(1.0, 0.5)])
    assert verdict["made_a_difference"] == {"0.0001": False, "1": True} and verdict["any"]


def test_a_decay_needs_two_repetitions():
    with pytest.raises(ValueError, match="2 repetitions and 2 lengths, got 1"):
        hc.consistency.decay(QUIET[0], repetitions=1)
