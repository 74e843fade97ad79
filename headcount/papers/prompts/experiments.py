"""Prompts trained beside what they can reach: lengths, tokens needed, and low-rank updates at equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TypedDict

import numpy as np

from headcount.papers.prompts.bounds import prompt_floor
from headcount.papers.prompts.own_tokens import memorisable, token_memory
from headcount.papers.prompts.prompted_layer import PromptedLayer, random_layer
from headcount.papers.prompts.reaching import attention_loss, attention_targets, reach
from headcount.papers.prompts.traps import PromptTrap, TokenTrap, prompt_trap, token_trap
from headcount.papers.prompts.tuning import fit_low_rank, fit_prompt

LengthRow = TypedDict(
    "LengthRow",
    {
        "layer": int,
        "tokens": int,
        "any prompt": float,
        "floor": float,
        "least": float,
        "built": float | None,
        "trained": float,
        "excess": float,
    },
)
"""The hard pair in one random layer at one length: floors, the prompt built, the best one trained, by how much more."""
ExcessRow = TypedDict(
    "ExcessRow",
    {"tokens": int, "layers": int, "median excess": float, "largest": float, "layers above 2%": list[int]},
)
"""What training misses at one length, over layers; those by more than 2% by number."""


class TokenRow(TypedDict):
    """Sequences with last tokens of their own: the floor and the best and the median prompt trained."""

    layer: str
    sequences: int
    tokens: int
    numbers: int
    floor: float
    excluded: bool
    trained: float
    median: float


ExcludedRow = TypedDict(
    "ExcludedRow",
    {"sequences": int, "layers": int, "n tokens excluded": int, "a million excluded": int, "made layer": float},
)
"""In how many random layers a bound says that so many tokens are too few; what is left in the layer made for them."""


class TuningRow(TypedDict):
    """What was tuned, how many numbers that are, the loss of the outputs and the floor under it."""

    tuned: str
    numbers: int
    loss: float
    floor: float


def length_rows(
    layers: int = 20, lengths: Sequence[int] = (1, 2, 4, 16, 64), starts: int = 8, token_dim: int = 6
) -> list[LengthRow]:
    """The hard pair in random layers: the floor at each length, the prompt built, and the best one trained."""
    rows = []
    for seed in range(layers):
        layer = random_layer(token_dim, np.random.default_rng(seed))
        trap = prompt_trap(layer, 1.0, seed)
        for tokens in lengths:
            bound = reach(layer, trap.last, trap.contexts, trap.targets, tokens)
            tuned = fit_prompt(layer, trap.last, trap.contexts, trap.targets, tokens, starts, seed)
            rows.append({"layer": seed, "tokens": tokens, "any prompt": trap.floor, "floor": bound.floor,
                         "least": bound.error, "built": bound.prompt_loss, "trained": tuned.loss,
                         "excess": tuned.loss / bound.error - 1})  # fmt: skip
    return rows


def excess_spread(rows: Sequence[LengthRow]) -> list[ExcessRow]:
    """For each length, by how much the best trained prompt misses what is reachable: median, largest, above 2%."""
    spread = []
    for tokens in sorted({row["tokens"] for row in rows}):
        excess = [row["excess"] for row in rows if row["tokens"] == tokens]
        above = [row["layer"] for row in rows if row["tokens"] == tokens and row["excess"] > 0.02]
        spread.append({"tokens": tokens, "layers": len(excess), "median excess": median(excess), "largest": max(excess),
                      "layers above 2%": above})  # fmt: skip
    return spread


def token_rows(
    sequences: int = 3, token_dim: int = 8, starts: int = 10, seed: int = 0, *, made: bool = False
) -> list[TokenRow]:
    """Sequences with last tokens of their own: the best trained prompt of 1 to n tokens, beside what no prompt passes.

    The floor is the larger of s^2 (n - m) and the sum of what each sequence alone leaves at that length. The layer is a
    random one, or the one made so that n tokens suffice.
    """
    drawn = token_trap(random_layer(token_dim, np.random.default_rng(seed)), sequences, 1.0, seed)
    trap = token_memory(sequences, token_dim, 1.0, seed)[0] if made else drawn
    rows = []
    for tokens in range(1, sequences + 1):
        tuned = fit_prompt(trap.layer, trap.lasts, trap.contexts, trap.targets, tokens, starts, seed)
        floor = max(prompt_floor(1.0, sequences, tokens).value, _alone(trap, tokens))
        may = memorisable(trap.layer, trap.lasts, trap.contexts, trap.targets, tokens).possible
        rows.append({"layer": "made" if made else "random", "sequences": sequences, "tokens": tokens,
                     "numbers": tuned.numbers, "floor": floor, "excluded": may is False, "trained": tuned.loss,
                     "median": median(tuned.losses)})  # fmt: skip
    return rows


def _alone(trap: TokenTrap, tokens: int) -> float:
    """What the sequences leave each on its own: together they leave no less."""
    each = zip(trap.lasts, trap.contexts, trap.targets, strict=True)
    return sum(reach(trap.layer, x, [c], t[None], tokens).floor for x, c, t in each)


def excluded_rows(counts: Sequence[int] = (1, 2, 3, 4), layers: int = 20, token_dim: int = 8) -> list[ExcludedRow]:
    """n tokens for n sequences: in how many random layers they are proved too few, and the made layer's exact loss."""
    rows = []
    for n in counts:
        traps = [token_trap(random_layer(token_dim, np.random.default_rng(s)), n, 1.0, s) for s in range(layers)]
        memory, prompt = token_memory(n, token_dim)
        lost = [_excluded(traps, m) for m in (n, 10**6)]
        left = attention_loss(memory.layer, memory.lasts, memory.contexts, memory.targets, prompt)
        rows.append({"sequences": n, "layers": layers, "n tokens excluded": lost[0], "a million excluded": lost[1],
                     "made layer": left})  # fmt: skip
    return rows


