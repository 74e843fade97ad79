"""A plain transformer of blocks over embedded tokens, in every common arrangement, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Blocks(nn.Module):
    """A plain transformer of blocks: pre- or post-norm, LayerNorm or RMSNorm, causal or not, gated or not."""

    def __init__(
        self,
        layers: int,
        embed_dim: int,
        heads: int,
        width: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        norm: type[nn.Module] = nn.LayerNorm,
        pre_norm: bool = True,
        causal: bool = False,
        gated: bool = False,
        seed: int = 0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.heads, self.activation, self.pre_norm, self.causal, self.gated = heads, activation, pre_norm, causal, gated
        E, N = embed_dim, width
        shapes = {"qkv": (E, 3 * E), "out": (E, E), "inner": (E, N), "outer": (N, E)} | (
            {"up": (E, N)} if gated else {}
        )
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            parts: dict[str, nn.Module] = {name: nn.Linear(*shape) for name, shape in shapes.items()}
            self.blocks.append(nn.ModuleDict(parts | {"norm1": norm(E), "norm2": norm(E)}))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                draw = torch.randn(p.shape, generator=generator, dtype=torch.float64)
                p.copy_(scale * draw / p.shape[1] ** 0.5 if p.dim() == 2 else 1 + draw / 4)
        self.double().eval()

    def weights(self, block: Any, z: Tensor) -> Float[Tensor, "*batch heads length length"]:
        """The attention weights of a block at its (normed) input."""
        q, k, _ = (self._split(t) for t in block["qkv"](z).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=z.device).triu(1)
        return torch.softmax(scores.masked_fill(unseen, -torch.inf) if self.causal else scores, dim=-1)

    def _split(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def attend(self, block: Any, z: Tensor) -> Tensor:
        v = self._split(block["qkv"](z).chunk(3, -1)[2])
        return block["out"]((self.weights(block, z) @ v).transpose(-3, -2).flatten(-2))

    def hidden(self, block: Any, z: Tensor) -> Tensor:
        active = self.activation(block["inner"](z))
        return block["outer"](active * block["up"](z) if self.gated else active)

    def forward(self, z: Float[Tensor, "*batch length embed"]) -> Float[Tensor, "*batch length embed"]:
        for block in self.blocks:
            b: Any = block
            if self.pre_norm:
                z = z + self.attend(b, b["norm1"](z))
                z = z + self.hidden(b, b["norm2"](z))
            else:
                z = b["norm1"](z + self.attend(b, z))
                z = b["norm2"](z + self.hidden(b, z))
        return z
