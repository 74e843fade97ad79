"""One attention layer with a prompt before its sequence, and what all prompts have in common.

    Att(x, X) = W_v X softmax((W_k X)^T W_q x),      output = MLP(x + Att),  MLP(u) = W_2 relu(W_1 u + b_1) + b_2 + u

With a prompt P, Att(x, [P, X]) = lam Att(x, X) + (1 - lam) p where p = Att(x, P), lam = Z_X / (Z_X + Z_P) and Z are
sums of exp(scores): whatever its length, a prompt is p and log Z_P to all sequences that end in x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.refusals import at_least_one

ROUNDS = 500
Matrix = np.ndarray


@dataclass(frozen=True, eq=False)
class PromptedLayer:
    """The weights of one head and of the residual feed-forward after it (`inner` and `outer`; none: attention alone).

    A key bias moves every score alike and a value bias every output alike, so neither is kept: a layer that has them is
    the one without, its targets less the value bias.
    """

    query: Float[Matrix, "key_dim token_dim"]
    key: Float[Matrix, "key_dim token_dim"]
    value: Float[Matrix, "value_dim token_dim"]
    query_bias: Float[Matrix, " key_dim"] | None = None
    inner: Float[Matrix, "width value_dim"] | None = None
    inner_bias: Float[Matrix, " width"] | None = None
    outer: Float[Matrix, "value_dim width"] | None = None
    outer_bias: Float[Matrix, " value_dim"] | None = None

    @property
    def token_dim(self) -> int:
        """The coordinates of a token."""
        return self.value.shape[1]

    def direction(self, last: Float[Matrix, " token_dim"]) -> Float[Matrix, " token_dim"]:
        """h = W_k^T W_q x: a token's score is its product with h."""
        query = self.query @ last
        return self.key.T @ (query if self.query_bias is None else query + self.query_bias)

    def mass(
        self, last: Float[Matrix, " token_dim"], sequence: Float[Matrix, "length token_dim"]
    ) -> tuple[Float[Matrix, " value_dim"], float]:
        """Att(x, X) and log Z_X: all that attention at x sees of a sequence, or of a prompt."""
        scores = sequence @ self.direction(last)
        top = scores.max()
        weights = np.exp(scores - top)
        return self.value @ (weights @ sequence) / weights.sum(), float(top + np.log(weights.sum()))

    def attend(self, last: Matrix, sequence: Matrix) -> Float[Matrix, " value_dim"]:
        """Att(x, X)."""
        return self.mass(last, sequence)[0]

    def forward(self, u: Float[Matrix, " value_dim"]) -> Float[Matrix, " value_dim"]:
        """The residual feed-forward MLP(u)."""
        return self._bent(u) + u

    def backward(self, y: Float[Matrix, " value_dim"]) -> Float[Matrix, " value_dim"]:
        """MLP^-1(y), by u = y - W_2 relu(W_1 u + b_1) - b_2 iterated, which contracts if |W_1||W_2| < 1."""
        if self.contraction >= 1:
            raise ValueError(
                f"|W_1||W_2| = {self.contraction:.3g} must be below 1 for the feed-forward to have an inverse"
            )
        u = y
        for _ in range(ROUNDS):
            u, before = y - self._bent(u), u
            if np.abs(u - before).max() <= 1e-16 * (1 + np.abs(u).max()):
                break
        return u

    @property
    def contraction(self) -> float:
        """|W_1||W_2|."""
        if self.inner is None or self.outer is None:
            return 0.0
        return float(np.linalg.norm(self.inner, 2) * np.linalg.norm(self.outer, 2))

    def _bent(self, u: Matrix) -> Matrix:
        if self.inner is None or self.outer is None:
            return np.zeros_like(u)
        hidden = np.maximum(self.inner @ u + (0 if self.inner_bias is None else self.inner_bias), 0)
        return self.outer @ hidden + (0 if self.outer_bias is None else self.outer_bias)


def random_layer(token_dim: int, g: np.random.Generator, width: int = 0) -> PromptedLayer:
    """Normal weights of variance 1 / token_dim, the feed-forward scaled to |W_1||W_2| = 1/2."""
    at_least_one(token_dim=token_dim)
    width = width or 2 * token_dim
    query, key, value = (g.standard_normal((token_dim, token_dim)) / token_dim**0.5 for _ in range(3))
    inner, outer = g.standard_normal((width, token_dim)), g.standard_normal((token_dim, width))
    inner, outer = (part / np.linalg.norm(part, 2) / 2**0.5 for part in (inner, outer))
    biases = 0.1 * g.standard_normal(width), 0.1 * g.standard_normal(token_dim)
    return PromptedLayer(query, key, value, None, inner, biases[0], outer, biases[1])
