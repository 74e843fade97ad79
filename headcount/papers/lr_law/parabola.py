"""The best learning rate of one size and horizon: a parabola in the logarithm of the rate, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from headcount.fits import Estimate
from headcount.fits.settings import refuse_settings
from headcount.papers.lr_law.rate_losses import RateLosses, losses_of
from headcount.results import Study
from headcount.sources import Source, implements

POINTS = 5  # a wide range of rates is no parabola: steep on the left, a cliff on the right
CLIFF = math.log(10)  # a level ten times the smallest is on no parabola around it
FEWEST = 4  # through three points a parabola always passes
BAD = 30.0  # F of the one level without which the others lie on a parabola: it is left out


Places = NDArray[np.int64]


@dataclass(frozen=True)
class BestRate:
    """The rate with the smallest loss at one size and horizon, as the parabola through the nearest rates says.

    log NMSE = log loss + curvature (log lr - log rate)^2; `r2` says how much of those levels the parabola explains,
    `diverged` how many runs were lost at each of `tried`, which count as NMSE 1.
    """

    parameters: int
    steps: int
    rate: Estimate
    loss: Estimate
    curvature: Estimate
    rates: tuple[float, ...]
    r2: float
    tried: tuple[float, ...]
    levels: tuple[float, ...]
    seeds: int
    diverged: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """The optimum in words."""
        lost = f"; {sum(self.diverged)} runs diverged and count as NMSE 1" if any(self.diverged) else ""
        return (
            f"{self.parameters} parameters and {self.steps} steps are trained best at lr {self.rate}, "
            f"by a parabola through {len(self.rates)} of {len(self.tried)} rates{lost}"
        )

    def as_row(self) -> dict[str, object]:
        """The optimum as one flat machine-readable row."""
        numbers = {
            f"{name}{end}": getattr(getattr(self, name), end.lstrip("_") or "value")
            for name in ("rate", "loss", "curvature")
            for end in ("", "_low", "_high")
        }
        sizes = {"parameters": self.parameters, "steps": self.steps}
        rest = {"r2": self.r2, "rates": list(self.rates), "tried": list(self.tried), "levels": list(self.levels)}
        return {**sizes, **numbers, **rest, "seeds": self.seeds, "diverged": list(self.diverged)}


@implements(
    Source("zhou2026lr", "Equation 2"),
    test="tests/test_lr_law.py::test_the_optimum_of_an_exact_parabola_is_its_vertex",
    status="measured",
)
def best_rate(study: Study, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> BestRate:
    """The best learning rate of a study of one size and horizon, with an interval.

    Seeds are averaged, then log NMSE is fitted by a parabola in log lr through the five rates around the smallest
    level; one level without which the others lie on a parabola is left out. Intervals: seeds of every rate drawn again,
    their spread widened to Student's with the degrees of freedom of the vertex; with one seed a rate, normal deviations
    of the size of the distances from the parabola instead; at least what those distances, where they are larger than
    seeds explain, say of the vertex.
    Source: Zhou et al. 2026 (learning rate), Equation 2.
    Departs: the logarithm of the loss is fitted, which for NMSE over decades is nearer to a parabola; five points.

    >>> rows = tuple({"parameters": 9, "steps": 50, "lr": 0.01 * 2.0**i, "seed": s,
    ...               "nmse": 0.1 * math.exp(0.3 * (i * math.log(2)) ** 2)} for i in range(-3, 4) for s in (0, 1))
    >>> print(best_rate(Study(rows)).rate)
    0.01 [0.01, 0.01]
    """
    cells = losses_of(study)
    if len(cells) > 1:
        raise ValueError(f"best_rate needs one size and horizon, the study has {len(cells)}; see best_rates")
    return next(_fitted(cell, confidence, resamples, seed) for cell in cells)


def best_rates(study: Study, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> tuple[BestRate, ...]:
    """The best rate of every size and horizon of a study, smallest first."""
    return tuple(_fitted(cell, confidence, resamples, seed) for cell in losses_of(study))


def _fitted(cell: RateLosses, confidence: float, resamples: int, seed: int) -> BestRate:
    refuse_settings(confidence, resamples)
    place, near, again, wider = optimum(cell, resamples, np.random.default_rng(seed))
    levels, logs = cell.levels[near], np.log(cell.rates)[near]
    away = wider * student(_freedom(cell, near, place), confidence) * np.sqrt(np.nanmean((again - place) ** 2, 0))
    away = np.maximum(away, _misfit(cell, near, place, confidence))
    low, high = place - away, place + away
    fitted = place[1] + place[2] * (logs - place[0]) ** 2
    spread = ((levels - levels.mean()) ** 2).sum()
    r2 = float(1 - ((levels - fitted) ** 2).sum() / spread) if spread > 0 else 1.0
    rate, loss = (Estimate(*(float(math.exp(v)) for v in (place[i], low[i], high[i]))) for i in (0, 1))
    curvature = Estimate(float(place[2]), float(low[2]), float(high[2]))
    counts = np.isfinite(cell.nmse).sum(1)
    used = tuple(float(r) for r in np.array(cell.rates)[near])
    means = tuple(float(v) for v in np.exp(cell.levels))
    return BestRate(cell.parameters, cell.steps, rate, loss, curvature, used, r2, cell.rates, means,
                    int(counts.min()), cell.diverged)  # fmt: skip


def optimum(
    cell: RateLosses, resamples: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, " 3"], Places, Float[np.ndarray, "r 3"], float]:
    """The vertex, height and curvature of a cell, the rates it rests on, drawn again, and the spread's widening."""
    if len(cell.rates) < FEWEST:
        raise ValueError(f"a parabola needs {FEWEST} rates, got {len(cell.rates)} at {cell.where}: try more of them")
    levels, logs = cell.levels, np.log(cell.rates)
    near = _nearest(levels, logs)
    place = vertex(logs[near], levels[near])
    _refuse_open(cell, place, logs)
    losses = cell.nmse[near]
    counts = np.isfinite(losses).sum(1)
    if counts.min() >= 2:
        drawn = _seeds_again(losses, counts, resamples, generator)
        wider = math.sqrt(float(np.mean(counts / (counts - 1))))
    else:
        gaps = levels[near] - (place[1] + place[2] * (logs[near] - place[0]) ** 2)
        drawn = levels[near] - gaps + np.sqrt((gaps**2).mean()) * generator.standard_normal((resamples, len(gaps)))
        wider = math.sqrt(len(gaps) / (len(gaps) - 3))
    again = vertex(logs[near], drawn)
    again[:, 0] = np.where(again[:, 2] > 0, again[:, 0], logs[near][drawn.argmin(-1)])
    again[:, 0] = np.clip(again[:, 0], 2 * logs[0] - logs[-1], 2 * logs[-1] - logs[0])
    return place, near, again, wider


