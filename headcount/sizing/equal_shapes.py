"""Shapes of one budget: the sizes that stay, and every way to divide the rest. No torch."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from headcount.refusals import positive
from headcount.sizing.known_models import known_shape
from headcount.sizing.model_configs import read_config
from headcount.sizing.model_shape import PLAIN, LayerShape, ModelShape, Wiring

HEAD_DIMS = (32, 64, 80, 96, 128, 256)
TOTALS = (0.5, 1.0, 1.5, 2.0)  # attention's width as a share of embed_dim: head_dim is not welded to it
USUAL = 64  # head_dim of the reference
FEED = {True: 8 / 3, False: 4.0}  # a feed-forward's usual width as a share of embed_dim, gated or not
WIDTHS = (*range(64, 512, 64), *range(512, 1024, 128), *range(1024, 8193, 256))  # so that heads can be shared
ROUND = 16  # widths of feed-forwards are whole multiples of it


def base_shape(
    budget: float | str | None,
    model: str | Path | ModelShape | None,
    width: int | None,
    layers: int | None,
    vocab: int | None,
    encoder: bool,
) -> ModelShape:
    """The sizes that stay: layers, embed_dim, vocabulary, and how many parameters a layer has."""
    if model is not None:
        if budget is not None or width is not None:
            raise ValueError("give a model, or a budget or width; not both")
        return model if isinstance(model, ModelShape) else _named(model)
    wiring = Wiring(False, True, 2, 2, 1, 0, True, True, True, encoder=True) if encoder else PLAIN
    words = (0 if encoder else 32_768) if vocab is None else vocab
    if budget is None and width is None:
        raise ValueError("give a budget of parameters, a width, or a model")
    if budget is None:
        assert width is not None
        return _welded(layers or max(2, round(width / 64)), width, words, wiring, FEED[wiring.gated] * width)
    return _of_budget(parameters_from(budget), width, layers, words, wiring)


def candidates(base: ModelShape) -> list[ModelShape]:
    """Every shape of the base's parameters: head dimensions, attention's width, keys and values shared evenly.

    >>> base = ModelShape.uniform(2, heads=4, head_dim=64, embed_dim=256, width=1024, vocab=1000)
    >>> sizes = [one.parameters for one in candidates(base)]
    >>> max(sizes) / min(sizes) < 1.001
    True
    """
    shapes: dict[LayerShape, ModelShape] = {}
    for head_dim in HEAD_DIMS:
        for ratio in TOTALS:
            heads = round(ratio * base.embed_dim / head_dim)
            for shared in (n for n in range(1, heads + 1) if heads % n == 0):
                if (one := _balanced(base, heads, head_dim, shared)) is not None:
                    shapes.setdefault(one.layers[0], one)
    if not shapes:
        raise ValueError(f"embed_dim {base.embed_dim} is too small for a head of {HEAD_DIMS[0]}")
    return list(shapes.values())


def divided(reference: ModelShape) -> list[tuple[ModelShape, str]]:
    """The reference with its attention divided over layers as the allocation paper and OpenELM do, at equal sizes."""
    from headcount.papers.allocation.schedules import by_bound, ramp

    one, depth = reference.layers[0], len(reference.layers)
    if depth < 3 or one.heads < 2:
        return []
    plans = [(ramp(depth, one.heads, one.head_dim), "heads growing with depth")]
    with contextlib.suppress(ValueError):  # whole heads cannot be made of what the later layers give up
        early = by_bound(depth, one.heads, one.head_dim, early=depth // 3, lags=2)
        plans.append((early, "early layers wide, late ones narrow"))
    return [
        (reference.with_layers([LayerShape(h, n, h, one.width) for h, n in plan.layers]), change)
        for plan, change in plans
    ]


def reference_shape(base: ModelShape) -> ModelShape:
    """Multi-head attention of the usual head dimension at the base's parameters."""
    heads = max(1, round(base.embed_dim / USUAL))
    return _balanced(base, heads, USUAL, heads) or base


def parameters_from(text: float | str) -> float:
    """A count as people write it.

    >>> parameters_from("135M"), parameters_from("1.5B"), parameters_from(10e6)
    (135000000.0, 1500000000.0, 10000000.0)
    """
    if isinstance(text, int | float):
        positive(budget=text)
        return float(text)
    units = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    stripped = text.strip().lower().replace("_", "").replace(",", "")
    unit = units.get(stripped[-1:], 1.0)
    try:
        number = float(stripped[:-1] if stripped[-1:] in units else stripped) * unit
    except ValueError:
        raise ValueError(f"a budget is a number of parameters such as 135M or 1.5B, got {text!r}") from None
    positive(budget=number)
    return number


def spoken_count(count: float) -> str:
    """A number of parameters in words.

    >>> spoken_count(135_171_648), spoken_count(999_885_952), spoken_count(1_000_811_200), spoken_count(300)
    ('135 M', '1.00 B', '1.00 B', '300')
    """
    if count < 1e5:
        return f"{count:,.0f}"
    size, unit = (count / 1e9, "B") if count >= 9.995e8 else (count / 1e6, "M")
    return f"{size:.0f} {unit}" if size >= 100 else f"{size:.2f} {unit}"


def _balanced(base: ModelShape, heads: int, head_dim: int, kv_heads: int) -> ModelShape | None:
    """The base with these heads in every layer and the feed-forward that its parameters leave; None if none is left."""
    one = base.layers[0]
    freed = base.attention_matrices(one) + base.feed_matrices(one)
    bare = LayerShape(heads, head_dim, kv_heads, 0)
    width = round((freed - base.attention_matrices(bare)) / (base.wiring.matrices * base.embed_dim))
    if width < base.embed_dim // 2:
        return None
    return base.with_layers([LayerShape(heads, head_dim, kv_heads, width, layer.window) for layer in base.layers])


def _of_budget(wanted: float, width: int | None, layers: int | None, vocab: int, wiring: Wiring) -> ModelShape:
    """The depth and width that models in use have at this size, and the feed-forward that then meets the budget."""
    aspect = 24 if wanted < 3e8 else 64  # embed_dim a layer: 19 to 64 below 0.3 B, 34 to 128 above, in the models here
    best, least = None, math.inf
    for embed in [width] if width else WIDTHS:
        one = _welded(1, embed, vocab, wiring, FEED[wiring.gated] * embed)
        left = wanted - one.table_parameters
        depth = layers or max(2, round(left / (one.parameters - one.table_parameters)))
        spare = left / depth - one.attention_matrices(one.layers[0])
        feed = round(spare / (wiring.matrices * embed) / ROUND) * ROUND
        away = abs(math.log(embed / depth / aspect)) + abs(math.log(max(feed, 1) / (FEED[wiring.gated] * embed)))
        if feed >= embed // 2 and away < least:
            best, least = _welded(depth, embed, vocab, wiring, feed), away
    if best is None:
        fixed = f"a vocabulary of {vocab:,}" + (f" and {layers} layers" if layers else "")
        raise ValueError(f"{spoken_count(wanted)} parameters leave no room for layers beside {fixed}")
    return best


def _welded(layers: int, embed: int, vocab: int, wiring: Wiring, feed: float) -> ModelShape:
    head_dim = USUAL if embed >= USUAL else embed
    heads = max(1, round(embed / head_dim))
    width = max(ROUND, round(feed / ROUND) * ROUND)
    return ModelShape.uniform(
        layers, heads=heads, head_dim=head_dim, embed_dim=embed, width=width, vocab=vocab, wiring=wiring
    )


def _named(model: str | Path) -> ModelShape:
    return read_config(model) if Path(model).exists() else known_shape(str(model))
