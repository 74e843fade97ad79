"""Other people's systems: scipy.signal and python-control give the same responses on the same filters."""

import json
import math

import control
import numpy as np
import pytest
import scipy.signal

from headcount.papers import ssm
from headcount.papers.ssm import DiagonalSSM
from headcount.papers.ssm.responses import gap

FILTERS = {
    "butterworth 4": scipy.signal.butter(4, 0.3, output="zpk"),
    "butterworth 8 band": scipy.signal.butter(4, [0.2, 0.5], "bandpass", output="zpk"),
    "chebyshev 5": scipy.signal.cheby1(5, 1, 0.4, output="zpk"),
    "elliptic 7": scipy.signal.ellip(7, 1, 40, 0.3, output="zpk"),
    "a sample late": (np.array([0.1]), np.array([0.5, -0.3, 0.2]), 2.0),
}
DELTA = np.eye(1, 64)[0]


@pytest.mark.parametrize("name", FILTERS)
def test_every_form_of_scipy_gives_the_response_of_scipy(name):
    z, p, k = FILTERS[name]
    _, (wanted,) = scipy.signal.dimpulse((*scipy.signal.zpk2ss(z, p, k), 1), n=64)
    wanted = wanted[:, 0]
    b, a = scipy.signal.zpk2tf(z, p, k)
    late = np.concatenate([np.zeros(len(a) - len(np.atleast_1d(b))), np.atleast_1d(b)])  # zpk2tf counts down from z^n
    for system in (
        ssm.from_zpk(z, p, k),
        ssm.from_tf(late, a),
        ssm.from_sos(ssm.to_sos(ssm.from_zpk(z, p, k))),
        ssm.from_state_space(*scipy.signal.zpk2ss(z, p, k)),
    ):
        assert system.is_real
        assert gap(system.impulse(64), wanted) < 1e-9
        omega = np.linspace(0, np.pi, 50)
        assert np.allclose(system.frequency(omega), scipy.signal.freqz_zpk(z, p, k, worN=omega)[1], atol=1e-9)


@pytest.mark.parametrize("name", FILTERS)
def test_the_way_back_to_scipy_gives_the_same_response(name):
    system = ssm.from_zpk(*FILTERS[name])
    wanted = system.impulse(64).real
    assert gap(scipy.signal.sosfilt(ssm.to_sos(system), DELTA), wanted) < 1e-8
    assert gap(scipy.signal.lfilter(*ssm.to_tf(system), DELTA), wanted) < 1e-8
    a, b, c, d = ssm.to_state_space(system)
    assert all(np.isrealobj(part) for part in (a, b, c, d))
    _, (y,) = scipy.signal.dimpulse((a, b, c, d, 1), n=64)
    assert gap(y[:, 0], wanted) < 1e-10
    z, p, k = ssm.to_zpk(system)
    assert len(z) == len(FILTERS[name][0]) and np.isclose(k, FILTERS[name][2])
    assert gap(ssm.from_zpk(z, p, k).impulse(64), wanted) < 1e-7


@pytest.mark.parametrize("name", FILTERS)
def test_python_control_agrees(name):
    system = ssm.from_zpk(*FILTERS[name])
    theirs = ssm.to_control(system)
    assert gap(control.impulse_response(theirs, T=np.arange(64)).outputs, system.impulse(64)) < 1e-10
    omega = np.linspace(0.05, 3, 40)
    assert np.allclose(control.frequency_response(theirs, omega).complex, system.frequency(omega), atol=1e-10)
    assert gap(ssm.from_control(theirs).impulse(64), system.impulse(64)) < 1e-8
    deep = system.deepen(3)
    assert gap(control.impulse_response(ssm.to_control(deep), T=np.arange(64)).outputs, system.impulse(64)) < 1e-8


def test_sections_of_scipy_are_read_as_scipy_runs_them():
    for order in (2, 5, 8):
        sos = scipy.signal.ellip(order, 1, 40, 0.3, output="sos")
        assert gap(ssm.from_sos(sos).impulse(64), scipy.signal.sosfilt(sos, DELTA)) < 1e-9
    late = np.array([[0, 1.0, 0.2, 1, -0.5, 0.06]])
    assert gap(ssm.from_sos(late).impulse(64), scipy.signal.sosfilt(late, DELTA)) < 1e-12


def test_control_transfer_functions_are_read():
    theirs = control.TransferFunction([1.0], [1.0, -0.75, 0.125], True)
    assert gap(ssm.from_control(theirs).impulse(32), control.impulse_response(theirs, T=np.arange(32)).outputs) < 1e-12


def test_a_deep_system_is_one_block_triangular_state_space():
    system = DiagonalSSM([0.9, -0.5, 0.3j, 0.2, 0.0], [1, 2, 3j, 4, 5])
    a, b, c, d = ssm.to_state_space(system.deepen(2, 3))
    kernel = [d[0, 0], *((c @ np.linalg.matrix_power(a, t) @ b)[0, 0] for t in range(20))]
    assert gap(np.array(kernel), system.impulse(21)) < 1e-12
    complex_form = ssm.to_state_space(system)
    kernel = [complex_form[3][0, 0], (complex_form[2] @ complex_form[1])[0, 0]]
    assert gap(np.array(kernel), system.impulse(2)) < 1e-12


