"""How far the noise of seeds moves what the cells of a study are summed up to. No torch."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headcount.fits.cells import Cells
from headcount.fits.failing_seeds import two_kinds
from headcount.fits.seed_spread import normal_seeds, smooth_spread

LENGTHS = 3  # from so many lengths on their differences are the noise
RISES = 3.0  # deviations by which seeds alone do not lift a level above that of fewer heads


def has_noise(cells: Cells) -> bool:
    """Whether the cells show any noise: several seeds in each, or three lengths."""
    return bool(cells.counts.min() >= 2) or len(cells.groups) >= LENGTHS


def level_noise(cells: Cells, resamples: int, generator: np.random.Generator) -> Float[np.ndarray, "r point"]:
    """Draws of the noise of the mean level over lengths; zeros where nothing shows it (`has_noise`)."""
    if len(cells.groups) >= LENGTHS:
        return _of_lengths(cells.levels(), resamples, generator)
    if not has_noise(cells):
        return np.zeros((resamples, len(cells.points)))
    return _of_seeds(cells, resamples, generator)


def _of_lengths(
    levels: Float[np.ndarray, "group point"], resamples: int, generator: np.random.Generator
) -> Float[np.ndarray, "r point"]:
    """Whole curves of the lengths, drawn so that every difference of levels has Student's distribution."""
    free = len(levels) - 1
    weights = generator.standard_normal((resamples, len(levels))) / np.sqrt(len(levels) * free)
    return _heavy(weights @ (levels - levels.mean(0)), free, generator)


def _of_seeds(cells: Cells, resamples: int, generator: np.random.Generator) -> Float[np.ndarray, "r point"]:
    """Each level moves by the spread that the seeds of all cells show together: two or three alone show too little.

    The spread is uncertain itself, so its square is drawn as well, with half a degree of freedom for every seed beyond
    a cell's first: about what the median absolute deviation is worth. Every second draw is around the median in place
    of the best half, which lies lower the more the seeds of a cell spread.
    """
    deviation = np.hypot(_deviations(cells), seen_effect(cells))
    free = max(1.0, float((cells.counts - 1).sum()) / 2)
    drawn = _heavy(deviation * generator.standard_normal((resamples, len(deviation))), free, generator)
    drawn[::2] += (cells.medians() - cells.levels()).mean(0)
    return drawn


def _deviations(cells: Cells) -> Float[np.ndarray, " point"]:
    """The standard deviation of the mean level of each point by its seeds."""
    sizes = np.array([[normal_seeds(int(n)).level for n in line] for line in cells.counts])
    return smooth_spread(cells) * np.sqrt((sizes**2).sum(0)) / len(cells.groups)


def seen_effect(cells: Cells) -> float:
    """What rises of the curve show of effects shared by a cell's seeds; 0 where lengths or failing seeds tell more."""
    if len(cells.groups) >= LENGTHS or cells.counts.min() < 2 or two_kinds(cells).seen:
        return 0.0  # a cell whose seeds failed rises by that
    return shared_effect(cells.levels().mean(0), _deviations(cells))


def shared_effect(levels: Float[np.ndarray, " point"], deviation: Float[np.ndarray, " point"]) -> float:
    """What the seeds of a cell have in common, as rises show it: more heads can do all that fewer do.

    A level that lies above that of fewer heads by more than three deviations of the two owes it to no seed; the effect
    is then the root mean square of all rises beyond what seeds explain. 0 where nothing rises so far, which does not
    say that there is no such effect.

    >>> shared_effect(np.array([-1.0, -3.0, -2.0, -3.0]), np.full(4, 0.1)).__round__(2)
    0.7
    """
    rise = levels[None, :] - levels[:, None]
    noise = np.hypot(deviation[None, :], deviation[:, None])
    upwards = np.triu(rise > 0, 1)
    if not (upwards & (rise > RISES * noise)).any():
        return 0.0
    return float(np.sqrt(max(0.0, (rise**2 - noise**2)[upwards].mean()) / 2))


def _heavy(
    drawn: Float[np.ndarray, "r point"], free: float, generator: np.random.Generator
) -> Float[np.ndarray, "r point"]:
    return drawn * np.sqrt(free / generator.chisquare(free, len(drawn)))[:, None]
