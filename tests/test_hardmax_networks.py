"""Exact interpolation from both sides: what must come out exactly does, and what cannot be is refused by name."""

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.certificates import load
from headcount.papers.hardmax import interpolate, interpolation_layers
from headcount.papers.hardmax.hat_layers import Draft
from headcount.papers.hardmax.narrow import padded
from headcount.papers.hardmax.sequence_pairs import hausdorff
from tests.hardmax_cases import labelled, on_a_line, with_sets


def gaps(built, rows, outputs):
    """The worst Hausdorff gap as given, reversed, and in a batch padded to twice the length; and the scale."""
    rows = [torch.as_tensor(np.array(r), dtype=torch.float64) for r in rows]
    targets = padded([torch.as_tensor(np.atleast_2d(y), dtype=torch.float64) for y in outputs])
    length = max(map(len, rows))
    reversed_ = padded([r.flip(0) for r in rows])
    wide = padded(rows, 2 * length)
    present = ~torch.isnan(wide).any(-1)
    ones = [built.net([r])[0] for r in rows[:3]]
    found = [built.net(padded(rows)), built.net(reversed_), built.net(wide.nan_to_num(7.0), present)]
    worst = [float(hausdorff(f, targets).max()) for f in found]
    worst += [float(hausdorff(f[None], t[None])) for f, t in zip(ones, targets[:3], strict=True)]
    scale = max(float(targets.nan_to_num().norm(dim=-1).max()), max(float(r.norm(dim=-1).max()) for r in rows))
    return worst, scale


def hold(rows, outputs):
    built = interpolate(rows, outputs)
    worst, scale = gaps(built, rows, outputs)
    error = built.certificate.error
    assert max(worst) <= min(error, 1e-9 * scale)
    assert error < 1e-9 * scale
    if max(worst) > 1e-14:
        assert error <= 1000 * max(worst)
    counts = [len(np.atleast_2d(y)) for y in outputs]
    assert built.layers <= interpolation_layers(counts).value
    return max(worst) / scale


@pytest.mark.parametrize("seed", range(10))
def test_random_data_sets_with_overlaps_and_adversarial_pairs_are_exact(seed):
    hold(*labelled(seed))
    hold(*with_sets(seed))


@pytest.mark.slow
def test_a_hundred_random_data_sets_are_exact():
    assert max(hold(*labelled(seed)) for seed in range(50)) < 1e-9
    assert max(hold(*with_sets(seed)) for seed in range(50)) < 1e-9


def test_many_outputs_stay_below_the_certificate():
    rng = np.random.default_rng(5)
    rows, outputs = [rng.standard_normal((4, 4)) for _ in range(15)], [rng.standard_normal((2, 4)) for _ in range(15)]
    built = interpolate(rows, outputs)
    worst, _ = gaps(built, rows, outputs)
    assert max(worst) <= built.certificate.error <= 1000 * max(worst) and built.check().holds


def test_worst_cases_take_as_many_layers_as_the_bound():
    pair = [[[0.0, 0.0], [2.0, 0.0]], [[1.0, 0.0]]]
    assert interpolate(pair, [[1.0, 1.0], [2.0, 0.0]]).layers == interpolation_layers([1, 1]).value == 7
    rows = [[[0.0, 0.0], [2.0, 0.0]], [[0.5, 0.0], [1.5, 0.0]]]
    sets = [[[1.0, 1.0], [2.0, 0.0]], [[0.0, 3.0], [1.0, 7.0]]]
    assert interpolate(rows, sets).layers == interpolation_layers([2, 2]).value == 17
    line = interpolate(*on_a_line(6))
    assert line.separating_layers == 5 and line.layers == interpolation_layers([1] * 6).value == 19


def test_the_count_does_not_grow_with_the_length():
    rng = np.random.default_rng(0)
    y = list(rng.standard_normal((4, 3)))
    layers = {interpolate([rng.standard_normal((n, 3)) for _ in y], y).layers for n in (10, 100, 1000)}
    assert layers == {4 + 1 + 1 + 4}


def test_parameters_are_those_of_dense_layers():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((4, 4))
    for count, layers, numbers in ((4, 10, 348), (64, 70, 2568)):
        built = interpolate(list(rng.standard_normal((count, 3, 4))), [y[i % 4] for i in range(count)])
        assert (built.layers, built.parameters) == (layers, numbers)


