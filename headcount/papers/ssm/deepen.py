"""Shallow to deep: the same response from small weights, by nested chains or by gain stages."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Complex, Float

from headcount.papers.ssm.chains import Chains, Deal, arrange, least_chains, merge
from headcount.papers.ssm.coefficients import coefficients
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.orders import cancellation
from headcount.refusals import at_least, at_least_one, positive
from headcount.sources import Checked, Source, implements

TINY = 1e-30  # a coefficient below this share of the largest is rounding

LARGEST = 1_000_000  # places for modes; a deeper system is refused before it is built

Parts = tuple[tuple[Layer, ...], Complex[np.ndarray, " width"], float]
"""The layers and the read-out of a deep system, and the sum of what cancels in its chains."""


@implements(
    Source("ssm2025depth", "Theorem 4.1"),
    test="tests/test_ssm_deepen.py::test_one_mode_too_many_is_refused",
    status="proved in the paper",
    hypotheses=(Checked("depth and width at least 1"),),
)
def capacity(depth: int, width: int) -> int:
    """The most modes that every system may have and still be written at this depth and width: l(m-1) + 1.

    Source: Theorem 4.1 of the depth paper on linear SSMs.

    >>> capacity(depth=3, width=5)
    13
    """
    at_least_one(depth=depth, width=width)
    return depth * (width - 1) + 1


def least_width(modes: int, depth: int) -> int:
    """The least width whose capacity holds the modes.

    >>> [least_width(13, depth) for depth in (1, 2, 3, 4, 6, 12)]
    [13, 7, 5, 4, 3, 2]
    """
    at_least_one(depth=depth)
    at_least(0, modes=modes)
    return 1 + -(-(max(modes, 1) - 1) // depth)


@implements(
    Source("ssm2025depth", "Theorem 4.2"),
    test="tests/test_ssm_deepen.py::test_thousands_of_random_systems_keep_their_response_within_the_bound",
    status="proved here",
    hypotheses=(Checked("modes <= depth * (width - 1) + 1"),),
)
def nested_chains(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], depth: int, width: int, deal: Deal
) -> Parts:
    """The deep system of largest entry tau <= 2^((l-1)/(l+1)) c_1^(2/(l+1)) with the response sum_i R_i lambda_i^t.

    In layers 1 .. l-1 channel 0 has pole 0: it hands the input on at once. Channels 1 .. m-1 hold the chains.
    Every path takes l + 1 weights, tau each but for the injection a/tau^l, so its gain is the coefficient a:
    k-1 steps along channel 0, the injection into chain j at layer k, l-k steps down the chain, the read-out.
    tau = max(|a|, |R_last|)^(1/(l+1)), and |a| <= 2^(l-1) c_1^2 (see `coefficients`).

    Source: Theorem 4.2 of the depth paper on linear SSMs, whose bound is 2 c_1^(2/(l+1)).
    Departs: the constant is sharper, and c_1 is that of the merged system: the theorem needs distinct poles, and a
    hundred modes of residue 1 at one pole are one of residue 100. Long chains stand as `orders.by_low_tails` says.
    """
    poles, residues = merge(poles, residues)
    at_least_one(depth=depth, width=width)
    _refuse_beyond_capacity(poles, residues, depth, width)
    chains = arrange(poles, residues, depth, width - 1, deal)
    return _weave(chains, coefficients(chains.poles, chains.residues))


def shallowest_chains(
    poles: Complex[np.ndarray, " modes"],
    residues: Complex[np.ndarray, " modes"],
    max_entry: float,
    width: int | None,
    deal: Deal,
) -> Parts:
    """The nested chains of least depth whose largest entry is at most `max_entry`.

    Once a chain holds all it must, more layers leave the coefficients alone and tau = max|a|^(1/(l+1)) falls to 1:
    every bound above 1 is met by some depth, and one of 1 or less only if it is met before the chains are full.
    """
    positive(**{"the largest entry": max_entry})
    merged = merge(poles, residues)
    modes = len(merged[0])
    if width is not None:
        at_least_one(width=width)
    depth = 1 if width is None else max(1, -(-(modes - 1) // max(width - 1, 1)))
    if width == 1 and modes > 1:
        _refuse_beyond_capacity(*merged, depth=1, width=1)
    full = max(depth, modes)  # from here on one chain holds all, and the last pole nothing
    while depth <= full or max_entry > 1:
        m = width or 1 + least_chains(*merged, depth)
        if depth * m > LARGEST:
            raise ValueError(
                f"entries of {max_entry:.10g} need depth {depth:,} at width {m}, more than the {LARGEST:,} places that "
                "are built; allow larger entries, or take gain stages"
            )
        chains = arrange(*merged, depth, m - 1, deal)
        a = coefficients(chains.poles, chains.residues)
        if _tau(chains, a) <= max_entry:
            return _weave(chains, a)
        depth = _next_depth(depth, full, _peak(chains, a), max_entry)
    raise ValueError(
        f"nested chains cannot bring the entries down to {max_entry:g}: their largest entry tends to 1 as the depth "
        f"grows; ask for more than 1, or take gain stages, which work above 1/width (here {1 / max(modes, 1):.3g})"
    )


def _next_depth(depth: int, full: int, peak: float, max_entry: float) -> int:
    if depth < full or max_entry <= 1:
        return depth + 1
    # The coefficients no longer change: peak^(1/(l+1)) <= max_entry says l >= ln(peak)/ln(max_entry) - 1.
    return max(depth + 1, math.ceil(math.log(peak) / math.log(max_entry) - 1))


def _weave(chains: Chains, a: Complex[np.ndarray, "layers chains"]) -> Parts:
    depth, count = a.shape
    tau = _tau(chains, a)
    after = _shares(a, _peak(chains, a))  # of tau^(l-k+1), the largest gain after layer k
    last = math.sqrt(abs(chains.last_residue) / tau ** (depth + 1)) if tau > 0 else 0.0
    inject = np.divide(a, tau**depth * after, out=np.zeros_like(a), where=a != 0)
    layers = []
    for k in range(depth):
        end = k == depth - 1
        weights = np.zeros((count + 1, 1 if k == 0 else count + 1), dtype=np.complex128)
        weights[1:, 0] = inject[k]
        weights[0, 0] = chains.last_residue / (tau**depth * last) if end and last > 0 else tau * (not end)
        if k > 0:
            weights[range(1, count + 1), range(1, count + 1)] = tau * after[k - 1] / after[k]
        layers.append(Layer(np.concatenate([[chains.last_pole if end else 0j], chains.poles[k]]), weights))
    readout = tau * np.concatenate([[last], after[-1]]).astype(np.complex128)
    return tuple(layers), readout, _cancels(chains, a)


def _cancels(chains: Chains, a: Complex[np.ndarray, "layers chains"]) -> float:
    alone = cancellation(np.array([chains.last_pole]), np.array([chains.last_residue]))
    return alone + sum(cancellation(chains.poles[:, j], a[:, j]) for j in range(a.shape[1]))


def _shares(a: Complex[np.ndarray, "layers chains"], peak: float) -> Float[np.ndarray, "layers chains"]:
    """How much of the gain tau^(l-k+1) each chain keeps after layer k, so that no weight is smaller than it must be.

    A coefficient a_k far below the peak leaves room: its path may lose the factor |a_k|/peak anywhere. Lost all at the
    injection, one weight is tiny and the first to drown in rounding; so (l-1)/l of it is lost along the l - k steps
    and the read-out. The steps serve all paths from above, so the share may only rise with k: it follows the largest
    coefficient so far. Every weight stays at most tau, and every path keeps its gain.
    """
    depth = len(a)
    if a.size == 0 or peak == 0:
        return np.ones(a.shape)
    size = np.maximum(np.abs(a) / peak, TINY)
    return np.maximum.accumulate(size, axis=0) ** ((depth - 1) / depth)


def _peak(chains: Chains, a: Complex[np.ndarray, "layers chains"]) -> float:
    return float(max(np.abs(a).max(initial=0.0), abs(chains.last_residue)))


def _tau(chains: Chains, a: Complex[np.ndarray, "layers chains"]) -> float:
    return _peak(chains, a) ** (1 / (len(a) + 1))


def _refuse_beyond_capacity(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], depth: int, width: int
) -> None:
    """Refuse more than l(m-1)+1 modes, by the behaviour of the transfer function H(w) far out.

    A mode of pole lambda != 0 falls like -R/(lambda w); one of pole 0 is the constant R. All k nonzero poles must
    stand among the l m places, which leaves at most l m - k for zero poles. For k >= l(m-1) + 1 some layer then has
    none, and every path falls at least like 1/w; for k >= l(m-1) + 2 two layers have none, and it falls like 1/w^2.
    """
    most = capacity(depth, width)
    if len(poles) <= most:
        return
    slow = poles != 0
    what = f"depth {depth} and width {width} hold at most {most} modes, and this system has {len(poles)} distinct ones"
    right = f"use width {least_width(len(poles), depth)}" + (
        f" or depth {-(-(len(poles) - 1) // (width - 1))}" if width > 1 else ""
    )
    if not slow.all():
        why = "its transfer function tends to a constant at infinity, where such a network's falls to 0"
    elif abs((residues / poles).sum()) > 1e-12 * np.abs(residues / poles).sum():
        why = "its transfer function falls like 1/w at infinity, where such a network's falls like 1/w^2"
    else:
        why = "Theorem 4.1 leaves this one open (sum R/lambda = 0) but the construction does not reach it"
    raise ValueError(f"{what}: {why}; {right}")


@implements(
    Source("headcount", "Gain stages"),
    test="tests/test_ssm_deepen.py::test_gain_stages_need_exactly_the_depth_of_the_lower_bound",
    status="proved here",
    hypotheses=("width of n modes or more",),
)
def gain_stage_depth(c_from: float, c_to: float, width: int) -> int:
    """The depth at which gain stages bring entries from c_1 to c_2: l = 1 + ceil(ln(c_1^2/c_2^2) / ln(m c_2)).

    A layer of zero poles whose weights are all c_2 multiplies by m c_2, and C adds the last one: c_2^2 (m c_2)^(l-1).

    >>> [gain_stage_depth(c, 1, width=13) for c in (10, 100, 1000)], gain_stage_depth(1000, 0.5, width=13)
    ([3, 5, 7], 10)
    """
    if c_from <= c_to:
        return 1
    if width * c_to <= 1:
        raise ValueError(
            f"gain stages multiply by width * entry = {width} * {c_to:g}, which must exceed 1 to gain anything; "
            f"use entries above {1 / width:.3g} or a width above {1 / c_to:.3g}"
        )
    stages = 2 * math.log(c_from / c_to) / math.log(width * c_to)
    return 1 + math.ceil(stages - 1e-12)


def gain_stages(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], max_entry: float, width: int | None
) -> Parts:
    """The other route: all modes in layer 1, then layers of zero poles that only amplify; width n, few layers.

    B_1 = c_2, B_2[i, j] = c_2 R_j / max|R|, B_k = c_2, and C takes what is left. Each of layers 2 .. l and C sums over
    its inputs, so the gain of the width comes free, at (l-1) m^2 parameters.
    """
    positive(**{"the largest entry": max_entry})
    poles, residues = merge(poles, residues)
    poles, residues = (poles, residues) if len(poles) else (np.zeros(1, complex), np.zeros(1, complex))
    m = len(poles) if width is None else width
    if m < len(poles):
        raise ValueError(f"gain stages keep all {len(poles)} modes in layer 1, so the width must be at least that")
    peak = float(np.abs(residues).max())
    depth = gain_stage_depth(math.sqrt(peak), max_entry, m)
    pad = np.zeros(m - len(poles), dtype=np.complex128)
    poles, weights = np.concatenate([poles, pad]), np.concatenate([residues, pad]) / (peak or 1.0)
    first = Layer(poles, np.full((m, 1), max_entry))
    cancels = float((peak * np.abs(weights) / (1 - np.abs(poles))).sum())  # every mode is a chain of its own
    if depth == 1:
        return (first,), peak * weights / max_entry, cancels
    mix = Layer(np.zeros(m), np.tile(max_entry * weights, (m, 1)))
    amplify = Layer(np.zeros(m), np.full((m, m), max_entry))
    left = peak / (max_entry**2 * (m * max_entry) ** (depth - 2) * m)
    return (first, mix, *[amplify] * (depth - 2)), np.full(m, left, dtype=np.complex128), cancels
