"""How small entries get with depth, and how deep one must go: each answer a Bound with its source."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

from headcount.certificates.arithmetic import fewest
from headcount.numerals import counted
from headcount.papers.ssm.deepen import gain_stage_depth
from headcount.refusals import at_least_one, positive
from headcount.results import Bound, Claim, Hypothesis
from headcount.sources import Checked, Source, implements

PAPER = Source("ssm2025depth", "Theorem 4.2")
SHARPER = Source("headcount", "Nested chains")
RAY = Source("headcount", "Nested chains, poles on a ray")
PADDED = Source("headcount", "Nested chains, short ones")
GAIN = Source("headcount", "Gain stages")
FIRST_SAMPLE = Source("headcount", "First sample")

Side = Literal["lower", "upper"]
POSITIVE = "all poles are real and at least 0 (or on one ray)"


class EntryBounds(NamedTuple):
    """The largest entry c_2 that depth l needs for every system of norm c_1."""

    paper: Bound
    sharper: Bound
    positive_real: Bound
    exponent_only: Bound


class MinimalDepth(NamedTuple):
    """The least depth that takes every system from norm c_1 to norm c_2, from above and from below."""

    paper: Bound
    sharper: Bound
    positive_real: Bound
    padded: Bound
    gain_stages: Bound
    lower: Bound

    def claim(self) -> Claim:
        """The depth that is enough for every system, and below which layers of the width asked about leave some out.

        >>> print(minimal_depth(10, 3, modes=5).claim().reason)
        with at most 5 states in each layer some system of 5 modes needs 2 layers or more
        """
        sizes, least = self.lower.sizes, self.lower.value
        subject = f"the depth that brings entries of {sizes['c_from']:g} down to {sizes['c_to']:g}"
        general = (self.sharper, self.paper, self.padded, self.gain_stages)  # of all systems, not of poles on a ray
        claim = min((b for b in general if not b.vacuous), key=lambda b: b.value, default=self.sharper).claim(subject)
        if self.lower.vacuous or least < 2:
            return claim
        modes, states = sizes["modes"], sizes["width"] or sizes["modes"]
        some = f"with at most {counted(states, 'state')} in each layer some system of {counted(modes, 'mode')}"
        needs = "stays above it at any depth" if math.isinf(least) else f"needs {int(least)} layers or more"
        return replace(claim, reason=f"{some} {needs}")


@implements(
    SHARPER,
    test="tests/test_ssm_depths.py::test_entry_bounds_are_those_of_the_notes",
    status="proved here",
    hypotheses=(
        "modes <= depth * (width - 1) + 1",
        "poles of modulus at most 1",
    ),
)
def entry_bounds(c_from: float, depth: int) -> EntryBounds:
    """The bounds 2 c_1^p, 2^((l-1)/(l+1)) c_1^p and l^(1/(l+1)) c_1^p on the largest entry, with p = 2/(l+1).

    `exponent_only` is c_1^p, the value the constants multiply; it bounds chains of one mode each (width n).

    >>> [round(bound.value, 2) for bound in entry_bounds(10, depth=4)]
    [5.02, 3.81, 3.31, 2.51]
    """
    positive(c_from=c_from)
    at_least_one(depth=depth)
    power = c_from ** (2 / (depth + 1))
    sizes = {"c_from": c_from, "depth": depth}

    def bound(factor: float, source: Source, *hypotheses: str) -> Bound:
        return Bound("largest entry", factor * power, "upper", source, hypotheses, sizes=sizes)

    return EntryBounds(
        bound(2.0, PAPER, "modes <= depth * (width - 1) + 1"),
        bound(2 ** ((depth - 1) / (depth + 1)), SHARPER, "modes <= depth * (width - 1) + 1"),
        bound(depth ** (1 / (depth + 1)), RAY, "modes <= depth * (width - 1) + 1", POSITIVE),
        bound(1.0, PADDED, "width >= modes"),
    )


@implements(
    Source("ssm2025depth", "Corollary on minimal depth"),
    test="tests/test_ssm_depths.py::test_table_of_minimal_depths",
    status="proved here",
    hypotheses=(
        Checked("c_1 > 0 and c_2 > 0, finite"),
        "poles of modulus at most 1",
    ),
)
def minimal_depth(c_from: float, c_to: float, *, modes: int | None = None, width: int | None = None) -> MinimalDepth:
    """The least depth l* that takes every system with entries up to c_1 to entries up to c_2, as six bounds.

    paper: l* <= ceil(2 ln c_1 / ln(c_2/2) - 1), from 2 c_1^(2/(l+1)) <= c_2.
    sharper: l* <= ceil((2 ln c_1 - ln(2 c_2)) / ln(c_2/2)), from 2^(l-1) c_1^2 <= c_2^(l+1).
    positive_real: the least l with l c_1^2 <= c_2^(l+1).
    padded: the least l with 2^(L-1) c_1^2 <= c_2^(l+1), where L = ceil((n-1)/(m-1)) is all a chain must hold, so
        that further layers leave the coefficients alone; at width n (the default) L = 1.
    gain_stages: l* <= 1 + ceil(ln(c_1^2/c_2^2) / ln(m c_2)), at a width of n or more.
    lower: |rho(0)| = |C^T B_l .. B_1| <= m^l c_2^(l+1), and a system of n residues c_1^2 has rho(0) = n c_1^2;
        and l >= (n-1)/(m-1) by Theorem 4.1.

    With both `modes` n and `width` m given, the upper bounds include the count l >= (n-1)/(m-1) as well; without
    `modes` the last three say nothing. A bound of infinity says that this argument gives no depth.
    Departs: the paper's corollary was not at hand; its bound is derived here from Theorem 4.2.

    >>> bounds = minimal_depth(10, 3)
    >>> bounds.paper.value, bounds.sharper.value, bounds.positive_real.value
    (11.0, 7.0, 5.0)
    >>> minimal_depth(10, 1, modes=13).lower.value, minimal_depth(10, 1, modes=13).gain_stages.value
    (3.0, 3.0)
    """
    positive(c_from=c_from, c_to=c_to)
    _check_counts(modes, width)
    n, m = modes or 1, width or modes or 1
    count = math.inf if m == 1 < n else max(1, -(-(n - 1) // max(m - 1, 1)))
    floor = count if modes and width else 1
    sizes = {"c_from": c_from, "c_to": c_to, "modes": modes, "width": width}

    def bound(value: float, side: Side, source: Source, *hypotheses: str | Hypothesis, known: bool = True) -> Bound:
        value = float(max(value, floor)) if known else (math.inf if side == "upper" else 1.0)
        vacuous = not known or (math.isinf(value) and side == "upper")
        return Bound("depth", value, side, source, hypotheses, vacuous, sizes=sizes)

    fits = () if modes and width else (Hypothesis("modes <= depth * (width - 1) + 1", short="room for all modes"),)
    wide = Hypothesis.checked("width >= modes", m >= n if width else None, "layers as wide as modes")
    narrow = f"at most {m} states in each layer" + ("" if width else ", as many as modes")
    worst = f"a system of {n} equal residues, which is the worst and not every one"
    return MinimalDepth(
        bound(_paper(c_from, c_to), "upper", PAPER, *fits),
        bound(_sharper(c_from, c_to), "upper", SHARPER, *fits),
        bound(_positive_real(c_from, c_to), "upper", RAY, POSITIVE, *fits),
        bound(_padded(c_from, c_to, count), "upper", PADDED, *(() if width else (wide,)), known=bool(modes)),
        bound(_gain(c_from, c_to, m), "upper", GAIN, wide, known=bool(modes) and m >= n),
        bound(_lower(c_from, c_to, n, m), "lower", FIRST_SAMPLE, narrow, worst, known=bool(modes)),
    )


def _paper(c_from: float, c_to: float) -> float:
    if c_from <= c_to:
        return 1
    return _ceil(2 * math.log(c_from) / math.log(c_to / 2) - 1) if c_to > 2 else math.inf


def _sharper(c_from: float, c_to: float) -> float:
    if c_from <= c_to:
        return 1
    return _ceil((2 * math.log(c_from) - math.log(2 * c_to)) / math.log(c_to / 2)) if c_to > 2 else math.inf


@implements(
    RAY,
    test="tests/test_ssm_deepen.py::test_positive_poles_stay_below_l_times_the_residue_and_come_near_it",
    status="proved here",
    hypotheses=("poles on a ray",),
)
def _positive_real(c_from: float, c_to: float) -> float:
    """The least l with l c_1^2 <= c_2^(l+1): on a ray every factor 1 - b/a lies between 0 and 1.

    (l+1) ln c_2 - ln l - 2 ln c_1 is convex in l and negative at l = 1, so it crosses 0 once: halving finds where.

    >>> _positive_real(10, 3), _positive_real(10, 1 + 1e-7)
    (5, 238970208)
    """
    if c_from <= c_to:
        return 1
    if c_to <= 1:
        return math.inf
    return fewest(lambda l: math.log(l) + 2 * math.log(c_from) <= (l + 1) * math.log(c_to) + 1e-12)


@implements(
    PADDED,
    test="tests/test_ssm_depths.py::test_the_construction_keeps_each_upper_bound",
    status="proved here",
    hypotheses=("chains of L modes",),
)
def _padded(c_from: float, c_to: float, chain: float) -> float:
    """The least l with 2^(L-1) c_1^2 <= c_2^(l+1): chains of L modes keep their coefficients at any depth."""
    if c_from <= c_to and chain == 1:
        return 1
    if c_to <= 1 or math.isinf(chain):
        return math.inf
    return _ceil(((chain - 1) * math.log(2) + 2 * math.log(c_from)) / math.log(c_to) - 1)


def _gain(c_from: float, c_to: float, m: int) -> float:
    return gain_stage_depth(c_from, c_to, m) if c_from <= c_to or m * c_to > 1 else math.inf


@implements(
    FIRST_SAMPLE,
    test="tests/test_ssm_depths.py::test_lower_bound_is_below_every_upper_one_and_met_by_gain_stages",
    status="proved here",
)
def _lower(c_from: float, c_to: float, n: int, m: int) -> float:
    """The least l with m^l c_2^(l+1) >= n c_1^2, which the first sample of n equal modes needs, and the count."""
    count = math.inf if m == 1 < n else -(-(n - 1) // max(m - 1, 1))
    need = math.log(n) + 2 * math.log(c_from) - math.log(c_to)  # l ln(m c_2) >= need
    gain = math.log(m * c_to)
    if need <= gain + 1e-12:
        return max(1, count)
    return max(_ceil(need / gain), count) if gain > 0 else math.inf


def _ceil(x: float) -> int:
    return max(1, math.ceil(x - 1e-12))


def _check_counts(modes: int | None, width: int | None) -> None:
    at_least_one(**{name: n for name, n in (("modes", modes), ("width", width)) if n is not None})
    if width is not None and modes is None:
        raise ValueError("a width needs the number of modes beside it")
