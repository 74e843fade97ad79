"""A plain encoder as people write one: torch alone, `nn.TransformerEncoderLayer`, the same search and splits."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["PlainEncoder", "fit_plain", "plain_table"]

HEADS, LAYERS = (1, 2, 4, 8), (1, 2)


class PlainEncoder(nn.Module):
    """Embedding, learnt places, class token, pre-norm layers, a linear read-out."""

    def __init__(self, features: int, letters: int, length: int, outputs: int, heads: int, layers: int, drop: float):
        super().__init__()
        self.embed: nn.Module = nn.Embedding(letters + 1, 48) if letters else nn.Linear(features, 48)
        self.places = nn.Parameter(0.02 * torch.randn(length, 48))
        self.cls = nn.Parameter(0.02 * torch.randn(48))
        layer = nn.TransformerEncoderLayer(48, heads, 96, drop, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(48), enable_nested_tensor=False)
        self.read_out = nn.Linear(48, outputs)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """Logits or numbers; `absent` marks padding."""
        state = torch.cat([self.cls.expand(len(x), 1, -1), self.embed(x) + self.places], dim=1)
        padding = torch.cat([torch.zeros(len(x), 1, dtype=torch.bool), absent], dim=1)
        return self.read_out(self.layers(state, src_key_padding_mask=padding)[:, 0])


def fit_plain(parts: list[tuple[Tensor, Tensor, Tensor]], letters: int, heads: int, layers: int, steps: int) -> float:
    """The outer loss of what the inner part prefers: all settings for a quarter of the steps, two to the end."""
    classes = parts[0][2].ndim == 2 and parts[0][2].shape[1] > 1
    x, _, y = parts[0]
    outputs = y.shape[1] if y.ndim == 2 else 1

    def loss(net: nn.Module, part: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        out = net(part[0], part[1])
        if classes:
            return nn.functional.cross_entropy(out, part[2])
        return (out - part[2].reshape(out.shape)).square().mean()

    def trained(lr: float, drop: float, decay: float, count: int) -> tuple[float, float]:
        torch.manual_seed(0)
        net = PlainEncoder(x.shape[-1], letters, x.shape[1], outputs, heads, layers, drop)
        best = math.inf, math.inf
        optimiser = torch.optim.AdamW(net.parameters(), lr, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=count + 1, pct_start=0.05)
        for step in range(1, count + 1):
            rows = torch.randint(len(x), (32,))
            optimiser.zero_grad()
            loss(net.train(), tuple(t[rows] for t in parts[0])).backward()  # pyright: ignore
            optimiser.step()
            schedule.step()
            if step % max(1, count // 20) == 0:
                with torch.no_grad():
                    net.eval()
                    best = min(best, (loss(net, parts[1]).item(), loss(net, parts[2]).item()))
        return best

    settings = [(lr, *kept) for lr, kept in product((1e-3, 4e-3), ((0.0, 1e-3), (0.2, 0.1)))]
    tried = sorted((trained(*one, max(10, steps // 4)), one) for one in settings)
    finals = [trained(*one, steps) for _, one in tried[:2]]
    return min((*finals, tried[0][0]))[1]


def plain_table(data: Any, steps: int = 400, splits: int = 3) -> dict[str, list[float]]:
    """The error of every count and depth by split, over that of the best constant."""
    from headcount.measuring.preparing import prepare
    from headcount.measuring.splitting import outer_splits

    found: dict[str, list[float]] = {}
    letters = len(data.letters)
    for split in outer_splits(data, splits):
        fold = prepare(data, split)
        parts = [_tensors(part) for part in (fold.training, fold.inner, fold.outer)]
        for layers, heads in product(LAYERS, HEADS):
            error = fit_plain(parts, letters, heads, layers, steps) / fold.constants[2]
            found.setdefault(f"{heads} heads, {layers} layers", []).append(round(error, 5))
    return found


def _tensors(part: Any) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.as_tensor(part.x)
    absent = torch.arange(x.shape[1]) >= torch.as_tensor(part.lengths)[:, None]
    return x, absent, torch.as_tensor(part.y).float()
