"""The plain network that an Architecture describes: the reference for everything faster."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.nets.architecture import Architecture
from headcount.nets.weighing import Weighing, softmax


def position_features(
    length: int, count: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Float[Tensor, "length count"]:
    """The first `count` of t/T, cos(2 pi t/T), sin(2 pi t/T), cos(4 pi t/T), ..., for t = 1..T.

    >>> position_features(4, 1).flatten()
    tensor([0.2500, 0.5000, 0.7500, 1.0000])
    """
    t = torch.arange(1, length + 1, dtype=torch.float64, device=device) / length
    waves = [wave(2 * math.pi * j * t) for j in range(1, count // 2 + 1) for wave in (torch.cos, torch.sin)]
    columns = [t, *waves][:count]
    table = torch.stack(columns, dim=1) if columns else t.new_zeros(length, 0)
    return table.to(dtype or torch.get_default_dtype())


class FeedForward(nn.Module):
    """Two layers: x -> W2 act(W1 x + b1) + b2."""

    def __init__(self, inputs: int, hidden: int, outputs: int, activation: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, hidden)
        self.outer = nn.Linear(hidden, outputs)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return self.outer(self.activation(self.inner(x)))


class Attention(nn.Module):
    """h heads: head i adds W_O,i sum_t weigh(<W_Q,i q, W_K,i x_t>) W_V,i x_t. No biases, no norm, no residual."""

    def __init__(self, embed_dim: int, heads: int, head_dim: int, weigh: Weighing) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(heads, head_dim, embed_dim))
        self.key = nn.Parameter(torch.empty(heads, head_dim, embed_dim))
        self.value = nn.Parameter(torch.empty(heads, head_dim, embed_dim))
        self.output = nn.Parameter(torch.empty(heads, embed_dim, head_dim))
        self.weigh = weigh

    def weights(
        self,
        queries: Float[Tensor, "batch to embed"],
        tokens: Float[Tensor, "batch length embed"],
        present: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch heads to length"]:
        """How much each query attends to each token, head by head."""
        q = torch.einsum("bqe,hne->bhqn", queries, self.query)
        k = torch.einsum("bte,hne->bhtn", tokens, self.key)
        scores = q @ k.mT
        if present is not None:
            scores = scores.masked_fill(~present[:, None, None, :], -torch.inf)
        return self.weigh(scores)

    def forward(
        self,
        queries: Float[Tensor, "batch to embed"],
        tokens: Float[Tensor, "batch length embed"],
        present: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch to embed"]:
        p = self.weights(queries, tokens, present)
        v = torch.einsum("bte,hne->bhtn", tokens, self.value)
        return torch.einsum("bhqn,hen->bqe", p @ v, self.output)


def _activation(smooth: bool) -> nn.Module:
    return nn.GELU() if smooth else nn.ReLU()


class Transformer(nn.Module):
    """Encoder, L attention layers, read-out at the class token.

    One layer (the head-count paper): y = F(c + attention(c; x)), without residual or norm for the tokens.
    More layers: tokens and class token carry a residual, x <- x + attention(x), then x <- x + feed-forward(x)
    between layers (`residual=False`: x <- attention(x), x <- feed-forward(x)); the class token only asks, in every
    layer or (`class_token="last"`) in the last one, and nobody attends to it. The encoder is a feed-forward, or one
    matrix (`embedding="linear"`). Scores are divided by sqrt(head_dim) when `weigh` is not given.
    Source: Yu et al. 2025 (heads), Equation 4; Yu et al. 2026 (InfoFlow), Section 2 for more layers.

    >>> net = Transformer(Architecture(layers=((3, 5),), width=16), token_dim=4, seed=0)
    >>> net(torch.zeros(2, 7, 4)).shape
    torch.Size([2])
    """

    def __init__(
        self, arch: Architecture, token_dim: int, *, weigh: Weighing | None = None, seed: int | None = None
    ) -> None:
        super().__init__()
        self.arch, self.token_dim = arch, token_dim
        E, N = arch.embed_dim, arch.width
        features = token_dim + arch.positions
        linear, smooth = arch.embedding == "linear", arch.activation == "gelu"
        self.encoder = nn.Linear(features, E) if linear else FeedForward(features, N, E, _activation(smooth))
        self.cls = nn.Parameter(torch.empty(E))
        self.attention = nn.ModuleList(
            Attention(E, heads, head_dim, weigh or softmax(head_dim**-0.5)) for heads, head_dim in arch.layers
        )
        self.between = nn.ModuleList(FeedForward(E, N, E, _activation(smooth)) for _ in range(arch.depth - 1))
        self.read_out = FeedForward(E, N, arch.outputs, nn.GELU())
        self.reset(torch.Generator().manual_seed(seed) if seed is not None else None)

    def named(self) -> dict[str, Tensor]:
        """The parameters by the names of `ClassTokenShape.tensors`."""
        return dict(self.named_parameters())

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight anew, uniform with variance 1 / inputs (twice that before a ReLU or GELU).

        The class token has unit variance, so that scores start with the spread of a softmax that can choose.
        """
        for name, p in self.named_parameters():
            draw = 2 * torch.rand(p.shape, generator=generator, dtype=torch.float64) - 1
            p.copy_(draw * math.sqrt(3 * self._variance(name, p)))

    def _variance(self, name: str, p: Tensor) -> float:
        if name == "cls":
            return 1.0
        if name.endswith("bias"):
            return 1 / (3 * self.get_submodule(name.removesuffix(".bias")).get_parameter("weight").shape[1])
        if name.endswith("inner.weight"):
            return 2 / p.shape[1]
        return 1 / (p.shape[0] * p.shape[2] if name.endswith("output") else p.shape[-1])

    def encode(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length embed"]:
        """Every token's state before attention."""
        features = position_features(x.shape[1], self.arch.positions, dtype=x.dtype, device=x.device)
        return self.encoder(torch.cat([x, features.expand(x.shape[0], -1, -1)], dim=-1))

    def states(
        self, x: Float[Tensor, "batch length token_dim"], present: Bool[Tensor, "batch length"] | None = None
    ) -> list[tuple[Float[Tensor, "batch length embed"], Float[Tensor, "batch 1 embed"]]]:
        """(tokens, class token) before the first layer and after each layer but the last."""
        tokens, cls = self.encode(x), self.cls.expand(x.shape[0], 1, -1)
        pairs = [(tokens, cls)]
        for attend, forward in zip(self.attention, self.between, strict=False):
            both = torch.cat([tokens, cls], dim=1) if self.arch.class_token == "every" else tokens
            attended = attend(both, tokens, present)
            both = both + attended if self.arch.residual else attended
            both = both + forward(both) if self.arch.residual else forward(both)
            tokens, cls = (both[:, :-1], both[:, -1:]) if self.arch.class_token == "every" else (both, cls)
            pairs.append((tokens, cls))
        return pairs

    def forward(
        self, x: Float[Tensor, "batch length token_dim"], present: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch ..."]:
        tokens, cls = self.states(x, present)[-1]
        cls = cls + self.attention[-1](cls, tokens, present)
        out = self.read_out(cls[:, 0])
        return out[:, 0] if self.arch.outputs == 1 else out