def test_softmax_does_the_same_as_a_classifier_and_not_for_sets():
    rows, outputs = labelled(3)
    built = interpolate(rows, outputs)
    x, targets = padded(rows), padded([y[None] for y in outputs])
    assert float(hausdorff(built.net.with_softmax()(x), targets).max()) <= built.certificate.error
    rows, outputs = with_sets(3)
    built = interpolate(rows, outputs)
    soft = built.net.with_softmax()(padded(rows))
    assert float(hausdorff(soft, padded(outputs)).max()) > 0.1


def test_sequences_of_the_same_measure_are_refused_by_name_or_kept_once():
    a, b = [1.0, 0.0], [0.0, 1.0]
    rows = [[[5.0, 5.0]], [a, b], [b, a, b, a]]
    with pytest.raises(ValueError, match="sequences 1 and 2 hold the same tokens in the same proportions"):
        interpolate(rows, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    built = interpolate(rows, [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    assert built.check().gap < 1e-12 and built.layers == 2 + 1 + 1 + 2


@pytest.mark.parametrize("scale", [1e-8, 1e8, 1e-90, 1e90])
def test_the_scale_of_the_data_does_not_matter(scale):
    rng = np.random.default_rng(3)
    for outputs in (1, 2):
        rows, y = list(scale * rng.standard_normal((5, 4, 3))), list(scale * rng.standard_normal((5, outputs, 3)))
        worst, size = gaps(interpolate(rows, y), rows, y)
        assert max(worst) < 1e-14 * size


def test_single_tokens_repeats_and_one_class_are_exact():
    rng = np.random.default_rng(4)
    for rows, y in (
        (list(rng.standard_normal((6, 1, 3))), list(rng.standard_normal((6, 3)))),
        (list(rng.standard_normal((6, 4, 3))), [np.zeros(3)] * 6),
        ([np.tile([[1.0, 2.0]], (5, 1)), np.tile([[1.0, 3.0]], (2, 1))], [[0.0, 1.0], [1.0, 0.0]]),
        ([np.zeros((3, 2)), np.ones((1, 2))], [[0.0, 0.0], [5.0, 5.0]]),
    ):
        assert max(gaps(interpolate(rows, y), rows, y)[0]) < 1e-14


def test_other_proportions_are_told_apart():
    a, b = [1.0, 0.0], [0.0, 1.0]
    built = interpolate([[a, b], [a, b, b]], [[0.0, 0.0], [1.0, 1.0]])
    assert built.check().holds


@pytest.mark.parametrize(
    ("rows", "outputs", "says"),
    [
        ([[[1.0], [2.0]]], [[1.0]], "at least 2 dimensions, got 1"),
        ([[[1.0, 2.0], [1.0, 2.0]]], [[[1.0, 1.0], [2.0, 2.0]]], "sequence 0 has 2 outputs but only 1 distinct"),
        ([[[1.0, 2.0]], [[1.0, 3.0]]], [[1.0, 1.0]], "2 sequences .* 1"),
        ([[[1.0, float("inf")]]], [[1.0, 1.0]], "not finite"),
        ([[[1e-300, 2e-300]], [[2e-300, 0.0]]], [[1.0, 1.0], [2.0, 0.0]], "between 1e-100 and 1e100"),
        ([[[1.0, 2.0]], [[2.0, 0.0]]], [[1e200, 0.0], [0.0, 1.0]], "between 1e-100 and 1e100"),
        ([[["a", "b"]]], [[1.0, 1.0]], "rows of equally many numbers"),
        (None, None, "sequences must be a list"),
        ([[[1e6, 0.0]], [[0.0, 1e-6]], [[0.0, 2e-6]]], [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]], "sequences 1 and 2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(rows, outputs, says):
    with pytest.raises(ValueError, match=says):
        interpolate(rows, outputs)


def test_a_near_tie_of_leaders_is_refused_with_advice():
    rows = [[[1.0, 0.0], [1.0, 1e-5]], [[3.0, 1.0], [0.0, 3.0]]]
    with pytest.raises(ValueError, match="draw c and kappa again"):
        interpolate(rows, [[[0.0, 0.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]])
    rows[0][1][1] = 1.0
    assert interpolate(rows, [[[0.0, 0.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]]).tie_margin > 1e-7


def test_means_moved_by_less_than_a_quarter_of_the_gap_keep_their_class():
    rng = np.random.default_rng(7)
    rows, y = rng.standard_normal((30, 4, 3)), rng.standard_normal((5, 3))
    of = rng.integers(5, size=30)
    built = interpolate(list(rows), list(y[of]))
    push = rng.standard_normal((20, 30, 1, 3))
    push *= 0.249 * built.smallest_gap / np.linalg.norm(push, axis=-1, keepdims=True)
    for step in push:
        found = built.net(torch.from_numpy(rows + step))[:, 0].numpy()
        assert (np.linalg.norm(found[:, None] - y, axis=2).argmin(1) == of).all()
        assert np.linalg.norm(found - y[of], axis=1).max() <= 0.25 * built.smallest_gap


def test_a_mean_moved_onto_another_takes_its_class():
    rng = np.random.default_rng(8)
    rows, y = rng.standard_normal((6, 4, 3)), rng.standard_normal((6, 3))
    built = interpolate(list(rows), list(y))
    onto = rows[:1] + (rows[1:2].mean(1, keepdims=True) - rows[:1].mean(1, keepdims=True))
    found = built.net(torch.from_numpy(onto))[0, 0].numpy()
    assert np.linalg.norm(found - y[1]) < 1e-12


def test_a_hat_is_exactly_one_on_its_top_and_zero_outside_whatever_the_key():
    points = np.array([[1.0, 0.0], [1.001, 0.0], [900.0, 0.0], [-3.0, 0.0]])
    draft = Draft(points, np.zeros(4))
    draft.hats(np.array([1.0, 0.0]), 0.001, [(0, np.array([1.0, 1.0]))])
    ((_, hats),) = draft.stages
    x = torch.from_numpy(points[:, None] + np.random.default_rng(0).uniform(-2e-4, 2e-4, (4, 1000, 1)) * [1.0, 0.0])
    added = (hats(x) - x)[..., 1]
    assert (added[0] == 1).all() and (added[1:] == 0).all()


def test_files_and_other_runtimes_give_the_same(tmp_path):
    rows, outputs = labelled(1)
    built = hc.hardmax.interpolate(rows, outputs)
    again = load(built.save(tmp_path / "net.safetensors"))
    assert again.task == built.task and again.certificate.terms == built.certificate.terms
    x = padded(rows)
    assert torch.equal(again.net(x).nan_to_num(), built.net(x).nan_to_num()) and again.check().holds


@pytest.mark.parametrize("outputs_each", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_onnx_runs_the_same_network(tmp_path, outputs_each):
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(2)
    rows = [rng.standard_normal((n, 3)) for n in (2, 3)[:outputs_each]]
    outputs = [rng.standard_normal((outputs_each, 3)) for _ in rows]
    built = interpolate(rows, outputs)
    session = runtime.InferenceSession(built.export(tmp_path / "net.onnx").read_bytes())
    (found,) = session.run(None, {session.get_inputs()[0].name: padded(rows).numpy()})
    assert float(hausdorff(torch.from_numpy(found), padded(outputs)).max()) < 1e-9


def test_real_digits_are_memorised_and_the_estimator_clones():
    datasets = pytest.importorskip("sklearn.datasets")
    base = pytest.importorskip("sklearn.base")
    digits = datasets.load_digits()
    x, y = digits.images[:500], digits.target[:500]
    learner = base.clone(hc.hardmax.SequenceMemoriser(seed=1)).fit(x, y)
    assert learner.score(x, y) == 1.0 and learner.built_.layers == 500 + 1 + 1 + 10
    assert (
        np.abs(learner.outputs(x[:, ::-1].copy()) - (y + 1.0)[:, None]).max() <= learner.built_.certificate.error < 1e-9
    )


@pytest.mark.parametrize(("length", "moved"), [(6, 1e-8), (6, 3e-9), (100, 1e-7), (1000, 1e-6)])
def test_one_token_moved_a_little_in_a_long_sequence_is_told_apart(length, moved):
    """The theorem asks for other measures, not for means a given distance apart."""
    one = np.random.default_rng(0).standard_normal((length, 3))
    other = one.copy()
    other[2, 0] += moved
    built = interpolate([one, other], [np.ones(3), -np.ones(3)])
    assert built.check().gap < 1e-12 and built.smallest_gap < moved


def test_what_float64_does_not_resolve_is_refused_with_the_numbers():
    one = np.random.default_rng(0).standard_normal((1000, 3))
    other = one.copy()
    other[2, 0] += 1e-8
    with pytest.raises(ValueError, match=r"means lie 1\.0e-11 apart, float64 resolves \d\.\de-11 there"):
        interpolate([one, other], [np.ones(3), -np.ones(3)])


def test_coarser_numbers_are_refused_and_the_data_are_not_printed():
    built = interpolate(np.random.default_rng(1).standard_normal((30, 4, 3)), np.eye(3)[np.arange(30) % 3])
    x = built.task.batch
    with pytest.raises(ValueError, match="exact in float64 and false in float32"):
        built.net(x.float())
    with pytest.raises(ValueError, match="exact in float64 and false in float32"):
        built.net.float()(x)
    assert len(repr(built.task)) < 100
