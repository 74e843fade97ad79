"""The best product of given rank under a pair of metrics, in closed form.

Between its two factors every head hides an identity: logits are q' I k, outputs W_O I u. A rank-r head puts a
product P = a b' of rank r there. All errors of this room are quadratic in I - P.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.sources import Source, implements

# Directions whose second moment is below this fraction of the largest are kept but not divided by less.
SMALLEST = 1e-10


@dataclass(frozen=True)
class Factors:
    """P_r = left[:, :r] right[:, :r]' for every r at once; the singular values say what each rank is worth."""

    left: Float[Tensor, "left_dim ranks"]
    right: Float[Tensor, "right_dim ranks"]
    values: Float[Tensor, " ranks"]

    @property
    def errors(self) -> Float[Tensor, " ranks_and_one"]:
        """tr(L (I-P_r) R (I-P_r)') for r = 0, 1, ...: the tails of the squared singular values."""
        tail = self.values.square().flip(0).cumsum(0).flip(0)
        return torch.cat([tail, tail.new_zeros(1)])

    def product(self, rank: int) -> Float[Tensor, "left_dim right_dim"]:
        return self.left[:, :rank] @ self.right[:, :rank].mT


@implements(
    Source("headcount", "closed-form data-aware truncation"),
    test="tests/test_allocation_lowrank.py::test_no_random_product_of_that_rank_beats_the_closed_form",
    status="proved here",
    hypotheses=("metrics symmetric and positive semidefinite",),
)
def factors(left: Float[Tensor, "dim dim"], right: Float[Tensor, "dim dim"]) -> Factors:
    """The products P_r of rank r that minimise tr(L (I - P) R (I - P)') for symmetric metrics L and R, all r at once.

    With L = l l' and R = r r' and the singular value decomposition l' r = U S V', the best l' P r of rank r keeps
    the r largest singular values; undoing l and r on both sides gives P.
    With L = E[q q'] and R the covariance of the keys this is the mean-square logit error, centred over the keys
    because softmax does not see what is constant over them; with L = W_Q W_Q' and R = W_K W_K' it is the
    truncated singular value decomposition of W_Q' W_K itself.

    >>> f = factors(torch.eye(3), torch.diag(torch.tensor([1.0, 9.0, 4.0])))
    >>> f.values
    tensor([3., 2., 1.])
    >>> f.product(1).diagonal().abs().round()
    tensor([0., 1., 0.])
    """
    return shared_factors(left[None], right)


def shared_factors(
    lefts: Float[Tensor, "heads dim dim"], right: Float[Tensor, "total total"], link: Float[Tensor, "x y"] | None = None
) -> Factors:
    """The same for heads that share one right factor: `left` stacks the heads' left factors, `right` is common.

    Head i multiplies its features by the rows of `link` that belong to it (identity when all heads read one and
    the same feature); minimises sum_i tr(L_i (link_i - a_i b') R (link_i - a_i b')').
    """
    heads, dim, _ = lefts.shape
    if link is None:
        link = torch.eye(dim, dtype=right.dtype, device=right.device).repeat(heads, 1)
    roots = [_root(left) for left in lefts]
    root, back = _root(right)
    weighted = torch.cat([l.mT @ link[i * dim : (i + 1) * dim] for i, (l, _) in enumerate(roots)]) @ root
    U, S, Vh = torch.linalg.svd(weighted, full_matrices=False)
    U, S, Vh = U[:, : right.shape[0]], S[: right.shape[0]], Vh[: right.shape[0]]
    half = S.sqrt()
    stacked = torch.cat([b.mT @ U[i * dim : (i + 1) * dim] for i, (_, b) in enumerate(roots)])
    return Factors(stacked * half, (back.mT @ Vh.mT) * half, S)


@implements(
    Source("yu2025allocation", "Corollary 5.1"),
    test="tests/test_allocation_lowrank.py::test_truncated_logits_stay_within_the_singular_value_bound",
    status="proved here",
)
def logit_error(
    query: Float[Tensor, "head_dim embed"],
    key: Float[Tensor, "head_dim embed"],
    rank: int,
    token_norm: float,
    tokens_norm: float,
    scale: float,
) -> float:
    """How far a row of logits moves when W_Q' W_K is truncated: scale |x| |X|_2 sigma_{rank+1}.

    Source: Yu et al. 2025 (allocation), Corollary 5.1, with the constant worked out here.
    """
    a, b = (torch.linalg.qr(w.mT)[1] for w in (query, key))  # W' = Q R, so W_Q' W_K = Q_1 (R_1 R_2') Q_2'
    values = torch.linalg.svdvals(a @ b.mT)
    return scale * token_norm * tokens_norm * (float(values[rank]) if rank < len(values) else 0.0)


def _root(metric: Float[Tensor, "dim dim"]) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, "dim dim"]]:
    """l with l l' = metric, and its inverse, bounded where the metric is nearly singular."""
    values, vectors = torch.linalg.eigh((metric + metric.mT) / 2)
    values = values.clamp_min(max(float(values[-1]), 0.0) * SMALLEST + torch.finfo(metric.dtype).tiny).sqrt()
    return vectors * values, (vectors / values).mT
