"""The shape of a network as a frozen value: heads and head_dim free in every layer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headcount.frozen import decode

if TYPE_CHECKING:
    from headcount.nets.transformer import Transformer

UNSAID = ("outputs", "class_token", "residual", "embedding", "activation")  # left out of JSON where they are usual


class LayeredShape:
    """What all sizes of networks with layers of (heads, head_dim) have in common."""

    layers: tuple[tuple[int, int], ...]

    @property
    def depth(self) -> int:
        """The number of attention layers."""
        return len(self.layers)

    @property
    def name(self) -> str:
        """Every layer as heads x head_dim, first to last."""
        return "+".join(f"{heads}x{head_dim}" for heads, head_dim in self.layers)


class NormedShape(LayeredShape):
    """The sizes of a network with layer norms, which would see what is padded: members of a bank share them all."""

    @property
    def shared(self) -> dict[str, Hashable]:
        """Everything."""
        return {"shape": self}

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(math.prod(size) for size in self.tensors().values())

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter tensor of the network by name, with its size."""
        raise NotImplementedError


@dataclass(frozen=True)
class Architecture(LayeredShape):
    """A class-token transformer: tokenwise encoder, attention layers of (heads, head_dim), feed-forward read-out.

    `embed_dim` is the width E of a token's state (0: the largest heads * head_dim, as the head-count paper
    sets it); `width` the hidden size N of every feed-forward; `positions` how many position features the encoder
    sees beside the token (0: none; 1: t/T; more: cos and sin of 2 pi j t/T, j = 1, 2, ...); `outputs` how many numbers
    the read-out returns; `class_token` where the class token attends: in every layer, or in the last one only;
    `residual` whether a state stays beside what a layer before the last makes of it (with one layer there is none);
    `embedding` how tokens enter: through a feed-forward, or by one matrix ("linear"); `activation` that of the tokens'
    feed-forwards (the read-out's is GELU).

    >>> Architecture(layers=((4, 8),), width=32).embed_dim
    32
    >>> Architecture(layers=((2, 8), (3, 4)), width=16).name
    '2x8+3x4'
    >>> arch = Architecture(layers=((3, 5),), width=16)
    >>> Architecture.from_json(arch.to_json()) == arch
    True
    """

    layers: tuple[tuple[int, int], ...]
    width: int = 32
    positions: int = 0
    embed_dim: int = 0
    outputs: int = 1
    class_token: Literal["every", "last"] = "every"
    residual: bool = True
    embedding: Literal["feed-forward", "linear"] = "feed-forward"
    activation: Literal["relu", "gelu"] = "relu"

    def __post_init__(self) -> None:
        try:
            layers = tuple((int(heads), int(head_dim)) for heads, head_dim in self.layers)
        except (TypeError, ValueError):
            raise ValueError(f"layers must be ((heads, head_dim), ...), got {self.layers!r}") from None
        if not layers:
            raise ValueError("an architecture needs at least one layer")
        for number, (heads, head_dim) in enumerate(layers, start=1):
            if heads < 1 or head_dim < 1:
                raise ValueError(f"layer {number} has {heads} heads of dimension {head_dim}; both must be at least 1")
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "positions", int(self.positions))
        object.__setattr__(self, "embed_dim", int(self.embed_dim or max(h * n for h, n in layers)))
        for name, least in (("width", 1), ("embed_dim", 1), ("positions", 0), ("outputs", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.class_token not in ("every", "last"):
            raise ValueError(f'class_token must be "every" or "last" (layer it attends in), got {self.class_token!r}')
        if self.embedding not in ("feed-forward", "linear"):
            raise ValueError(f'embedding must be "feed-forward" or "linear" (one matrix), got {self.embedding!r}')
        if self.activation not in ("relu", "gelu"):
            raise ValueError(f'activation must be "relu" or "gelu", got {self.activation!r}')
        object.__setattr__(self, "residual", bool(self.residual) or self.depth == 1)

    @classmethod
    def parse(
        cls,
        layers: str,
        *,
        width: int = 32,
        positions: int = 0,
        embed_dim: int = 0,
        outputs: int = 1,
        class_token: str = "every",
        residual: bool = True,
        embedding: str = "feed-forward",
        activation: str = "relu",
    ) -> Architecture:
        """The architecture whose layers a text gives as heads x head_dim, joined by +: what `name` prints.

        >>> Architecture.parse("2x8+3x4", width=16).layers
        ((2, 8), (3, 4))
        >>> Architecture.parse("2x8+3")
        Traceback (most recent call last):
        ...
        ValueError: layers must read heads x head_dim, layer by layer, as 2x8+2x8; got '2x8+3'
        """
        pairs = [re.fullmatch(r"\s*(-?[0-9]{1,9})\s*x\s*(-?[0-9]{1,9})\s*", part) for part in layers.split("+")]
        if not all(pairs):
            raise ValueError(f"layers must read heads x head_dim, layer by layer, as 2x8+2x8; got {layers!r}")
        shape = tuple((int(pair[1]), int(pair[2])) for pair in pairs if pair)
        kinds: Any = (class_token, residual, embedding, activation)
        return cls(shape, width, positions, embed_dim, outputs, *kinds)

    @property
    def relu_encoder(self) -> bool:
        """Whether tokens enter through a feed-forward and have ReLU: what constructions and pooling are written for."""
        return (self.embedding, self.activation) == ("feed-forward", "relu")

    def reading(self, token_dim: int) -> ClassTokenShape:
        """The network that reads tokens of this dimension."""
        return ClassTokenShape(self, token_dim)

    def as_dict(self) -> dict[str, object]:
        """The fields, ready for JSON; what is usual from `outputs` on goes without saying.

        >>> Architecture(layers=((4, 8),)).as_dict()
        {'layers': ((4, 8),), 'width': 32, 'positions': 0, 'embed_dim': 32}
        """
        usual = {field.name: field.default for field in fields(self) if field.name in UNSAID}
        return {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}

    def to_json(self) -> str:
        """Canonical JSON: equal architectures, equal text."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Architecture:
        """The architecture that canonical JSON describes."""
        return decode(cls, json.loads(text), "the architecture")


@dataclass(frozen=True)
class ClassTokenShape:
    """An architecture with the dimension of the tokens it reads: all sizes of a network that a bank can hold.

    Members of a bank may differ in heads, head_dim, width and embed_dim: what is missing is padded with zeros.

    >>> Architecture(layers=((2, 3),), width=8).reading(4).tensors()["attention.0.query"]
    (2, 3, 6)
    """

    arch: Architecture
    token_dim: int

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(heads, head_dim) of every layer."""
        return self.arch.layers

    @property
    def name(self) -> str:
        """The architecture's."""
        return self.arch.name

    @property
    def embed_dim(self) -> int:
        """The width of a token's state."""
        return self.arch.embed_dim

    @property
    def width(self) -> int:
        """The hidden size of the feed-forwards."""
        return self.arch.width

    @property
    def shared(self) -> dict[str, int | str | bool]:
        """What all members of a bank have in common."""
        arch = self.arch
        return {
            "depth": arch.depth,
            "number of position features": arch.positions,
            "number of outputs": arch.outputs,
            "layer in which class tokens attend": arch.class_token,
            "kind of residual": arch.residual,
            "embedding": arch.embedding,
            "activation": arch.activation,
            "dimension of the tokens": self.token_dim,
        }

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter by name, with its size."""
        arch, features = self.arch, self.token_dim + self.arch.positions
        E, N = arch.embed_dim, arch.width
        sizes: dict[str, tuple[int, ...]] = {"cls": (E,)}
        if arch.embedding == "linear":
            sizes |= {"encoder.weight": (E, features), "encoder.bias": (E,)}
        else:
            sizes |= _feed_forward("encoder", features, N, E)
        for layer, (heads, head_dim) in enumerate(arch.layers):
            sizes |= {f"attention.{layer}.{name}": (heads, head_dim, E) for name in ("query", "key", "value")}
            sizes[f"attention.{layer}.output"] = (heads, E, head_dim)
        for layer in range(arch.depth - 1):
            sizes |= _feed_forward(f"between.{layer}", E, N, E)
        return sizes | _feed_forward("read_out", E, N, arch.outputs)

    def module(self, seed: int | None = None) -> Transformer:
        """The plain network, its weights drawn from the seed."""
        from headcount.nets import Transformer

        return Transformer(self.arch, self.token_dim, seed=seed)


def _feed_forward(name: str, inputs: int, hidden: int, outputs: int) -> dict[str, tuple[int, ...]]:
    inner = {f"{name}.inner.weight": (hidden, inputs), f"{name}.inner.bias": (hidden,)}
    return {**inner, f"{name}.outer.weight": (outputs, hidden), f"{name}.outer.bias": (outputs,)}


class Parameters(NamedTuple):
    """How many numbers are trained: all of them, and those of the feed-forwards alone."""

    total: int
    feedforward: int


def parameters(arch: Architecture, token_dim: int = 4) -> Parameters:
    """Count the parameters of a network with tokens of dimension `token_dim`.

    The head-count paper's M counts the weights and biases of the feed-forwards only: encoder, those between
    layers, read-out. Attention matrices (no biases) and the class token come on top.
    Source: Yu et al. 2025 (heads), Section 2.

    >>> parameters(Architecture(layers=((4, 8),), width=32), token_dim=4)
    Parameters(total=6433, feedforward=2305)
    """
    sizes = {name: math.prod(size) for name, size in arch.reading(token_dim).tensors().items()}
    feedforward = sum(n for name, n in sizes.items() if name.startswith(("encoder", "between", "read_out")))
    return Parameters(total=sum(sizes.values()), feedforward=feedforward)
