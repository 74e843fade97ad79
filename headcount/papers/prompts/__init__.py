"""Universality and Limitations of Prompt Tuning (Wang et al. 2023, arXiv 2305.18787).

Before sequences with one last token a prompt of any length is a mean p and a mass log Z, held to a strip whose width
is the logarithm of its length. So what prompts can reach is a scan of one variable: `reach` gives a floor under every
prompt of a length, or of any, and a prompt that comes near it; `prompt_trap` is a pair of sequences that no prompt
memorises, `prompt_tokens` and `prompt_floor` say how many tokens sequences of their own need, `memorisable` proves of
given ones that m are too few, `token_memory` is a layer in which n suffice, `prompt_memory` looks a function up.
`fit_prompt` and `fit_low_rank` train, and know none of this. numpy and scipy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.prompts.bounds import attention_slope, prompt_floor, prompt_tokens
    from headcount.papers.prompts.experiments import (
        excess_spread,
        excluded_rows,
        length_rows,
        token_rows,
        tuning_rows,
    )
    from headcount.papers.prompts.lookup import PromptMemory, prompt_memory
    from headcount.papers.prompts.own_tokens import Memorisable, memorisable, token_memory
    from headcount.papers.prompts.prompted_layer import PromptedLayer, random_layer
    from headcount.papers.prompts.reaching import Reach, attention_loss, attention_targets, reach
    from headcount.papers.prompts.real_heads import head_rows, last_layer, split_heads
    from headcount.papers.prompts.strip import Strip, strip_of, strip_prompt
    from headcount.papers.prompts.traps import PromptTrap, TokenTrap, prompt_trap, token_trap
    from headcount.papers.prompts.tuning import Tuned, fit_heads, fit_low_rank, fit_prompt

__all__ = [
    "Memorisable",
    "PromptMemory",
    "PromptTrap",
    "PromptedLayer",
    "Reach",
    "Strip",
    "TokenTrap",
    "Tuned",
    "attention_loss",
    "attention_slope",
    "attention_targets",
    "excess_spread",
    "excluded_rows",
    "fit_heads",
    "fit_low_rank",
    "fit_prompt",
    "head_rows",
    "last_layer",
    "length_rows",
    "memorisable",
    "prompt_floor",
    "prompt_memory",
    "prompt_tokens",
    "prompt_trap",
    "random_layer",
    "reach",
    "split_heads",
    "strip_of",
    "strip_prompt",
    "token_memory",
    "token_rows",
    "token_trap",
    "tuning_rows",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "bounds": ("attention_slope", "prompt_floor", "prompt_tokens"),
        "experiments": ("excess_spread", "excluded_rows", "length_rows", "token_rows", "tuning_rows"),
        "lookup": ("PromptMemory", "prompt_memory"),
        "own_tokens": ("Memorisable", "memorisable", "token_memory"),
        "prompted_layer": ("PromptedLayer", "random_layer"),
        "reaching": ("Reach", "attention_loss", "attention_targets", "reach"),
        "real_heads": ("head_rows", "last_layer", "split_heads"),
        "strip": ("Strip", "strip_of", "strip_prompt"),
        "traps": ("PromptTrap", "TokenTrap", "prompt_trap", "token_trap"),
        "tuning": ("Tuned", "fit_heads", "fit_low_rank", "fit_prompt"),
    },
)
