"""One answer, two roads: closed form, recurrence, frequencies and FFT agree; the values refuse nonsense."""

import subprocess
import sys

import numpy as np
import pytest

from headcount.papers.ssm import DeepSSM, DiagonalSSM, Layer
from headcount.papers.ssm.flatten import modes_impulse
from headcount.papers.ssm.responses import gap


def random_deep(rng, depth=3, width=3):
    inputs = [1, *[width] * (depth - 1)]
    layers = [
        Layer(
            rng.uniform(0.1, 0.9, width) * np.exp(2j * np.pi * rng.random(width)),
            rng.standard_normal((width, n)) + 1j * rng.standard_normal((width, n)),
        )
        for n in inputs
    ]
    return DeepSSM(layers, rng.standard_normal(width) + 0j)


SYSTEMS = {
    "diagonal": DiagonalSSM([0.9, -0.5 + 0.3j, 0.2j, 0], [1, 2j, -3, 0.5]),
    "deep": random_deep(np.random.default_rng(0)),
    "chains": DiagonalSSM([0.9, -0.5 + 0.3j, 0.2j, 0], [1, 2j, -3, 0.5]).deepen(3),
    "stages": DiagonalSSM([0.9, -0.5 + 0.3j, 0.2j, 0], [1, 2j, -30, 0.5]).gain_stages(1.0),
    "one state": DeepSSM([Layer([0.5], [[2]])], [3]),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_scan_fft_and_frequencies_tell_the_same_response(name):
    system, rng = SYSTEMS[name], np.random.default_rng(1)
    x = rng.standard_normal(500) + 1j * rng.standard_normal(500)
    direct = np.convolve(system.impulse(500), x)[:500]
    assert gap(system.scan(x), direct) < 1e-12
    assert gap(system.convolve(x), direct) < 1e-12
    omega = 2 * np.pi * np.arange(1024) / 1024
    assert gap(np.fft.ifft(system.frequency(omega)), system.impulse(1024)) < 1e-12  # |pole|^1024 wraps around: nothing


def test_the_scan_carries_its_states_over_chunks(monkeypatch):
    from headcount.papers.ssm import responses

    x = np.random.default_rng(2).standard_normal(1000)
    whole = SYSTEMS["deep"].scan(x)
    monkeypatch.setattr(responses, "CHUNK", 37)
    assert gap(SYSTEMS["deep"].scan(x), whole) < 1e-13


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100, 101])
def test_closed_form_and_recurrence_agree_at_every_length(count):
    system = SYSTEMS["diagonal"]
    assert system.impulse(count).shape == (count,)
    assert gap(system.impulse(count), system.impulse_by_recurrence(count)) < 1e-14
    deep = SYSTEMS["deep"]
    assert gap(deep.impulse_by_modes(count), deep.impulse(count)) < 1e-11


def test_a_real_kernel_has_no_imaginary_part_but_rounding():
    system = DiagonalSSM([0.5 + 0.4j, 0.5 - 0.4j, -0.3], [1 + 2j, 1 - 2j, 3])
    assert system.is_real and not SYSTEMS["diagonal"].is_real
    assert np.abs(system.impulse(50).imag).max() < 1e-17


def test_parameters_are_counted_as_the_paper_counts_them():
    system = DiagonalSSM(np.linspace(-0.9, 0.9, 13), np.full(13, 100.0))
    assert system.parameters == 39
    counts = {(l, m): system.deepen(l, m).parameters for l, m in ((2, 7), (3, 5), (4, 4), (6, 3), (12, 2))}
    assert counts == {(2, 7): 77, (3, 5): 75, (4, 4): 72, (6, 3): 69, (12, 2): 72}
    assert all(c == l * m + m + (l - 1) * m**2 + m for (l, m), c in counts.items())
    assert system.deepen(4, 4).used_parameters < 72


def test_flattening_gives_back_poles_and_residues():
    rng = np.random.default_rng(3)
    poles = rng.uniform(0.2, 0.9, 9) * np.exp(2j * np.pi * rng.random(9))
    system = DiagonalSSM([*poles, 0], rng.standard_normal(10) + 1j * rng.standard_normal(10)).merged()
    for deep in (system.deepen(3), system.deepen(9), system.gain_stages(1.0)):
        flat = deep.flatten().merged()
        large = np.abs(flat.residues) > 1e-9
        assert np.allclose(flat.poles[large], system.poles)
        assert np.allclose(flat.residues[large], system.residues, atol=1e-9)
    anything = random_deep(rng)
    assert anything.flatten().modes <= 3 * 3  # l m, Theorem 4.1
    assert gap(anything.flatten().impulse(80), anything.impulse(80)) < 1e-10


