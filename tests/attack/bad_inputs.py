"""Sequences that a certificate likes least: corners, ties, near-ties, repeated tokens, ends, ascent."""

import numpy as np
import torch

__all__ = ["ascended", "box_inputs", "letter_inputs", "spaced_inputs"]


def box_inputs(rng, count, length, dim, low, high, betas):
    """A mixture over the box; every kind gets an equal share."""
    kinds = (_corners, _ends, _ties, _equal, _near_ties, _worst_distance, _one_apart, _opposite, _uniform, _sparse)
    each = -(-count // len(kinds))
    made = [kind(rng, each, length, dim, low, high, betas) for kind in kinds]
    return np.clip(np.concatenate(made)[:count], low, high)


def _uniform(rng, n, T, d, low, high, betas):
    return rng.uniform(low, high, (n, T, d))


def _corners(rng, n, T, d, low, high, betas):
    return np.where(rng.random((n, T, d)) < rng.random((n, 1, 1)), low, high)


def _ends(rng, n, T, d, low, high, betas):
    """Coordinates at an end, one unit in the last place inside it, at the middle, and free."""
    levels = np.array([low, np.nextafter(low, high), (low + high) / 2, np.nextafter(high, low), high])
    x = levels[rng.integers(5, size=(n, T, d))]
    return np.where(rng.random((n, T, d)) < 0.2, rng.uniform(low, high, (n, T, d)), x)


def _ties(rng, n, T, d, low, high, betas):
    few = rng.integers(1, 5, size=n)
    pool = rng.uniform(low, high, (n, 4, d))
    pool = np.where(rng.random((n, 4, 1)) < 0.3, np.where(pool > (low + high) / 2, high, low), pool)
    return pool[np.arange(n)[:, None], rng.integers(0, few[:, None], size=(n, T))]


def _equal(rng, n, T, d, low, high, betas):
    return np.repeat(rng.uniform(low, high, (n, 1, d)), T, axis=1)


def _near_ties(rng, n, T, d, low, high, betas):
    base = rng.uniform(low, high, (n, 1, d))
    scale = (high - low) * 10 ** -rng.uniform(0, 16, (n, 1, 1))
    return base + scale * rng.uniform(-1, 1, (n, T, d))


def _worst_distance(rng, n, T, d, low, high, betas):
    """One token ahead of all others, which are equal, by about what a softmax of this beta and length likes least."""
    base = rng.uniform(low, high, (n, 1, d))
    base = np.where(rng.random((n, 1, 1)) < 0.4, np.where(base > (low + high) / 2, high, low), base)
    beta = rng.choice(np.asarray(betas), size=(n, 1, 1))
    step = 10 ** rng.uniform(-1.5, 2.0, (n, 1, 1)) * (1 + np.log(T)) / beta
    x = base + step * rng.uniform(-1, 1, (n, 1, d)) * np.ones((n, T, 1))
    x[np.arange(n), rng.integers(T, size=n)] = base[:, 0]
    return x


def _one_apart(rng, n, T, d, low, high, betas):
    x = _equal(rng, n, T, d, low, high, betas)
    x[np.arange(n), rng.integers(T, size=n)] = rng.uniform(low, high, (n, d))
    return x


def _opposite(rng, n, T, d, low, high, betas):
    """Pairs that nearly cancel about the middle, tied with one another."""
    middle, base = (low + high) / 2, rng.uniform(low, high, (n, 1, d)) - (low + high) / 2
    sign = np.where(np.arange(T) % 2 == 0, 1.0, -1.0)[None, :, None]
    return middle + sign * base + (high - low) * 10 ** -rng.uniform(1, 12, (n, 1, 1)) * rng.uniform(-1, 1, (n, T, d))


def _sparse(rng, n, T, d, low, high, betas):
    """Most tokens at one corner, some anywhere."""
    x = np.repeat(_corners(rng, n, 1, d, low, high, betas), T, axis=1)
    return np.where(rng.random((n, T, 1)) < 0.3, rng.uniform(low, high, (n, T, d)), x)


def spaced_inputs(rng, count, length, rank, lead, betas):
    """Tokens in [0, 1] whose rank - 1 largest are spaced by exactly the lead, a little more, or at random."""
    n, leaders = count, rank - 1
    beta = rng.choice(np.asarray(betas), size=(n, 1))
    step = 10 ** rng.uniform(-1.5, 2.0, (n, 1)) * (1 + np.log(length)) / beta
    top = rng.uniform(0, max(0.0, 1 - (rank - 1) * lead * 1.1), (n, 1))
    rest = top - step * (rng.random((n, length - leaders)) < rng.random((n, 1)))
    rest = np.where(rng.random((n, 1)) < 0.25, top * rng.random((n, length - leaders)), rest)
    gaps = lead * (1 + 1e-9 + np.where(rng.random((n, leaders)) < 0.6, 0.0, rng.exponential(1.0, (n, leaders))))
    gaps[:, 0] = np.where(rng.random(n) < 0.5, gaps[:, 0], rng.random(n) * 2 * max(lead, 1e-9))  # the last may tie
    x = np.concatenate([top + np.cumsum(gaps, 1), rest], axis=1)
    x = np.clip(rng.permuted(x, axis=1), 0.0, 1.0)
    order = np.sort(x, axis=1)[:, ::-1][:, :leaders]
    return x[(-np.diff(order, axis=1) >= lead).all(1)][:, :, None]


def letter_inputs(rng, count, length, vocab):
    """Letters whose last one occurred before: random ones, few distinct ones, runs, and copies at both ends."""
    few = rng.integers(1, vocab + 1, size=(count, 1))
    x = rng.integers(0, few, size=(count, length))
    runs = rng.random(count) < 0.4
    x[runs] = np.where(np.arange(length) < rng.integers(1, length, (runs.sum(), 1)), x[runs, :1], x[runs, 1:2])
    extreme = rng.random(count) < 0.3
    x[extreme] = np.where(rng.random((extreme.sum(), length)) < 0.5, 0, vocab - 1)
    x[:, -1] = x[np.arange(count), rng.integers(0, length - 1, size=count)]
    return np.eye(vocab)[x]


def ascended(net, target, x, low, high, steps):
    """Gradient ascent on |net - target| from the given sequences; the target serves for the direction alone."""
    x = torch.from_numpy(x).clone()
    best, size, seen = torch.zeros(len(x), dtype=torch.float64), torch.full((len(x), 1, 1), 0.05 * (high - low)), [x]
    size = size.double()
    for _ in range(steps):
        y = x.clone().requires_grad_()
        gap = (net(y) - target(y)).abs()
        (slope,) = torch.autograd.grad(gap.sum(), y)
        slope = torch.nan_to_num(slope / slope.abs().amax((1, 2), keepdim=True).clamp(min=1e-300))
        moved = (x + size * slope).clamp(low, high)
        with torch.no_grad():
            found = (net(moved) - target(moved)).abs()
        better = (found > gap.detach())[:, None, None]
        x, size = torch.where(better, moved, x), torch.where(better, 1.5 * size, 0.4 * size)
        best = torch.maximum(best, found)
        seen.append(moved)
    return torch.cat(seen).numpy()
