"""The sizes of a transformer as one value: layers that may differ, heads that are not welded to the width. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.refusals import at_least, at_least_one


@dataclass(frozen=True)
class LayerShape:
    """One layer: `heads` of `head_dim`, `kv_heads` keys and values that they share, a feed-forward of `width` units.

    `window` is how many past tokens the layer sees; 0 is all of them.

    >>> LayerShape(32, 64, 8, 8192).ratio
    4.0
    >>> LayerShape(6, 64, 4, 1536)
    Traceback (most recent call last):
    ...
    ValueError: 6 heads cannot share 4 key-value heads evenly
    """

    heads: int
    head_dim: int
    kv_heads: int
    width: int
    window: int = 0

    def __post_init__(self) -> None:
        at_least_one(heads=self.heads, head_dim=self.head_dim, kv_heads=self.kv_heads)
        at_least(0, width=self.width, window=self.window)
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly")

    @property
    def ratio(self) -> float:
        """Heads for each key-value head: 1 is multi-head attention, `heads` is multi-query attention."""
        return self.heads / self.kv_heads

    def __str__(self) -> str:
        shared = "" if self.kv_heads == self.heads else f" ({self.kv_heads})"
        return f"{self.heads}{shared} x {self.head_dim}"


@dataclass(frozen=True)
class Wiring:
    """What a family of models puts around its matrices: it decides the parameters that the sizes leave open.

    `norm` numbers an entry (0 none, 1 a gain, 2 gain and bias), `norms` of them a layer and `end_norms` outside;
    `qk_norm` numbers a head dimension for queries and keys each; biases on what reads (queries, keys, values), on what
    writes, in the feed-forward and on the logits; `positions` learned places; `gated` feed-forwards hold three
    matrices; `tied` logits reuse the table of tokens; `encoder` models read both ways and keep no cache; `other` is
    what is left (token types, a pooler).
    """

    gated: bool = True
    tied: bool = True
    norm: int = 1
    norms: int = 2
    end_norms: int = 1
    qk_norm: int = 0
    read_bias: bool = False
    write_bias: bool = False
    feed_bias: bool = False
    logit_bias: bool = False
    positions: int = 0
    encoder: bool = False
    other: int = 0

    @property
    def matrices(self) -> int:
        """How many matrices a feed-forward has."""
        return 3 if self.gated else 2


PLAIN = Wiring()  # as Llama and its kin are wired
BARE = Wiring(gated=False, tied=True, norm=0)  # no gains, no biases, no places: two shapes differ in their heads alone


@dataclass(frozen=True)
class ModelShape:
    """A whole model's sizes, layer by layer.

    >>> shape = ModelShape.uniform(30, heads=9, head_dim=64, kv_heads=3, width=1536, embed_dim=576, vocab=49152)
    >>> shape.parameters  # SmolLM2-135M
    134515008
    >>> str(shape)
    '30 layers of 9 (3) x 64, embed_dim 576, feed-forward 1536'
    """

    layers: tuple[LayerShape, ...]
    embed_dim: int
    vocab: int
    wiring: Wiring = PLAIN

    def __post_init__(self) -> None:
        at_least_one(embed_dim=self.embed_dim)
        at_least(0, vocab=self.vocab)
        if not self.layers:
            raise ValueError("a shape needs at least one layer")

    @classmethod
    def uniform(
        cls,
        layers: int,
        *,
        heads: int,
        head_dim: int,
        embed_dim: int,
        width: int,
        kv_heads: int | None = None,
        vocab: int = 0,
        wiring: Wiring = PLAIN,
    ) -> ModelShape:
        """The same layer over and over."""
        at_least_one(layers=layers)
        one = LayerShape(heads, head_dim, kv_heads or heads, width)
        return cls((one,) * layers, embed_dim, vocab, wiring)

    @property
    def is_uniform(self) -> bool:
        return len(set(self.layers)) == 1

    @property
    def matrix_parameters(self) -> int:
        """The numbers in attention's and the feed-forwards' matrices: what every token is multiplied by."""
        return sum(self.attention_matrices(one) + self.feed_matrices(one) for one in self.layers)

    @property
    def parameters(self) -> int:
        """Every number that is trained, a tied table once."""
        return self.matrix_parameters + self.vector_parameters + self.table_parameters

    @property
    def table_parameters(self) -> int:
        """The table of tokens, the learned places, and logits that are not tied to the table."""
        w = self.wiring
        tables = (1 if w.tied else 2) * self.vocab + w.positions
        return tables * self.embed_dim + w.logit_bias * self.vocab + w.other

    @property
    def vector_parameters(self) -> int:
        """Gains and biases."""
        return self.wiring.end_norms * self.wiring.norm * self.embed_dim + sum(map(self._vectors, self.layers))

    def attention_matrices(self, one: LayerShape) -> int:
        """embed_dim head_dim (2 heads + 2 kv_heads): queries and output for each head, keys and values for each group.

        >>> shape = ModelShape.uniform(1, heads=4, head_dim=8, embed_dim=32, width=0)
        >>> shape.attention_matrices(shape.layers[0]) == 4 * 32**2
        True
        """
        return self.embed_dim * one.head_dim * 2 * (one.heads + one.kv_heads)

    def feed_matrices(self, one: LayerShape) -> int:
        return self.wiring.matrices * self.embed_dim * one.width

    def with_layers(self, layers: Sequence[LayerShape]) -> ModelShape:
        return dataclasses.replace(self, layers=tuple(layers))

    def _vectors(self, one: LayerShape) -> int:
        w = self.wiring
        read = one.head_dim * (one.heads + 2 * one.kv_heads) * w.read_bias
        feed = (one.width * (w.matrices - 1) + self.embed_dim) * w.feed_bias
        return (
            w.norms * w.norm * self.embed_dim
            + 2 * one.head_dim * w.qk_norm
            + read
            + self.embed_dim * w.write_bias
            + feed
        )

    def __str__(self) -> str:
        kinds = list(dict.fromkeys(str(one) for one in self.layers))
        widths = list(dict.fromkeys(one.width for one in self.layers))
        heads = kinds[0] if len(kinds) == 1 else " + ".join(str(one) for one in self.layers)
        width = f"{widths[0]}" if len(widths) == 1 else f"{min(widths)} to {max(widths)}"
        return f"{len(self.layers)} layers of {heads}, embed_dim {self.embed_dim}, feed-forward {width}"
