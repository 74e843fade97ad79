"""A bank against the loop it replaces, and the promises of training: same numbers, kept best, frozen lost."""

from dataclasses import replace

import pytest
import torch

from headcount.kernels.backend import eager, reference
from headcount.kernels.plain import Batch, collapsed, plain, with_positions
from headcount.kernels.rate_schedule import COSINE
from headcount.nets import Architecture, Transformer
from headcount.tasks import KthLargest, LinearMax
from headcount.training import Bank, Member, Recipe, train
from headcount.training.data import Resident
from headcount.training.loop import _Run
from headcount.training.shuffling import epoch_order, seed_of

ONE_LAYER = [((1, 4),), ((3, 5),), ((4, 8),)]
TWO_LAYERS = [((1, 4), (2, 3)), ((3, 5), (1, 7)), ((2, 2), (4, 3))]
WIDTHS = (8, 16, 11)
each_depth = pytest.mark.parametrize("shapes", [ONE_LAYER, TWO_LAYERS], ids=["one layer", "two layers"])
each_forward = pytest.mark.parametrize("forward", [plain, collapsed])


def archs(shapes, positions=0):
    return [Architecture(layers=s, width=w, positions=positions) for s, w in zip(shapes, WIDTHS, strict=True)]


def bank_of(members, token_dim=4):
    return Bank([a.reading(token_dim) for a in members], range(len(members)), dtype=torch.float64)


def run_of(members, recipe, backend):
    return _Run(members, recipe, "cpu", backend, Resident, None)


