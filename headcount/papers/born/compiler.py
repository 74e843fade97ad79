"""Counting programs as networks: uniform causal attention counts, feed-forwards compare, exact up to a length."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.certificates import Certificate, Term
from headcount.sources import Source, implements
from headcount.tasks.counting import AllOf, AnyOf, AtLeast, Before, Condition, CountingProgram, Is, Negation

SOURCE = Source("headcount", "compiling counting programs")
Precision = Literal["float32", "float64"]
ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


@dataclass
class _Layout:
    """Which coordinate of the state holds what, and the stages that fill it."""

    letters: tuple[int, ...]
    size: int = 0
    at: dict[Condition, int] = field(default_factory=dict)

    def new(self) -> int:
        self.size += 1
        return self.size - 1


class CountingHead(nn.Module):
    """Means over the past and one-place shifts of coordinates, each written into a free coordinate.

    The means are softmax attention with equal logits, computed as running sums, so that memory grows with the length
    and not with its square; the shift is a head that looks one place back.
    """

    def __init__(self, size: int, means: dict[int, int], shifts: dict[int, int]) -> None:
        super().__init__()
        self.register_buffer("mean", _selection(size, means))
        self.register_buffer("shift", _selection(size, shifts))

    def forward(self, state: Float[Tensor, "batch length size"]) -> Float[Tensor, "batch length size"]:
        places = torch.arange(1, state.shape[1] + 1, dtype=state.dtype, device=state.device)
        past = (state @ self.get_buffer("mean")).cumsum(dim=1) / places[:, None]
        before = torch.cat([torch.zeros_like(state[:, :1]), state[:, :-1]], dim=1)
        return state + past + before @ self.get_buffer("shift")


class ThresholdLayer(nn.Module):
    """state + shift + relu(state W + bias) signs: each unit writes one coordinate."""

    def __init__(self, size: int, units: list[_Unit]) -> None:
        super().__init__()
        inner, outer = _nothing(size, len(units)), _nothing(len(units), size)
        bias, shift = _nothing(len(units)), _nothing(size)
        for k, unit in enumerate(units):
            for place, weight in unit.weights.items():
                inner[place, k] = weight
            bias[k], outer[k, unit.to], shift[unit.to] = unit.bias, unit.sign, unit.shift
        for name, value in {"inner": inner, "bias": bias, "outer": outer, "shift": shift}.items():
            self.register_buffer(name, value)

    def forward(self, state: Float[Tensor, "batch length size"]) -> Float[Tensor, "batch length size"]:
        hidden = torch.relu(state @ self.get_buffer("inner") + self.get_buffer("bias"))
        return state + self.get_buffer("shift") + hidden @ self.get_buffer("outer")


@dataclass(frozen=True)
class _Unit:
    """The coordinate `to` becomes shift + sign relu(weights . state + bias)."""

    to: int
    weights: dict[int, float]
    bias: float = 0.0
    sign: float = 1.0
    shift: float = 0.0


class CountingNet(nn.Module):
    """A begin token before the string, an embedding of letters, then attention and feed-forward stages in turn."""

    def __init__(self, letters: tuple[int, ...], size: int, stages: list[nn.Module], answers: list[int]) -> None:
        super().__init__()
        self.letters, self.size, self.answers = letters, size, answers
        self.stages = nn.ModuleList(stages)

    @property
    def layers(self) -> int:
        """The number of attention layers."""
        return sum(isinstance(stage, CountingHead) for stage in self.stages)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length answers"]:
        """Every answer after every place: 1 where it holds, 0 where not, up to the certified length."""
        dtype = next(self.buffers()).dtype if len(self.stages) else torch.float32
        state = torch.zeros(*ids.shape, self.size, dtype=dtype, device=ids.device)
        for place, letter in enumerate(self.letters, start=1):
            state[..., place] = (ids == letter).to(dtype)
        begin = torch.zeros_like(state[:, :1])
        begin[..., 0] = 1
        state = torch.cat([begin, state], dim=1)
        for stage in self.stages:
            state = stage(state)
        return state[:, 1:, self.answers]


@dataclass(frozen=True)
class CompiledProgram:
    """A network that is a counting program for all strings of up to `length` letters, with the proof's terms."""

    net: CountingNet
    program: CountingProgram
    length: int
    certificate: Certificate

    def __call__(self, ids: Int[np.ndarray, "batch length"]) -> Float[np.ndarray, "batch length answers"]:
        """What the network gives on strings, as an array; longer ones than were proved are refused."""
        if ids.shape[1] > self.length:
            raise ValueError(f"the network is exact up to {self.length:,} letters, got {ids.shape[1]:,}")
        with torch.no_grad():
            return self.net(torch.from_numpy(np.ascontiguousarray(ids))).numpy()


