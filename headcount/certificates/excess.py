"""How far a softmax falls short of a minimum: exactly, by Lambert's W."""

from __future__ import annotations

import math

from scipy.special import lambertw

from headcount.certificates.arithmetic import smallest
from headcount.refusals import at_least, positive
from headcount.results import Bound
from headcount.sources import Checked, Source, implements

EXCESS = Source("headcount", "Gibbs excess (sharpens Equation 15 of Yu et al. 2025)")


@implements(
    EXCESS,
    test="tests/test_certificates_excess.py::test_the_excess_is_attained_and_never_exceeded",
    status="proved here",
    hypotheses=(
        Checked("beta > 0"),
        Checked("competitors a whole number >= 0"),
    ),
)
def gibbs_excess(competitors: int, beta: float) -> Bound:
    """The softmax average of m + 1 numbers exceeds their minimum by at most W(m/e)/beta, and this is attained.

    Departs: Equation 15 of the paper has m/(e beta), ten times more at m = 63.

    >>> gibbs_excess(63, beta=1.0).value
    2.3071...
    """
    at_least(0, competitors=competitors)
    positive(beta=beta)
    # The excess E = sum u_t e^{-b u_t} / (1 + sum e^{-b u_t}) is stationary in u_t only where b u_t = 1 + b E, the
    # same for all t, or where the token has left (u_t infinite); E grows with their number. With all m at u it is
    # m u e^{-bu} / (1 + m e^{-bu}) = (b u - 1)/b there, so w = b E solves w e^w = m/e.
    value = _w(competitors) / beta
    meaning = f"the worst input has every competitor {worst_distance(competitors, beta):.4g} above the minimum"
    sizes = {"competitors": competitors, "beta": beta}
    return Bound("softmax excess", value, "exact", EXCESS, ("beta > 0",), meaning=meaning, sizes=sizes)


def worst_distance(competitors: int, beta: float) -> float:
    """How far above the minimum all competitors stand where the excess is attained: (1 + W(m/e))/beta.

    >>> worst_distance(0, beta=2.0)
    0.5
    """
    at_least(0, competitors=competitors)
    positive(beta=beta)
    return (1.0 + _w(competitors)) / beta


def sway(competitors: int) -> float:
    """How far scores off by a little a move the softmax average of the scores themselves, as a multiple of a.

    The largest beta E|s - E s| over all m + 1 scores: the maximum over P of 2 P (1 - P) log(m P/(1 - P)). It grows like
    half of log m: 0.45 for two scores, 5.8 for 10^5.

    >>> round(sway(1), 4), round(sway(10**5 - 1), 3)
    (0.4477, 5.799)
    """
    # The average E s moves along e by beta Cov(s, e) <= a beta E|s - E s|. Let A be the scores above their mean, of
    # weight P, and B the others; then E|s - E s| = 2 P (1 - P) (E_A s - E_B s). With Z_A, Z_B the sums of exp(beta s)
    # and H the entropies, beta E_A s = log Z_A - H_A <= log Z_A and beta E_B s = log Z_B - H_B >= log Z_B - log m, and
    # Z_A/Z_B = P/(1 - P). One score above and m equal ones below attain it. The maximum has r = P/(1 - P) > 1 with
    # log(m r) = (r + 1)/(r - 1), and there the value is 2 r/(r^2 - 1).
    if competitors < 1:
        return 0.0
    r = smallest(lambda r: r > 1 and math.log(competitors * r) >= (r + 1) / (r - 1), start=2.0)
    return 2 * r / (r * r - 1) * (1 + 1e-9)


def _w(competitors: int) -> float:
    return float(lambertw(competitors / math.e).real)
