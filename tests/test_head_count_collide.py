"""Collisions: they are real, grow exponentially with the free positions, and are not there with enough heads."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from headcount.certificates import load
from headcount.nets import Architecture, Transformer, hardmax, softmax
from headcount.nets.transformer import Attention
from headcount.papers.head_count import collide, enough_heads
from headcount.papers.head_count.collisions.picture import draw
from headcount.papers.head_count.collisions.placement import place
from headcount.papers.head_count.networks.minima import minima_of
from headcount.tasks import LinearMax, Wells

TASK = Wells(centres=[[0.0, 0.0], [1.0, 1.0]], length=64)


class Smooth(nn.Module):
    """Random smooth heads: the encoder is a sum of waves in token and position."""

    def __init__(self, heads, head_dim, seed, weigh=None):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        E = heads * head_dim

        def draw(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.waves, self.places, self.phases, self.mix = 5 * draw(16, 2), 70 * draw(16), 6 * draw(16), draw(E, 16) / 4
        self.cls = nn.Parameter(draw(E))
        self.attention = nn.ModuleList([Attention(E, heads, head_dim, weigh or softmax(1.0)).double()])
        with torch.no_grad():
            for p in self.attention.parameters():
                p.copy_(draw(*p.shape) / math.sqrt(E))

    def encode(self, x):
        t = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / x.shape[1]
        return torch.cos(x @ self.waves.T + t * self.places + self.phases) @ self.mix.T

    def attended(self, x):
        cls = self.cls.expand(len(x), 1, -1)
        return (cls + self.attention[0](cls, self.encode(x)))[:, 0]


def test_steepness_grows_exponentially_with_free_positions():
    free = (4, 6, 8, 10)
    found = [[collide(TASK, Smooth(1, 2, seed), free=f).steepness for f in free] for seed in range(5)]
    slope = np.polyfit(free, np.log(np.median(found, axis=0)), 1)[0]
    # The pigeonhole alone gives log(levels)/(n s) = 0.55 a position; more means luck, less means no growth.
    assert 0.55 <= slope <= 2.0


def test_wider_heads_are_harder_to_confuse():
    steep = {n: np.median([collide(TASK, Smooth(1, n, seed), free=8).steepness for seed in range(3)]) for n in (2, 4)}
    assert steep[2] > 3 * steep[4]


def test_the_two_sequences_are_what_the_numbers_say():
    net = Smooth(1, 2, 0)
    collision = collide(TASK, net, free=8)
    both = torch.stack([collision.first, collision.second])
    assert ((both >= 0) & (both <= 1)).all()
    y = TASK(both)
    assert float((y[0] - y[1]).abs()) == collision.target_gap
    states = net.attended(both).detach()
    assert float((states[0] - states[1]).norm()) == pytest.approx(collision.attention_distance, rel=1e-6)
    bound = collision.width(eps=collision.target_gap / 4)
    assert bound.value == pytest.approx(collision.steepness / 2 / math.sqrt(2), rel=1e-9)
    assert collision.width(eps=collision.target_gap).value == 0
    assert collision.collides()


def test_exhaustive_search_finds_the_best_pair_there_is():
    net, free, levels = Smooth(1, 2, 3), 4, 3
    placement = place(minima_of(TASK), net, free=free, levels=levels)
    fillings = [placement.filled(list(c)) for c in product(range(levels), repeat=free)]
    x = torch.stack(fillings)
    y, states = TASK(x), net.attended(x).detach()
    gaps = (y[:, None] - y).abs()
    steepest = float(
        (gaps / torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist").clamp(min=1e-300)).max()
    )
    assert collide(TASK, net, free=free, levels=levels).steepness >= steepest * (1 - 1e-6)


def test_meeting_in_the_middle_comes_near_the_exhaustive_answer(monkeypatch):
    import headcount.papers.head_count.collisions.collision as room

    net = Smooth(1, 2, 1)
    best = collide(TASK, net, free=10)
    monkeypatch.setattr(room, "EXHAUSTIVE", 4)
    met = collide(TASK, net, free=10)
    assert met.looked_at < best.looked_at
    assert best.steepness / 100 <= met.steepness <= best.steepness * (1 + 1e-6)


@pytest.mark.slow
def test_twenty_free_positions_are_within_reach():
    collision = collide(TASK, Smooth(1, 2, 0), free=20)
    assert collision.steepness > 1e6
    assert len(collision.placement.free) == 20


def test_a_random_a_trained_and_a_loaded_transformer_collide(tmp_path):
    arch = Architecture(layers=((1, 2),), width=16, positions=3)
    net = Transformer(arch, 2, seed=0)
    before = collide(TASK, net, free=6)
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(30):
        x, y = TASK.sample(64, generator=torch.Generator().manual_seed(step))
        loss = (net(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = collide(TASK, net, free=6)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    again = Transformer(arch, 2)
    again.load_state_dict(torch.load(tmp_path / "net.pt"))
    assert before.collides()
    assert after.collides()
    assert after.steepness != before.steepness
    assert collide(TASK, again, free=6).steepness == after.steepness


@pytest.mark.parametrize("free", [4, 8, 10])
def test_enough_heads_leave_no_collision(free, tmp_path):
    for task in (TASK, Wells(centres=[[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]], length=48)):
        built = load(enough_heads(task, 1e-4).save(tmp_path / "net.safetensors"))
        collision = collide(task, built.net, free=free)
        assert collision.target_gap > 2 * built.certificate.error
        # F_0 is a sum: a target gap is seen whole in one average, up to the promised error.
        assert 0.5 <= collision.steepness <= 1.1
        assert not collision.collides(built.certificate.error)


def test_linear_maxima_collide_on_a_box():
    task = LinearMax(directions=[[1.0, 0.5], [-1.0, 0.5], [0.3, -1.0]], length=32)
    net = Transformer(Architecture(layers=((2, 2),), width=16, positions=3), 2, seed=0)
    collision = collide(task, net, free=6, radius=2.0)
    assert collision.collides()
    both = torch.stack([collision.first, collision.second])
    assert collision.target_gap == pytest.approx(float(task(both).diff().abs()), rel=1e-12)
    assert both.abs().max() <= 2.0


def test_every_free_token_is_ordered_below_all_fixed_ones():
    minima = minima_of(TASK)
    placement = place(minima, Smooth(1, 2, 0), free=5, levels=3)
    f = minima.features(placement.tokens)[..., placement.retrieval].flatten()
    assert (f.diff() > 0).all()
    fixed = minima.features(placement.fixed)[:, placement.retrieval]
    assert fixed.min() > f.max()
    assert len(placement.favourites) == 1


def test_the_picture_is_the_same_twice_and_shows_every_token_of_both_sequences():
    collision = collide(TASK, Smooth(1, 2, 0), free=5)
    one = draw(collision, TASK).standalone()
    assert one == draw(collision, TASK).standalone()
    differ = int((collision.first != collision.second).any(dim=-1).sum())
    shown = len(collision.first) + differ  # a ring and a cross (two strokes) for each, in both panels
    assert one.count('class="ring ks0"') == shown and one.count('class="ring ks1"') == 2 * shown
    assert "Where they differ" in one and "<?xml" not in one


def test_misuse_is_refused_by_name():
    net = Smooth(1, 2, 0)
    with pytest.raises(ValueError, match="at least 2 retrievals"):
        collide(Wells(centres=[[0.0, 0.0]], length=32), net)
    with pytest.raises(ValueError, match="has 6 positions free at length 8, not 12"):
        collide(Wells(centres=[[0.0, 0.0], [1.0, 1.0]], length=8), net)
    with pytest.raises(ValueError, match="levels at least 2"):
        collide(TASK, net, levels=1)
    with pytest.raises(ValueError, match="this network has 2"):
        collide(TASK, Transformer(Architecture(layers=((1, 2), (1, 2))), 2, seed=0))
    with pytest.raises(ValueError, match="softmax attention"):
        collide(TASK, Smooth(1, 2, 0, weigh=hardmax))
    with pytest.raises(ValueError, match="not a class-token transformer"):
        collide(TASK, nn.Linear(2, 2))
    with pytest.raises(ValueError, match="shares its minimiser"):
        collide(LinearMax([[1.0, 0.5], [0.5, 1.0]], 32), net)
