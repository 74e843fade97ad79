"""Data that prompts cannot memorise, with floors in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.refusals import positive


@dataclass(frozen=True, eq=False)
class PromptTrap:
    """Two sequences with one last token, the attention outputs wanted, and the loss that every prompt exceeds."""

    last: Float[np.ndarray, " token_dim"]
    contexts: tuple[Float[np.ndarray, "length token_dim"], ...]
    targets: Float[np.ndarray, "sequences value_dim"]
    floor: float


def prompt_trap(layer: PromptedLayer, scale: float = 1.0, seed: int = 0, length: int = 4) -> PromptTrap:
    """Two sequences that no prompt of any length memorises: T_i = A_i + s u_i, u_1, u_2 and A_2 - A_1 orthogonal.

    Whatever p and Z, the loss is at least s^2 + |A_2 - A_1|^2 m_1^2 m_2^2 / (m_1^2 + m_2^2) > s^2.
    Source: Wang et al. 2023, two sequences with the same last token; the closed form is ours.
    """
    positive(scale=scale)
    if layer.value.shape[0] < 3:
        raise ValueError(f"the hard pair needs 3 value dimensions, got {layer.value.shape[0]}")
    g = np.random.default_rng(seed)
    last = g.standard_normal(layer.token_dim)
    contexts = tuple(g.standard_normal((length, layer.token_dim)) for _ in range(2))
    means = np.array([layer.attend(last, np.vstack([context, last])) for context in contexts])
    frame = np.linalg.qr(np.column_stack([means[1] - means[0], g.standard_normal((len(means[0]), 2))]))[0]
    return PromptTrap(last, contexts, means + scale * frame[:, 1:3].T, scale**2)


@dataclass(frozen=True, eq=False)
class TokenTrap:
    """Sequences with last tokens of their own, whose wanted outputs need a prompt token each."""

    layer: PromptedLayer
    lasts: Float[np.ndarray, "sequences token_dim"]
    contexts: tuple[Float[np.ndarray, "length token_dim"], ...]
    targets: Float[np.ndarray, "sequences value_dim"]
    scale: float


def token_trap(layer: PromptedLayer, sequences: int, scale: float = 1.0, seed: int = 0, length: int = 3) -> TokenTrap:
    """T_i = A_i + s e_i with W_v = I, the e_i orthonormal and orthogonal to every context: n tokens are needed.

    The last tokens and contexts lie in the first d - n coordinates, the e_i are the last n.
    """
    d = layer.token_dim
    if not 1 <= sequences <= d - 2:
        raise ValueError(f"sequences must be from 1 to token_dim - 2 = {d - 2}, got {sequences}")
    g = np.random.default_rng(seed)
    support = np.concatenate([np.ones(d - sequences), np.zeros(sequences)])
    lasts = g.standard_normal((sequences, d)) * support
    contexts = tuple(g.standard_normal((length, d)) * support for _ in range(sequences))
    plain = replace(layer, value=np.eye(d))
    means = [plain.attend(x, np.vstack([c, x])) for x, c in zip(lasts, contexts, strict=True)]
    return TokenTrap(plain, lasts, contexts, np.array(means) + scale * np.eye(d)[d - sequences :], scale)
