"""The worst error of trained networks: proofs that no point breaks, and that some point nearly reaches."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from headcount.certificates import Box
from headcount.certificates.attack import Trial
from headcount.certificates.attempts import FromLeaves
from headcount.certificates.worst_case.branching import SearchLimits, bounds_of, tiles
from headcount.certificates.worst_case.certified_rows import certify_all
from headcount.certificates.worst_case.compiled_bounds import CompiledBounds
from headcount.certificates.worst_case.error_bounds import error_bounds, gelu_bend, gelu_range
from headcount.certificates.worst_case.folded import fold, gelu, gelu_slope
from headcount.certificates.worst_case.leaf_recheck import covered, recheck_leaves
from headcount.certificates.worst_case.met_errors import errors_at
from headcount.certificates.worst_case.proofs import prove
from headcount.certificates.worst_case.sloped_targets import sloped
from headcount.certificates.worst_case.softmax_range import softmax_mean_range
from headcount.certificates.worst_case.vnn_lib import ErrorGraph, ErrorProblem, write_problems
from headcount.certificates.worst_case.winners_road import prove_by_winners
from headcount.kernels.cuda.programs import cuda_program
from headcount.nets import Architecture, Transformer
from headcount.nets.target_units import TargetUnits
from headcount.tasks import KthLargest, LinearMax, Lookups, MaxOf, PlaceOf, Ridges, Square, WellOf, Wells
from headcount.training import Member, Recipe, train
from headcount.training.data import target_scale

WELLS = Wells([[0.3], [0.8]], length=3)
PRODUCT = Lookups(
    (MaxOf((1.0,)), WellOf((0.25,))), length=3, outer=Ridges([[1.0, 1.0], [1.0, -1.0]], (Square(0.25), Square(-0.25)))
)
TASKS = {
    "wells": WELLS,
    "windows": Wells([[0.3], [0.8]], length=4, windows=((0, 1), (2, 3))),
    "the plane": Wells([[0.3, 0.6]], length=2),
    "second largest": KthLargest(rank=2, length=3),
    "a product of look-ups": PRODUCT,
    "a place": Lookups((PlaceOf(1, (2.0,)), WellOf((0.5,))), length=3, outer=Ridges.sum(2)),
    "maxima": LinearMax([[1.0], [-0.5]], length=3),
}
SHAPES = {
    "one head": Architecture(layers=((1, 3),), width=6),
    "two heads": Architecture(layers=((2, 2),), width=5),
    "positions": Architecture(layers=((1, 3),), width=6, positions=2),
    "gelu": Architecture(layers=((1, 3),), width=6, activation="gelu"),
    "one matrix": Architecture(layers=((2, 3),), width=6, embedding="linear"),
    "two layers": Architecture(layers=((1, 2), (1, 2)), width=4),
}


def untrained(arch, token_dim=1, seed=0, factor=1.0):
    net = Transformer(arch, token_dim, seed=seed).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(factor)
    return net


@pytest.fixture(scope="module")
def trained():
    task = Wells([[0.3]], length=3)
    members = [Member(task, Architecture(layers=((1, 4),), width=8), seed=s, lr=0.02) for s in range(2)]
    outcome = train(members, Recipe(samples=1024, validation=256, epochs=150, batch=64))
    scale = target_scale(task, 0, 1024)
    return task, [TargetUnits(outcome.net(k), *scale) for k in range(2)]


def points(box, count=4000, seed=0):
    """Everywhere, at corners and faces, and with tokens that are all alike."""
    g = torch.Generator().manual_seed(seed)
    x = box.sample(count, generator=g)
    side = torch.randint(3, x.shape, generator=g)
    faces = torch.where(side == 0, box.low, torch.where(side == 1, box.high, x))
    return torch.cat([x, faces, faces[:, :1].expand_as(faces)])


def gaps(net, task, x):
    with torch.no_grad():
        return (net(x) - task(x)).abs()


def box_of(task):
    return Box(task.length, task.token_dim, -1.0, 1.0) if isinstance(task, LinearMax) else None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_no_point_lies_beyond_the_proof_whatever_the_shape(shape, factor):
    task, net = Wells([[0.3], [0.8]], length=2), untrained(SHAPES[shape], seed=3, factor=factor)
    found = hc.certify(net, task, ratio=1.3, budget=SearchLimits(boxes=4000, seconds=20))
    assert gaps(net, task, points(found.domain)).max() <= found.upper
    assert gaps(net, task, found.where[None]).max() >= 0.999999 * found.lower > 0
    if SHAPES[shape].depth == 1 and factor == 1:
        assert found.closed
        assert found.upper <= 1.3 * found.lower


@pytest.mark.parametrize("name", TASKS)
def test_no_point_lies_beyond_the_proof_whatever_the_task(name):
    task = TASKS[name]
    net = untrained(SHAPES["two heads"], task.token_dim, seed=1)
    found = hc.certify(net, task, ratio=1.5, domain=box_of(task), budget=SearchLimits(boxes=6000, seconds=20))
    assert gaps(net, task, points(found.domain)).max() <= found.upper
    assert found.closed


@pytest.mark.parametrize("name", TASKS)
def test_slopes_of_a_target_hold_between_any_two_points_of_a_box(name):
    task, g = TASKS[name], torch.Generator().manual_seed(0)
    target, shape = sloped([task]), (1, 200, task.length, task.token_dim)
    centre, size = (torch.rand(shape, generator=g, dtype=torch.float64) for _ in range(2))
    lo, hi = centre - 0.2 * size, centre + 0.2 * size
    value, slope, values = target.slopes(lo, hi)
    for _ in range(20):
        x = lo + (hi - lo) * torch.rand(shape, generator=g, dtype=torch.float64)
        y = task(x[0])[None]
        assert torch.allclose(target.value(x), y)
        reach = ((slope.mid.abs() + slope.rad) * (x - (lo + hi) / 2).abs()).sum((2, 3))
        linear = (slope.mid * (x - (lo + hi) / 2)).sum((2, 3))
        spare = (slope.rad * (x - (lo + hi) / 2).abs()).sum((2, 3))
        assert ((y - value - linear).abs() <= spare + 1e-12).all()
        assert ((y - values.mid).abs() <= values.rad + 1e-12).all() and (reach >= 0).all()


def test_broken_networks_are_bounded_too():
    for seed in range(4):
        net = untrained(SHAPES["one head"], seed=seed, factor=100.0)
        found = hc.certify(net, WELLS, budget=SearchLimits(boxes=1000, seconds=10))
        assert gaps(net, WELLS, points(found.domain)).max() <= found.upper


def boxes_of_all_sizes(net, count=400, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = (count, net.length, net.token_dim)
    middle, half = (torch.rand(shape, generator=g, dtype=torch.float64) for _ in range(2))
    half = half * 10 ** (-4 * torch.rand(count, 1, 1, generator=g, dtype=torch.float64))
    member = torch.randint(len(net), (count,), generator=g)
    return member, (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)


@pytest.mark.parametrize("factor", [1.0, 3.0, 100.0])
@pytest.mark.parametrize("shape", [name for name in SHAPES if SHAPES[name].depth == 1])
@pytest.mark.parametrize("name", ["wells", "the plane", "a product of look-ups"])
def test_compiled_bounds_are_those_of_batched_products(name, shape, factor):
    task = TASKS[name]
    net = fold([untrained(SHAPES[shape], task.token_dim, seed=s, factor=factor) for s in range(3)], task.length)
    target = sloped([task] * 3)
    compiled = CompiledBounds.of(net, target, 0.0, 1.0)
    assert compiled is not None
    boxes = boxes_of_all_sizes(net)
    mine, plain = bounds_of(net, target, *boxes, compiled), bounds_of(net, target, *boxes)
    slack = net.slack[boxes[0]]
    for part in ("upper", "least", "middle"):
        one, other = getattr(mine, part)[0], getattr(plain, part)[0]
        assert ((one - other).abs() <= 1e-9 * other.abs() + 16 * slack).logical_or(one == other).all(), part
    same = (mine.guilt - plain.guilt).abs() <= 1e-6 * plain.guilt.abs() + 1e-9 + 16 * slack[None, :, None, None]
    assert same.float().mean() > 0.999


def test_compiled_bounds_that_differ_are_not_used(monkeypatch):
    net, target = fold([untrained(SHAPES["two heads"])], 3), sloped([WELLS])
    right = CompiledBounds.bounds

    def wrong(self, *given):
        found = right(self, *given)
        return replace(found, upper=found.upper * (1 - 1e-6))

    monkeypatch.setattr(CompiledBounds, "bounds", wrong)
    assert CompiledBounds.of(net, target, 0.0, 1.0) is None


@pytest.mark.parametrize("shape", ["two heads", "gelu", "one matrix"])
def test_the_cuda_program_computes_what_the_lanes_do(shape):
    """The source of the GPU, a thread at a time on a CPU."""
    task = TASKS["the plane"]
    net, target = fold([untrained(SHAPES[shape], 2, seed=s) for s in range(2)], task.length), sloped([task] * 2)
    compiled = CompiledBounds.of(net, target, 0.0, 1.0)
    member, lo, hi = boxes_of_all_sizes(net, 75)
    member = member.sort().values
    y, dy, values = target.of(member).slopes(lo[:, None], hi[:, None])
    known = [t[:, 0].contiguous() for t in (y, dy.mid, dy.rad, values.mid, values.rad)]
    out = [torch.empty_like(known[0]) for _ in range(3)] + [torch.empty_like(lo)]
    sizes = dict(zip(("LENGTH", "TOKEN_DIM", "HEADS", "HIDDEN", "UNITS", "KIND"), compiled.shape, strict=True))
    program = cuda_program("bound_boxes", "cpu", 1, 0, WARPS=1, **sizes)
    numbers = (compiled.parameters.shape[1],)
    program.launch((2, 1), compiled.parameters, numbers, member, lo, hi, *known, *out, (len(member),))
    lanes = compiled.bounds(target, member, lo, hi)
    for mine, part in zip(out, (lanes.upper, lanes.least, lanes.middle, lanes.guilt), strict=True):
        assert torch.allclose(mine, part[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("steepness", [1e2, 1e3, 1e4])
def test_scores_so_steep_that_weights_underflow_are_bounded_and_close(steepness):
    """Scores far apart once made 0/0 of a weight, and a search that cut one side for ever."""
    net = untrained(SHAPES["one head"], seed=3)
    with torch.no_grad():
        net.attention[0].query.mul_(steepness)
    task = Wells([[0.3]], length=2)
    found = hc.certify(net, task, budget=SearchLimits(boxes=20_000, seconds=60))
    assert found.closed and found.upper <= 1.5 * found.lower
    assert gaps(net, task, points(found.domain)).max() <= found.upper


def test_a_bank_is_proved_as_its_members_are(trained):
    task, nets = trained
    together = certify_all([(net, task) for net in nets], ratio=1.1)
    alone = [hc.certify(net, task, ratio=1.1) for net in nets]
    for row, one in zip(together, alone, strict=True):
        assert row.open == 0 and row.worst_upper == pytest.approx(one.upper, rel=0.1)
        assert max(row.worst_lower, one.lower) <= min(row.worst_upper, one.upper)


def test_a_proof_is_nearly_reached_and_an_average_tells_nothing_of_it(trained):
    task, nets = trained
    found = hc.certify(nets[0], task, ratio=1.02)
    assert found.closed and found.lower <= found.upper <= 1.02 * found.lower * (1 + 1e-6)
    assert found.lower > 5 * found.rms


def test_leaves_hold_again_in_balls_and_a_planted_error_is_caught(trained):
    task, nets = trained
    found = hc.certify(nets[1], task, ratio=1.3, leaves=50_000)
    assert recheck_leaves(found, nets[1], task).holds
    planted = TargetUnits(Transformer(nets[1].net.arch, 1), nets[1].mean, nets[1].spread)
    planted.net.load_state_dict(nets[1].net.state_dict())
    with torch.no_grad():
        used = (planted.net.encoder.outer.weight.norm(dim=0) * planted.net.encoder.inner.weight.norm(dim=1)).argmax()
        planted.net.encoder.inner.bias[used] += 1.0
    again = recheck_leaves(found, planted, task)
    assert again.covers and not again.holds


def test_a_missing_leaf_is_seen():
    found = hc.certify(untrained(SHAPES["one head"]), WELLS, ratio=1.05, leaves=10_000)
    boxes = found.leaves
    assert len(boxes) > 3 and covered(boxes.lo, boxes.hi, 0.0, 1.0, sort=True)
    for k in range(len(boxes)):
        others = torch.arange(len(boxes)) != k
        assert not covered(boxes.lo[others], boxes.hi[others], 0.0, 1.0, sort=True)


def test_sorting_changes_no_bound():
    net, target = fold([untrained(SHAPES["two heads"])], 3), sloped([WELLS])
    both = [prove(net, target, 0.0, 1.0, ratio=1.05, sort=sort) for sort in (False, True)]
    assert both[0].upper.item() == pytest.approx(both[1].upper.item(), rel=0.05)
    assert both[1].boxes.item() <= both[0].boxes.item()


def test_a_spent_budget_leaves_open_boxes_and_a_bound_that_holds():
    net = untrained(SHAPES["two heads"], seed=2, factor=3.0)
    found = hc.certify(net, WELLS, ratio=1.01, budget=SearchLimits(boxes=10, seconds=10))
    assert found.open > 0 and not found.closed and "left open" in found.sentence
    assert gaps(net, WELLS, points(found.domain)).max() <= found.upper


def test_bounds_shrink_with_the_box_like_its_square():
    """First-order terms are subtracted exactly: what is left over falls a hundredfold when the box does tenfold."""
    net, target = fold([untrained(SHAPES["gelu"], seed=5)], 3), sloped([Wells([[0.0]], length=3)])
    middle = torch.tensor([[[[0.3], [0.5], [0.8]]]], dtype=torch.float64)
    spare = []
    for size in (1e-2, 1e-3):
        found = error_bounds(net, target, middle - size, middle + size)
        ends = torch.tensor(list(itertools.product((-1, 1), repeat=3)), dtype=torch.float64)[None, :, :, None] * size
        spare.append(float(found.upper) - float(errors_at(net, target, middle + ends).max()))
    assert 0 <= spare[1] <= spare[0] / 50


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_range_of_a_softmax_mean_is_that_of_its_vertices(seed, length):
    g = torch.Generator().manual_seed(seed)
    low, high = torch.rand(2, length, generator=g, dtype=torch.float64).sort(0).values
    least, most = torch.exp(torch.randn(2, length, generator=g, dtype=torch.float64)).sort(0).values
    bottom, top = softmax_mean_range(least, most, low, high)
    vertices = torch.tensor(list(itertools.product((0.0, 1.0), repeat=length)), dtype=torch.float64)
    w = least + (most - least) * vertices
    assert torch.allclose(top, ((w * high).sum(1) / w.sum(1)).max())
    assert torch.allclose(bottom, ((w * low).sum(1) / w.sum(1)).min())


def test_gelu_bends_no_more_than_is_said_and_not_much_less():
    x = torch.linspace(-5, 5, 401, dtype=torch.float64)[:, None, None]
    r = torch.tensor([1e-3, 0.1, 1.0, 4.0], dtype=torch.float64)[None, :, None]
    d = r * torch.linspace(-1, 1, 201, dtype=torch.float64)
    bends = gelu(x + d) - gelu(x) - gelu_slope(x) * d
    down, up = gelu_bend(x[..., 0], r[..., 0])
    assert (down <= bends.amin(-1) + 1e-15).all() and (bends.amax(-1) <= up + 1e-15).all()
    assert (up - down <= 2.1 * bends.abs().amax(-1) + 1e-3 * r[..., 0] ** 2).float().mean() > 0.5
    convex = (x.abs() + r < 1.4)[..., 0]
    assert (down[convex] > -1e-12).all()
    low, high = gelu_range(x[..., 0] - r[..., 0], x[..., 0] + r[..., 0])
    values = gelu(x + d)
    assert (low <= values.amin(-1) + 1e-15).all() and (values.amax(-1) <= high + 1e-15).all()


def test_the_share_above_a_threshold_is_proved_within_a_factor_of_two(trained):
    task, nets = trained
    found = hc.certify(nets[0], task)
    mass = found.mass(5 * found.rms)
    x = torch.linspace(0.5 / 60, 1 - 0.5 / 60, 60, dtype=torch.float64)
    grid = torch.cartesian_prod(x, x, x)[..., None]
    share = (gaps(nets[0], task, grid) > mass.threshold).double().mean().item()
    assert 0 < mass.low <= mass.high <= 2 * mass.low
    assert mass.low / 1.1 <= share <= 1.1 * mass.high
    assert mass.measured[0] <= mass.high and mass.measured[1] >= mass.low


def test_an_attack_that_starts_from_leaves_meets_the_worst(trained):
    task, nets = trained
    found = hc.certify(nets[0], task, ratio=1.05, leaves=10_000)
    net = TargetUnits(nets[0].net.double(), nets[0].mean, nets[0].spread)
    check = Trial(net, task, found.domain, (FromLeaves(found.starts()),)).run(found.upper)
    assert check.holds and check.gap >= 0.99 * found.lower


def test_every_box_has_a_place_of_its_own_in_the_tiles():
    member = torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    who, tile, row = tiles(member, 7, 8)
    assert (who[tile] == member).all() and len({*zip(tile.tolist(), row.tolist(), strict=True)}) == 200
    assert len(who) <= 200 // 8 + 5


def test_the_error_as_a_graph_is_the_error(trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    task, nets = trained
    found = hc.certify(nets[0], task)
    files = write_problems(tmp_path, [ErrorProblem("error", nets[0], task, found.domain, found.lower, found.upper)])
    assert {f.name for f in files} >= {"error.onnx", "error_sat.vnnlib", "error_unsat.vnnlib", "instances.csv"}
    session = onnxruntime.InferenceSession(tmp_path / "error.onnx")
    x = found.where.float().view(1, -1)
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert abs(float(out[0, 0])) == pytest.approx(found.lower, rel=1e-3)
    assert f"{0.999 * found.lower!r}" in (tmp_path / "error_sat.vnnlib").read_text()
    with torch.no_grad():
        again = ErrorGraph(nets[0], task)(x)
    assert abs(float(again)) == pytest.approx(found.lower, rel=1e-3)


@pytest.mark.parametrize("wells", [1, 2])
def test_the_winners_road_holds_at_any_length_and_needs_no_more_boxes(wells):
    boxes = []
    for length in (4, 32):
        task = Wells([[0.3], [0.8]][:wells], length=length)
        net, folded = untrained(SHAPES["two heads"], seed=1), fold([untrained(SHAPES["two heads"], seed=1)], length)
        found = prove_by_winners(folded, sloped([task]), (0.0, 1.0), ratio=3.0, pieces=64)
        boxes.append(found.boxes)
        assert gaps(net, task, points(Box(length, 1, 0.0, 1.0))).max() <= found.upper
        assert found.lower <= found.upper <= 3 * found.lower and found.open == 0
    assert boxes[1] <= 4 * boxes[0]


def test_what_cannot_be_proved_is_refused_in_one_line():
    net = untrained(SHAPES["one head"])
    with pytest.raises(ValueError, match="say with `domain` on which box to certify"):
        hc.certify(net, LinearMax([[1.0]], length=3))
    with pytest.raises(ValueError, match="tokens of dimension 1, the task has 2"):
        hc.certify(net, TASKS["the plane"])
    with pytest.raises(ValueError, match="ratio must be above 1"):
        hc.certify(net, WELLS, ratio=1.0)
    with pytest.raises(ValueError, match="no slopes are known of the target"):
        hc.certify(net, hc.task(lambda x: x.sum(), length=3, retrievals=1))
    with pytest.raises(ValueError, match="Transformer and TargetUnits"):
        hc.certify(torch.nn.Linear(1, 1), WELLS)


class Parabola:
    """A task of the user's own that states its slopes: the first token's square."""

    length, token_dim, domain = 2, 1, "tokens in [0,1]^d, sampled uniformly"
    structure = WELLS.structure
    sample = WELLS.sample

    def __call__(self, x):
        return x[:, 0, 0].square()

    def slopes(self, lo, hi):
        zero = torch.zeros_like(lo[:, 1:])
        return self((lo + hi) / 2), torch.cat([2 * lo[:, :1], zero], 1), torch.cat([2 * hi[:, :1], zero], 1)


def test_a_task_of_ones_own_states_its_slopes():
    net, task = untrained(SHAPES["positions"], seed=4), Parabola()
    found = hc.certify(net, task, ratio=1.2)
    assert found.closed and gaps(net, task, points(found.domain)).max() <= found.upper


@pytest.mark.soak
@pytest.mark.parametrize(("token_dim", "lengths"), [(1, (2, 3, 4)), (2, (2,))])
def test_a_million_points_per_network_stay_below_two_hundred_proofs(token_dim, lengths):
    """Trained, untrained and broken ones; points near the worst input at every scale, and in the worst leaves."""
    tasks = [Wells.random(D, token_dim, T, seed=s) for T in lengths for D in (1, 2) for s in range(3)]
    arch = Architecture(layers=((2, 4),), width=16)
    outcome = train([Member(t, arch, seed=1, lr=0.02) for t in tasks], Recipe(samples=2048, epochs=40, batch=128))
    seeds = range(11)
    kinds = [*(outcome.net(k).double() for k in range(len(tasks)))]
    for k, task in enumerate(tasks):
        nets = [
            kinds[k],
            *(untrained(arch, token_dim, seed=s) for s in seeds[1:6]),
            *(untrained(arch, token_dim, seed=s, factor=100.0) for s in seeds[6:]),
        ]
        for net in nets:
            found = hc.certify(net, task, budget=SearchLimits(boxes=20_000, seconds=20), leaves=20_000)
            starts = found.starts(64)
            g, met = torch.Generator().manual_seed(k), 0.0
            for _ in range(50):
                x = torch.rand(20_000, task.length, token_dim, generator=g, dtype=torch.float64)
                size = 10.0 ** (-6 * torch.rand(10_000, 1, 1, generator=g, dtype=torch.float64))
                near = starts[torch.randint(len(starts), (10_000,), generator=g)]
                near[:5_000] = found.where
                x[:10_000] = (near + size * (2 * x[:10_000] - 1)).clamp(0, 1)
                met = max(met, float(gaps(net, task, x).max()))
            assert met <= found.upper


@pytest.mark.soak
def test_every_leaf_of_twenty_networks_holds_in_balls():
    for seed in range(20):
        task = Wells.random(1 + seed % 2, 1, 2 + seed % 3, seed=seed)
        outcome = train(
            [Member(task, Architecture(layers=((1 + seed % 2, 4),), width=16), seed=seed, lr=0.02)],
            Recipe(samples=2048, epochs=40, batch=128),
        )
        found = hc.certify(outcome.net(0), task, ratio=1.2, leaves=50_000)
        assert recheck_leaves(found, outcome.net(0), task).holds