def certified_length(program: CountingProgram, precision: Precision = "float64") -> int:
    """The longest strings for which `compile` can prove the network of this program exact.

    A mean of n zeros and ones is within n u of count/n in any order of summation, u the unit roundoff, and a sum of
    its T terms adds T u, the stored weight one more. The step allows an error of 1/(4N) for its argument:
    4 N u (W (N + 2 + T) + (2 + T) |c|) <= 1, W the sum of |weights| and c the constant of the comparison.

    >>> from headcount.tasks.alternation import Alternation
    >>> certified_length(Alternation(4).program(), "float32"), certified_length(Alternation(4).program()) > 4e7
    (2042, True)
    """
    limits = [_largest(part, ROUNDOFF[precision]) for part in program.parts if isinstance(part, AtLeast)]
    return min(limits, default=2**30) - 1  # the begin token is a place too


@implements(SOURCE, test="tests/test_born_compiler.py::test_a_compiled_program_is_exact_up_to_its_length",
            status="proved here")  # fmt: skip
def compile(program: CountingProgram, length: int, precision: Precision = "float64") -> CompiledProgram:
    """The network of a counting program, exactly 0 or 1 on every string of up to `length` letters.

    Uniform attention over the n places so far, a begin token among them, gives count/n and 1/n, so that
    v = (sum_k w_k count_k - least + 1/2) / n is at least 1/(2n) or at most -1/(2n). With N = length + 1 and K = 2N the
    step 1 - relu(1 - relu(K v + 1/2)) is then exactly 1 or 0 for every n <= N: K v is at least 1 or at most -1, and
    half of it may be lost to rounding. The weights are of size N: no fixed weights keep a margin at all lengths.
    Source: derived here.

    >>> from headcount.tasks.alternation import Alternation
    >>> made = compile(Alternation(3).program(), 64)
    >>> made(np.array([[0, 1, 1, 0]]))[0, :, 1].tolist(), made.net.layers
    ([0.0, 0.0, 0.0, 1.0], 1)
    """
    most = certified_length(program, precision)
    if not 1 <= length <= most:
        raise ValueError(f"this program can be compiled for lengths 1 to {most:,} in {precision}, got {length}")
    layout = _Layout(program.letters)
    layout.new()  # the begin token
    for letter in program.letters:
        layout.at[Is(letter)] = layout.new()
    stages = _stages(program, layout, length + 1)
    modules = [make(layout.size) for make in stages]
    answers = [layout.at[condition] for _, condition in program.answers]
    net = CountingNet(program.letters, layout.size, modules, answers).to(getattr(torch, precision))
    return CompiledProgram(net, program, length, _certificate(program, length, precision))


def _certificate(program: CountingProgram, length: int, precision: Precision) -> Certificate:
    comparisons = [part for part in program.parts if isinstance(part, AtLeast)]
    used = max((_used(part, length + 1, ROUNDOFF[precision]) for part in comparisons), default=0.0)
    terms = (
        Term("comparisons", 0.0, f"K v moves by at most {used:.2g} of the 1/2 it may: steps are exactly 0 or 1"),
        Term("Boolean parts", 0.0, "sums of zeros and ones below the precision's whole numbers"),
    )
    return Certificate(terms, SOURCE, (f"strings of up to {length} letters", precision))


def _used(part: AtLeast, n: int, u: float) -> float:
    """How far rounding moves K v at most, K = 2n."""
    terms, weight = len(part.terms) + 1, sum(abs(w) for w, _ in part.terms)
    k = n + 2 + terms  # one for the weight itself, kept to one rounding
    growth = u / (1 - k * u)  # gamma_k = k u / (1 - k u)
    return 2 * n * growth * (weight * k + (2 + terms) * (abs(part.least) + 1) / 2)


def _largest(part: AtLeast, u: float) -> int:
    longer = range(2, math.isqrt(int(1 / u)) + 2)
    return 1 + bisect_left(longer, True, key=lambda n: _used(part, n, u) > 0.5)


