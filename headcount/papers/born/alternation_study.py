"""How many layers predict L_k: decoders without positions, depths 1 to 6, k = 3 to 6, beside the proved k - 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, TypedDict

from headcount.nets.causal import DecoderShape
from headcount.papers.born.experiments import DECAY, TestedRow, tested
from headcount.results.gathering import grouped
from headcount.tasks.alternation import Alternation
from headcount.tasks.letters import Lengths, OnLengths
from headcount.training.loop import train
from headcount.training.member import Member
from headcount.training.strings import string_recipe

BAR = 0.95  # of words that must be right for a depth to count as enough


@dataclass(frozen=True)
class AlternationSetting:
    """Words of so many blocks, networks of so many layers of one head, trained short and tested longer."""

    blocks: tuple[int, ...] = (3, 4, 5, 6)
    depths: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    train: Lengths = (51, 100)
    tests: tuple[Lengths, ...] = ((101, 150), (151, 200))
    heads: int = 1
    embed_dim: int = 32
    steps: int = 6000
    batch: int = 64
    lrs: tuple[float, ...] = (1e-3,)
    seeds: tuple[int, ...] = (0, 1, 2)

    def shape(self, depth: int) -> DecoderShape:
        """The decoder of one depth, which knows no positions."""
        layers = ((self.heads, self.embed_dim // self.heads),) * depth
        context = max(high for _, high in (self.train, *self.tests)) + 1
        return DecoderShape(layers, self.embed_dim, 4 * self.embed_dim, 5, context=context, positions="none")


NARROW = AlternationSetting(embed_dim=16, steps=3000, batch=16, lrs=(2e-3,))
"""The same words and depths at half the width, which a CPU core trains in half an hour."""


def small_alternation(setting: AlternationSetting) -> AlternationSetting:
    """The same with almost nothing trained, to see that it runs."""
    return replace(setting, blocks=(3, 4), depths=(1, 2), train=(6, 9), tests=((10, 12),), embed_dim=8, steps=16,
                   batch=4, seeds=(0,))  # fmt: skip


class DepthRow(TestedRow):
    """A decoder of some depth on the language of so many blocks."""

    blocks: int
    depth: int
    train: list[int]


class DepthLine(TypedDict):
    """A language and a depth at the best rate: words right in each range of lengths, by seed and their median."""

    blocks: int
    depth: int
    lr: float
    bins: list[list[int]]
    medians: list[float]
    seeds: list[list[float]]
    proved: float


DepthKnee = TypedDict("DepthKnee", {"blocks": int, "proved": float, "in range": int | None, "all ranges": int | None})
"""The least depth that is right on a language, in range and in all ranges; None where none tried is."""


def by_depth(
    setting: AlternationSetting,
    *,
    device: str = "cpu",
    precision: Any = "full",
    on_progress: Callable[[int], None] = lambda steps: None,
) -> Iterator[DepthRow]:
    """A row for every k, depth, rate and seed; all of one depth train as one bank."""
    recipe = string_recipe(setting.steps, setting.batch, evaluations=4, precision=precision)
    for depth in setting.depths:
        cells = [(k, lr, seed) for k in setting.blocks for lr in setting.lrs for seed in setting.seeds]
        on = {k: OnLengths(Alternation(k), setting.train, setting.tests) for k in setting.blocks}
        members = [Member(on[k], setting.shape(depth), seed, seed, lr, DECAY) for k, lr, seed in cells]
        outcome = train(members, recipe, device=device, on_progress=on_progress)
        for (blocks, _, _), row in zip(cells, tested(outcome), strict=True):
            yield {"blocks": blocks, "depth": depth, "train": list(setting.train), **row}


def depth_summary(rows: Sequence[DepthRow]) -> list[DepthLine]:
    """By k and depth: the median over seeds of words right, in range and in each longer range, at the best rate."""
    lines = []
    for (blocks, depth), runs in sorted(grouped(((row["blocks"], row["depth"]), row) for row in rows).items()):
        rates = {row["lr"] for row in runs}
        best = max(rates, key=lambda lr: median(r["tests"][0]["strings"] for r in runs if r["lr"] == lr))
        chosen = [row for row in runs if row["lr"] == best]
        seeds = [[test["strings"] for test in row["tests"]] for row in chosen]
        medians = [median(values) for values in zip(*seeds, strict=True)]
        bins = [test["lengths"] for test in chosen[0]["tests"]]
        proved = Alternation(blocks).depth.value
        lines.append(
            DepthLine(blocks=blocks, depth=depth, lr=best, bins=bins, medians=medians, seeds=seeds, proved=proved)
        )
    return lines


def knees(rows: Sequence[DepthRow], bar: float = BAR) -> list[DepthKnee]:
    """By k: the least depth whose median is at least `bar` in range, and in all ranges, beside the proved k - 2.

    None where no depth tried reaches it.
    """
    lines, least_depths = depth_summary(rows), []
    for blocks, of_blocks in grouped((line["blocks"], line) for line in lines).items():
        inside = [line["depth"] for line in of_blocks if line["medians"][0] >= bar]
        everywhere = [line["depth"] for line in of_blocks if min(line["medians"]) >= bar]
        proved = Alternation(blocks).depth.value
        in_range, all_ranges = min(inside, default=None), min(everywhere, default=None)
        least_depths.append(
            DepthKnee({"blocks": blocks, "proved": proved, "in range": in_range, "all ranges": all_ranges})
        )
    return least_depths