def vertex(logs: Float[np.ndarray, " rate"], levels: Float[np.ndarray, "*curve rate"]) -> Float[np.ndarray, "*curve 3"]:
    """Place, height and curvature of the parabola nearest to each curve.

    >>> vertex(np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, 3.0, 5.0, 11.0])).round(9).tolist()
    [1.0, 3.0, 2.0]
    """
    middle = logs.mean()
    x = logs - middle
    solve = np.linalg.pinv(np.stack([np.ones_like(x), x, x * x], 1))
    height, slope, bend = np.moveaxis(levels @ solve.T, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        away = -slope / (2 * bend)
        return np.stack([middle + away, height + slope * away / 2, bend], -1)


def student(freedom: float, confidence: float) -> float:
    """Half of Student's interval, in standard deviations."""
    from scipy import stats

    return float(stats.t.ppf((1 + confidence) / 2, freedom))


def _freedom(cell: RateLosses, near: Places, place: Float[np.ndarray, " 3"]) -> float:
    """Satterthwaite's degrees of freedom of the vertex: the outer rates move it most, so not all seeds count alike."""
    counts = np.isfinite(cell.nmse[near]).sum(1)
    if counts.min() < 2:
        return max(1, len(counts) - 3)
    pull = _pulls(np.log(cell.rates)[near], place)[0] ** 2
    return float(pull.sum() ** 2 / (pull**2 / (counts - 1)).sum())


def _pulls(x: Float[np.ndarray, " rate"], place: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "3 rate"]:
    """How far each level moves the vertex (times its curvature), the height and the curvature."""
    solve = np.linalg.pinv(np.stack([np.ones_like(x), x - x.mean(), (x - x.mean()) ** 2], 1))
    at = place[0] - x.mean()
    return np.stack([solve[1] + 2 * at * solve[2], solve[0] + at * solve[1] + at**2 * solve[2], solve[2]])


def _misfit(cell: RateLosses, near: Places, place: Float[np.ndarray, " 3"], confidence: float) -> np.ndarray:
    """Half the interval that the distances from the parabola give, where they exceed what seeds explain; else 0."""
    from scipy import stats

    x, levels, losses = np.log(cell.rates)[near], cell.levels[near], cell.nmse[near]
    left = len(x) - 3
    spread = float(((levels - place[1] - place[2] * (x - place[0]) ** 2) ** 2).sum()) / max(left, 1)
    counts = np.isfinite(losses).sum(1)
    if left < 1 or counts.min() < 2:
        return np.zeros(3)
    pure = float(np.mean(np.nanvar(np.log(losses), axis=1, ddof=1) / counts))
    if spread <= stats.f.ppf(0.95, left, int((counts - 1).sum())) * pure:
        return np.zeros(3)
    pulls = np.sqrt((_pulls(x, place) ** 2).sum(1)) / np.array([2 * abs(place[2]) or 1.0, 1.0, 1.0])
    return student(left, confidence) * math.sqrt(spread) * pulls


def _nearest(levels: Float[np.ndarray, " rate"], logs: Float[np.ndarray, " rate"]) -> Places:
    """The five rates around the smallest level, moved inwards at an end; four where one lies beyond a cliff.

    Of seven around it one is left out first, where without it the others lie on a parabola and with it they do not.
    """
    bad = _bad(levels, logs)
    places = np.delete(np.arange(len(levels)), [] if bad is None else bad)
    return places[_window(levels[places])]


def _bad(levels: Float[np.ndarray, " rate"], logs: Float[np.ndarray, " rate"]) -> int | None:
    """The one rate near the smallest level that lies above the parabola of its neighbours, by an F of 30 or more."""
    first = max(0, min(int(levels.argmin()) - 3, len(levels) - 7))
    near = [i for i in range(first, min(len(levels), first + 7)) if levels[i] - levels.min() < CLIFF]
    if len(near) < 6:
        return None

    def left(places: list[int]) -> float:
        x = logs[places] - logs[places].mean()
        return float(np.polyfit(x, levels[places], 2, full=True)[1].sum())

    residual = left(near)
    inner = near[1:-1]  # at an end it may be the curve's own turn
    without = {i: left([j for j in near if j != i]) for i in inner}
    worst = min(inner, key=lambda i: without[i])
    rest = [j for j in near if j != worst]
    above = levels[worst] > np.polyval(np.polyfit(logs[rest], levels[rest], 2), logs[worst])
    floor = 1e-12 * float(np.ptp(levels[near])) ** 2
    return worst if above and residual - without[worst] > BAD * (without[worst] + floor) / (len(near) - 4) else None


def _window(levels: Float[np.ndarray, " rate"]) -> slice:
    first = max(0, min(int(levels.argmin()) - POINTS // 2, len(levels) - POINTS))
    last = min(len(levels), first + POINTS)
    if last - first > FEWEST and levels[last - 1] - levels.min() > CLIFF:
        last -= 1
    if last - first > FEWEST and levels[first] - levels.min() > CLIFF:
        first += 1
    return slice(first, last)


def _seeds_again(
    nmse: Float[np.ndarray, "rate seed"], counts: np.ndarray, resamples: int, generator: np.random.Generator
) -> Float[np.ndarray, "r rate"]:
    """Levels of seeds drawn again with replacement, rate by rate."""
    packed = np.sort(nmse, axis=1)  # NaN goes to the end
    picks = (generator.random((resamples, *nmse.shape)) * counts[:, None]).astype(int)
    drawn = np.take_along_axis(packed[None], picks, axis=2)
    drawn[:, np.isnan(packed)] = np.nan
    return np.log(np.nanmean(drawn, axis=2))


def _refuse_open(cell: RateLosses, place: Float[np.ndarray, " 3"], logs: Float[np.ndarray, " rate"]) -> None:
    """Refuse an optimum that the rates tried do not enclose, naming the end to extend."""
    levels = cell.levels
    lost = f" ({sum(cell.diverged)} of {int(np.isfinite(cell.nmse).sum())} runs diverged)" if any(cell.diverged) else ""
    least, most = cell.rates[0], cell.rates[-1]
    if place[2] > 0 and logs[0] <= place[0] <= logs[-1]:
        return
    lowest = int(levels.argmin())
    if lowest + 1 < len(levels) and levels[lowest + 1] - levels[lowest] > CLIFF:
        raise ValueError(
            f"at {cell.where} the loss falls up to the rate {cell.rates[lowest]:g} and jumps at "
            f"{cell.rates[lowest + 1]:g}{lost}: try rates between them"
        )
    if place[2] <= 0 and 0 < lowest < len(levels) - 1 and float(np.ptp(levels)) > 0:
        raise ValueError(
            f"at {cell.where} the loss is smallest at {cell.rates[lowest]:g}, and the levels around it lie on no "
            f"parabola{lost}: repeat the rates next to it with other seeds"
        )
    falls = place[0] > logs[-1] if place[2] > 0 else levels[-1] < levels[0]
    if falls:
        raise ValueError(
            f"at {cell.where} the loss still falls at the largest rate tried, {most:g}{lost}: extend the rates upwards"
        )
    if place[2] > 0 or levels[0] < levels[-1] or any(cell.diverged):
        raise ValueError(
            f"at {cell.where} the loss still falls at the smallest rate tried, {least:g}{lost}: "
            "extend the rates downwards"
        )
    raise ValueError(f"at {cell.where} the loss does not depend on the rates from {least:g} to {most:g}: extend both")
