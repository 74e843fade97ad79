"""What competes, how long each is trained, and in which order: fixed before anything is timed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

from headcount.measuring.contestants import BOOSTING, FIRST_FED, WITHOUT, ZERO_HEADS, Contestant, network
from headcount.measuring.splitting import MOST_SPLITS
from headcount.refusals import at_least, at_least_one
from headcount.training import Recipe

RUNGS = (100, 200, 400, 600, 800, 1100, 1500, 2000, 3000, 4500, 6000)  # steps that a time to keep to chooses among
USUAL = 1500  # steps, where no time is to be kept
SHORT = 4  # the search makes a step where the training makes so many
FINALISTS = 2  # settings that are trained to the end, of all that the search tries
FIRST_SPLITS = 5, 3  # before anything is refined: every sequence judges once; fewer where steps would be few, below
FEW_STEPS = 600
EPOCHS = 100  # at most, where the time chooses the steps and USUAL steps are less
SPENT = 0.5  # of the time, by the reckoning, for the first splits: more splits tell more than more steps
SPEED = 9e10  # products a second that the reckoning is made with, on any machine: a slow one gets less far
COARSE = (1, 2, 4, 8)
FLOOR = 0.005  # of the constant's error: a gain that nobody takes attention, heads or layers for
DEEP = (4,)  # head counts that are tried in several layers beside the smallest and the one at the turn


@dataclass(frozen=True)
class TrainingSetting:
    """A learning rate, and how a network is kept from remembering: dropout and weight decay."""

    lr: float
    dropout: float
    weight_decay: float


@dataclass(frozen=True)
class StudyPlan:
    """Head counts and depths of one standard block, and how each network is trained.

    `steps` None lets the time to keep to decide. With `head_dim`, heads keep that size instead of sharing
    `embed_dim`. `rates` and `dropouts` (each with its weight decay) are searched on the inner part of every split.

    >>> StudyPlan().shape(3)
    (3, 16)
    """

    heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    layers: int = 2
    steps: int | None = None
    splits: int | None = None
    embed_dim: int = 48
    width: int = 96
    head_dim: int | None = None
    pooling: str = "class token"
    batch: int = 32
    rates: tuple[float, ...] = (1e-3, 4e-3)
    dropouts: tuple[tuple[float, float], ...] = ((0.0, 1e-3), (0.2, 0.1))  # dropout, weight decay
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(sorted(set(self.heads))))
        if len(self.heads) < 2 or self.heads[0] < 1:
            raise ValueError(f"heads must be at least two counts of 1 or more, got {list(self.heads)}")
        at_least_one(layers=self.layers, embed_dim=self.embed_dim, width=self.width, batch=self.batch)
        if self.steps is not None:
            at_least(10, steps=self.steps)
        if self.splits is not None and not 2 <= self.splits <= MOST_SPLITS:
            raise ValueError(f"splits must lie between 2 and {MOST_SPLITS}, got {self.splits}")
        if self.pooling not in ("class token", "mean"):
            raise ValueError(f"pooling must be class token or mean, got {self.pooling!r}")

    def shape(self, heads: int) -> tuple[int, int]:
        """(heads, head_dim) of a layer; one with even weights keeps the state's width."""
        if heads == 0:
            return 1, self.embed_dim
        return heads, self.head_dim or math.ceil(self.embed_dim / heads)

    @property
    def settings(self) -> list[TrainingSetting]:
        """What is searched on the inner part."""
        return [TrainingSetting(lr, *dropout) for dropout in self.dropouts for lr in self.rates]

    def recipe(self, samples: int, inner: int, steps: int) -> Recipe:
        """The steps as whole epochs over the training part."""
        batch = min(self.batch, samples)
        epochs = max(1, round(steps / (samples // batch)))
        return Recipe(samples, inner, epochs, batch, evaluations=min(30, epochs))

    def to_json(self) -> dict[str, object]:
        """The plan, ready for JSON."""
        return asdict(self)


def nothing() -> None:
    """Look at no clock."""


@dataclass(frozen=True)
class Fitting:
    """How networks are fitted to a split: the plan, its steps, a seed, the letters of a table, a digest, a device.

    `look` is called now and then while they are trained, and may raise where there is no time left.
    """

    plan: StudyPlan
    steps: int
    seed: int = 0
    letters: int = 0
    digest: str = ""
    device: str = "cpu"
    look: Callable[[], None] = nothing


def first_turn(plan: StudyPlan, baselines: tuple[Contestant, ...] = WITHOUT) -> tuple[Contestant, ...]:
    """Everything that needs no attention, zero heads, and head counts far apart.

    >>> [c.name for c in first_turn(StudyPlan(), ())]
    ['zero heads', '1 head', '2 heads', '4 heads', '8 heads']
    """
    coarse = [h for h in plan.heads if h in COARSE] if len(plan.heads) > len(COARSE) else list(plan.heads)
    coarse = coarse if len(coarse) > 1 else [plan.heads[0], plan.heads[-1]]
    return (*baselines, ZERO_HEADS, *(network(h) for h in coarse))


def second_turn(plan: StudyPlan, turn: int) -> tuple[Contestant, ...]:
    """The counts beside the cheapest that is within the tolerance of the best so far.

    >>> [c.name for c in second_turn(StudyPlan(), 4)]
    ['3 heads', '6 heads']
    """
    place = plan.heads.index(turn)
    beside = [*plan.heads[max(0, place - 1) : place], *plan.heads[place + 1 : place + 2]]
    return tuple(network(h) for h in beside)


def third_turn(plan: StudyPlan, turn: int) -> tuple[Contestant, ...]:
    """Tokens prepared by a feed-forward, and more layers: of one head, of few, and of the count at the turn.

    >>> [c.name for c in third_turn(StudyPlan(), 3)]
    ['feed-forward, then 1 head', '1 head, 2 layers', '3 heads, 2 layers', '4 heads, 2 layers']
    """
    deep = sorted({plan.heads[0], turn, *(h for h in plan.heads if h in DEEP)})
    deeper = [network(h, layers=n) for n in range(2, plan.layers + 1) for h in deep]
    return (FIRST_FED, *deeper)


@dataclass(frozen=True)
class DataSizes:
    """What the reckoning knows of the data: sequences to train on and to choose by, and their length."""

    training: int
    inner: int
    length: int


def steps_within(plan: StudyPlan, budget: float | None, sizes: DataSizes) -> tuple[int, int]:
    """Steps of a training and the first splits: as asked for, or the most that the time is reckoned to leave room for.

    `budget` is in seconds of one core. The reckoning knows sizes and no clock, so that a busy machine trains the same
    networks, only fewer.

    >>> sizes = DataSizes(training=1000, inner=200, length=12)
    >>> steps_within(StudyPlan(), 120.0, sizes), steps_within(StudyPlan(), None, sizes)
    ((600, 3), (1500, 5))
    >>> steps_within(StudyPlan(), 240.0, sizes), steps_within(StudyPlan(), 6000.0, sizes)
    ((800, 5), (3000, 5))
    """
    if plan.steps is not None or budget is None:
        return plan.steps or USUAL, FIRST_SPLITS[0]
    most = max(USUAL, EPOCHS * (sizes.training // min(plan.batch, sizes.training)))
    rungs = [steps for steps in RUNGS if steps <= most]

    def longest(splits: int) -> int:
        fit = (steps for steps in rungs if splits * first_seconds(plan, steps, sizes) <= SPENT * budget)
        return max(fit, default=rungs[0])

    many, few = FIRST_SPLITS
    steps = longest(many)
    return (steps, many) if steps >= FEW_STEPS else (min(longest(few), FEW_STEPS), few)


def first_seconds(plan: StudyPlan, steps: int, sizes: DataSizes) -> float:
    """Seconds of one core that a split of the first ones is reckoned to take, all turns counted."""
    middle = plan.heads[len(plan.heads) // 2]
    everybody = {*first_turn(plan), *second_turn(plan, middle), *third_turn(plan, middle)}
    return sum(reckoned(plan, one, steps, sizes) for one in everybody)


def reckoned(plan: StudyPlan, contestant: Contestant, steps: int, sizes: DataSizes) -> float:
    """Seconds that a contestant takes on a split: a network's products, in the search, the finals and between."""
    depth = len(contestant.heads)
    if depth == 0:
        return 2.0 if contestant == BOOSTING else 0.3
    full = depth - 0.5 if plan.pooling == "class token" else depth  # of the last layer only the class token's half
    full = 2.5 if contestant == ZERO_HEADS else full  # less to compute, by slower products
    weights = full * (4 * plan.embed_dim**2 + 2 * plan.embed_dim * plan.width + 2 * (sizes.length + 1) * plan.embed_dim)
    runs = len(plan.rates) * len(plan.dropouts) / SHORT + FINALISTS
    sequences = runs * (3 * steps * plan.batch + 30 * 2 * sizes.inner)
    return 0.2 + sequences * 2 * (sizes.length + 1) * weights / SPEED


def seconds(text: str) -> float:
    """A time such as 90, 90s, 5m or 1h, in seconds.

    >>> seconds("5m"), seconds("1.5h"), seconds("90")
    (300.0, 5400.0, 90.0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(s|m|h|min|)\s*", text)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"a time such as 90s, 5m or 1h is needed, got {text!r}")
    return float(match[1]) * {"s": 1, "": 1, "m": 60, "min": 60, "h": 3600}[match[2]]
