"""What a sum of maxima asks once everything redundant is merged: rays of directions, and kinds of pair forms."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from headcount.sources import Checked, Source, implements
from headcount.tasks.task import Matrix, Table

# Unit vectors this near are one, and an eigenvalue this small beside the largest is zero: merging then moves a target
# by at most this part of the tokens' size, some thousand roundings of float64.
SAME = 1e-12

Kind = Literal["single", "extremes", "opposite", "pair"]


@implements(
    Source("headcount", "intrinsic retrievals of a sum of maxima"),
    test="tests/test_tasks_intrinsic.py::test_merging_keeps_the_target_of_every_sequence",
    status="proved here",
    hypotheses=(Checked("rays equal up to 1e-12"), "length >= 3 for the uniqueness"),
)
def merged_directions(directions: Table, length: int) -> Matrix:
    """sum_i max_t <a_i, x_t> with zero directions dropped and positive multiples added up, in falling order.

    The target stays the same: max_t <0, x_t> = 0, and max_t <c a, x_t> = c max_t <a, x_t> for c > 0, so that
    max_t <a, x_t> + max_t <c a, x_t> = max_t <(1 + c) a, x_t>. At length 1 there is one score, <sum_i a_i, x_1>.

    From length 3 on nothing else merges: no direction of a sum is redundant, inside a convex hull or not, and the
    form is unique. Let a_1, ..., a_D lie on distinct rays and sum_i c_i max_t <a_i, x_t> = 0 for all x. Choose x_1 and
    x_2 with <a_1, x_1 - x_2> = 0 and <a_i, x_1 - x_2> != 0 for every a_i not parallel to a_1 (each excludes a proper
    subspace of the complement of a_1), and the other tokens far below along a_1, without ties. Moved by +-u a_1, x_1
    bends max_t <a_1, x_t> (its second difference is u |a_1|^2) and no other term: -a_1 has its maximum at another
    token, and for the rest x_1 and x_2 do not tie. So c_1 = 0, and likewise every c_i. At length 2 more may coincide
    (a and -a tie at the same tokens); there the count is only enough.

    >>> merged_directions([[1, 0], [2, 0], [0, 0], [-1, 0]], length=3)
    ((3.0, 0.0), (-1.0, 0.0))
    >>> merged_directions([[1, 0], [2, 0], [0, 0], [-1, 0]], length=1)
    ((2.0, 0.0),)
    """
    a = torch.as_tensor(directions, dtype=torch.float64)
    a = a.sum(dim=0, keepdim=True) if length == 1 else a
    return _falling(_merged(a, a.abs().max().item()), a.shape[1])


def merged_forms(matrices: Table, length: int) -> tuple[Matrix, ...]:
    """sum_i max_{s,t} x_s^T A_i x_t with zero forms dropped, A and A^T one, and positive multiples added up.

    The target stays the same: swapping s and t turns A into A^T, and the maximum runs over all ordered pairs; the
    rest as for directions. Only A and A^T are one, not all of equal symmetric part: max(x_s^T A x_t, x_t^T A x_s) is
    x_s^T S x_t + |x_s^T K x_t| with both parts of A = S + K. At length 1 there is one pair and x^T K x = 0, so the
    symmetric parts add up.

    >>> merged_forms([[[0, 1], [0, 0]], [[0, 0], [2, 0]]], length=3)
    (((0.0, 3.0), (0.0, 0.0)),)
    """
    a = torch.as_tensor(matrices, dtype=torch.float64)
    d = a.shape[1]
    if length == 1:
        total = a.sum(dim=0, keepdim=True)
        a = (total + total.mT) / 2
    upright = torch.stack([max(m, m.T, key=lambda v: v.flatten().tolist()) for m in a])
    flat = _falling(_merged(upright.flatten(1), a.abs().max().item()), d * d)
    return tuple(tuple(row[i * d : (i + 1) * d] for i in range(d)) for row in flat)


@implements(
    Source("yu2026infoflow", "one layer is costly for every pair form"),
    test="tests/test_tasks_intrinsic.py::test_a_semidefinite_pair_is_found_by_one_head_of_dimension_one",
    status="refuted here",
    hypotheses=(Checked("eigenvalues zero up to 1e-12 of the largest"),),
)
def kind_of(form: Table) -> Kind:
    """What max_{s,t} x_s^T A x_t really looks up: single tokens, two extremes, opposite tokens, or some pair.

    single: A symmetric and positive semidefinite. By Cauchy-Schwarz x_s^T A x_t <= max of x_s^T A x_s and x_t^T A x_t,
        so the maximum is max_t x_t^T A x_t: one retrieval of order 1.
    extremes: A = -u u^T. With M and m the largest and smallest <u, x_t> it is -min(M m, M^2, m^2): two of order 1.
    opposite: the symmetric part has two negative eigenvalues or more, so A is negative definite on a plane: there the
        lower bound for one layer holds (`pair_exponent`).
    pair: anything else. A = u v^T is of this kind: four extremes decide it (max_s <u, x_s>, min_s <u, x_s>, and the
        same of v), which four heads of one layer find, and so do two layers of one head.
    Source: Yu et al. 2026 (InfoFlow) is summarised as saying that pairs cost any single layer an exponent linear in
    the length. Departs: false for semidefinite and for rank-one forms, as the identities above show.

    >>> kind_of([[2, 1], [1, 2]]), kind_of([[-1, 0], [0, 0]]), kind_of([[-1, 5], [-5, -1]]), kind_of([[0, 1], [0, 0]])
    ('single', 'extremes', 'opposite', 'pair')
    """
    a = torch.as_tensor(form, dtype=torch.float64)
    size = a.abs().max().item() or 1.0
    a = a / size
    eigenvalues = torch.linalg.eigvalsh((a + a.T) / 2)
    negative = int((eigenvalues < -SAME).sum())
    symmetric = bool((a - a.T).abs().max() <= SAME)
    if symmetric and not negative:
        return "single"
    if symmetric and negative == 1 and eigenvalues[-1] <= SAME:
        return "extremes"
    return "opposite" if negative >= 2 else "pair"


def rank_one(form: Table) -> bool:
    """Whether a form is a product u v^T: then four extremes decide it, max and min of <u, x_s> and of <v, x_t>.

    >>> rank_one([[0, 1], [0, 0]]), rank_one([[0, 1], [1, 0]])
    (True, False)
    """
    sizes = torch.linalg.svdvals(torch.as_tensor(form, dtype=torch.float64))
    return bool((sizes[1:] <= SAME * sizes[0]).all())


def even_plane(form: Table) -> bool:
    """Whether the symmetric part of an opposite form is a multiple of the identity on some plane, as on the sphere.

    From dimension 3 on always: take the second eigenvector, and the mixture of the first and third with its value.

    >>> even_plane([[-1, 0], [0, -1]]), even_plane([[-1, 0], [0, -2]])
    (True, False)
    """
    a = torch.as_tensor(form, dtype=torch.float64)
    eigenvalues = torch.linalg.eigvalsh((a + a.T) / 2)
    spread = float(eigenvalues[-1] - eigenvalues[0])
    return len(a) > 2 or spread <= SAME * float(eigenvalues.abs().max())


def equal_rays(a: Float64[Tensor, " n"], b: Float64[Tensor, " n"]) -> bool:
    """Whether b is a positive multiple of a, up to `SAME`."""
    a, b = a / a.abs().max(), b / b.abs().max()  # before squares can leave the range of float64
    return bool((a / a.norm() - b / b.norm()).norm() <= SAME)


def _merged(vectors: Tensor, size: float) -> list[Tensor]:
    rays: list[Tensor] = []
    for v in vectors:
        if v.abs().max().item() <= SAME * size:
            continue
        for i, k in enumerate(rays):
            if equal_rays(k, v):
                rays[i] = k + v
                break
        else:
            rays.append(v)
    return rays


def _falling(vectors: list[Tensor], numbers: int) -> Matrix:
    """In falling order, so that equal forms are equal values; a target that is constant keeps one zero row."""
    rows = [tuple(v.tolist()) for v in vectors] or [(0.0,) * numbers]
    return tuple(sorted(rows, reverse=True))
