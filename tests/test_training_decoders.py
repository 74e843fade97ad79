"""Decoders trained as a bank: the same as one by one, resumed the same as in one go, and they learn."""

import dataclasses

import pytest
import torch

from headcount.nets.causal import CausalTransformer, DecoderShape
from headcount.tasks.neighbours import Neighbour
from headcount.training.checkpoints import Checkpoint
from headcount.training.decoder_bank import DecoderBank, answer_loss
from headcount.training.decoding import STRETCH, DecoderMember, DecoderRecipe, train_decoders
from headcount.training.optimiser import schedule
from headcount.training.shuffling import seed_of

SHAPE = DecoderShape(((2, 4), (2, 4)), embed_dim=8, width=16, vocab=8, context=24)
SHORT = DecoderRecipe(steps=48, batch=8, lengths=(4, 8), evaluations=3, samples=16, dtype="float64")


@pytest.mark.parametrize("positions", ["absolute", "rotary", "none"])
def test_a_bank_gives_every_members_own_logits(positions):
    shape = dataclasses.replace(SHAPE, positions=positions)
    bank = DecoderBank(shape, [0, 1, 2], dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    ids, offset = torch.randint(8, (3, 4, 9), generator=g), torch.randint(15, (3, 4), generator=g)
    out = bank.logits(bank.named(), ids, offset)
    for k in range(3):
        torch.testing.assert_close(out[k], bank.module(k)(ids[k], offset[k]), rtol=0, atol=1e-12)


def test_nobody_looks_ahead_and_rotary_knows_distances_alone():
    net = CausalTransformer(dataclasses.replace(SHAPE, positions="rotary"), seed=0).double()
    ids = torch.randint(8, (2, 9), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 8
    torch.testing.assert_close(net(ids)[:, :6], net(changed)[:, :6], rtol=0, atol=1e-13)
    assert (net(ids)[:, 6:] - net(changed)[:, 6:]).abs().max() > 1e-3


def test_after_fifty_steps_a_bank_is_where_the_loop_is():
    members = [DecoderMember(Neighbour("right", "only"), seed=s, data_seed=s, lr=3e-3) for s in range(3)]
    recipe = dataclasses.replace(SHORT, steps=50)
    outcome = train_decoders(members, SHAPE, recipe)
    steps = recipe.stretches * STRETCH
    for k, member in enumerate(members):
        net = CausalTransformer(SHAPE, seed=member.seed).double()
        optimiser = torch.optim.AdamW(net.parameters(), lr=member.lr, weight_decay=member.weight_decay)
        made = 0
        for number in range(recipe.stretches):
            g = torch.Generator().manual_seed(seed_of("train", member.data_seed, number))
            strings = member.task.strings(STRETCH * recipe.batch, recipe.lengths, generator=g)
            spare = SHAPE.context - strings.ids.shape[1] + 1
            offsets = torch.randint(spare, (STRETCH, recipe.batch), generator=g)
            for i in range(STRETCH):
                made += 1
                rows = slice(i * recipe.batch, (i + 1) * recipe.batch)
                logits = net(strings.ids[rows], offsets[i])
                loss = answer_loss(logits[None], strings.targets[rows][None], strings.judged[rows][None]).sum()
                optimiser.zero_grad()
                loss.backward()
                rate = member.lr * float(schedule(torch.tensor(float(made), dtype=torch.float64), steps, recipe.warmup))
                for group in optimiser.param_groups:
                    group["lr"] = rate
                optimiser.step()
        for name, p in outcome.net(k).named().items():
            torch.testing.assert_close(p, net.named()[name], rtol=0, atol=1e-7)


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path, monkeypatch):
    members = [DecoderMember(Neighbour("left", "first"), seed=s) for s in range(2)]
    whole = train_decoders(members, SHAPE, SHORT, tests=((9, 12),))
    kept = Checkpoint(tmp_path / "state.safetensors", every=0)

    class CutError(Exception):
        pass

    def cut(steps: int) -> None:
        cut.made = getattr(cut, "made", 0) + 1  # pyright: ignore[reportFunctionMemberAccess]
        if cut.made == 3:  # pyright: ignore[reportFunctionMemberAccess]
            raise CutError

    with pytest.raises(CutError):
        train_decoders(members, SHAPE, SHORT, tests=((9, 12),), checkpoint=kept, on_progress=cut)
    resumed = train_decoders(members, SHAPE, SHORT, tests=((9, 12),), checkpoint=kept)
    assert torch.equal(resumed.bank.theta, whole.bank.theta)
    assert resumed.rows == whole.rows
    with pytest.raises(ValueError, match="state of another run"):
        train_decoders(members, SHAPE, dataclasses.replace(SHORT, batch=4), checkpoint=kept)


def test_decoders_learn_to_copy_the_only_neighbour():
    shape = dataclasses.replace(SHAPE, layers=((2, 16), (2, 16)), embed_dim=32, width=64)
    recipe = DecoderRecipe(steps=900, batch=64, lengths=(3, 6), evaluations=3, samples=256)
    outcome = train_decoders([DecoderMember(Neighbour("right", "only", letters=4), lr=4e-3)], shape, recipe)
    assert outcome.rows[0]["tests"][0]["strings"] > 0.6 > 1 / 4
    assert outcome.rows[0]["curve"][-1][1] < outcome.rows[0]["curve"][0][1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vocab": 7}, "more vocab"),
        ({"context": 12}, "more context"),
        ({"positions": "rotary", "layers": ((1, 3),)}, "even"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(change, says):
    with pytest.raises(ValueError, match=says):
        train_decoders([DecoderMember(Neighbour())], dataclasses.replace(SHAPE, **change), SHORT)
