"""The cut model taught by the original on other text than it is judged on, and the original taught alike.

What is taught on is chosen by short trials on the validation text: other people's texts as they are, also in the form
that a word-level corpus has, and also what the original writes itself when it goes on from them.
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
from studies.language_model.own_text import OwnText, own_text
from studies.language_model.quantised_parts import APART, SPACED, TAUGHT

RATE = 6e-4  # the best of 2e-4, 6e-4 and 1.8e-3 on the validation text, in an earlier run
LESSONS = ("as they are", "and word by word", "and its own")
LEAST = 10.0  # seconds without which nothing is begun
WIKITEXT = "WikiText-2"


@dataclass(frozen=True)
class TeachingTimes:
    """Seconds: of writing the original's own text, of each trial, of the teaching itself, and of the control.

    The control needs few: the original's own probabilities teach it nothing, and a few steps show that.
    """

    own: float
    trial: float
    whole: float
    control: float

    @classmethod
    def within(cls, seconds: float) -> TeachingTimes:
        """Shares of the time that is left.

        >>> TeachingTimes.within(400.0)
        TeachingTimes(own=40.0, trial=16.0, whole=272.0, control=20.0)
        """
        return cls(0.1 * seconds, 0.04 * seconds, 0.68 * seconds, 0.05 * seconds)


class Classroom:
    """The texts that are taught on and judged on, and the original's losses."""

    def __init__(self, measured: DeviceRun) -> None:
        self.measured, self.length = measured, measured.sizes.lengths[-1]
        self.seen = measured.calibrated(self.length)
        pieces = {name: windows(measured.texts[name], self.length) for name in TAUGHT}
        plain = torch.cat([w[torch.arange(len(w)) % APART != 0] for w in pieces.values()])
        spaced = torch.cat([windows(measured.texts[f"{name}{SPACED}"], self.length) for name in TAUGHT])
        self.lessons = {LESSONS[0]: plain, LESSONS[1]: torch.cat([plain, spaced])}
        self.sets: dict[tuple[str, int], Int[Tensor, "windows length"]] = {}
        for length in measured.sizes.lengths:
            self.sets[WIKITEXT, length] = measured.split(length).judging
            for name in TAUGHT:
                apart = pieces[name][::APART].reshape(-1, length)
                self.sets[name, length] = spread(apart, measured.sizes.others)
        self.before = {where: losses_of(self.seen.model, w) for where, w in self.sets.items()}

    def write(self, seconds: float) -> Figures:
        """The original's own text, added to the others."""
        sizes, source = self.measured.sizes, self.lessons[LESSONS[1]]
        began = time.monotonic()
        how = OwnText(sizes.sequences, sizes.lengths[0], seconds, rounds=sizes.rounds)
        ids = own_text(self.seen.model, source, how)
        own = windows(ids, self.length)
        took, loss = time.monotonic() - began, float(losses_of(self.seen.model, own[:4]).mean())
        self.lessons[LESSONS[2]] = torch.cat([source, own])
        say(f"{len(ids):,} tokens of its own in {took:.0f} s, at a loss of {loss:.2f}")
        return {"tokens": len(ids), "seconds": round(took, 1), "loss": loss}

    def student(self, cut: bool) -> nn.Module:
        """The cut model filled up with zeros, or the original."""
        model = self.measured.cut(self.length) if cut else copy.deepcopy(self.seen.model)
        return at_full_rank(model).eval()

    def taught(self, student: nn.Module, text: str, steps: int, seconds: float) -> Figures:
        """Teach in place; what was done, and the validation text's perplexity afterwards."""
        began, batch = time.monotonic(), self.measured.sizes.batch
        with quick_products():
            lessons = Lessons(steps, RATE, seconds)
            losses = learn_from(student, self.seen.model, self.lessons[text], lessons, batch, sometimes(20))
        took = round(time.monotonic() - began, 1)
        return {
            "rate": RATE,
            "text": text,
            "steps": len(losses),
            "seconds": took,
            "tokens": len(losses) * batch * self.length,
            "of tokens": self.lessons[text].numel(),
            "divergence": [sum(some) / len(some) for some in (losses[:20], losses[-20:])],
            "valid": self.on_validation(student).as_row(),
        }

    def on_validation(self, student: nn.Module) -> PairedLoss:
        return compared(losses_of(student, self.seen.split.choosing), self.seen.chosen_by, self.length)

    def rows(self, title: str, model: nn.Module) -> list[Figures]:
        """Every text at every length."""
        rows = []
        for (name, length), some in self.sets.items():
            paired = compared(losses_of(model, some), self.before[name, length], length)
            rows.append({"model": title, "text": name, "length": length, **asdict(paired)})
            say(f"{title}, {name}, {length} tokens: {paired.sentence}")
        return rows


def teach(measured: DeviceRun, reserve: float = 0.0) -> None:
    """Texts tried shortly, the best taught longer, judged, and the control: each kept as soon as it is there."""
    if measured.left() < LEAST or {"taught", "control"} <= measured.known().keys():
        return
    classroom = Classroom(measured)
    times = TeachingTimes.within(measured.left() - reserve)
    measured.step("cut, not taught", lambda: classroom.rows("cut", classroom.student(cut=True)))
    measured.step("its own text", lambda: classroom.write(times.own))
    for text in classroom.lessons:
        measured.step(f"taught on texts {text}", lambda text=text: _trial(classroom, text, times.trial))
    known = measured.known()
    tried = {
        text: known[name]["valid"]["ratio"]
        for text in classroom.lessons
        if (name := f"taught on texts {text}") in known
    }
    best = min(tried, key=lambda text: tried[text]) if tried else LESSONS[1]
    measured.step("taught", lambda: _lesson(classroom, "cut and taught", best, times.whole), least=LEAST)
    measured.step("control", lambda: _lesson(classroom, "original taught alike", best, times.control), least=LEAST)


def _trial(classroom: Classroom, text: str, seconds: float) -> Figures:
    taught = classroom.taught(classroom.student(cut=True), text, classroom.measured.sizes.steps, seconds)
    say(f"texts {text}: {taught['steps']} steps, validation x {taught['valid']['ratio']:.4f}")
    return taught


def _lesson(classroom: Classroom, title: str, text: str, seconds: float) -> Figures:
    student = classroom.student(cut=title.startswith("cut"))
    taught = classroom.taught(student, text, classroom.measured.sizes.steps, seconds)
    say(f"{title}: {taught['steps']} steps in {taught['seconds']:.0f} s, validation x {taught['valid']['ratio']:.4f}")
    return taught | {"rows": classroom.rows(title, student)}
