"""What is measured of the language model: methods at equal budget, budgets of one calibration, 4 bits again, costs."""

from __future__ import annotations

import copy
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.files import atomic_write
from headcount.nets.pretrained.families import family_of
from headcount.nets.pretrained.gguf_files import origin_of
from headcount.nets.pretrained.model_places import folder_of
from headcount.numerals import today
from headcount.shrinking.block_rounding import block_bytes, in_blocks
from headcount.shrinking.language_model import Calibrated, calibrated
from headcount.shrinking.loss_bench import benched
from headcount.shrinking.loss_plan import LossPlan, carried_out, putting
from headcount.shrinking.perplexity import compared, losses_of
from headcount.shrinking.running_costs import running_costs
from headcount.shrinking.text_windows import TextSplit

KEEP = 0.75
KEEPS = (0.95, 0.9, 0.875, 0.8, 0.75, 0.7, 0.6, 0.5)
LOSSES = (0.01, 0.03, 0.05)
Figures = dict[str, Any]  # what was measured, as JSON keeps it


@dataclass(frozen=True)
class StudySizes:
    """How much of everything: tokens a window, to calibrate on, to choose by and to judge on; steps of teaching.

    `written` are the tokens whose time is taken, `sequences` those that the original writes at once to be taught on,
    `rounds` how often at most.
    """

    lengths: tuple[int, int] = (512, 2048)
    calibration: int = 32_768
    choosing: int = 57_344
    judged: int = 102_400
    others: int = 40_960
    steps: int = 6000
    batch: int = 16
    written: int = 64
    sequences: int = 2048
    rounds: int | None = None


