"""A trained network in one file: its weights, and the shape that says what they are."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from headcount.files import atomic_write
from headcount.frozen import decode
from headcount.nets import Architecture, Transformer, parameters
from headcount.nets.causal import CausalTransformer, DecoderShape
from headcount.nets.target_units import TargetUnits


def save_net(net: Transformer | CausalTransformer, path: str | Path, scale: tuple[float, float] | None = None) -> Path:
    """Write a network to one safetensors file, whole or not at all; `scale` is its target's mean and spread."""
    path = Path(path)
    with atomic_write(path) as scratch:
        scratch.write_bytes(net_bytes(net, scale))
    return path


def net_bytes(net: Transformer | CausalTransformer, scale: tuple[float, float] | None = None) -> bytes:
    """What the file of a network holds; with the mean and the spread of its target where `scale` gives them."""
    if isinstance(net, CausalTransformer):
        about = {"decoder": json.dumps(asdict(net.shape), sort_keys=True)}
    else:
        about = {"architecture": net.arch.to_json(), "token_dim": str(net.token_dim)}
    if scale is not None:
        about |= {"target_mean": repr(float(scale[0])), "target_spread": repr(float(scale[1]))}
    return save({k: v.detach().cpu().contiguous() for k, v in net.state_dict().items()}, about)


def tensors_in(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and what it says of itself."""
    if not Path(path).is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, struct.error):
        raise ValueError(f"{path}: not a safetensors file") from None
    return weights, about


def load_net(path: str | Path) -> Transformer:
    """The class-token network that `save_net` wrote."""
    return _network(path, *tensors_in(path))


def load_decoder(path: str | Path) -> CausalTransformer:
    """The decoder that `save_net` wrote; sizes that the file does not hold are refused before it is made."""
    weights, about = tensors_in(path)
    if "decoder" not in about:
        raise ValueError(f"{path}: says no decoder; `save_net` writes files that do")
    shape = decode(DecoderShape, json.loads(about["decoder"]), "the decoder")
    sizes = sorted(math.prod(size) for size in shape.tensors().values())
    if sizes != sorted(w.numel() for w in weights.values()):
        raise ValueError(f"{path}: the weights do not fit the decoder that the file describes")
    net = CausalTransformer(shape).to(next(iter(weights.values())).dtype)
    net.load_state_dict(weights)
    return net


def load_in_units(path: str | Path) -> TargetUnits:
    """The network of a file in the units of its target."""
    weights, about = tensors_in(path)
    if "target_spread" not in about:
        raise ValueError(
            f"{path}: does not say the units of its target; what `headcount probe` and `headcount sweep` keep does"
        )
    return TargetUnits(_network(path, weights, about), float(about["target_mean"]), float(about["target_spread"]))


def _network(path: str | Path, weights: dict[str, Tensor], about: dict[str, str]) -> Transformer:
    if "architecture" not in about or "token_dim" not in about:
        raise ValueError(f"{path}: says no architecture; `headcount probe` and `save_net` write files that do")
    net = filled(path, Architecture.from_json(about["architecture"]), int(about["token_dim"]), weights)
    return net.to(next(iter(weights.values())).dtype)


def filled(path: str | Path, arch: Architecture, token_dim: int, weights: dict[str, Tensor]) -> Transformer:
    """The network of this shape with these weights; sizes that the file does not hold are refused before it is made."""
    try:
        if token_dim < 1 or parameters(arch, token_dim).total != sum(w.numel() for w in weights.values()):
            raise RuntimeError("another number of weights")
        net = Transformer(arch, token_dim)
        net.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(f"{path}: the weights do not fit the architecture that the file describes") from None
    return net
