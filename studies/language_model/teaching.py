"""The cut model taught by the original on other text than it is judged on, and the original taught alike.

A student is taught with its heads filled up with zeros to the stock dimension, which a device's attention is made for:
a row of zeros gets no slope (its partner is zero too), so zeros stay zeros and the student stays as small as it is.
"""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.shrinking.distillation import Lessons, learn_from
from headcount.shrinking.perplexity import PairedLoss, compared, losses_of
from headcount.shrinking.surgery import at_full_rank
from studies.language_model.device_steps import DeviceRun, Figures, quick_products, say, sometimes, spread, windows

__all__ = ["TeachingTimes", "teach"]

APART = 10  # one window of so many of every text is never taught on
RATES = (2e-4, 6e-4, 1.8e-3)
TAUGHT = ("passages", "abstracts", "plays")
LEAST = 10.0  # seconds without which nothing is begun
WIKITEXT = "WikiText-2"


@dataclass(frozen=True)
class TeachingTimes:
    """Seconds: of each try of a rate, of the teaching itself, and of the control with the same number of steps."""

    trial: float
    whole: float
    control: float

    @classmethod
    def within(cls, seconds: float) -> TeachingTimes:
        """Shares of the time that is left.

        >>> TeachingTimes.within(300.0)
        TeachingTimes(trial=18.0, whole=120.0, control=126.0)
        """
        return cls(0.06 * seconds, 0.40 * seconds, 0.42 * seconds)


class Classroom:
    """The texts that are taught on and judged on, and the original's losses."""

    def __init__(self, measured: DeviceRun) -> None:
        self.measured, self.length = measured, measured.sizes.lengths[-1]
        self.seen = measured.calibrated(self.length)
        pieces = {name: windows(measured.texts[name], self.length) for name in TAUGHT}
        self.lessons = torch.cat([w[torch.arange(len(w)) % APART != 0] for w in pieces.values()])
        self.sets: dict[tuple[str, int], Int[Tensor, "windows length"]] = {}
        for length in measured.sizes.lengths:
            self.sets[WIKITEXT, length] = measured.split(length).judging
            for name in TAUGHT:
                apart = pieces[name][::APART].reshape(-1, length)
                self.sets[name, length] = spread(apart, measured.sizes.others)
        self.before = {where: losses_of(self.seen.model, w) for where, w in self.sets.items()}

    def student(self, cut: bool) -> nn.Module:
        """The cut model filled up with zeros, or the original."""
        model = self.measured.cut(self.length).cpu() if cut else copy.deepcopy(self.seen.model)
        return at_full_rank(model).eval().to(self.measured.device)

    def taught(self, student: nn.Module, rate: float, steps: int, seconds: float) -> Figures:
        """Teach in place; what was done, and the validation text's perplexity afterwards."""
        began, batch = time.monotonic(), self.measured.sizes.batch
        with quick_products():
            lessons = Lessons(steps, rate, seconds)
            losses = learn_from(student, self.seen.model, self.lessons, lessons, batch, sometimes(200))
        took = round(time.monotonic() - began, 1)
        return {
            "rate": rate,
            "steps": len(losses),
            "seconds": took,
            "tokens": len(losses) * batch * self.length,
            "divergence": [sum(some) / len(some) for some in (losses[:20], losses[-20:])],
            "valid": self.on_validation(student).as_row(),
        }

    def on_validation(self, student: nn.Module) -> PairedLoss:
        return compared(losses_of(student, self.seen.split.choosing), self.seen.chosen_by, self.length)

    def rows(self, title: str, model: nn.Module) -> list[Figures]:
        """Every text at every length."""
        found = []
        for (name, length), some in self.sets.items():
            paired = compared(losses_of(model, some), self.before[name, length], length)
            found.append({"model": title, "text": name, "length": length, **asdict(paired)})
            say(f"{title}, {name}, {length} tokens: {paired.sentence}")
        return found


def teach(measured: DeviceRun, reserve: float = 0.0) -> None:
    """Rates tried shortly, the best taught longer, judged, and the control: each kept as soon as it is there."""
    if measured.left() < LEAST or {"taught", "control"} <= measured.known().keys():
        return
    times = TeachingTimes.within(measured.left() - reserve)
    room = Classroom(measured)
    measured.step("cut, not taught", lambda: room.rows("cut", room.student(cut=True)))
    for rate in RATES:
        measured.step(f"rate {rate:g}", lambda rate=rate: _trial(room, rate, times.trial))
    tried = {r: row["valid"]["ratio"] for r in RATES if (row := measured.known().get(f"rate {r:g}")) is not None}
    best = min(tried, key=lambda r: tried[r]) if tried else RATES[0]
    measured.step("taught", lambda: _lesson(room, "cut and taught", best, times.whole), least=LEAST)
    measured.step("control", lambda: _lesson(room, "original taught alike", best, times.control), least=LEAST)


def _trial(room: Classroom, rate: float, seconds: float) -> Figures:
    found = room.taught(room.student(cut=True), rate, room.measured.sizes.steps, seconds)
    say(f"rate {rate:g}: {found['steps']} steps, validation x {found['valid']['ratio']:.4f}")
    return found


def _lesson(room: Classroom, title: str, rate: float, seconds: float) -> Figures:
    cut = title.startswith("cut")
    student, steps = room.student(cut=cut), room.measured.sizes.steps
    if not cut:
        steps = room.measured.known()["taught"]["steps"]
    found = room.taught(student, rate, steps, seconds)
    say(f"{title}: {found['steps']} steps in {found['seconds']:.0f} s, validation x {found['valid']['ratio']:.4f}")
    return found | {"rows": room.rows(title, student)}
