"""The plain network that constructions fill with weights: ReLU encoder, attention layers, ReLU read-out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets.transformer import Attention
from headcount.nets.weighing import softmax

LARGEST = 2 * 10**8  # parameters: 1.6 GB in float64


def refuse_too_large(
    parameters: float, wish: str, *, eps: float | None = None, rate: float = 1.0, at_most: float = LARGEST
) -> None:
    """Refuse, before any memory is taken, a network of more feed-forward parameters than are built.

    Where they grow like eps^-rate, the refusal names the eps that would fit.

    >>> refuse_too_large(3e9, "eps 1e-09", eps=1e-9, rate=0.5)
    Traceback (most recent call last):
    ...
    ValueError: eps 1e-09 would take 3e+09 feed-forward parameters, more than the 2e+08 that are built at most;
    eps 2.3e-07 would fit in size
    """
    if parameters > at_most:
        fits = (
            ""
            if eps is None
            else f"; eps {_two_digits_up(eps * (parameters / at_most) ** (1 / rate)):g} would fit in size"
        )
        raise ValueError(
            f"{wish} would take {parameters:.2g} feed-forward parameters, more than the {at_most:.2g} that are built "
            f"at most{fits}"
        )


def _two_digits_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


Net = TypeVar("Net", bound="_Certified")


class _Certified(nn.Module):
    """A network that refuses any narrower float once a certificate speaks of its float64 arithmetic."""

    certified = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if self.certified and (dtype := fn(torch.zeros(0, dtype=torch.float64)).dtype) != torch.float64:
            raise ValueError(
                f"this {type(self).__name__} holds a certificate for float64, which {dtype} would break; convert "
                f"copy.deepcopy(net).without_certificate() instead"
            )
        return super()._apply(fn, recurse)

    def without_certificate(self: Net) -> Net:
        """The same network, free to be converted: nothing is promised of it any more."""
        for module in self.modules():
            if isinstance(module, _Certified):
                module.certified = False
        return self

    def with_certificate(self: Net) -> Net:
        """The same network, held to float64 together with its feed-forwards."""
        for module in self.modules():
            if isinstance(module, _Certified):
                module.certified = True
        return self


class ReluNet(_Certified):
    """Linear maps with ReLU between them; `sizes` lists the dimensions from input to output. Starts at zero.

    >>> ReluNet((3, 8, 2)).parameters_count
    50
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"a ReLU network needs at least an input and an output dimension, got {sizes}")
        self.sizes = tuple(sizes)
        self.maps = nn.ModuleList(nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(sizes))
        for p in self.parameters():
            nn.init.zeros_(p)

    @property
    def parameters_count(self) -> int:
        """How many weights and biases, zeros included."""
        return sum(b * (a + 1) for a, b in pairwise(self.sizes))

    @property
    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of every linear map, first to last."""
        return [(m.weight.detach(), m.bias.detach()) for m in self._linear()]

    @torch.no_grad()
    def fill(self, *pairs: tuple[Tensor, Tensor]) -> ReluNet:
        """Set (weight, bias) of every linear map, first to last."""
        for m, (weight, bias) in zip(self._linear(), pairs, strict=True):
            m.weight.copy_(weight)
            m.bias.copy_(bias)
        return self

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        *inner, last = self._linear()
        for m in inner:
            x = torch.relu(m(x))
        return last(x)

    def _linear(self) -> list[nn.Linear]:
        return [m for m in self.maps if isinstance(m, nn.Linear)]


@dataclass(frozen=True)
class NetworkShape:
    """All sizes of a `ClassTokenNet`: feed-forwards by their dimensions, layers by (heads, head_dim), and each beta.

    >>> NetworkShape(encoder=(3, 16, 4), layers=((2, 2),), betas=(50.0,), read_out=(4, 8, 1)).token_dim
    2
    """

    encoder: tuple[int, ...]
    layers: tuple[tuple[int, int], ...]
    betas: tuple[float, ...]
    read_out: tuple[int, ...]
    between: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not len(self.layers) == len(self.betas) == len(self.between) + 1:
            raise ValueError(
                f"{len(self.layers)} layers need as many betas and one feed-forward less between them, "
                f"got {len(self.betas)} and {len(self.between)}"
            )

    @property
    def feedforward_parameters(self) -> int:
        """The paper's M: weights and biases of the feed-forwards, zeros included."""
        return sum(b * (a + 1) for sizes in (self.encoder, *self.between, self.read_out) for a, b in pairwise(sizes))

    @property
    def token_dim(self) -> int:
        return self.encoder[0] - 1

    @property
    def embed_dim(self) -> int:
        return self.encoder[-1]


class ClassTokenNet(_Certified):
    """Encoder of (token, position), L attention layers with their own beta, read-out at the class token. float64.

    The encoder sees the token and its position t = 1..T as a number. One layer: y = F(c + attention(c; x)).
    More layers: x <- x + attention(x), then x <- x + feed-forward(x) for tokens and class token between layers;
    the class token only asks. Weights start at zero; constructions fill them.
    Source: Yu et al. 2025 (heads), Equation 4.

    >>> shape = NetworkShape(encoder=(3, 16, 4), layers=((2, 2),), betas=(50.0,), read_out=(4, 8, 1))
    >>> ClassTokenNet(shape)(torch.zeros(5, 7, 2)).shape
    torch.Size([5])
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        refuse_too_large(shape.feedforward_parameters, "this shape")
        self.shape = shape
        E = shape.embed_dim
        self.encoder = ReluNet(shape.encoder)
        self.cls = nn.Parameter(torch.zeros(E, dtype=torch.float64))
        self.attention = nn.ModuleList(
            Attention(E, heads, head_dim, softmax(beta)).double()
            for (heads, head_dim), beta in zip(shape.layers, shape.betas, strict=True)
        )
        self.between = nn.ModuleList(ReluNet(sizes) for sizes in shape.between)
        self.read_out = ReluNet(shape.read_out)
        for p in self.attention.parameters():
            nn.init.zeros_(p)
        self.requires_grad_(False)  # the weights are proved, not trained; undo it to train on from here

    @property
    def feedforward_parameters(self) -> int:
        """The paper's M: weights and biases of the feed-forwards, zeros included."""
        return self.shape.feedforward_parameters

    def encode(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length embed"]:
        """Every token's state before attention."""
        x = x.to(self.cls.dtype)
        t = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
        return self.encoder(torch.cat([x, t[None, :, None].expand(x.shape[0], -1, 1)], dim=-1))

    def attended(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch embed"]:
        """The class token after the last attention: all that the read-out sees."""
        tokens, cls = self.encode(x), self.cls.expand(x.shape[0], 1, -1)
        for attend, forward in zip(self.attention, self.between, strict=False):
            both = torch.cat([tokens, cls], dim=1)
            both = both + attend(both, tokens)
            both = both + forward(both)
            tokens, cls = both[:, :-1], both[:, -1:]
        return (cls + self.attention[-1](cls, tokens))[:, 0]

    def forward(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return self.read_out(self.attended(x))[:, 0]
