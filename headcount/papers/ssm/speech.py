"""Linear prediction: the all-pole filter of a piece of speech, recorded or made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.signal
from jaxtyping import Float

from headcount.files import arrays_in
from headcount.papers.ssm.interchange import from_zpk
from headcount.papers.ssm.systems import DiagonalSSM


def linear_prediction(frame: Float[np.ndarray, " length"], order: int) -> Float[np.ndarray, " coefficients"]:
    """The a(w) = 1 + a_1 w + ... that best predicts a windowed frame, by the autocorrelation method.

    The normal equations are Toeplitz, and their solution has all roots inside the unit circle.

    >>> t = np.arange(400)
    >>> linear_prediction(0.9**t, order=1).round(1)
    array([ 1. , -0.9])
    """
    if not 1 <= order < len(frame):
        raise ValueError(f"order must be from 1 to {len(frame) - 1}, the length of the frame less one; got {order}")
    windowed = frame * np.hamming(len(frame))
    r = scipy.signal.correlate(windowed, windowed)[len(frame) - 1 : len(frame) + order].copy()
    if not r[0] > 0:
        raise ValueError("the frame is silent, so it has no prediction filter")
    r[0] *= 1 + 1e-9  # a floor of white noise at -90 dB keeps the equations regular
    return np.concatenate([[1.0], scipy.linalg.solve_toeplitz(r[:-1], -r[1:])])


def prediction_filter(wave: Float[np.ndarray, " length"], order: int, frame: int = 400) -> DiagonalSSM:
    """The synthesis filter 1/a(w) of the loudest frame of a wave, as poles and residues."""
    if len(wave) < frame:
        raise ValueError(f"the wave has {len(wave)} samples, fewer than one frame of {frame}")
    energy = np.convolve(np.square(wave), np.ones(frame), mode="valid")
    start = int(energy.argmax())
    poles = np.roots(linear_prediction(wave[start : start + frame], order))
    return from_zpk(np.zeros(order), poles, 1.0)


def sharpened(system: DiagonalSSM, times: int, gamma: float = 0.98) -> DiagonalSSM:
    """The cascade of 1/a(w), 1/a(gamma w), 1/a(gamma^2 w), ...: formants emphasised, as the postfilters of codecs do.

    Its poles come in close families lambda, gamma lambda, ..., so its residues are large and nearly cancel.

    >>> sharpened(DiagonalSSM([0.9], [1]), times=2).poles.real
    array([0.9  , 0.882])
    """
    if times < 1 or not 0 < gamma < 1:
        raise ValueError(f"times must be at least 1 and gamma between 0 and 1, got {times} and {gamma}")
    poles = np.concatenate([system.poles[system.poles != 0] * gamma**k for k in range(times)])
    return from_zpk(np.zeros(len(poles)), poles, 1.0)


def load_digit(
    path: str | Path, digit: int, speaker: int = 0, take: int = 0
) -> tuple[Float[np.ndarray, " length"], int]:
    """One spoken digit, scaled to 1, and its sample rate, from an archive with audio, offsets, digit, speaker, take."""
    archive = arrays_in(path)
    missing = {"audio", "offsets", "digit", "speaker", "take", "rate"} - set(archive)
    if missing:
        raise ValueError(f"{path} lacks {', '.join(sorted(missing))}; it is not an archive of spoken digits")
    matches = (archive["digit"] == digit) & (archive["speaker"] == speaker) & (archive["take"] == take)
    if not matches.any():
        raise ValueError(f"{path} holds no digit {digit} of speaker {speaker}, take {take}")
    place = int(np.flatnonzero(matches)[0])
    start, end = archive["offsets"][place : place + 2]
    wave = archive["audio"][start:end].astype(np.float64)
    return wave / np.abs(wave).max(), int(archive["rate"])


def made_up_vowel(
    seconds: float = 0.25, rate: int = 8000, pitch: float = 120.0, seed: int = 0
) -> Float[np.ndarray, " length"]:
    """A vowel made of pulses through four formants and a little noise: speech enough where no recording is at hand."""
    length = int(seconds * rate)
    source = 0.01 * np.random.default_rng(seed).standard_normal(length)
    source[:: int(rate / pitch)] += 1.0
    for formant, bandwidth in ((700, 80), (1220, 90), (2600, 120), (3300, 150)):
        radius, angle = np.exp(-np.pi * bandwidth / rate), 2 * np.pi * formant / rate
        source = scipy.signal.lfilter([1.0], [1.0, -2 * radius * np.cos(angle), radius**2], source)
    return source / np.abs(source).max()


def speech_filter(archive: str | Path | None = None, digit: int = 0, order: int = 16, times: int = 1) -> DiagonalSSM:
    """The prediction filter of a spoken digit of an archive, or of a made-up vowel, run so many times.

    >>> speech_filter(order=8).modes
    8
    """
    wave = load_digit(archive, digit)[0] if archive else made_up_vowel()
    return sharpened(prediction_filter(wave, order), times)
