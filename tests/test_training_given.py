"""Banks on given data: ragged sequences, several outputs, another loss; the same numbers as one network alone."""

import json

import numpy as np
import pytest
import torch

from headcount.kernels.backend import by_differentiation, eager, recorded
from headcount.kernels.class_token import ClassToken
from headcount.kernels.loss import cross_entropy, squared
from headcount.kernels.plain import Batch, collapsed, plain
from headcount.kernels.preference import backends
from headcount.kernels.rate_schedule import COSINE
from headcount.nets import Architecture, Transformer, parameters
from headcount.tasks import KthLargest
from headcount.training import Bank, Given, Member, Recipe, train
from headcount.training.given import Part, Parts
from headcount.training.loop import _Run
from headcount.training.shuffling import epoch_order, seed_of

SHAPES = [((1, 4),), ((3, 5),), ((2, 3),)]
DEEP = [((1, 4), (2, 3)), ((3, 5), (1, 7)), ((2, 2), (4, 3))]


def archs(shapes, outputs, positions=0):
    return [Architecture(s, width=8, positions=positions, embed_dim=6, outputs=outputs) for s in shapes]


def parts(outputs=1, ragged=True, samples=40, token_dim=2, seed=0, loss=squared):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 8, samples) if ragged else np.full(samples, 7)
    lengths[0] = 7
    present = np.arange(7) < lengths[:, None]
    x = np.where(present[..., None], rng.standard_normal((samples, 7, token_dim)), 0.0)
    y = np.eye(outputs)[rng.integers(0, outputs, samples)] if outputs > 1 else rng.standard_normal(samples)
    whole = Part(x, lengths, y)
    return Parts(whole.at(np.arange(30)), whole.at(np.arange(30, samples)), (1.0, 1.0), loss)


@pytest.mark.parametrize("forward", [plain, collapsed])
@pytest.mark.parametrize("shapes", [SHAPES, DEEP], ids=["one layer", "two layers"])
@pytest.mark.parametrize("positions", [0, 3])
@pytest.mark.parametrize("outputs", [1, 4])
def test_sequences_of_different_length_share_a_batch(forward, shapes, positions, outputs):
    given = parts(outputs)
    members = [Member(Given("d", 7, 2), arch, seed=k) for k, arch in enumerate(archs(shapes, outputs, positions))]
    bank = Bank([m.shape for m in members], [0, 1, 2], dtype=torch.float64)
    samples = given.resident(members, Recipe(30, 10, 1, 10), torch.float64, "cpu")
    rows = torch.tensor([[0, 1, 2, 3], [5, 4, 9, 8], [7, 7, 1, 0]])
    out = forward(bank, bank.named(), samples.at(rows))
    for k in range(3):
        for b in range(4):
            i = int(rows[k, b])
            alone = torch.as_tensor(given.training.x[i : i + 1, : given.training.lengths[i]])
            torch.testing.assert_close(out[k, b], bank.module(k)(alone)[0], atol=1e-12, rtol=1e-12)


def test_what_is_padded_is_never_seen():
    given = parts()
    noisy = given.training.x + 1e3 * (np.arange(7) >= given.training.lengths[:, None])[..., None]
    other = Parts(Part(noisy, given.training.lengths, given.training.y), given.validation, given.constant)
    member = Member(Given("d", 7, 2), archs(SHAPES, 1)[1])
    one, two = (train([member], Recipe(30, 10, 4, 10), data=p.resident).rows for p in (given, other))
    assert one == two


def loop_of_one(member, recipe, given, loss):
    """The same training written as anyone would."""
    net = Transformer(member.arch, 2, seed=member.seed).double()
    optimiser = torch.optim.AdamW(net.parameters(), lr=member.lr, weight_decay=member.weight_decay)
    stream = torch.tensor([seed_of("order", member.seed, member.data_seed)])
    x, y = (torch.as_tensor(a) for a in (given.training.x, given.training.y))
    present = torch.arange(7) < torch.as_tensor(given.training.lengths)[:, None]
    step = 0
    for epoch in range(recipe.epochs):
        for rows in epoch_order(stream, epoch, recipe.samples)[0].split(recipe.batch):
            step += 1
            for group in optimiser.param_groups:
                group["lr"] = member.lr * float(COSINE.share(torch.tensor(float(step)), recipe.steps, recipe.warmup))
            optimiser.zero_grad()
            loss(net(x[rows], present[rows]), y[rows]).backward()
            optimiser.step()
    return net


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_bank_on_given_data_equals_the_loop_it_replaces(outputs):
    given = parts(outputs, loss=cross_entropy if outputs > 1 else squared)
    recipe = Recipe(30, 10, 10, 10, dtype="float64")
    members = [
        Member(Given("d", 7, 2), arch, seed=k, lr=2e-3 * (k + 1)) for k, arch in enumerate(archs(SHAPES, outputs))
    ]
    run = _Run(members, recipe, "cpu", eager, given.resident, None)
    for epoch in range(recipe.epochs):
        run.round(epoch)
    written = torch.nn.functional.cross_entropy if outputs > 1 else torch.nn.functional.mse_loss
    for k, member in enumerate(members):
        alone = loop_of_one(member, recipe, given, written)
        for name, p in run.bank.module(k).named_parameters():
            torch.testing.assert_close(p, alone.get_parameter(name), atol=1e-7, rtol=0, msg=f"member {k}, {name}")


