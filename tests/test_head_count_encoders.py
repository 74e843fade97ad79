"""Encoders of one shape trained together: each is its own network, and what they read is what they should."""

import dataclasses

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from headcount.kernels.bank import Bank
from headcount.results.journal import Deadline, Journal
from studies.head_count.encoders import EXPAND, MarkedShape, accuracies, encoder_members, scores

SMALL = MarkedShape(features=3, heads=2, head_dim=4, depth=2, marks=tuple(range(6)), outputs=4)


def scored(bank, x):
    return scores(bank.net, bank.named(), x)


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
    both, alone = Bank([SMALL] * 2, [3, 5]), Bank([SMALL], [5])
    assert torch.allclose(scored(both, x.expand(2, -1, -1, -1))[1], scored(alone, x)[0], atol=1e-6)
    assert torch.allclose(both.module(1)(x[0]), scored(alone, x)[0], atol=1e-6)


def test_training_in_company_is_training_alone():
    members, unseen = encoder_members(SMALL, [(0, 1e-3), (1, 1e-2)]), Points(64, 1)
    together, alone = (accuracies(some, Points(64, 0), unseen, 3, 16) for some in (members, members[1:]))
    assert [part[1] for part in together] == pytest.approx([part[0] for part in alone])


def test_a_learnable_task_is_learned_and_every_epoch_begins_once():
    data = Points(256, 0)
    seen, unseen = accuracies(encoder_members(SMALL, [(0, 1e-2)]), data, Points(256, 1), epochs=15, batch=32)
    assert seen[0] > 0.9 and unseen[0] > 0.85
    epochs = [epoch for epoch, _ in data.begun]
    assert epochs[-16:] == [*range(15), -1] and set(epochs[:-16]) == {0}  # before it, the first batch is looked at


def test_one_block_is_attention_and_feed_forward_by_hand():
    shape = dataclasses.replace(SMALL, depth=1)
    bank = Bank([shape], [0])
    p = {name: value[0] for name, value in bank.named().items()}
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    state = torch.cat([torch.zeros(2, 1, 8), x @ p["input"].T], dim=1) + p["marks"]
    norm = lambda s: (s - s.mean(-1, keepdim=True)) / (s.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()  # noqa: E731
    q, k, v = (norm(state) @ p["0.qkv"].T + p["0.qkv+"]).split(8, dim=-1)
    heads = [scaled_dot_product_attention(*(t[..., 4 * h : 4 * h + 4] for t in (q, k, v))) for h in range(2)]
    state = state + torch.cat(heads, -1) @ p["0.out"].T + p["0.out+"]
    inner = torch.nn.functional.gelu(norm(state) @ p["0.up"].T + p["0.up+"])
    assert inner.shape[-1] == EXPAND * 8
    state = state + inner @ p["0.down"].T + p["0.down+"]
    assert torch.allclose(scored(bank, x[None])[0], norm(state)[:, 0] @ p["read_out"].T, atol=1e-5)


def test_candidates_are_scored_whatever_their_order():
    shape = MarkedShape(3, 2, 4, 2, (0, 1, 1, 1, 1), 1, "other tokens", class_token=False)
    bank = Bank([shape], [0])
    x = torch.randn(1, 6, 5, 3, generator=torch.Generator().manual_seed(2))
    turned = torch.cat([x[:, :, :1], x[:, :, 1:].flip(2)], dim=2)
    assert torch.allclose(scored(bank, x).flip(2), scored(bank, turned), atol=1e-5)


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
