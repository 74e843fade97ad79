"""What no prompt can do, as arithmetic: tokens needed, the loss left without them, and slopes. No torch."""

from __future__ import annotations

from headcount.refusals import at_least, at_least_one, not_negative, positive
from headcount.results import Bound
from headcount.sources import Source, implements

SOURCE = Source("wang2023prompt", "a lower bound on the tunable numbers of a prompt")


def prompt_tokens(sequences: int) -> Bound:
    """The prompt tokens without which n sequences with last tokens of their own cannot all be memorised: n.

    >>> prompt_tokens(4).value
    4
    """
    at_least_one(sequences=sequences)
    return Bound("prompt tokens", sequences, "lower", SOURCE, sizes={"sequences": sequences})


@implements(
    SOURCE,
    test="tests/test_prompts_tuning.py::test_fewer_tokens_than_sequences_leave_the_floor",
    status="proved here",
    hypotheses=("targets A_i + s e_i, e_i orthonormal and orthogonal to all contexts; W_v = I",),
)
def prompt_floor(scale: float, sequences: int, tokens: int) -> Bound:
    """The loss that m prompt tokens leave on n sequences with targets A_i + s e_i: at least s^2 (n - m).

    The e-parts of the outputs are (attention weights) x (e-parts of P), of rank at most m; wanted is s I, and the
    nearest matrix of rank m misses n - m singular values s.

    >>> prompt_floor(2.0, sequences=4, tokens=1).value
    12.0
    """
    positive(scale=scale)
    at_least_one(sequences=sequences)
    at_least(0, tokens=tokens)
    value = scale**2 * max(sequences - tokens, 0)
    return Bound("loss", value, "lower", SOURCE, sizes={"sequences": sequences, "tokens": tokens})


@implements(
    Source("wang2023prompt", "prompting fits data of invertible functions only"),
    test="tests/test_prompts_tuning.py::test_the_slope_of_attention_keeps_its_bound",
    status="proved here",
    hypotheses=("all tokens, those of the prompt too, have norm at most the radius",),
)
def attention_slope(value_norm: float, score_norm: float, radius: float) -> Bound:
    """The slope of attention in the norm of the largest token: |W_v| (1 + 2 r^2 |W_k^T W_q|).

    Below 1, with |W_1||W_2| < 1, different sequences of one length have different outputs as wholes.

    >>> attention_slope(0.25, 0.5, 1.0).value
    0.5
    """
    not_negative(value_norm=value_norm, score_norm=score_norm, radius=radius)
    value = value_norm * (1 + 2 * radius**2 * score_norm)
    return Bound("slope of attention", value, "upper", Source("wang2023prompt", "attention as a contraction"))