def _stages(program: CountingProgram, layout: _Layout, n: int) -> list[Callable[[int], nn.Module]]:
    """Feed-forwards while anything can be said without looking back, then an attention for all that is ready."""
    stages: list[Callable[[int], nn.Module]] = []
    means: dict[Condition, int] = {}
    begin = -1
    while any(part not in layout.at for part in program.parts):
        ready = [part for part in program.parts if part not in layout.at and _ready(part, layout, means, begin)]
        if ready:
            stages += [partial(ThresholdLayer, units=units) for units in _feeds(ready, layout, means, begin, n)]
            continue
        averaged, shifted = _looks(program, layout, means)
        if begin < 0:
            begin = layout.new()
            averaged[0] = begin
        stages.append(partial(CountingHead, means=averaged, shifts=shifted))
    return stages


def _ready(part: Condition, layout: _Layout, means: dict[Condition, int], begin: int) -> bool:
    if isinstance(part, AtLeast):
        return begin >= 0 and all(of in means for _, of in part.terms)
    if isinstance(part, AllOf | AnyOf):
        return all(of in layout.at for of in part.of)
    return isinstance(part, Negation) and part.of in layout.at


def _looks(
    program: CountingProgram, layout: _Layout, means: dict[Condition, int]
) -> tuple[dict[int, int], dict[int, int]]:
    averaged: dict[int, int] = {}
    shifted: dict[int, int] = {}
    for part in program.parts:
        if isinstance(part, AtLeast):
            for _, of in part.terms:
                if of in layout.at and of not in means:
                    means[of] = averaged[layout.at[of]] = layout.new()
    # A shift reads what stood there before this stage, and a coordinate may be shifted once.
    now = [p for p in program.parts if isinstance(p, Before) and p not in layout.at and p.of in layout.at]
    for part in now:
        if layout.at[part.of] not in shifted:
            shifted[layout.at[part.of]] = layout.new()
    for part in now:  # what stands before a shift waits for the next stage
        layout.at[part] = shifted[layout.at[part.of]]
    return averaged, shifted


def _feeds(
    ready: list[Condition], layout: _Layout, means: dict[Condition, int], begin: int, n: int
) -> list[list[_Unit]]:
    """Everything is 0 at the begin token: its coordinate 0 takes off what a condition would say there."""
    first: list[_Unit] = []
    second: list[_Unit] = []
    for part in ready:
        if isinstance(part, AtLeast):
            half = layout.new()
            first.append(_Unit(half, _compared(part, means, begin, n), 0.5))
            second.append(_Unit(_placed(part, layout), {half: -1.0}, 1.0, -1.0, 1.0))
        else:
            first.append(_boolean(part, layout))
    return [first, second] if second else [first]


def _compared(part: AtLeast, means: dict[Condition, int], begin: int, n: int) -> dict[int, float]:
    weights: dict[int, float] = {begin: float(n * (1 - 2 * part.least)), 0: -4.0 * n * (abs(part.least) + 1)}
    for weight, of in part.terms:
        weights[means[of]] = weights.get(means[of], 0.0) + 2.0 * n * weight
    return weights


def _boolean(part: Condition, layout: _Layout) -> _Unit:
    to = _placed(part, layout)
    if isinstance(part, Negation):
        return _Unit(to, {layout.at[part.of]: -1.0, 0: -1.0}, 1.0)
    assert isinstance(part, AllOf | AnyOf)
    weights: dict[int, float] = {}
    for of in part.of:
        weights[layout.at[of]] = weights.get(layout.at[of], 0.0) + 1.0
    if isinstance(part, AllOf):
        return _Unit(to, weights, 1.0 - len(part.of))
    return _Unit(to, {place: -weight for place, weight in weights.items()}, 1.0, -1.0, 1.0)


def _placed(part: Condition, layout: _Layout) -> int:
    layout.at[part] = layout.new()
    return layout.at[part]


def _nothing(*shape: int) -> Tensor:
    """Zeros in which every weight is kept to float64: the certificate speaks of it."""
    return torch.zeros(*shape, dtype=torch.float64)


def _selection(size: int, moves: dict[int, int]) -> Tensor:
    chosen = _nothing(size, size)
    for come, go in moves.items():
        chosen[come, go] = 1.0
    return chosen