@dataclass
class DeviceRun:
    """Everything that is known so far, in one file, and the time that is left."""

    name: str
    texts: dict[str, Int[Tensor, " tokens"]]
    path: Path
    device: str
    seconds: float
    sizes: StudySizes = field(default_factory=StudySizes)
    began: float = field(default_factory=time.monotonic)
    seen: dict[int, Calibrated] = field(default_factory=dict)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def known(self) -> Figures:
        return json.loads(self.path.read_text()) if self.path.exists() else {"rows": [], "setup": {}}

    def step(self, name: str, make: Callable[[], Any], least: float = 0.0) -> None:
        """One step's figures under its name, unless they are there or there is no time; others go on if it fails."""
        if name in self.known() or self.left() < least:
            return
        say(f"{name} ({self.left():.0f} s left)")
        try:
            figures, failed = make(), ""
        except Exception as problem:  # the other steps are worth having without this one
            figures, failed = repr(problem)[:500], " failed"
            say(f"{name} failed: {figures}")
        self.keep(name + failed, figures)

    def keep(self, name: str, made: Any) -> None:
        with atomic_write(self.path) as scratch:
            scratch.write_text(json.dumps(self.known() | {name: made}, indent=1))

    def calibrated(self, length: int) -> Calibrated:
        """The model calibrated at a length, once."""
        if length not in self.seen:
            split = self.split(length)
            self.seen[length] = calibrated(self.name, split, keep=KEEP, device=self.device, say=sometimes(32))
        return self.seen[length]

    def split(self, length: int) -> TextSplit:
        """Windows of the validation text to calibrate on and to choose by, and of the test text to judge on."""
        valid, sizes = windows(self.texts["valid"], length), self.sizes
        part = max(1, len(valid) // 5)
        parts = (valid[:-part], sizes.calibration), (valid[-part:], sizes.choosing)
        return TextSplit(*(spread(w, n) for w, n in (*parts, (windows(self.texts["test"], length), sizes.judged))))

    def methods(self, until: float) -> None:
        """The bench, as far as it comes before there are only `until` seconds left."""
        splits = [self.split(length) for length in self.sizes.lengths]
        benched(
            lambda split: self.calibrated(split.judging.shape[1]),
            splits,
            out=self.path,
            say=say,
            enough=lambda: self.left() < until,
        )

    def facts(self) -> Figures:
        there = torch.cuda.get_device_name() if self.device.startswith("cuda") else platform.machine()
        how = {"device": there, "torch": torch.__version__, "command": "python -m studies.language_model run"}
        return {"date": today(), **how, "judged in": "float32"}

    def budgets(self) -> list[Figures]:
        """Quality at every budget from one calibration, and at the budgets of three losses."""
        calibration = self.calibrated(self.sizes.lengths[0])
        rows = [self.judged(calibration, calibration.plan(keep)) | {"keep": keep} for keep in KEEPS]
        plans = [(most, calibration.for_loss(most)) for most in LOSSES]
        return rows + [
            self.judged(calibration, plan) | {"keep": plan.share, "asked loss": most} for most, plan in plans
        ]

    def judged(self, seen: Calibrated, plan: LossPlan) -> Figures:
        with putting(seen.model, plan.products(), seen.means):
            return compared(losses_of(seen.model, seen.split.judging), seen.judged_by, seen.length).as_row()

    def cut(self, length: int) -> nn.Module:
        """A copy of the original at the budget, on the device."""
        calibration = self.calibrated(length)
        return carried_out(copy.deepcopy(calibration.model).cpu(), calibration.plan(KEEP)).eval().to(self.device)

    def ready(self) -> int:
        """A length at which the model is calibrated already, or else the first."""
        return next(iter(self.seen), self.sizes.lengths[0])

    def four_bits(self) -> Figures:
        """The attention rounded to the source's blocks of 4 bits again, as it is and cut: what a file would hold."""
        length, origin = self.ready(), origin_of(folder_of(self.name))
        calibration, figures = (
            self.calibrated(length),
            Figures({"length": length, "source bytes": origin.bytes if origin else None}),
        )
        for title, model in (("original", calibration.model), ("cut", self.cut(length))):
            matrices = attention_matrices(model)
            with in_blocks(matrices):
                row = compared(losses_of(model, calibration.split.judging), calibration.judged_by, length).as_row()
            figures[title] = row | {"bytes of attention": sum(block_bytes(*m.weight.shape) for m in matrices)}
        return figures

    def costs(self) -> list[Figures]:
        """What the original and the model at the budget cost to run."""
        length, written = self.ready(), self.sizes.written
        calibration = self.calibrated(length)
        models, prompt = (
            [calibration.model, self.cut(length)],
            calibration.split.judging[0][: self.sizes.lengths[0] - written],
        )
        measured = running_costs(models, prompt, written, repeats=2)
        return [each.as_row() | {"cache bytes per token": each.cache_per_token} for each in measured]


def attention_matrices(model: nn.Module) -> list[nn.Linear]:
    """The four matrices of every layer's attention."""
    layers: list[Any] = list(family_of(model).layers(model))
    heads: list[Any] = [family_of(model).heads(layer) for layer in layers]
    matrices = [m for head in heads for m in (head.query, head.key, head.value)]
    return matrices + [layer.self_attn.o_proj for layer in layers]


def windows(ids: Int[Tensor, " tokens"], length: int) -> Int[Tensor, "windows length"]:
    return ids[: len(ids) // length * length].view(-1, length)


def spread(found: Int[Tensor, "windows length"], tokens: int) -> Int[Tensor, "some length"]:
    """Windows of so many tokens together, evenly spaced, two at least."""
    count = max(2, min(len(found), tokens // found.shape[1]))
    return found[torch.linspace(0, len(found) - 1, count).long()]


@contextmanager
def quick_products() -> Iterator[None]:
    """Matrix products of a device in TF32, for teaching; judged is in float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def say(words: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {words}", flush=True)


def sometimes(every: int) -> Callable[[str], None]:
    """Says one in so many of what it is told."""
    count = [0]

    def report(words: str) -> None:
        count[0] += 1
        if count[0] % every == 1:
            say(words)

    return report
