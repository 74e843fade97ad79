"""The twelve shapes, all of as many parameters: what attention gives up, the feed-forward of the same layer gets."""

from __future__ import annotations

from headcount.papers.allocation.schedules import by_bound, ramp
from headcount.sizing.model_shape import BARE, LayerShape, ModelShape

LAYERS, EMBED, WIDTH, VOCAB = 4, 256, 1024, 2048
HEADS, HEAD_DIM = 8, 32
BASE = "8 x 32"


def shape_of(*layers: tuple[int, int, int], vocab: int = VOCAB, embed: int = EMBED, width: int = WIDTH) -> ModelShape:
    """A shape of (heads, head_dim, kv_heads) by layer, the feed-forward's width making up for attention."""
    return ModelShape(
        tuple(LayerShape(h, n, g, width + 2 * embed - n * (h + g)) for h, n, g in layers), embed, vocab, BARE
    )


def shapes(vocab: int = VOCAB) -> dict[str, ModelShape]:
    """Heads against head dimension; fewer keys and values; heads not welded to the width; attention by layer."""

    def same(heads: int, head_dim: int, kv_heads: int) -> ModelShape:
        return shape_of(*[(heads, head_dim, kv_heads)] * LAYERS, vocab=vocab)

    by_layer = {
        "ramp": ramp(LAYERS, HEADS, HEAD_DIM),
        "early wide, late narrow": by_bound(LAYERS, HEADS, HEAD_DIM, early=2, lags=2),
    }
    return {
        BASE: same(8, 32, 8),
        "1 x 256": same(1, 256, 1),
        "2 x 128": same(2, 128, 2),
        "4 x 64": same(4, 64, 4),
        "16 x 16": same(16, 16, 16),
        "8 (4) x 32": same(8, 32, 4),
        "8 (2) x 32": same(8, 32, 2),
        "8 (1) x 32": same(8, 32, 1),
        "4 x 32": same(4, 32, 4),
        "16 (4) x 32": same(16, 32, 4),
        **{name: _level(plan.layers, vocab) for name, plan in by_layer.items()},
    }


def _level(layers: tuple[tuple[int, int], ...], vocab: int) -> ModelShape:
    """Attention moved between layers, every feed-forward as wide as the base's."""
    return ModelShape(tuple(LayerShape(h, n, h, WIDTH) for h, n in layers), EMBED, vocab, BARE)
