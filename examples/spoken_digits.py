"""Spoken digits as sequences for `headcount measure`: a token is a frame, its features the logarithms of a spectrum.

    python examples/spoken_digits.py fsdd_1200.npz out/digits.npz
    headcount measure out/digits.npz --budget 10m

The clips come as the arrays audio (all samples on end), offsets, digit and speaker, at 8 kHz. With --by-speaker whole
speakers are held out, which asks for more than another take of a known voice. Made by packing the recordings of the
Free Spoken Digit Dataset, https://github.com/Jakobovski/free-spoken-digit-dataset (CC BY-SA 4.0).
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

FRAME, HOP, BANDS = 256, 192, 12  # samples of a frame, samples between frames, features of a token


def frames(clip: np.ndarray) -> np.ndarray:
    """Log power of each frame in bands that widen with frequency, as hearing does."""
    clip = np.pad(clip.astype(np.float64), (0, max(0, FRAME - len(clip))))
    cut = np.lib.stride_tricks.sliding_window_view(clip, FRAME)[::HOP] * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(cut, axis=1)) ** 2
    edges = np.unique(np.geomspace(3, power.shape[1], BANDS + 1).astype(int))
    return np.log1p(np.add.reduceat(power, edges[:-1], axis=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--by-speaker", action="store_true", help="hold out whole speakers")
    asked = parser.parse_args()
    with np.load(asked.clips) as file:
        audio, offsets, digit, speaker = (file[key] for key in ("audio", "offsets", "digit", "speaker"))
    tokens = [frames(audio[a:b]) for a, b in pairwise(offsets)]
    arrays = {
        "x": np.concatenate(tokens).astype(np.float32),
        "offsets": np.cumsum([0, *map(len, tokens)]),
        "y": np.array([f"digit {d}" for d in digit]),
        **({"groups": speaker} if asked.by_speaker else {}),
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(asked.out, **arrays)
    shortest, longest = min(map(len, tokens)), max(map(len, tokens))
    print(f"{len(tokens)} clips of {shortest} to {longest} frames with {BANDS} features: {asked.out}")


if __name__ == "__main__":
    main()
