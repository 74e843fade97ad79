"""Networks of other kinds trained as a bank: the same as one by one, resumed the same as in one go, and they learn."""

import contextlib
import dataclasses
import json

import pytest
import torch

from headcount.kernels.backend import eager
from headcount.kernels.bank import Bank
from headcount.kernels.next_letter import NextLetter, StringBatch, answer_loss, logits
from headcount.kernels.rate_schedule import COSINE
from headcount.nets.causal import CausalTransformer, DecoderShape
from headcount.papers.icl.contexts import InContext
from headcount.papers.icl.experiments import ReaderCell, ReaderRecipe, train_readers
from headcount.papers.icl.readers import Answering, ContextBatch, ReaderShape
from headcount.results import Store, Study
from headcount.tasks.letters import OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training import Member, Sweep, train
from headcount.training.checkpoints import Checkpoint
from headcount.training.kept_networks import network_of
from headcount.training.shuffling import seed_of
from headcount.training.strings import CHUNK, string_recipe
from headcount.training.sweeps import run
from studies.head_count.encoders import LabelledBatch, Labelling, MarkedShape, accuracies, encoder_members

SHAPE = DecoderShape(((2, 4), (2, 4)), embed_dim=8, width=16, vocab=8, context=24)
SHORT = string_recipe(steps=48, batch=8, evaluations=3, samples=16, dtype="float64")


def decoders(task, seeds, shape=SHAPE, lr=1e-3, **lengths):
    on = OnLengths(task, **{"train": (4, 8), **lengths})
    return [Member(on, shape, seed=s, data_seed=s, lr=lr, weight_decay=1e-2) for s in seeds]


class CutError(Exception):
    """The end of a process, at a moment of our choice."""


def cut_after(calls):
    """Go on so many times, then stop dead."""
    made = []

    def cut(steps: int) -> None:
        made.append(steps)
        if len(made) == calls:
            raise CutError

    return cut