def _excluded(traps: Sequence[TokenTrap], tokens: int) -> int:
    return sum(memorisable(t.layer, t.lasts, t.contexts, t.targets, tokens).possible is False for t in traps)


def tuning_rows(token_dim: int = 6, starts: int = 8, seed: int = 0) -> list[TuningRow]:
    """The hard pair by prompts and by rank-one updates of W_v and W_2: numbers tuned and the loss of the outputs.

    Losses are of the layer's outputs; the floor of attention is turned into one of outputs by the least stretch of the
    feed-forward, 1 - |W_1||W_2|.
    """
    layer = random_layer(token_dim, np.random.default_rng(seed))
    trap = prompt_trap(layer, 1.0, seed)
    outputs = np.array([layer.forward(trap.last + t) for t in trap.targets])
    wanted = attention_targets(layer, trap.last, outputs)
    low = fit_low_rank(layer, trap.last, trap.contexts, outputs, starts, seed)
    tokens = -(-low.numbers // token_dim)
    floor = (1 - layer.contraction) ** 2 * trap.floor
    rows: list[TuningRow] = []
    for m in (1, tokens, 4 * tokens):
        tuned = fit_prompt(layer, trap.last, trap.contexts, wanted, m, starts)
        loss = float(((_prompted(layer, trap, tuned.values.reshape(m, -1)) - outputs) ** 2).sum())
        rows.append({"tuned": f"prompt of {m}", "numbers": tuned.numbers, "loss": loss, "floor": floor})
    return [*rows, {"tuned": "rank one in W_v and W_2", "numbers": low.numbers, "loss": low.loss, "floor": 0.0}]


def _prompted(layer: PromptedLayer, trap: PromptTrap, prompt: np.ndarray) -> np.ndarray:
    """What the layer puts out at the last token of each context behind this prompt."""
    last = trap.last
    return np.array([layer.forward(last + layer.attend(last, np.vstack([prompt, c, last]))) for c in trap.contexts])
