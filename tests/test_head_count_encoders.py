"""Encoders of one shape trained together: each is its own network, and what they read is what they should."""

import dataclasses

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from headcount.papers.head_count.encoders import (
    EXPAND,
    EncoderPlan,
    EncoderRun,
    Encoders,
    EncoderShape,
    other_tokens,
    train,
)
from headcount.results.journal import Deadline, Journal

SMALL = EncoderShape(features=3, heads=2, head_dim=4, layers=2, marks=tuple(range(6)), outputs=4)


class Points:
    """Which quadrant the first token lies in: learnable in a few steps."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.count, self.x = count, torch.randn(count, 5, 3, generator=g)
        self.labels = 2 * (self.x[:, 0, 0] > 0) + (self.x[:, 0, 1] > 0)
        self.begun = []

    def begin(self, epoch, seeds):
        self.begun.append((epoch, tuple(seeds)))

    def batch(self, rows):
        return self.x[rows], self.labels[rows].long()


def test_a_network_is_the_same_alone_and_in_company():
    x = torch.randn(1, 7, 5, 3, generator=torch.Generator().manual_seed(0))
    both, alone = Encoders(SMALL, [3, 5]), Encoders(SMALL, [5])
    assert torch.allclose(both(both.theta, x.expand(2, -1, -1, -1))[1], alone(alone.theta, x)[0], atol=1e-6)


def test_training_in_company_is_training_alone():
    data, held_out, plan = Points(64, 0), Points(64, 1), EncoderPlan(epochs=3, batch=16)
    together = train(SMALL, [EncoderRun(0), EncoderRun(1, 1e-2)], data, held_out, plan)
    alone = train(SMALL, [EncoderRun(1, 1e-2)], data, held_out, plan)
    assert [part[1] for part in together] == pytest.approx([part[0] for part in alone])


def test_a_learnable_task_is_learned_and_every_epoch_begins_once():
    data = Points(256, 0)
    seen, unseen = train(SMALL, [EncoderRun(0, 1e-2)], data, Points(256, 1), EncoderPlan(epochs=15, batch=32))
    assert seen[0] > 0.9 and unseen[0] > 0.85
    assert [epoch for epoch, _ in data.begun] == [0, *range(15), -1]


def test_one_block_is_attention_and_feed_forward_by_hand():
    shape = dataclasses.replace(SMALL, layers=1)
    bank = Encoders(shape, [0])
    p = {name: value[0] for name, value in bank.named(bank.theta).items()}
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    state = torch.cat([torch.zeros(2, 1, 8), x @ p["input"].T], dim=1) + p["marks"]
    norm = lambda s: (s - s.mean(-1, keepdim=True)) / (s.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()  # noqa: E731
    q, k, v = (norm(state) @ p["0.qkv"].T + p["0.qkv+"]).split(8, dim=-1)
    heads = [scaled_dot_product_attention(*(t[..., 4 * h : 4 * h + 4] for t in (q, k, v))) for h in range(2)]
    state = state + torch.cat(heads, -1) @ p["0.out"].T + p["0.out+"]
    inner = torch.nn.functional.gelu(norm(state) @ p["0.up"].T + p["0.up+"])
    assert inner.shape[-1] == EXPAND * 8
    state = state + inner @ p["0.down"].T + p["0.down+"]
    assert torch.allclose(bank(bank.theta, x[None])[0], norm(state)[:, 0] @ p["read_out"].T, atol=1e-5)


def test_candidates_are_scored_whatever_their_order():
    shape = EncoderShape(3, 2, 4, 2, (0, 1, 1, 1, 1), 1, other_tokens, class_token=False)
    bank = Encoders(shape, [0])
    x = torch.randn(1, 6, 5, 3, generator=torch.Generator().manual_seed(2))
    turned = torch.cat([x[:, :, :1], x[:, :, 1:].flip(2)], dim=2)
    assert torch.allclose(bank(bank.theta, x).flip(2), bank(bank.theta, turned), atol=1e-5)


def test_kept_cells_are_found_again_and_a_cut_line_is_passed_over(tmp_path):
    kept = Journal(tmp_path / "cells.jsonl")
    kept.add({"heads": 1}, [0.5])
    with kept.path.open("a") as file:
        file.write('{"of": {"heads": 2}, "fou')
    again = Journal(kept.path)
    assert again.find({"heads": 1}) == [0.5] and again.find({"heads": 2}) is None


def test_a_deadline_counts_epochs_and_none_is_no_limit():
    assert Deadline(None).epochs(1.0, 5, least=2, most=30) == 30 and not Deadline(None).passed
    assert Deadline(0.001).epochs(1.0, 5, least=2, most=30) == 2
