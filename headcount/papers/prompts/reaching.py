"""The least error that any prompt leaves, with a certificate: between grid points and beyond the ends.

For fixed l = log Z the loss sum_i |lam_i A_i + m_i p - T_i|^2, m_i = 1 - lam_i, is a least-squares problem in p
inside the strip, so what is left is a scan of one variable. f(l), the root of its value, changes at most by

    sqrt(sum (lam_i m_i)^2 |A_i|^2) + (max lam - min lam)/2 P + sqrt(q) (1 + max lam (|l| + log m)) / |g|,

q = sum m_i^2, P = |r| + sqrt(q) (|l| + log m)/|g|, r_i = T_i - lam_i A_i (any length: no log m; no strip: no term in
g). Proof: f f' = E.dE at the best p, dE_i = lam_i m_i (A_i - p); sum m_i E_i is 0, or a multiple of g where the strip
is active, and has norm at most sqrt(q) f; the edge moves with speed 1. Cells are halved until the bound is within the
wanted factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.papers.prompts.strip import RANK, Strip, in_range, strip_of, strip_prompt
from headcount.refusals import at_least_one
from headcount.sources import Source, implements

BEYOND = 60.0  # how far past all log Z_i the scan goes
CELLS = 500_000
LARGEST = 1e60
SPARED = (RANK, 1e-9, 1e-6, 1e-3)  # singular values of W_v, by the largest, below which a prompt may be built without
LEAST = 9.0  # a prompt built here has log Z at most this far below the least log Z_i: smaller ones have huge values


@dataclass(frozen=True, eq=False)
class Reach:
    """`floor` <= the loss of every prompt; `error` is the smallest value found, and `prompt` the best that was built.

    Where W_v is nearly singular a prompt that reaches `error` would be too long for float64: `prompt_loss`, measured
    with the prompt itself, says how near it comes. Losses are sums of squares over sequences of what attention at the
    last token misses. `tokens` None is any length, a bound without a prompt.
    """

    floor: float
    error: float
    log_mass: float
    tokens: int | None
    prompt: Float[np.ndarray, "tokens token_dim"] | None
    prompt_loss: float | None
    cells: int


@dataclass(frozen=True, eq=False)
class _Scan:
    """The problem as the scan needs it: A_i, log Z_i, T_i, and the strip for one length."""

    means: Float[np.ndarray, "n v"]
    masses: Float[np.ndarray, " n"]
    targets: Float[np.ndarray, "n v"]
    slope: Float[np.ndarray, " v"] | None
    log_tokens: float  # infinite for any length

    def shares(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """lam and m = 1 - lam, each to full relative accuracy."""
        t = self.masses - at[:, None]
        e = np.exp(-np.abs(t))
        big, small = 1 / (1 + e), e / (1 + e)
        return np.where(t > 0, big, small), np.where(t > 0, small, big)

    def best(self, at: np.ndarray) -> np.ndarray:
        """The best p of the strip at each log Z."""
        lam, m = self.shares(at)
        r = self.targets - lam[..., None] * self.means
        p = (m[..., None] * r).sum(axis=1) / (m**2).sum(axis=1)[:, None]
        if self.slope is None:
            return p
        along = p @ self.slope
        inside = np.clip(along, at - self.log_tokens, at)
        return p + ((inside - along) / (self.slope @ self.slope))[:, None] * self.slope

    def root(self, at: np.ndarray) -> np.ndarray:
        """f: the root of the least loss, as a norm of residuals."""
        lam, m = self.shares(at)
        left = lam[..., None] * self.means + m[..., None] * self.best(at)[:, None] - self.targets
        return np.sqrt((left**2).sum(axis=(1, 2)))

    def steepest(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The bound on |f'| over cells: every factor at its largest in the cell."""
        (lam, _), (lam_end, m) = self.shares(low), self.shares(high)
        sizes = np.linalg.norm(self.means, axis=1)
        root_q = np.sqrt((m**2).sum(axis=1))
        missed = [np.linalg.norm(self.targets - x[..., None] * self.means, axis=2) for x in (lam, lam_end)]
        r = np.sqrt((np.maximum(*missed) ** 2).sum(axis=1))
        spread = lam.max(axis=1) - lam_end.min(axis=1)
        turn = np.sqrt(((lam * m * sizes) ** 2).sum(axis=1))
        if self.slope is None:
            return turn + spread / 2 * r
        g = np.linalg.norm(self.slope)
        far = np.maximum(np.abs(low), np.abs(high)) + self._room
        return turn + spread / 2 * (r + root_q * far / g) + root_q * (1 + lam.max(axis=1) * far) / g

    @property
    def _room(self) -> float:
        return self.log_tokens if math.isfinite(self.log_tokens) else 0.0

    def ends(self) -> tuple[float, float]:
        """Where the scan starts and ends: past all masses, and where for any length the strip is inactive for good."""
        low, high = float(self.masses.min() - BEYOND), float(self.masses.max() + BEYOND)
        if self.slope is not None:
            high = max(high, 2 * float(np.linalg.norm(self.slope)) * self._size + self._room)
        return low, high

    @property
    def _size(self) -> float:
        """|r| is at most this, everywhere."""
        return float(np.linalg.norm(np.linalg.norm(self.targets, axis=1) + np.linalg.norm(self.means, axis=1)))

    def below(self, low: float) -> float:
        """f is at least this for all log Z < low: f(low) less the integral of its steepness, m_i <= exp(l - least)."""
        n, mass = len(self.masses), math.exp(low - self.masses.min())
        a = float(np.linalg.norm(self.means))
        lost = a + self._size / 2
        if self.slope is not None:
            far = (abs(low) + 1 + self._room) / float(np.linalg.norm(self.slope))
            lost += math.sqrt(n) * (far * 1.5 + 1 / float(np.linalg.norm(self.slope)))
        return float(self.root(np.array([low]))[0]) - mass * lost

    def above(self, high: float) -> float:
        """f is at least this for all log Z > high: there lam_i <= exp(most - l), and p no longer meets the edge."""
        mass = math.exp(self.masses.max() - high)
        free = _Scan(self.means, self.masses, self.targets, None, math.inf)
        least = float(free.root(np.array([high]))[0]) - mass * (float(np.linalg.norm(self.means)) + self._size / 2)
        if self.slope is None or not math.isfinite(self.log_tokens):
            return least
        g, n = float(np.linalg.norm(self.slope)), math.sqrt(len(self.masses)) * (1 - mass)
        return max(least, n * (high - self.log_tokens - g * self._size / n) / g)


