"""Systems as files: JSON for people, safetensors for weights; a filter's JSON is read as well."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import atomic_write, refuse_no_file, text_in
from headcount.papers.ssm import interchange
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM
from headcount.refusals import refuse_unknown

System = DiagonalSSM | DeepSSM
FORMS = {
    "poles and residues": ("poles", "residues"),
    "layers and readout": ("layers", "readout"),
    "a transfer function": ("b", "a"),
    "zeros, poles and gain": ("zeros", "poles", "gain"),
    "second-order sections": ("sos",),
    "a state space": ("A", "B", "C", "D"),
}


def to_json(system: System) -> dict[str, object]:
    """A JSON-ready dictionary; a complex number is written [real, imaginary], a real one alone.

    >>> to_json(DiagonalSSM([0.5j], [2]))
    {'poles': [[0.0, 0.5]], 'residues': [2.0]}
    """
    if isinstance(system, DiagonalSSM):
        return {"poles": _plain(system.poles), "residues": _plain(system.residues)}
    layers = [
        {"poles": _plain(layer.poles), "weights": [_plain(row) for row in layer.weights]} for layer in system.layers
    ]
    return {"layers": layers, "readout": _plain(system.readout)}


def from_json(data: Any) -> System:
    """The system that a dictionary describes: poles and residues, layers, or a filter in one of scipy's forms.

    >>> from_json({"b": [1.0], "a": [1.0, -0.5]}).poles.real
    array([0.5])
    """
    if not isinstance(data, dict):
        raise ValueError(f"a system is a JSON object, got {type(data).__name__}")
    keys = _form(data)
    if keys == ("poles", "residues"):
        return DiagonalSSM(_numbers(data["poles"], "poles"), _numbers(data["residues"], "residues"))
    if keys == ("layers", "readout"):
        return DeepSSM(
            [_layer(entry) for entry in _list(data["layers"], "layers")], _numbers(data["readout"], "readout")
        )
    if keys == ("b", "a"):
        return interchange.from_tf(_numbers(data["b"], "b"), _numbers(data["a"], "a"))
    if keys == ("sos",):
        return interchange.from_sos(data["sos"])
    if keys == ("A", "B", "C", "D"):
        return interchange.from_state_space(*(_matrix(data[key], key) for key in keys))
    gain = _number(data["gain"], "gain")
    return interchange.from_zpk(_numbers(data["zeros"], "zeros"), _numbers(data["poles"], "poles"), gain)


def save(system: System, path: str | Path) -> Path:
    """Write a system, whole or not at all; the ending (.json or .safetensors) says how."""
    path = Path(path)
    if path.suffix == ".json":
        content = (json.dumps(to_json(system), indent=1) + "\n").encode()
    elif path.suffix == ".safetensors":
        content = _pack(system)
    else:
        raise ValueError(
            f"{path.name}: a system is saved as .json or .safetensors, not {path.suffix or 'without ending'}"
        )
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)
    return path


def load(path: str | Path) -> System:
    """Read a system from .json or .safetensors."""
    path = Path(path)
    if path.suffix == ".safetensors":
        return _unpack(path)
    try:
        data = json.loads(text_in(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is not JSON: {problem}") from None
    try:
        return from_json(data)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def load_shallow(path: str | Path) -> DiagonalSSM:
    """Read a system of one layer; a deep one is refused."""
    system = load(path)
    if isinstance(system, DeepSSM):
        raise ValueError(f"{path} is deep already ({system.depth} layers); `headcount ssm flatten` makes it one layer")
    return system


def _form(data: dict[str, object]) -> tuple[str, ...]:
    """The form whose keys are there; the nearest miss is named when none is complete."""
    for keys in sorted(FORMS.values(), key=len, reverse=True):
        if all(key in data for key in keys):
            refuse_unknown(data, keys, "the system")
            return keys
    known = {key for keys in FORMS.values() for key in keys}
    refuse_unknown(data, sorted(known), "the system")
    forms = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in FORMS.items())
    raise ValueError(f"the system is incomplete with {', '.join(data) or 'no keys'}; it needs {forms}")


def _layer(entry: Any) -> Layer:
    if not isinstance(entry, dict) or set(entry) != {"poles", "weights"}:
        raise ValueError("a layer is an object with poles and weights")
    return Layer(_numbers(entry["poles"], "poles"), _matrix(entry["weights"], "weights"))


def _plain(array: np.ndarray) -> list[Any]:
    return [z.real if z.imag == 0 else [z.real, z.imag] for z in array.tolist()]


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return value


def _numbers(value: Any, name: str) -> list[complex]:
    return [_number(z, name) for z in _list(value, name)]


def _matrix(value: Any, name: str) -> list[list[complex]]:
    return [_numbers(row, name) for row in _list(value, name)]


def _number(z: Any, name: str) -> complex:
    with contextlib.suppress(OverflowError):  # a whole number beyond every float
        if isinstance(z, int | float) and not isinstance(z, bool):
            return complex(z)
        if isinstance(z, list) and len(z) == 2 and all(isinstance(x, int | float) for x in z):
            return complex(*z)
    raise ValueError(f"{name} must hold numbers or [real, imaginary] pairs, got {str(z)[:60]}")


def _pack(system: System) -> bytes:
    from safetensors.numpy import save as pack

    return pack({name: _pairs(array) for name, array in _named(system).items()}, {"format": "headcount.ssm"})


def _unpack(path: Path) -> System:
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    refuse_no_file(path)
    try:
        arrays = {name: array[..., 0] + 1j * array[..., 1] for name, array in unpack(path.read_bytes()).items()}
    except (SafetensorError, IndexError) as problem:
        raise ValueError(f"{path} does not hold a system: {problem}") from None
    if set(arrays) == {"poles", "residues"}:
        return DiagonalSSM(arrays["poles"], arrays["residues"])
    depth = sum(name.endswith(".poles") for name in arrays)
    try:
        layers = [Layer(arrays[f"layers.{k}.poles"], arrays[f"layers.{k}.weights"]) for k in range(depth)]
        return DeepSSM(layers, arrays["readout"])
    except KeyError as missing:
        raise ValueError(f"{path} does not hold a system: {missing} is missing") from None


def _named(system: System) -> dict[str, np.ndarray]:
    if isinstance(system, DiagonalSSM):
        return {"poles": system.poles, "residues": system.residues}
    parts = {"readout": system.readout}
    for k, layer in enumerate(system.layers):
        parts |= {f"layers.{k}.poles": layer.poles, f"layers.{k}.weights": layer.weights}
    return parts


def _pairs(array: np.ndarray) -> np.ndarray:
    """Complex numbers as a last axis of two real ones, which every reader of safetensors takes."""
    return np.ascontiguousarray(np.stack([np.real(array), np.imag(array)], axis=-1))
