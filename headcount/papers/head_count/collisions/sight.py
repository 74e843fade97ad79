"""What a one-layer attention sees, token by token: the log-weight and the value of a token at a position, per head."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from headcount.nets.transformer import Attention


@dataclass(frozen=True)
class Sight:
    """log_weights[k, t, i] and values[k, t, i, :] of token k at position t in head i; output[i] maps a head's average.

    A head's output is sum_t w_t v_t / sum_t w_t with w = exp(log_weights): sums over positions, which is what lets
    a search split a sequence in two.
    """

    log_weights: np.ndarray  # tokens length heads
    values: np.ndarray  # tokens length heads head_dim
    output: np.ndarray  # heads embed head_dim
    cls: np.ndarray  # embed

    @property
    def heads(self) -> int:
        return self.log_weights.shape[2]

    @property
    def head_dim(self) -> int:
        return self.values.shape[3]

    @property
    def embed_dim(self) -> int:
        return len(self.cls)

    def state(self, averages: np.ndarray) -> np.ndarray:
        """What the read-out gets: c + sum_i W_O,i average_i, for averages (many, heads, head_dim)."""
        return self.cls + np.einsum("khn,hen->ke", averages, self.output)


@torch.no_grad()
def sight_of(net: nn.Module, tokens: Tensor, length: int) -> Sight:
    """Every token of (tokens, token_dim) at every position, as the only attention layer of `net` sees it.

    `net` is a `Transformer` or a `ClassTokenNet`, random, trained or loaded; it is read in float64.
    """
    layers = getattr(net, "attention", None)
    if not (isinstance(layers, nn.ModuleList) and hasattr(net, "encode") and hasattr(net, "cls")):
        raise ValueError(f"{type(net).__name__} is not a class-token transformer; Transformer and ClassTokenNet are")
    if len(layers) != 1:
        raise ValueError(f"collisions are found for one attention layer, and this network has {len(layers)}")
    net = copy.deepcopy(net).double().cpu()
    (attention,) = net.get_submodule("attention").children()
    assert isinstance(attention, Attention)
    x = tokens.double()[:, None, :].expand(-1, length, -1)
    encoded, cls = getattr(net, "encode")(x), net.get_parameter("cls")  # noqa: B009
    queries = torch.einsum("e,hne->hn", cls, attention.query)
    scores = torch.einsum("kte,hne,hn->kth", encoded, attention.key, queries)
    values = torch.einsum("kte,hne->kthn", encoded, attention.value)
    arrays = (_beta(attention) * scores, values, attention.output, cls)
    return Sight(*(a.detach().numpy() for a in arrays))


def _beta(attention: Attention) -> float:
    keywords = getattr(attention.weigh, "keywords", {})
    if "beta" not in keywords:
        raise ValueError("collisions are found for softmax attention; this layer weighs in another way")
    return float(keywords["beta"])