@pytest.mark.parametrize("positions", ["absolute", "rotary", "none"])
def test_a_bank_gives_every_members_own_logits(positions):
    shape = dataclasses.replace(SHAPE, positions=positions)
    bank = Bank([shape] * 3, [0, 1, 2], dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    ids, offset = torch.randint(8, (3, 4, 9), generator=g), torch.randint(15, (3, 4), generator=g)
    out = logits(shape, bank.named(), ids, offset)
    batch = StringBatch(ids, ids, ids >= 0, offset, torch.full((3,), 36))
    assert torch.equal(NextLetter().output(bank, bank.named(), batch), out)
    for k in range(3):
        torch.testing.assert_close(out[k], bank.module(k)(ids[k], offset[k]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_a_bank_gives_every_readers_own_answers(attention):
    shape = ReaderShape(2, 8, 4, attention)
    bank = Bank([shape] * 3, [0, 1, 2], dtype=torch.float64)
    tokens = torch.randn(3, 5, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out = Answering().output(bank, bank.named(), ContextBatch(tokens, tokens[:, :, 6:, 0], examples=6))
    for k in range(3):
        torch.testing.assert_close(out[k], bank.module(k)(tokens[k], examples=6), rtol=0, atol=1e-12)
    assert (out[0] - out[1]).abs().max() > 1e-3


@pytest.mark.parametrize("read_at", ["first token", "other tokens"])
def test_a_bank_gives_every_encoders_own_scores(read_at):
    outputs = 4 if read_at == "first token" else 1
    shape = MarkedShape(3, 2, 4, 2, tuple(range(6)), outputs, read_at)
    bank = Bank([shape] * 3, [0, 1, 2])
    x = torch.randn(3, 7, 5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(3, 7, dtype=torch.int64)
    out = Labelling().output(bank, bank.named(), LabelledBatch(x, labels))
    for k in range(3):
        torch.testing.assert_close(out[k], bank.module(k)(x[k]), rtol=0, atol=1e-5)
    assert (out[0] - out[1]).abs().max() > 1e-3


def test_nobody_looks_ahead_and_rotary_knows_distances_alone():
    net = CausalTransformer(dataclasses.replace(SHAPE, positions="rotary"), seed=0).double()
    ids = torch.randint(8, (2, 9), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 8
    torch.testing.assert_close(net(ids)[:, :6], net(changed)[:, :6], rtol=0, atol=1e-13)
    assert (net(ids)[:, 6:] - net(changed)[:, 6:]).abs().max() > 1e-3


def test_after_fifty_steps_a_bank_is_where_the_loop_is():
    members = decoders(Neighbour("right", "only"), range(3), lr=3e-3)
    recipe = string_recipe(steps=50, batch=8, evaluations=3, samples=16, dtype="float64")
    outcome = train(members, recipe)
    assert recipe.steps == 64 == outcome.rows[0]["steps"]
    for k, member in enumerate(members):
        net = CausalTransformer(SHAPE, seed=member.seed).double()
        optimiser = torch.optim.AdamW(net.parameters(), lr=member.lr, weight_decay=member.weight_decay)
        made = 0
        for number in range(recipe.steps // CHUNK):
            g = torch.Generator().manual_seed(seed_of("train", member.data_seed, number))
            strings = member.task.task.strings(CHUNK * recipe.batch, member.task.train, generator=g)
            spare = SHAPE.context - strings.ids.shape[1] + 1
            offsets = torch.randint(spare, (CHUNK, recipe.batch), generator=g)
            for i in range(CHUNK):
                made += 1
                rows = slice(i * recipe.batch, (i + 1) * recipe.batch)
                said = net(strings.ids[rows], offsets[i])
                loss = answer_loss(said[None], strings.targets[rows][None], strings.judged[rows][None]).sum()
                optimiser.zero_grad()
                loss.backward()
                step = torch.tensor(float(made), dtype=torch.float64)
                for group in optimiser.param_groups:
                    group["lr"] = member.lr * float(COSINE.share(step, recipe.steps, recipe.warmup))
                optimiser.step()
        for name, p in outcome.net(k).named().items():
            torch.testing.assert_close(p, net.named()[name], rtol=0, atol=1e-7)


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path):
    members = decoders(Neighbour("left", "first"), range(2), tests=((9, 12),))
    whole = train(members, SHORT)
    kept = Checkpoint(tmp_path / "state.safetensors", every=0)
    with pytest.raises(CutError):
        train(members, SHORT, checkpoint=kept, on_progress=cut_after(3))
    made = []
    resumed = train(members, SHORT, checkpoint=kept, on_progress=made.append)
    assert len(made) == 1 and torch.equal(resumed.bank.theta, whole.bank.theta)
    assert resumed.rows == whole.rows and len(resumed.rows[0]["curve"]) == 3
    other = dataclasses.replace(SHORT, batch=4, samples=4 * CHUNK)  # its state is not taken for that of another run
    train(members, other, checkpoint=kept, on_progress=made.append)
    assert len(made) == 1 + 3


def test_a_decoder_trains_the_same_in_any_company():
    one = decoders(Neighbour("right", "only"), [3], tests=((9, 12),))
    others = decoders(Neighbour("left", "last"), [0, 1], lr=1e-2, tests=((5, 7),))
    alone, among = train(one, SHORT).rows[0], train([*others, *one], SHORT).rows[2]
    assert among["loss"] == pytest.approx(alone["loss"], rel=1e-9)
    assert [at["loss"] for at in among["curve"]] == pytest.approx([at["loss"] for at in alone["curve"]], rel=1e-9)
    assert {k: v for k, v in among["tests"][1].items() if k != "loss"} == {
        k: v for k, v in alone["tests"][1].items() if k != "loss"
    }


def test_members_of_a_bank_may_be_tested_on_different_numbers_of_ranges():
    task = Neighbour("right", "only")
    few, many = decoders(task, [0]), decoders(task, [1], tests=((9, 10), (11, 12)))
    rows = train([*few, *many], SHORT).rows
    assert [[test["lengths"] for test in row["tests"]] for row in rows] == [[[4, 8]], [[4, 8], [9, 10], [11, 12]]]
    alone = train(many, SHORT).rows[0]
    assert [t["loss"] for t in rows[1]["tests"]] == pytest.approx([t["loss"] for t in alone["tests"]], rel=1e-9)


def test_readers_train_alike_alone_and_among_others():
    shape, problem = ReaderShape(2, 8, 4), Answering()
    bank, alone = (Bank([shape] * len(seeds), seeds, dtype=torch.float64) for seeds in ([0, 1, 2], [1]))
    tokens = torch.randn(3, 5, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = ContextBatch(tokens, tokens[:, :, 6:, 0], examples=6)
    mine = ContextBatch(tokens[1:2], tokens[1:2, :, 6:, 0], examples=6)
    among = eager.gradient(problem, bank, batch)[1]
    torch.testing.assert_close(among, eager.gradient(problem, alone, mine)[0], rtol=1e-9, atol=1e-12)
    # Members of one seed that differ in their rate read the same contexts, however many they are.
    cell = ReaderCell("shapes", 1, 8, 8, "linear", (InContext(8, 2),))
    recipe = ReaderRecipe(steps=20, batch=4, seeds=(0,), rates=(1e-3, 1e-2), contexts=16)
    (both,), (one,) = (train_readers(cell, dataclasses.replace(recipe, rates=r)) for r in ((1e-3, 1e-2), (1e-2,)))
    for column in ("nmse", "validation"):
        assert both[column][1] == pytest.approx(one[column][0], rel=1e-3) and both[column][0] != both[column][1]


class Signs:
    """Whether the first number of a sequence is positive."""

    def __init__(self, count, seed):
        self.count, self.x = count, torch.randn(count, 5, 3, generator=torch.Generator().manual_seed(seed))

    def begin(self, epoch, seeds):
        pass

    def batch(self, rows):
        return self.x[rows], (self.x[rows][..., 0, 0] > 0).long()


def test_encoders_train_alike_alone_and_among_others():
    shape = MarkedShape(features=3, heads=2, head_dim=4, depth=1, marks=tuple(range(6)), outputs=2)
    members = encoder_members(shape, [(0, 1e-3), (1, 1e-2), (2, 3e-3)])
    data, unseen = Signs(128, 0), Signs(256, 1)
    together, alone = (accuracies(some, data, unseen, epochs=4, batch=16) for some in (members, members[1:2]))
    assert [part[1] for part in together] == pytest.approx([part[0] for part in alone], abs=0.01)


def test_a_sweep_of_decoders_killed_in_the_middle_ends_with_the_rows_of_one_left_alone(tmp_path):
    # Two banks: the kill falls into the second, after it has kept its state.
    tasks = (Neighbour("right", "only"), Neighbour("left", "first"))
    deep = dataclasses.replace(SHAPE, layers=((2, 4),))
    members = [
        m for task in tasks for shape in (SHAPE, deep) for m in decoders(task, range(2), shape, tests=((9, 12),))
    ]
    asked = Sweep(tuple(members), SHORT, "decoders")
    rounds = SHORT.steps // CHUNK
    whole = run(asked, Store.open(tmp_path / "alone", create=True), save="all")

    class Dying:
        cut = staticmethod(cut_after(rounds + 2))

        def __call__(self, steps):
            self.cut(steps)

        def bank_done(self, members):
            pass

        def note(self, sentence):
            pass

    @contextlib.contextmanager
    def dying(asked, banks, done):
        yield Dying()

    store = Store.open(tmp_path / "killed", create=True)
    with pytest.raises(CutError):
        run(asked, store, on_progress=dying, checkpoint=1e-9, save="all")
    assert 0 < len(store.missing([m.run(SHORT) for m in members])) < len(members), "the kill was to fall between banks"
    assert len(list((tmp_path / "killed" / "checkpoints").iterdir())) == 1, "a state was to be kept"
    steps = []

    class Counting(Dying):
        cut = staticmethod(steps.append)

    @contextlib.contextmanager
    def counting(asked, banks, done):
        yield Counting()

    resumed = run(asked, Store.open(tmp_path / "killed"), on_progress=counting, checkpoint=600.0, save="all")
    assert len(steps) == rounds - 1  # of the second bank, one round was kept
    assert resumed.rows == whole.rows and len(resumed) == len(members)
    assert not list((tmp_path / "killed" / "checkpoints").iterdir())
    for row in whole.rows:
        mine, theirs = (network_of(tmp_path / store, row) for store in ("killed", "alone"))
        assert isinstance(mine, CausalTransformer) and mine.shape.name == row["layers"]
        assert all(torch.equal(mine.named()[name], p) for name, p in theirs.named().items())


def test_rows_of_decoders_are_exported_and_read_back(tmp_path):
    members = decoders(Neighbour("right", "only"), range(2), tests=((9, 12),))
    study = run(Sweep(tuple(members), SHORT, "decoders"), Store.open(tmp_path, create=True))
    assert Store.open(tmp_path).study().rows == study.rows
    again = Study.from_json(study.to_json())
    assert again.rows == study.rows and again.spec == study.spec
    assert [json.loads(line) for line in study.to_json_lines().splitlines()] == list(study.rows)
    head, *lines = study.to_csv().splitlines()
    assert len(lines) == 2 and {"string_accuracy", "tests", "task"} <= set(head.split(","))
    row = study.rows[0]
    assert row["task"] == "Neighbour" and row["parameters"] == SHAPE.parameters and row["length"] == 8
    assert [test["lengths"] for test in row["tests"]] == [[4, 8], [9, 12]] and len(row["curve"]) == 3


def test_decoders_learn_to_copy_the_only_neighbour():
    shape = dataclasses.replace(SHAPE, layers=((2, 16), (2, 16)), embed_dim=32, width=64)
    recipe = string_recipe(steps=900, batch=64, evaluations=3, samples=256)
    (row,) = train(decoders(Neighbour("right", "only", letters=4), [0], shape, lr=4e-3, train=(3, 6)), recipe).rows
    assert row["string_accuracy"] == row["tests"][0]["string_accuracy"] > 0.6 > 1 / 4
    assert row["curve"][-1]["loss"] < row["curve"][0]["loss"]


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
        train(decoders(Neighbour(), [0], dataclasses.replace(SHAPE, **change)), SHORT)


@pytest.mark.parametrize(
    ("task", "shape", "says"),
    [
        (Neighbour(), SHAPE, "learns a letter task on lengths"),
        (OnLengths(Neighbour(), (4, 8)), ReaderShape(1, 8, 4), "draws strings, which a DecoderShape reads; got 1x8"),
    ],
)
def test_who_reads_no_strings_is_told_so(task, shape, says):
    with pytest.raises(ValueError, match=says):
        train([Member(task, shape)], SHORT)


def test_banks_of_networks_with_layer_norms_share_every_size():
    other = dataclasses.replace(SHAPE, width=8)
    with pytest.raises(ValueError, match="share one shape"):
        Bank([SHAPE, other], [0, 1])
    with pytest.raises(ValueError, match="of one kind; got DecoderShape, ReaderShape"):
        Bank([SHAPE, ReaderShape(2, 8, 4)], [0, 1])
