"""A bank's step as Triton kernels; importing this needs Triton."""

from typing import Any

from headcount.kernels.triton import adamw as optimiser
from headcount.kernels.triton import (
    class_attention,
    class_maps,
    composition,
    head_maps,
    head_tail,
    hidden_sublayer,
    letter_table,
    pooling,
    slope_sizes,
    sums,
    token_attention,
)
from headcount.kernels.triton import feed_forward as feeding
from headcount.kernels.triton import tail as samples

__all__ = [
    "adamw",
    "add_rows",
    "ask_backward",
    "ask_forward",
    "compose_backward",
    "compose_forward",
    "feed_backward",
    "feed_forward",
    "fold_backward",
    "fold_forward",
    "hidden_backward",
    "hidden_forward",
    "letters_backward",
    "letters_forward",
    "maps_backward",
    "maps_forward",
    "mix_backward",
    "mix_forward",
    "pool_backward",
    "pool_forward",
    "say",
    "size_slopes",
    "states_backward",
    "tail",
    "tail_by_heads",
    "through_map",
    "tick",
]

# Any: a launch takes options, such as num_warps, that no kernel's signature shows.
compose_forward: Any = composition.compose_forward
compose_backward: Any = composition.compose_backward
pool_forward: Any = pooling.pool_forward
pool_backward: Any = pooling.pool_backward
tail: Any = samples.tail
adamw: Any = optimiser.adamw
add_rows: Any = sums.add_rows
tick: Any = optimiser.tick
feed_forward: Any = feeding.feed_forward
feed_backward: Any = feeding.feed_backward
mix_forward: Any = token_attention.mix_forward
mix_backward: Any = token_attention.mix_backward
ask_forward: Any = class_attention.ask_forward
ask_backward: Any = class_attention.ask_backward
hidden_forward: Any = hidden_sublayer.hidden_forward
hidden_backward: Any = hidden_sublayer.hidden_backward
fold_forward: Any = class_maps.fold_forward
fold_backward: Any = class_maps.fold_backward
through_map: Any = class_maps.through_map
letters_forward: Any = letter_table.letters_forward
letters_backward: Any = letter_table.letters_backward
say: Any = letter_table.say
size_slopes: Any = slope_sizes.size_slopes
maps_forward: Any = head_maps.maps_forward
maps_backward: Any = head_maps.maps_backward
states_backward: Any = head_maps.states_backward
tail_by_heads: Any = head_tail.tail_by_heads