def tokens(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@each_forward
@each_depth
@pytest.mark.parametrize("positions", [0, 3])
def test_a_bank_of_different_networks_computes_what_each_computes_alone(shapes, forward, positions):
    bank = bank_of(archs(shapes, positions))
    x = tokens(3, 6, 7, 4)
    data = torch.stack([with_positions(x[k], 7, positions) for k in range(3)])
    batch = Batch(data, torch.arange(3), torch.arange(6).expand(3, -1), torch.zeros(3, 6))
    alone = torch.stack([bank.module(k)(x[k]) for k in range(3)])
    torch.testing.assert_close(forward(bank, bank.named(), batch), alone, atol=1e-12, rtol=1e-12)


@each_forward
@each_depth
def test_members_of_different_length_share_a_bank(shapes, forward):
    bank = bank_of(archs(shapes, positions=1))
    lengths = (5, 9, 7)
    xs = [tokens(6, n, 4, seed=n) for n in lengths]
    data = torch.stack([with_positions(x, 9, 1) for x in xs])
    present = torch.arange(9) < torch.tensor(lengths)[:, None]
    batch = Batch(data, torch.arange(3), torch.arange(6).expand(3, -1), torch.zeros(3, 6), present)
    alone = torch.stack([bank.module(k)(x) for k, x in enumerate(xs)])
    torch.testing.assert_close(forward(bank, bank.named(), batch), alone, atol=1e-12, rtol=1e-12)


def loop_of_one(member: Member, recipe: Recipe) -> Transformer:
    """The same training written as anyone would: one module, torch.optim.AdamW, a learning-rate schedule."""
    net = Transformer(member.arch, member.task.token_dim, seed=member.seed).double()
    data = Resident([member], recipe, torch.float64, "cpu")
    optimiser = torch.optim.AdamW(net.parameters(), lr=member.lr, weight_decay=member.weight_decay)
    stream = torch.tensor([seed_of("order", member.seed, member.data_seed)])
    step = 0
    for epoch in range(recipe.epochs):
        data.renew(epoch)
        order = epoch_order(stream, epoch, recipe.samples)[0]
        for rows in order[: recipe.steps_per_epoch * recipe.batch].split(recipe.batch):
            step += 1
            for group in optimiser.param_groups:
                group["lr"] = member.lr * float(COSINE.share(torch.tensor(float(step)), recipe.steps, recipe.warmup))
            x = data.x[0, rows, : member.task.length, : member.task.token_dim]
            loss = (net(x) - data.y[0, rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net


@pytest.mark.parametrize("backend", [reference, eager], ids=lambda b: b.name)
@each_depth
@pytest.mark.parametrize("fresh", [False, True])
def test_after_fifty_steps_a_bank_equals_the_loop_it_replaces(shapes, backend, fresh):
    recipe = Recipe(samples=50, validation=20, epochs=10, batch=10, dtype="float64", fresh=fresh)
    tasks = [LinearMax.random(2, 4, n) for n in (5, 8, 6)]
    members = [
        Member(task, arch, seed=k, data_seed=3 + k, lr=2e-3 * (k + 1), weight_decay=1e-2 * k)
        for k, (task, arch) in enumerate(zip(tasks, archs(shapes), strict=True))
    ]
    run = run_of(members, recipe, backend)
    for epoch in range(recipe.epochs):
        run.round(epoch)
    for k, member in enumerate(members):
        alone = loop_of_one(member, recipe)
        in_bank = dict(run.bank.module(k).named_parameters())
        for name, p in alone.named_parameters():
            torch.testing.assert_close(in_bank[name], p, atol=1e-7, rtol=0, msg=f"member {k}, {name}")
    # and the padding never woke up
    padding = run.bank.theta.detach().clone()
    for k in range(3):
        own = bank_of([m.arch for m in members]).theta[k] != 0
        assert (padding[k][~own] == 0).all()


MEMBER = Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8), lr=1e-2)
SHORT = Recipe(samples=64, validation=32, epochs=6, batch=32)


def test_the_same_seed_gives_the_same_numbers():
    one, two = train([MEMBER], SHORT), train([MEMBER], SHORT)
    assert one.rows == two.rows
    assert torch.equal(one.bank.theta, two.bank.theta)


def test_a_member_trains_the_same_in_any_company():
    other = Member(LinearMax.random(2, 1, 4), Architecture(layers=((3, 4),), width=16), seed=9, lr=3e-2)
    recipe = Recipe(samples=64, validation=32, epochs=6, batch=32, dtype="float64")
    alone, together = train([MEMBER], recipe), train([other, MEMBER], recipe)
    assert together.rows[1]["nmse"] == pytest.approx(alone.rows[0]["nmse"], rel=1e-9)


def test_the_kept_network_is_the_one_with_the_reported_nmse():
    recipe = Recipe(samples=64, validation=32, epochs=6, batch=32, dtype="float64")
    outcome = train([MEMBER], recipe)
    data = Resident([MEMBER], recipe, torch.float64, "cpu")
    y = data.validation_y[0]
    gap = (outcome.net(0)(data.validation_x[0]) - y).square().mean() / y.var(unbiased=False)
    assert outcome.rows[0]["nmse"] == pytest.approx(gap.item(), rel=1e-9)


def test_training_goes_on_from_given_networks():
    members = [replace(MEMBER, seed=seed) for seed in (0, 1)]
    recipe = Recipe(samples=64, validation=32, epochs=1, batch=32)
    first = train(members, recipe)
    nets = [first.net(k) for k in range(2)]
    still = [replace(m, lr=1e-30) for m in members]
    for row, before in zip(train(still, recipe, start=nets).rows, first.rows, strict=True):
        assert row["nmse"] == pytest.approx(before["nmse"], rel=1e-6)
    with pytest.raises(ValueError, match="cannot load"):
        train(members, recipe, start=nets[:1])


def test_a_diverged_member_is_a_row_that_says_so_and_harms_nobody():
    wild = Member(MEMBER.task, MEMBER.arch, seed=1, lr=9.9, weight_decay=9.9)
    alone, both = train([MEMBER], SHORT), train([MEMBER, wild], SHORT)
    assert [row["status"] for row in both.rows] == ["done", "diverged"]
    assert both.rows[0]["nmse"] == pytest.approx(alone.rows[0]["nmse"], rel=1e-5)


def test_a_member_that_stalls_is_frozen_and_the_bank_stops_with_its_last():
    still = Member(MEMBER.task, MEMBER.arch, lr=1e-9)
    steps = []
    recipe = Recipe(samples=64, validation=32, epochs=50, batch=32, patience=2, evaluations=50)
    outcome = train([still], recipe, on_progress=steps.append)
    assert outcome.rows[0]["status"] == "frozen"
    assert sum(steps) < recipe.steps


def test_training_learns_the_task():
    task = LinearMax([[1.0, 0.0]], 4)
    members = [Member(task, Architecture(layers=((1, 4),), width=16), seed=s, data_seed=s, lr=1e-2) for s in range(2)]
    rows = train(members, Recipe(samples=1000, validation=300, epochs=60, batch=100)).rows
    assert min(row["nmse"] for row in rows) < 0.01


def test_an_epoch_visits_every_sample_once_in_an_order_of_its_own():
    seeds = torch.tensor([3, 4])
    first, second = epoch_order(seeds, 0, 1000), epoch_order(seeds, 1, 1000)
    assert (first.sort(dim=1).values == torch.arange(1000)).all()
    for a, b in ((first[0], first[1]), (first[0], second[0])):
        assert (a == b).sum() < 10  # about one fixed point is expected of a random permutation
    correlation = torch.corrcoef(torch.stack([first[0].double(), torch.arange(1000.0, dtype=torch.float64)]))[0, 1]
    assert abs(correlation) < 0.12  # three and a half standard deviations


def test_training_and_validation_never_share_a_sample():
    data = Resident([MEMBER], SHORT, torch.float64, "cpu")
    assert torch.cdist(data.x[0].flatten(1), data.validation_x[0].flatten(1)).min() > 1e-6


def test_noise_is_added_to_training_targets_alone_and_is_new_in_every_epoch():
    recipe = replace(SHORT, samples=4000, fresh=True)
    others = [MEMBER, replace(MEMBER, data_seed=1)]
    quiet, noisy = (Resident(others, replace(recipe, noise=n), torch.float64, "cpu") for n in (0.0, 0.5))
    gaps = []
    for epoch in (0, 1):
        quiet.renew(epoch)
        noisy.renew(epoch)
        gaps += list(noisy.y - quiet.y)
    for gap in gaps:
        assert abs(gap.mean()) < 0.03 and abs(gap.std() - 0.5) < 0.02  # about four standard errors
    correlations = torch.corrcoef(torch.stack(gaps)).fill_diagonal_(0)
    assert correlations.abs().max() < 0.07
    assert torch.equal(noisy.x, quiet.x) and torch.equal(noisy.validation_y, quiet.validation_y)
    alone = Resident(others[1:], replace(recipe, noise=0.5), torch.float64, "cpu")
    alone.renew(1)
    assert torch.equal(alone.y[0], noisy.y[1]), "the same in any bank"


def test_noise_has_a_place_in_the_address_and_none_has_not():
    assert MEMBER.run(replace(SHORT, noise=0.5)) != MEMBER.run(SHORT)
    assert MEMBER.row(replace(SHORT, noise=0.5))["noise"] == 0.5
    assert "noise" not in MEMBER.content(SHORT)["recipe"] and "noise" not in MEMBER.row(SHORT)


def test_a_silent_read_out_starts_every_width_with_a_constant_answer_and_is_no_other_row():
    silent = replace(SHORT, read_out=0.0)
    wide = replace(MEMBER, net=Architecture(layers=((2, 8),), width=32))
    for recipe, constant in ((silent, True), (SHORT, False)):
        run = run_of([MEMBER, wide], recipe, eager)
        x = torch.randn(9, 4, 1, generator=torch.Generator().manual_seed(0))
        spreads = [run.bank.module(i)(x).std().item() for i in (0, 1)]
        assert [s < 1e-7 for s in spreads] == [constant] * 2
        before = {name: part.clone() for name, part in run.bank.named(run.bank.theta.detach()).items()}
        run.round(0)
        moved = run.bank.named(run.bank.theta.detach())
        assert not any(torch.equal(moved[name], before[name]) for name in before), "from the second step on all learn"
    assert MEMBER.run(silent) != MEMBER.run(SHORT) and MEMBER.row(silent)["read_out"] == 0.0
    assert "read_out" not in MEMBER.content(SHORT)["recipe"] and "read_out" not in MEMBER.row(SHORT)


def test_a_silent_read_out_is_refused_where_networks_are_given():
    nets = [Transformer(MEMBER.arch, 1, seed=0)]
    with pytest.raises(ValueError, match="these networks are given"):
        train([MEMBER], replace(SHORT, read_out=0.0), start=nets)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Recipe(batch=0), "batch must be at least 1"),
        (lambda: Recipe(samples=10, batch=20), "batch 20 is larger than the 10 samples"),
        (lambda: Recipe(warmup=1.5), r"warmup is the share of steps"),
        (lambda: Recipe(noise=-1.0), "noise is counted in spreads of the targets"),
        (lambda: Recipe(noise=float("nan")), "noise is counted in spreads of the targets"),
        (lambda: Recipe(read_out=-1.0), "read_out multiplies a start"),
        (lambda: Recipe(read_out=float("nan")), "read_out multiplies a start"),
        (lambda: Recipe(dtype="half"), "dtype must be float32 or float64"),
        (lambda: Member(MEMBER.task, MEMBER.arch, lr=0.0), "lr must be positive"),
        (lambda: train([], SHORT), "at least one member"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@each_forward
def test_a_bank_honours_a_class_token_that_attends_in_the_last_layer_only(forward):
    last = [replace(arch, class_token="last") for arch in archs(TWO_LAYERS)]
    bank = bank_of(last)
    x = tokens(3, 6, 7, 4)
    batch = Batch(x, torch.arange(3), torch.arange(6).expand(3, -1), torch.zeros(3, 6))
    alone = torch.stack([bank.module(k)(x[k]) for k in range(3)])
    torch.testing.assert_close(forward(bank, bank.named(), batch), alone, atol=1e-12, rtol=1e-12)
    with pytest.raises(ValueError, match="share one layer in which class tokens attend"):
        bank_of([last[0], archs(TWO_LAYERS)[1]])


@each_forward
@pytest.mark.parametrize("where", ["every", "last"])
def test_a_bank_honours_architectures_without_residuals(forward, where):
    bare = [replace(arch, class_token=where, residual=False) for arch in archs(TWO_LAYERS)]
    bank = bank_of(bare)
    x = tokens(3, 6, 7, 4)
    batch = Batch(x, torch.arange(3), torch.arange(6).expand(3, -1), torch.zeros(3, 6))
    alone = torch.stack([bank.module(k)(x[k]) for k in range(3)])
    torch.testing.assert_close(forward(bank, bank.named(), batch), alone, atol=1e-12, rtol=1e-12)
    whole = bank_of([replace(arch, residual=True) for arch in bare])
    assert not torch.allclose(forward(whole, whole.named(), batch), alone)
    with pytest.raises(ValueError, match="share one kind of residual"):
        bank_of([bare[0], replace(bare[1], residual=True)])


@each_forward
@pytest.mark.parametrize("layers", [ONE_LAYER, TWO_LAYERS])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ({"embedding": "linear"}, "share one embedding"),
        ({"activation": "gelu"}, "share one activation"),
    ],
)
def test_a_bank_honours_how_tokens_enter_and_what_activates_them(forward, layers, kind, says):
    other = [replace(arch, **kind) for arch in archs(layers)]
    bank = bank_of(other)
    x = tokens(3, 6, 7, 4)
    batch = Batch(x, torch.arange(3), torch.arange(6).expand(3, -1), torch.zeros(3, 6))
    alone = torch.stack([bank.module(k)(x[k]) for k in range(3)])
    torch.testing.assert_close(forward(bank, bank.named(), batch), alone, atol=1e-12, rtol=1e-12)
    with pytest.raises(ValueError, match=says):
        bank_of([other[0], archs(layers)[1]])


@pytest.mark.parametrize(
    "kind",
    [
        {"embedding": "linear"},
        pytest.param({"residual": False}, marks=pytest.mark.kernels),
        pytest.param({"activation": "gelu"}, marks=pytest.mark.kernels),
    ],
)
def test_other_kinds_of_networks_are_trained_on_a_cpu_as_the_plain_ones(kind):
    arch = Architecture(layers=((2, 4), (1, 4)), width=8, **kind)
    member = Member(KthLargest(rank=1, length=4), arch)
    recipe = Recipe(samples=64, validation=32, epochs=250, batch=16)
    fast, slow = train([member], recipe), train([member], recipe, backend=eager)
    assert recipe.steps >= 1000 and abs(fast.rows[0]["nmse"] / slow.rows[0]["nmse"] - 1) < 1e-3
