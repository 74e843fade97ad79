"""Windows of text for a bank: each member sees every one at most once, in an order that its data seed fixes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor

from headcount.kernels.backend import Pack
from headcount.kernels.next_token import NextToken, WindowBatch
from headcount.training.data import Curve, Means, longest_chunk
from headcount.training.member import Member, Recipe

AT_ONCE = 24  # held-out windows a member reads at a time
CHUNK = 16  # steps recorded together, at most
EVERY = "every window"


@runtime_checkable
class WindowedText(Protocol):
    """Windows of T + 1 tokens to train on and to hold out, where each of those comes from, and the order of a seed."""

    @property
    def train(self) -> Integer[np.ndarray, "windows long"]: ...
    @property
    def valid(self) -> Integer[np.ndarray, "held long"]: ...
    @property
    def source(self) -> Shaped[np.ndarray, " held"]: ...
    def order(self, seed: int) -> Int[np.ndarray, " windows"]: ...


class WindowsInOrder:
    """The windows of a chunk of steps, and those held out: all of them, or those of one source.

    A member's order is that of its data seed, so it trains the same in any bank. Evaluations fall between rounds, so a
    round divides the steps between two of them.
    """

    chunks = 1

    def __init__(
        self,
        text: WindowedText,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.recipe, self.problem = recipe, NextToken(recipe.precision)
        self.windows, self.held = (torch.from_numpy(w.astype("int64")).to(device) for w in (text.train, text.valid))
        self.groups = {str(name): torch.from_numpy(text.source == name) for name in np.unique(text.source)}
        seeds = list(dict.fromkeys(member.data_seed for member in members))
        self.orders = torch.stack([torch.from_numpy(text.order(seed)).to(device) for seed in seeds])
        self.which = torch.tensor([seeds.index(member.data_seed) for member in members], device=device)
        self.chunk = longest_chunk(math.gcd(recipe.steps, max(1, recipe.steps // recipe.evaluations)), CHUNK)
        self.rounds = recipe.steps // self.chunk
        size = (self.chunk, len(members), recipe.batch, self.windows.shape[1])
        self.ids: Int[Tensor, "chunk models batch long"] = torch.zeros(size, dtype=torch.int64, device=device)

    def first(self, pack: Pack) -> WindowBatch:
        """The first windows that training will see."""
        self.begin(0, 0)
        return self.step(0)

    def begin(self, number: int, chunk: int) -> None:
        """Gather the windows of a chunk."""
        count = self.chunk * self.recipe.batch
        rows = self.orders[:, number * count : (number + 1) * count].view(len(self.orders), self.chunk, -1)
        self.ids.copy_(self.windows[rows][self.which].transpose(0, 1))

    def step(self, number: int) -> WindowBatch:
        """The windows of one step."""
        return WindowBatch(self.ids[number])

    def held_out(self, part: str) -> Iterator[WindowBatch]:
        """The held-out windows of a source, or all, a few at a time."""
        windows = self.held if part == EVERY else self.held[self.groups[part].to(self.held.device)]
        for some in windows.split(AT_ONCE):
            yield WindowBatch(some.expand(len(self.which), *some.shape))

    def levels(self, means: Means) -> dict[str, Tensor]:
        """The loss on the held-out windows."""
        return {"level": means(EVERY)["loss"]}

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """That loss at the end, on every source, and at every evaluation."""
        by_source = {name: means(name)["loss"].tolist() for name in self.groups}
        return [
            {
                "nmse": curve[-1].levels["level"][k],  # the level of the study
                "final_nmse": final["final"][k],
                "train_nmse": final["training"][k],
                "loss": curve[-1].levels["level"][k],
                **{f"loss on {name}": losses[k] for name, losses in by_source.items()},
                "curve": [[at.step, at.levels["level"][k]] for at in curve],
            }
            for k in range(len(self.which))
        ]