def test_a_pole_in_two_layers_is_t_times_its_power_and_is_refused_by_name():
    twice = DeepSSM([Layer([0.5], [[1]]), Layer([0.5], [[1]])], [1])
    (mode,) = twice.modes()
    assert np.allclose(mode.weights, [0, 1])  # 1/(1 - w/2)^2: (t + 1) / 2^t
    assert np.allclose(twice.impulse(6), (np.arange(6) + 1) * 0.5 ** np.arange(6))
    with pytest.raises(ValueError, match=r"pole 0\.5\+0j stands in 2 layers.*t \* pole\^t"):
        twice.flatten()
    apart = DeepSSM([Layer([0.5, 0.0], [[1], [1]]), Layer([0.0, 0.5], [[1, 0], [0, 1]])], [1, 1])
    assert np.allclose(apart.flatten().impulse(5), 2 * 0.5 ** np.arange(5))  # two paths, each meets it once


def test_repeated_poles_are_expanded_to_every_order():
    rng = np.random.default_rng(4)
    for order in (2, 3, 4):
        layers = [Layer([0.6, 0.1 * k + 0.05], rng.standard_normal((2, 1 if k == 0 else 2))) for k in range(order)]
        deep = DeepSSM(layers, rng.standard_normal(2))
        assert max(len(mode.weights) for mode in deep.modes()) == order
        assert gap(modes_impulse(deep.modes(), 60), deep.impulse(60)) < 1e-10


def test_residues_grow_as_one_over_the_gap_until_flattening_refuses():
    for g, residue in ((1e-1, 9), (1e-2, 90), (1e-3, 900), (1e-4, 9000)):
        flat = DeepSSM([Layer([0.9], [[1]]), Layer([0.9 - g], [[1]])], [1]).flatten()
        assert np.abs(flat.residues).max() == pytest.approx(residue, rel=1e-3)
    with pytest.raises(ValueError, match=r"so close that residues reach .*keep the deep form"):
        DeepSSM([Layer([0.9], [[1]]), Layer([0.9 - 1e-13], [[1]])], [1]).flatten()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DiagonalSSM([], []), "poles is empty"),
        (lambda: DiagonalSSM([0.5], []), "residues is empty"),
        (lambda: DiagonalSSM([float("nan")], [1]), r"poles holds a number that is not finite \(number 1"),
        (lambda: DiagonalSSM([0.5, 0.2], [1, float("inf")]), r"number 2"),
        (lambda: DiagonalSSM([0.5, 1j], [1, 1]), r"unstable: pole 2 is 0\+1j with modulus 1"),
        (lambda: DiagonalSSM([[0.5]], [1]), "must have 1 axis"),
        (lambda: DiagonalSSM([0.5, 0.1], [1]), "2 poles but 1 residues"),
        (lambda: DiagonalSSM(["x"], [1]), "must be numbers"),
        (lambda: Layer([0.5], [[1], [1]]), "rows must match"),
        (lambda: Layer([1.5], [[1]]), "unstable"),
        (lambda: DeepSSM([], [1]), "layers is empty"),
        (lambda: DeepSSM([Layer([0.5], [[1, 2]])], [1]), "layer 1 takes 2 inputs"),
        (lambda: DeepSSM([Layer([0.5], [[1]])], [1, 2]), "readout has 2 numbers"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_values_are_frozen_equal_and_hashable():
    system = DiagonalSSM([0.5], [1])
    assert system == DiagonalSSM([0.5], [1]) and hash(system) == hash(DiagonalSSM([0.5], [1]))
    assert system != DiagonalSSM([0.5], [2]) and system != system.deepen(2)
    assert system.deepen(2) == system.deepen(2)
    with pytest.raises(ValueError, match="read-only"):
        system.poles[0] = 0.1


def test_the_values_need_no_torch():
    code = (
        "import sys, headcount.papers.ssm as s; s.DiagonalSSM([0.5], [4]).deepen(2).flatten(); "
        "import headcount.papers.ssm.quantise, headcount.papers.ssm.speech, "
        "headcount.papers.ssm.depth_tables; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
