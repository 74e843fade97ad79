"""The closed form for a product of given rank, and what it does to logits."""

import pytest
import torch

from headcount.papers.allocation.lowrank import factors, logit_error, shared_factors


def metric(dim, generator):
    a = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return a @ a.mT + 0.1 * torch.eye(dim, dtype=torch.float64)


def loss(left, right, product):
    gone = torch.eye(len(left), dtype=left.dtype) - product
    return float((left @ gone @ right @ gone.mT).diagonal().sum())


def test_no_random_product_of_that_rank_beats_the_closed_form():
    g = torch.Generator().manual_seed(0)
    left, right = metric(6, g), metric(6, g)
    found = factors(left, right)
    for rank in range(7):
        least = loss(left, right, found.product(rank))
        assert least == pytest.approx(float(found.errors[rank]), rel=1e-9, abs=1e-9)
        for _ in range(200):
            a, b = (
                found_ + 0.1 * torch.randn(found_.shape, generator=g, dtype=torch.float64)
                for found_ in (found.left[:, :rank], found.right[:, :rank])
            )
            assert loss(left, right, a @ b.mT) >= least - 1e-9


def test_full_rank_is_the_identity():
    g = torch.Generator().manual_seed(1)
    found = factors(metric(8, g), metric(8, g))
    torch.testing.assert_close(found.product(8), torch.eye(8, dtype=torch.float64), atol=1e-10, rtol=0)


def test_the_weight_metrics_give_the_plain_singular_value_decomposition():
    g = torch.Generator().manual_seed(2)
    q, k = (torch.randn(4, 9, generator=g, dtype=torch.float64) for _ in range(2))
    found = factors(q @ q.mT, k @ k.mT)
    U, S, Vh = torch.linalg.svd(q.mT @ k)
    torch.testing.assert_close(found.values, S[:4])
    for rank in (1, 2, 3):
        torch.testing.assert_close(q.mT @ found.product(rank) @ k, U[:, :rank] * S[:rank] @ Vh[:rank])


def test_rescaling_keeps_the_logits_at_another_head_dimension():
    """A student that divides by the root of its own dimension needs both factors times (h / d)^(1/4)."""
    g = torch.Generator().manual_seed(3)
    q, k = (torch.randn(8, 12, generator=g, dtype=torch.float64) for _ in range(2))
    x = torch.randn(5, 12, generator=g, dtype=torch.float64)
    found = factors(q @ q.mT, k @ k.mT)
    for rank in (3, 8):
        left, right = (m[:, :rank] * (rank / 8) ** 0.25 for m in (found.left, found.right))
        student = (x @ (left.mT @ q).mT) @ (x @ (right.mT @ k).mT).mT / rank**0.5
        torch.testing.assert_close(student, x @ q.mT @ found.product(rank) @ k @ x.mT / 8**0.5)


def test_truncated_logits_stay_within_the_singular_value_bound():
    g = torch.Generator().manual_seed(4)
    q, k = (torch.randn(6, 10, generator=g, dtype=torch.float64) for _ in range(2))
    X = torch.randn(20, 10, generator=g, dtype=torch.float64)
    norm, scale, found = float(torch.linalg.matrix_norm(X, 2)), 6**-0.5, factors(q @ q.mT, k @ k.mT)
    for rank in range(7):
        gone = torch.eye(6, dtype=torch.float64) - found.product(rank)
        for x in X:
            gap = float((scale * x @ q.mT @ gone @ k @ X.mT).norm())
            assert gap <= logit_error(q, k, rank, float(x.norm()), norm, scale) * (1 + 1e-9) + 1e-9
    # and it is reached: the token along the lost left direction, the sequence along the lost right one
    U, _, Vh = torch.linalg.svd(q.mT @ k)
    gone = torch.eye(6, dtype=torch.float64) - found.product(2)
    reached = float((scale * U[:, 2] @ q.mT @ gone @ k @ Vh[2:3].mT).norm())
    assert reached == pytest.approx(logit_error(q, k, 2, 1.0, 1.0, scale))


def test_a_shared_right_factor_is_optimal_for_both_heads():
    g = torch.Generator().manual_seed(5)
    lefts = torch.stack([metric(4, g), metric(4, g)])
    right = metric(8, g)
    link = torch.eye(8, dtype=torch.float64)
    found = shared_factors(lefts, right, link)
    block = torch.block_diag(*lefts)
    for rank in range(9):
        gone = link - found.product(rank)
        lost = float((block @ gone @ right @ gone.mT).diagonal().sum())
        assert lost == pytest.approx(float(found.errors[rank]), abs=1e-8)


def test_nearly_singular_metrics_do_not_blow_up():
    right = torch.diag(torch.tensor([1.0, 1e-14, 0.0], dtype=torch.float64))
    found = factors(torch.eye(3, dtype=torch.float64), right)
    assert torch.isfinite(found.product(3)).all()
    assert float(found.errors[1]) < 1e-8