def test_losses_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    index = torch.randint(4, (2, 5), generator=generator)
    hot = torch.nn.functional.one_hot(index, 4).double()
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), index.flatten(), reduction="none").view(2, 5)
    torch.testing.assert_close(cross_entropy(logits, hot), theirs)
    torch.testing.assert_close(squared(logits, hot), (logits - hot).square().mean(-1))


def test_the_level_is_a_share_of_what_a_constant_loses():
    given = parts(outputs=3, loss=cross_entropy)
    halved = Parts(given.training, given.validation, (2.0, 4.0), cross_entropy)
    member = Member(Given("d", 7, 2), archs(SHAPES, 3)[0])
    one, two = (train([member], Recipe(30, 10, 2, 10), data=p.resident).rows[0] for p in (given, halved))
    assert two["nmse"] == pytest.approx(one["nmse"] / 4, rel=1e-6)
    assert two["train_nmse"] == pytest.approx(one["train_nmse"] / 2, rel=1e-6)


def test_one_output_goes_without_saying_so_that_old_addresses_stay():
    arch = Architecture(layers=((3, 5),), width=16)
    assert json.loads(arch.to_json()) == {"embed_dim": 15, "layers": [[3, 5]], "positions": 0, "width": 16}
    assert Architecture.from_json(arch.to_json()) == arch
    wide = Architecture(layers=((3, 5),), width=16, outputs=4)
    assert Architecture.from_json(wide.to_json()) == wide
    assert "outputs" not in Member(KthLargest(1, 4), arch).content(Recipe())["arch"]
    assert parameters(wide).total - parameters(arch).total == 3 * 17


def test_the_last_backend_of_a_device_holds_several_outputs_and_any_loss():
    *_, on_cpu = backends("cpu")
    *_, on_gpu = backends("cuda")
    assert on_cpu is eager and on_gpu is recorded
    for loss in (squared, cross_entropy):
        problem, bank, batch = _case(loss)
        assert on_cpu.holds(problem, bank, batch) and on_gpu.holds(problem, bank, batch)
        assert by_differentiation()(problem, bank, batch).shape == bank.theta.shape


def _case(loss):
    bank = Bank([arch.reading(2) for arch in archs(SHAPES, 3)], [0, 1, 2], dtype=torch.float64)
    data, rows = torch.zeros(1, 4, 7, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.int64)
    target = torch.full((3, 2, 3), 1 / 3, dtype=torch.float64)
    return ClassToken(loss), bank, Batch(data, rows[:, 0], rows, target)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: train([Member(Given("d", 7, 2), archs(SHAPES, 1)[0])], Recipe(30, 10, 1, 10)), "cannot be drawn anew"),
        (
            lambda: train(
                [Member(Given("d", 7, 2), archs(SHAPES, 1)[0])], Recipe(20, 10, 1, 10), data=parts().resident
            ),
            "the recipe asks for 20 samples and 10 for validation; the data hold 30 and 10",
        ),
        (
            lambda: train(
                [Member(Given("d", 7, 2), archs(SHAPES, 1)[0])], Recipe(30, 10, 1, 10, noise=1.0), data=parts().resident
            ),
            "noise is added to drawn targets alone",
        ),
        (lambda: Architecture(layers=((1, 1),), outputs=0), "outputs must be at least 1, got 0"),
        (
            lambda: Bank([arch.reading(2) for arch in (*archs(SHAPES, 1), *archs(SHAPES, 2))], range(6)),
            "share one number of outputs; got 1 and 2",
        ),
    ],
)
def test_a_mistake_is_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()
