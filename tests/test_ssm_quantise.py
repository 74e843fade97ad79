"""Few bits: the format rounds as it says, and depth pays where poles are close or the range is fixed."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import scipy.signal

from headcount.papers.ssm import DiagonalSSM, by_angle, from_zpk, to_sos
from headcount.papers.ssm.pictures import bits_picture, deep_picture, training_picture
from headcount.papers.ssm.quantise import FixedPoint, bits_rows, hardened, quantise, quantise_sos, rms_gap, sos_impulse
from headcount.papers.ssm.speech import linear_prediction, load_digit, made_up_vowel, prediction_filter, sharpened

DIGITS = Path(__file__).parents[2] / "shared" / "data" / "fsdd" / "fsdd_1200.npz"


def close_families(rng, families=4, members=4):
    upper = rng.uniform(0.7, 0.93, families) * np.exp(1j * np.linspace(0.4, 2.7, families))
    poles = np.concatenate([upper * (1 - 0.01 * k) for k in range(members)])
    return from_zpk(np.zeros(2 * len(poles)), np.concatenate([poles, poles.conj()]), 1.0)


@pytest.mark.parametrize("bits", [2, 5, 12])
def test_weights_move_by_half_a_step_at_most_and_stay_in_the_format(bits):
    x = np.random.default_rng(0).uniform(-3.9, 3.9, 500)
    (q,) = FixedPoint(bits).weights(x)
    step = 4 / 2 ** (bits - 1)
    inside = x < 4 - step
    assert np.abs(q - x)[inside].max() <= step / 2
    assert np.array_equal(q / step, np.round(q / step)) and len(np.unique(q)) <= 2**bits
    (clipped,) = FixedPoint(bits, reach=1.0).weights(x)
    assert clipped.max() < 1 and clipped.min() == -1


def test_poles_never_leave_the_circle():
    poles = 0.9999 * np.exp(1j * np.linspace(0, 2 * np.pi, 400))
    for bits in (2, 3, 6, 10):
        q = FixedPoint(bits).poles(poles)
        assert np.abs(q).max() < 1 and np.abs(q - poles).max() <= 2 * 2.0 ** (1 - bits)


def test_many_bits_lose_nothing_and_each_bit_halves_the_loss():
    system = DiagonalSSM([0.9, 0.5 + 0.2j, 0.5 - 0.2j], [3, 1 + 1j, 1 - 1j])
    rows = bits_rows(system, {"one layer": system, "deep": system.deepen(3)}, (12, 24, 48))
    for form in ("one layer", "deep", "second-order sections"):
        coarse, fine, exact = (row["gap"] for row in rows if row["form"] == form)
        assert 1e-2 > coarse > 100 * fine and exact < 1e-12


def test_a_real_system_stays_real_when_rounded():
    system = close_families(np.random.default_rng(1))
    for deep in (system.deepen(4, deal=by_angle), system.deepen(2)):
        kernel = quantise(deep, FixedPoint(8)).impulse(200)
        assert np.abs(kernel.imag).max() < 1e-12 * np.abs(kernel).max()


def test_depth_pays_a_hundredfold_on_close_poles():
    gains = []
    for seed in range(5):
        system = close_families(np.random.default_rng(seed))
        rows = bits_rows(system, {"one": system, "deep": system.deepen(4, deal=by_angle)}, [10], count=512)
        gains.append(rows[0]["gap"] / rows[1]["gap"])
    assert np.median(gains) > 100


def test_depth_does_not_pay_on_well_separated_poles_with_a_range_of_their_own():
    """The honest other side: rounding is relative then, and one layer is as good."""
    rng = np.random.default_rng(2)
    upper = rng.uniform(0.3, 0.9, 8) * np.exp(1j * np.linspace(0.2, 2.9, 8))
    shares = 100 * np.exp(2j * np.pi * rng.random(8))
    system = DiagonalSSM([*upper, *upper.conj()], [*shares, *shares.conj()])
    rows = bits_rows(system, {"one": system, "deep": system.deepen(4)}, [10])
    assert 0.2 < rows[0]["gap"] / rows[1]["gap"] < 5
    fixed = bits_rows(system, {"one": system, "deep": system.deepen(4)}, [10], reach=4.0)
    assert fixed[0]["gap"] > 20 * fixed[1]["gap"]  # entries of 10 do not fit below 4; those of depth 4 do


def test_small_weights_are_spread_along_their_chain():
    """A coefficient far below the largest may not become one tiny weight: that would be the first to drown."""
    system = close_families(np.random.default_rng(3))
    deep = system.deepen(4, deal=by_angle)
    entries = np.concatenate([np.abs(layer.weights).ravel() for layer in deep.layers] + [np.abs(deep.readout)])
    assert entries[entries > 0].min() > 1e-3 * deep.largest_entry


def test_hardened_takes_the_form_that_loses_least():
    system = close_families(np.random.default_rng(4))
    form = FixedPoint(10)
    best = hardened(system, form, depths=(2, 4))
    wanted = system.impulse(1024)
    lost = [rms_gap(quantise(system.deepen(d, deal=by_angle), form).impulse(1024), wanted) for d in (2, 4)]
    assert rms_gap(quantise(best, form).impulse(1024), wanted) <= min(lost)


def test_unstable_sections_are_told_as_infinite():
    sos = to_sos(DiagonalSSM([0.999 * np.exp(0.01j), 0.999 * np.exp(-0.01j)], [1, 1]))
    assert math.isinf(rms_gap(sos_impulse(quantise_sos(sos, FixedPoint(4)), 64), np.ones(64)))
    assert rms_gap(sos_impulse(sos, 64), scipy.signal.sosfilt(sos, np.eye(1, 64)[0])) == 0


@pytest.mark.parametrize("bad", [lambda: FixedPoint(1), lambda: FixedPoint(60), lambda: FixedPoint(8, reach=0.0)])
def test_nonsense_formats_are_refused(bad):
    with pytest.raises(ValueError, match=r"needs 2 to 52 bits|reach must be above 0"):
        bad()


def test_linear_prediction_finds_the_filter_that_made_the_signal():
    a = np.poly([0.9 * np.exp(0.5j), 0.9 * np.exp(-0.5j), 0.7]).real
    signal = scipy.signal.lfilter([1.0], a, np.random.default_rng(5).standard_normal(200_000))
    assert np.allclose(linear_prediction(signal, 3), a, atol=0.02)


@pytest.mark.parametrize("order", [16, 32, 64])
def test_prediction_filters_of_a_made_up_vowel_are_stable_and_real(order):
    system = prediction_filter(made_up_vowel(), order)
    assert system.modes == order and system.is_real
    assert system.impulse(1)[0] == pytest.approx(1.0)  # 1/a(w) starts with 1
    twice = sharpened(system, 2)
    damped = from_zpk(np.zeros(order), 0.98 * system.poles, 1.0)
    assert rms_gap(twice.impulse(200), damped.scan(system.impulse(200))) < 1e-8


def test_a_speech_filter_is_made_quantisation_proof():
    shallow = sharpened(prediction_filter(made_up_vowel(), 16), 4)
    deep = hardened(shallow, FixedPoint(12, 2.0))
    assert shallow.largest_entry > 10 and deep.largest_entry < 2
    free = bits_rows(shallow, {"one": shallow, "deep": deep}, [12])
    fixed = bits_rows(shallow, {"one": shallow, "deep": deep}, [12], reach=2.0)
    assert free[0]["gap"] > 5 * free[1]["gap"]
    assert fixed[0]["gap"] > 0.5 and fixed[1]["gap"] < 0.02


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: linear_prediction(np.zeros(100), 4), "silent"),
        (lambda: linear_prediction(np.ones(10), 10), "order must be"),
        (lambda: prediction_filter(np.ones(10), 4), "fewer than one frame"),
        (lambda: sharpened(DiagonalSSM([0.5], [1]), 0), "times must be"),
    ],
)
def test_speech_that_cannot_be_modelled_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_an_archive_of_digits_is_read(tmp_path):
    path = tmp_path / "digits.npz"
    whole = {
        "audio": np.array([1, -2, 4, 3, 0, -3], dtype=np.int16),
        "offsets": np.array([0, 4, 6]),
        "digit": np.array([3, 7]),
        "speaker": np.array([0, 0]),
        "take": np.array([0, 0]),
        "rate": 8000,
    }
    np.savez(path, **whole)
    wave, rate = load_digit(path, 7)
    assert wave.tolist() == [0, -1] and rate == 8000
    with pytest.raises(ValueError, match="holds no digit 5"):
        load_digit(path, 5)
    np.savez(path, audio=whole["audio"])
    with pytest.raises(ValueError, match="lacks digit, offsets"):
        load_digit(path, 7)


@pytest.mark.skipif(not DIGITS.exists(), reason="the archive of spoken digits is not at hand")
def test_recorded_digits_need_no_depth_until_they_are_sharpened():
    for digit in (0, 5):
        plain = prediction_filter(load_digit(DIGITS, digit)[0], 16)
        assert plain.largest_entry < 3
        assert sharpened(plain, 4).largest_entry > 10
        assert sharpened(plain, 4).deepen(4, deal=by_angle).largest_entry < 4


def test_pictures_are_the_same_every_time_and_show_every_number():
    system = DiagonalSSM([0.9, -0.5, 0.3j, -0.3j], [100, 5, 2, 2])
    deep = system.deepen(3)
    first, second = (deep_picture(system, deep).standalone() for _ in range(2))
    assert first == second and ET.fromstring(first).get("class") == "hc"
    used = sum(int((layer.poles != 0).sum()) for layer in deep.layers)
    assert first.count("<circle") == used + 48  # a dot for each pole, and for each sample of the deep response
    rows = bits_rows(system, {"one layer": system}, [4, 8])
    drawn = bits_picture({"a": rows, "b": [{"form": "lost", "bits": 4, "gap": math.inf}]}).standalone()
    assert drawn.count("<circle") == sum(math.isfinite(row["gap"]) for row in rows)
    assert drawn.count('class="ring ks0"') == 2  # the lost one, as a cross
    trained = [{"depth": d, "max_entry": c, "nmse": 0.1 / d} for d in (1, 2) for c in (1.0, 2.0)]
    assert training_picture(trained).standalone().count("<circle") == len(trained)
