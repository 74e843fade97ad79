"""Refusals in one helpful line: what was wrong, where, and what would be right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

# The modules that each optional part of the package brings, by the extra that pyproject.toml gives it.
EXTRAS = {
    "hf": ("transformers", "tokenizers", "huggingface_hub"),
    "lm": ("gguf", "accelerate"),
    "certify": ("flint",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "parquet": ("pyarrow",),
    "figures": ("cairosvg", "cairocffi"),
    "estimators": ("sklearn",),
    "ray": ("ray",),
}


class RefusalError(ValueError):
    """What was asked for cannot be done, in one line for people: the asker's mistake, not the program's."""


def missing_package(package: str) -> str:
    """What is not installed, and the extra that brings it.

    >>> missing_package("flint")
    "this needs the package 'flint', which is not installed: pip install 'headcount[certify]'"
    """
    extra = next((name for name, brought in EXTRAS.items() if package in brought), None)
    how = f"pip install 'headcount[{extra}]'" if extra else f"pip install {package}"
    return f"this needs the package {package!r}, which is not installed: {how}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or all of them.

    >>> nearest("lenght", ["length", "heads"])
    "did you mean 'length'?"
    >>> nearest("xyz", ["length", "heads"])
    'known: length, heads'
    """
    known = list(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def refuse_unknown(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise a ValueError that names the first unknown key of `given` and the nearest known one.

    >>> refuse_unknown({"lenght": 3}, ["length"], "[task]")
    Traceback (most recent call last):
    ...
    ValueError: unknown key 'lenght' in [task]; did you mean 'length'?
    """
    known = list(known)
    for key in given:
        if key not in known:
            raise ValueError(f"unknown key {key!r} in {where}; {nearest(str(key), known)}")


def at_least_one(**sizes: object) -> None:
    """Refuse the first size that is no whole number (True, 2.5, 3.0 and nan are none) or below 1.

    >>> at_least_one(heads=0)
    Traceback (most recent call last):
    ...
    ValueError: heads must be at least 1, got 0
    >>> at_least_one(heads=2.5)
    Traceback (most recent call last):
    ...
    ValueError: heads must be a whole number, got 2.5
    """
    at_least(1, **sizes)


def at_least(least: int, /, **sizes: object) -> None:
    """Refuse the first size that is no whole number or below `least`.

    >>> at_least(0, outside=-1)
    Traceback (most recent call last):
    ...
    ValueError: outside must be at least 0, got -1
    """
    for name, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool):
            raise ValueError(f"{name} must be a whole number, got {size!r}")
        if int(size) < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")


def positive(**numbers: float) -> None:
    """Refuse the first number that is not finite and above zero.

    >>> positive(eps=-0.5)
    Traceback (most recent call last):
    ...
    ValueError: eps must be a finite number above 0, got -0.5
    """
    for name, number in numbers.items():
        if not (_finite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {number}")


def not_negative(**numbers: float) -> None:
    """Refuse the first number that is not finite and at least zero.

    >>> not_negative(output_gap=math.nan)
    Traceback (most recent call last):
    ...
    ValueError: output_gap must be a finite number >= 0, got nan
    """
    for name, number in numbers.items():
        if not (_finite(number) and number >= 0):
            raise ValueError(f"{name} must be a finite number >= 0, got {number}")


def _finite(number: object) -> bool:
    return isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