def test_a_purely_imaginary_pair_survives_the_way_to_zeros_and_back():
    system = DiagonalSSM([0.5j, -0.5j, 0], [1, 1, 3])
    assert gap(ssm.from_zpk(*ssm.to_zpk(system)).impulse(16), system.impulse(16)) < 1e-12
    assert ssm.to_zpk(DiagonalSSM([0], [3]))[2] == 3


def test_continuous_layers_are_held_over_a_step():
    a, b, c, step = np.array([-0.5 + 3j, -0.5 - 3j]), np.array([1, 1]), np.array([1 - 1j, 1 + 1j]), 0.1
    system = ssm.from_continuous(a, b, c, step)
    sampled = scipy.signal.cont2discrete((np.diag(a), b[:, None], c[None, :], np.zeros((1, 1))), step)
    wanted = [(sampled[2] @ np.linalg.matrix_power(sampled[0], t) @ sampled[1])[0, 0] for t in range(20)]
    assert gap(system.impulse(20), np.array(wanted)) < 1e-12
    with pytest.raises(ValueError, match="negative real part"):
        ssm.from_continuous([0.5], [1], [1], 0.1)
    with pytest.raises(ValueError, match="step must be above 0"):
        ssm.from_continuous([-0.5], [1], [1], 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ssm.from_tf([0, 0, 1], [1, -0.5]), "delay of 1 samples"),
        (lambda: ssm.from_tf([1], np.poly([0.5] * 5)), "repeat or nearly do"),
        (lambda: ssm.from_tf([1], [1, -2]), "unstable"),
        (lambda: ssm.from_tf([1], [0, 1]), "start with a number other than 0"),
        (lambda: ssm.from_zpk([], [0.5, 0.5], 1), "repeated"),
        (lambda: ssm.from_sos([[1, 0, 0]]), "6 numbers"),
        (lambda: ssm.from_state_space([[0.5, 1], [0, 0.5]], [[0], [1]], [[1, 0]], [[0]]), "only to|reproduce"),
        (lambda: ssm.from_state_space([[0.0]], [[1]], [[1]], [[0]]), "pure delay"),
        (lambda: ssm.from_state_space([[0.5]], [1, 2], [[1]], [[0]]), "shapes"),
        (lambda: ssm.from_control(3), "python-control"),
        (lambda: ssm.from_control(control.TransferFunction([1], [1, 1])), "continuous time"),
        (lambda: ssm.to_sos(DiagonalSSM([0.5j], [1])), "real kernel"),
        (lambda: ssm.to_control(DiagonalSSM([0.5j], [1])), "complex"),
        (lambda: ssm.from_layer([0.5], [1], [1, 2]), "each mode"),
    ],
)
def test_what_does_not_fit_a_diagonal_layer_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_files_keep_every_bit(tmp_path, ending):
    system = DiagonalSSM([0.1 + 0.2j, 1 / 3], [math.pi, -1e-300j])
    for value in (system, system.deepen(3, 2)):
        path = ssm.save(value, tmp_path / f"system.{ending}")
        assert ssm.load(path) == value
        assert hash(ssm.load(path)) == hash(value)
    assert [p.name for p in tmp_path.iterdir()] == [f"system.{ending}"]  # nothing half-written stays


@pytest.mark.parametrize(
    "content",
    [
        {"b": [1, 0.2], "a": [1, -0.5]},
        {"zeros": [-0.2], "poles": [0.5], "gain": 1},
        {"sos": [[1, 0.2, 0, 1, -0.5, 0]]},
        {"A": [[0.5]], "B": [[1]], "C": [[0.7]], "D": [[1]]},
        {"poles": [0.5, 0], "residues": [1.4, -0.4]},
    ],
)
def test_a_filter_is_read_in_every_form(tmp_path, content):
    (tmp_path / "x.json").write_text(json.dumps(content))
    kernel = ssm.load(tmp_path / "x.json").impulse(8)
    assert gap(kernel, scipy.signal.lfilter([1, 0.2], [1, -0.5], DELTA[:8])) < 1e-12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ("{}", "incomplete with no keys"),
        ('{"poles": [0.5], "residue": [1]}', "unknown key 'residue'.*did you mean 'residues'"),
        ('{"poles": [0.5]}', "incomplete with poles"),
        ('{"poles": [], "residues": []}', "poles is empty"),
        ('{"poles": [NaN], "residues": [1]}', "not finite"),
        ('{"poles": [0.5], "residues": [1, 2]}', "1 poles but 2 residues"),
        ('{"poles": [1.0], "residues": [1]}', "unstable: pole 1 is 1"),
        ('{"poles": ["a"], "residues": [1]}', "numbers or"),
        ('{"poles": 3, "residues": [1]}', "must be a list"),
        ('{"layers": [], "readout": [1]}', "layers is empty"),
        ('{"layers": [3], "readout": [1]}', "a layer is an object"),
        ('{"poles": [0.5], "residues": [1], "extra": 1}', "unknown key 'extra'"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, text, says):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=says):
        ssm.load(tmp_path / "x.json")


def test_bad_safetensors_and_endings_are_refused(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="does not hold a system"):
        ssm.load(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"saved as \.json or \.safetensors"):
        ssm.save(DiagonalSSM([0.5], [1]), tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError):
        ssm.load(tmp_path / "missing.json")
