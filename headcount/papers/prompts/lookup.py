"""A prompt as a memory: one softmax layer that looks a function up on a grid, with a certified error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.refusals import at_least_one, positive
from headcount.sources import Source, implements


@dataclass(frozen=True, eq=False)
class PromptMemory:
    """Prompt tokens (c_k, |c_k|^2, f(c_k)) and the sharpness of the one layer that reads them."""

    prompt: Float[np.ndarray, "tokens entries"]
    sharpness: float
    error: float

    def __call__(self, points: Float[np.ndarray, "batch dim"]) -> Float[np.ndarray, " batch"]:
        """Attention at x with scores beta (2 x.c_k - |c_k|^2), read out at the last entry."""
        dim = points.shape[1]
        scores = self.sharpness * (2 * points @ self.prompt[:, :dim].T - self.prompt[:, dim])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights @ self.prompt[:, -1] / weights.sum(axis=1)


@implements(
    Source("wang2023prompt", "universality of prompts with a fixed transformer"),
    test="tests/test_prompts_tuning.py::test_a_prompt_remembers_a_function_within_its_error_and_halves_it",
    status="proved here",
    hypotheses=("the Lipschitz constant is one of the function on the unit cube",),
)
def prompt_memory(
    function: Callable[[Float[np.ndarray, "batch dim"]], Float[np.ndarray, " batch"]],
    grid: int,
    dim: int,
    lipschitz: float,
    beta: float | None = None,
) -> PromptMemory:
    """A prompt of grid^dim tokens from which one softmax layer reads any Lipschitz function on the unit cube.

    The weights exp(-beta |x - c_k|^2) are products over coordinates, so the mean square distance is a sum of such means
    on a line of spacing 1/n. There, with the nearest point at a/n and u = 1 - 2a, nearest and next give
    a^2 + u / (1 + e^(b u)) <= 1/4, b = beta / n^2 (for u/2 <= tanh(b u / 2), true for b >= 3), all others at most
    5 e^-b. So the error is at most Lip sqrt(dim) / (2n) sqrt(1 + 20 e^-b): half a cell's diagonal.
    Source: Wang et al. 2023, universality.
    Departs: nearest-point look-up, not the paper's quantised functions decoded by a deep network.
    """
    at_least_one(grid=grid, dim=dim)
    beta = 40.0 * grid**2 if beta is None else beta
    positive(lipschitz=lipschitz, beta=beta)
    if beta < 3 * grid**2:
        raise ValueError(
            f"beta must be at least 3 grid^2 = {3 * grid**2} for the look-up to be certified, got {beta:g}"
        )
    axis = (np.arange(grid) + 0.5) / grid
    points = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    prompt = np.column_stack([points, (points**2).sum(axis=1), function(points)])
    error = lipschitz * math.sqrt(dim) / (2 * grid) * math.sqrt(1 + 20 * math.exp(-beta / grid**2))
    return PromptMemory(prompt, beta, error)
