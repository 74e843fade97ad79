"""What a shape costs: parameters, arithmetic in training, prefill and decoding, bytes of its cache. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.refusals import at_least_one
from headcount.sizing.model_shape import LayerShape, ModelShape

# Head dimensions that fused attention kernels are compiled for; any other one runs padded to the next.
TILES = (32, 64, 96, 128, 192, 256)
WIDE = 64  # beyond the largest tile, products run in multiples of this


def forward_flops(shape: ModelShape, length: int, *, causal: bool = False, logits: int | None = None) -> int:
    """Multiplications and additions of one pass over `length` tokens: 2 a parameter and token, and attention's scores.

    2 T (matrices) + 4 T^2 heads head_dim for scores and mixtures, half of it where a kernel skips the future
    (`causal`), within a layer's window where it has one; and 2 embed_dim vocab for each of the `logits` tokens that are
    read out, all unless said else, none in an encoder.

    >>> one = ModelShape.uniform(1, heads=2, head_dim=8, embed_dim=16, width=0, vocab=0)
    >>> forward_flops(one, 10) == 2 * 10 * 4 * 16**2 + 4 * 10 * 10 * 16
    True
    """
    at_least_one(length=length)
    read = 0 if shape.wiring.encoder else length if logits is None else logits
    matrices = 2 * length * shape.matrix_parameters + 2 * read * shape.embed_dim * shape.vocab
    return matrices + sum(4 * _pairs(one, length, causal) * one.heads * one.head_dim for one in shape.layers)


def decode_flops(shape: ModelShape, context: int) -> int:
    """The arithmetic of one more token when `context` tokens are in the cache."""
    at_least_one(context=context)
    past = sum(4 * _visible(one, context) * one.heads * one.head_dim for one in shape.layers)
    return 2 * (shape.matrix_parameters + shape.embed_dim * shape.vocab) + past


def cache_bytes(shape: ModelShape, context: int = 1, *, number: int = 2) -> int:
    """Keys and values of `context` tokens: 2 kv_heads head_dim numbers a layer and token that it can still see.

    >>> shape = ModelShape.uniform(16, heads=32, head_dim=64, kv_heads=8, embed_dim=2048, width=8192)
    >>> cache_bytes(shape)  # Llama-3.2-1B
    32768
    """
    if shape.wiring.encoder:
        return 0
    return sum(2 * one.kv_heads * one.head_dim * _visible(one, context) * number for one in shape.layers)


def tile_efficiency(head_dim: int) -> float:
    """The share of a padded head that is not padding: head_dim over the next one that kernels are compiled for.

    >>> tile_efficiency(128), tile_efficiency(80), tile_efficiency(132)
    (1.0, 0.8333333333333334, 0.6875)
    """
    at_least_one(head_dim=head_dim)
    padded = next((tile for tile in TILES if tile >= head_dim), -(-head_dim // WIDE) * WIDE)
    return head_dim / padded


@dataclass(frozen=True)
class Footprint:
    """What a shape costs at a context length; bytes at `number` bytes a number."""

    parameters: int
    training_flops: int  # per token
    prefill_flops: int
    decode_flops: int
    cache_per_token: int
    cache: int
    weights: int
    tiles: float

    @property
    def decode_bytes(self) -> int:
        """What is read from memory for one more token at the full context: every weight, and the cache."""
        return self.weights + self.cache

    def speed(self, bandwidth: float) -> float:
        """Tokens a second that a memory of `bandwidth` bytes a second allows, one sequence at a time."""
        return bandwidth / self.decode_bytes

    def as_row(self) -> dict[str, object]:
        return {
            "parameters": self.parameters,
            "training FLOPs per token": self.training_flops,
            "prefill FLOPs": self.prefill_flops,
            "decode FLOPs": self.decode_flops,
            "cache bytes per token": self.cache_per_token,
            "cache bytes": self.cache,
            "weight bytes": self.weights,
            "tile efficiency": self.tiles,
        }


def footprint(shape: ModelShape, context: int, *, number: int = 2) -> Footprint:
    """The costs of a shape at a context; training is three forward passes, one of them for each direction back."""
    return Footprint(
        shape.parameters,
        3 * forward_flops(shape, context, causal=not shape.wiring.encoder) // context,
        forward_flops(shape, context, causal=not shape.wiring.encoder, logits=1),
        0 if shape.wiring.encoder else decode_flops(shape, context),
        cache_bytes(shape, number=number),
        cache_bytes(shape, context, number=number),
        shape.parameters * number,
        min(tile_efficiency(one.head_dim) for one in shape.layers),
    )


def _visible(one: LayerShape, context: int) -> int:
    return min(one.window, context) if one.window else context


def _pairs(one: LayerShape, length: int, causal: bool) -> int:
    """How many (query, key) pairs are computed."""
    if not causal:
        return length * length
    visible = _visible(one, length)
    return visible * (visible + 1) // 2 + (length - visible) * visible