@implements(
    Source("wang2023prompt", "data sets that no prompt of any length memorises"),
    test="tests/test_prompts_reach.py::test_no_prompt_of_any_length_goes_below_the_floor",
    status="proved here",
    hypotheses=("one head, one last token",),
)
def reach(
    layer: PromptedLayer,
    last: Float[np.ndarray, " token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: Float[np.ndarray, "sequences value_dim"],
    tokens: int | None = None,
    *,
    within: float = 1e-3,
) -> Reach:
    """The least sum of squares that prompts of this length, or of any, leave at the last token, with a certificate.

    The sequences are the contexts, each followed by `last`; targets are wanted attention outputs (`attention_targets`
    makes them of wanted outputs of the layer). The floor is within `within` of the value found, or within 1e-12, unless
    half a million cells did not suffice (scores that hardly differ): it is a floor even then. Any W_v is taken: what
    targets have outside its range is missed by every prompt; with h = 0 every prompt of m tokens has log Z = log m.
    Source: Wang et al. 2023, limits of a single layer.
    Departs: the paper's statement is that such data exist; this decides given data, with numbers.
    """
    if tokens is not None:
        at_least_one(tokens=tokens)
    _refuse_shapes(layer, last, contexts, targets)
    part, inside, outside = in_range(layer, np.asarray(targets, dtype=float))
    if not len(part.value):  # W_v is 0: every prompt leaves the targets as they are
        prompt = None if tokens is None else np.zeros((tokens, layer.token_dim))
        return Reach(outside, outside, 0.0, tokens, prompt, None if prompt is None else outside, 0)
    scan = _problem(part, last, contexts, inside, tokens)
    if not layer.direction(last).any() and tokens is not None:
        floor = float(scan.root(np.array([math.log(tokens)]))[0])
        best_at, cells = math.log(tokens), 1
    else:
        floor, best_at, cells = _least(scan, within)
    error = float(scan.root(np.array([best_at]))[0]) ** 2
    if tokens is None:
        return Reach(floor**2 + outside, error + outside, best_at, None, None, None, cells)
    prompts = _prompts(layer, last, contexts, targets, best_at, tokens)
    losses = [attention_loss(layer, last, contexts, targets, prompt) for prompt in prompts]
    best = min(range(len(losses)), key=lambda i: losses[i] if math.isfinite(losses[i]) else math.inf)
    return Reach(floor**2 + outside, error + outside, best_at, tokens, prompts[best], losses[best], cells)


def _prompts(
    layer: PromptedLayer,
    last: np.ndarray,
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: np.ndarray,
    at: float,
    tokens: int,
) -> list[np.ndarray]:
    """A prompt for the best (p, log Z), and others that leave out directions in which W_v is nearly 0.

    There a token would have to be so long that its scores drown its values: such a direction is better given up.
    """
    prompts = []
    for least in SPARED:
        part, inside, _ = in_range(layer, np.asarray(targets, dtype=float), least)
        scan = _problem(part, last, contexts, inside, tokens)
        log_mass = max(at, float(scan.masses.min()) - LEAST) if layer.direction(last).any() else at
        prompts.append(strip_prompt(part, last, scan.best(np.array([log_mass]))[0], log_mass, tokens))
        if len(part.value) == len(in_range(layer, targets, SPARED[-1])[0].value):
            break
    return prompts


def _refuse_shapes(
    layer: PromptedLayer, last: np.ndarray, contexts: Sequence[np.ndarray] | np.ndarray, targets: np.ndarray
) -> None:
    if any(np.abs(part).max(initial=0.0) > LARGEST for part in (layer.value, last, *contexts, targets)):
        raise ValueError("layer, last token, contexts and targets must be below 1e60: scale them")
    if not len(contexts):
        raise ValueError("there are no contexts: give at least one sequence with its target")
    wanted = (len(contexts), len(layer.value))
    if np.shape(targets) != wanted:
        raise ValueError(f"targets must be {wanted}, an attention output for each context; got {np.shape(targets)}")
    if not all(np.isfinite(part).all() for part in (layer.value, last, *contexts, targets)):
        raise ValueError("layer, last token, contexts and targets must be finite, and their scores within float64")


def _problem(
    layer: PromptedLayer,
    last: np.ndarray,
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: np.ndarray,
    tokens: int | None,
) -> _Scan:
    outputs = [layer.mass(last, np.vstack([context, last])) for context in contexts]
    means, masses = np.array([a for a, _ in outputs]), np.array([z for _, z in outputs])
    if not all(np.isfinite(part).all() for part in (means, masses)):
        raise ValueError("layer, last token, contexts and targets must be finite, and their scores within float64")
    strip: Strip = strip_of(layer, last)
    return _Scan(means, masses, targets, strip.slope, math.inf if tokens is None else math.log(tokens))


def _least(scan: _Scan, within: float) -> tuple[float, float, int]:
    """Branch and bound: the certified least f, where the least was found, and how many cells it took."""
    low, high = scan.ends()
    edges = np.linspace(low, high, 1201)
    values = scan.root(edges)
    a, b, fa, fb = edges[:-1], edges[1:], values[:-1], values[1:]
    best_at, best = float(edges[values.argmin()]), float(values.min())
    floor, cells = min(scan.below(low), scan.above(high)), len(a)
    while len(a):
        bound = (fa + fb - scan.steepest(a, b) * (b - a)) / 2
        enough = (bound >= best * (1 - within / 2)) | (bound >= best - 1e-6) | (b - a < 1e-9) | (cells > CELLS)
        enough |= best < 1e-7  # reached, perhaps all along an interval: the floor is 0
        floor = min(floor, float(bound[enough].min(initial=math.inf)))
        a, b, fa, fb = a[~enough], b[~enough], fa[~enough], fb[~enough]
        middle = (a + b) / 2
        fm = scan.root(middle)
        if len(fm) and fm.min() < best:
            best, best_at = float(fm.min()), float(middle[fm.argmin()])
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
        fa, fb = np.concatenate([fa, fm]), np.concatenate([fm, fb])
        cells += len(fm)
    rounding = 1e-13 * (1 + best)
    return max(floor - rounding, 0.0), _polished(scan, best_at), cells


def _polished(scan: _Scan, at: float) -> float:
    """The best point near `at`, by ever finer grids between the ends."""
    low, high = scan.ends()
    width = (high - low) / 1200
    while width > 1e-13 * (1 + abs(at)):
        near = np.linspace(max(at - width, low), min(at + width, high), 33)
        at, width = float(near[scan.root(near).argmin()]), width / 8
    return at


def attention_loss(
    layer: PromptedLayer,
    last: Float[np.ndarray, "*many token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: np.ndarray,
    prompt: np.ndarray,
) -> float:
    """The sum of squares that this prompt leaves, by running attention on prompt, context and last token, one or each.

    >>> one = np.eye(1)
    >>> attention_loss(PromptedLayer(one, one, one), np.zeros(1), [np.ones((1, 1))], np.zeros((1, 1)), 2 * one)
    1.0
    """
    lasts = np.broadcast_to(last, (len(contexts), layer.token_dim))
    outputs = [layer.attend(x, np.vstack([prompt, c, x])) for x, c in zip(lasts, contexts, strict=True)]
    return float(((np.array(outputs) - targets) ** 2).sum())


def attention_targets(layer: PromptedLayer, last: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """The attention outputs that give these outputs of the layer: T_i = MLP^-1(y_i) - x."""
    return np.array([layer.backward(y) - last for y in outputs])
