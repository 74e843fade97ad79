"""Pictures of what depth does to a system: its poles, its entries, its response, and what rounding costs it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.drawing.axes import Frame, shade
from headcount.drawing.panels import Panel, figure_of, frames, legend, log_panel, plain_panel
from headcount.drawing.svg import Figure, Scale
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM

HEIGHT = 330
MOST = 10.0  # a response lost more than ten times over is drawn at ten


def deep_picture(system: DiagonalSSM, deep: DeepSSM, samples: int = 48) -> Figure:
    """Poles layer by layer, all entries before and after, and both responses on top of each other."""
    poles, entries, response = frames(3, width=1020, height=HEIGHT)
    dealt = _circle(poles, "Poles: first layer light, last dark", [layer.poles for layer in deep.layers])
    parts = [dealt, _entries(entries, system, deep), _response(response, system, deep, samples)]
    words = (
        f"Poles, entries and response of a system of {system.modes} modes as one layer and at depth {deep.depth}: "
        f"the largest entry falls from {system.largest_entry:.3g} to {deep.largest_entry:.3g}."
    )
    return figure_of(parts, width=1020, height=HEIGHT, title="One layer and many", words=words)


def poles_picture(system: DiagonalSSM, deep: DeepSSM, *, narrow: bool = False) -> Figure:
    """The poles of the one layer, and those of every layer of the deep system, in the unit circle."""
    places, width, height = _beside(narrow, 330)
    body = _circle(places[0], "Before: one layer", [system.poles]) + _circle(
        places[1], f"After: {deep.depth} layers, the last darkest", [layer.poles for layer in deep.layers]
    )
    words = f"Poles of {system.modes} modes as one layer, and of the {deep.depth} layers of the deep system."
    return figure_of([body], width=width, height=height, title="Poles before and after", words=words)


def response_picture(system: DiagonalSSM, deep: DeepSSM, *, narrow: bool = False, samples: int = 48) -> Figure:
    """The magnitude of the transfer function in decibels, and the impulse response, each before and after."""
    places, width, height = _beside(narrow, 300)
    body = _magnitude(places[0], system, deep) + _response(places[1], system, deep, samples)
    words = "Frequency response and impulse response of the system as one layer and as many: they lie on each other."
    return figure_of([body], width=width, height=height, title="Response before and after", words=words)


def entries_picture(system: DiagonalSSM, deep: DeepSSM, *, narrow: bool = False) -> Figure:
    """Every weight before and after, by layer."""
    width, height = (370, 300) if narrow else (760, 300)
    (frame,) = frames(1, width=width, height=height)
    words = f"Weights of every layer: the largest goes from {system.largest_entry:.3g} to {deep.largest_entry:.3g}."
    body = _entries(frame, system, deep)
    return figure_of([body], width=width, height=height, title="Entries before and after", words=words)


def _beside(narrow: bool, height: int) -> tuple[list[Frame], int, int]:
    """Two frames side by side, or below each other on a phone."""
    if not narrow:
        return frames(2, width=820, height=height), 820, height
    (one,) = frames(1, width=370, height=height)
    return [one, Frame(one.left, one.right, one.top + height, one.bottom + height)], 370, 2 * height


def bits_picture(panels: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "", *, each: int = 500) -> Figure:
    """What each form's response loses against the bits per number; a panel for each list of `bits_rows`."""
    width = each * len(panels)
    places = frames(len(panels), width=width, height=HEIGHT + 20, title=bool(title))
    parts = [_bits(frame, name, rows) for frame, (name, rows) in zip(places, panels.items(), strict=True)]
    words = "Share of the response lost against the bits per number, a line for each form, on a logarithmic scale."
    return figure_of(parts, width=width, height=HEIGHT + 20, title="What few bits cost", words=words, shown=title)


def training_picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The best error of trained students against depth, a line for each bound on their entries."""
    (frame,) = frames(1, width=600, height=HEIGHT + 20)
    bounds, depths = (sorted({row[key] for row in rows}) for key in ("max_entry", "depth"))
    panel = log_panel(Frame(frame.left, frame.right - 130, frame.top, frame.bottom), depths, [r["nmse"] for r in rows])
    body = panel.axes + panel.title("Squared error / square of the kernel, best seed")
    for number, bound in enumerate(bounds):
        best = [(depth, _best(rows, bound, depth)) for depth in depths]
        reached = [(depth, error) for depth, error in best if error is not None]
        tone = shade(number, len(bounds))
        body += panel.line(reached, f"line s{tone}") + panel.marks(reached, f"f{tone}")
    body += panel.below([(d, str(d)) for d in depths], "depth")
    names, tones = [f"entries up to {b:g}" for b in bounds], [f"s{shade(i, len(bounds))}" for i in range(len(bounds))]
    body += legend(names, panel.frame.right + 12, panel.frame.top + 10, tones)
    words = "Best squared error of trained students against depth, a line for each bound on their entries."
    return figure_of([body], width=600, height=HEIGHT + 20, title="Students with bounded entries", words=words)


def _best(rows: Sequence[Mapping[str, Any]], bound: float, depth: int) -> float | None:
    return min((r["nmse"] for r in rows if r["max_entry"] == bound and r["depth"] == depth), default=None)


def _circle(frame: Frame, title: str, poles: Sequence[np.ndarray]) -> str:
    """The poles of each layer in the unit circle; those at 0, which pass their input at once, are left out."""
    side = min(frame.right - frame.left, frame.bottom - frame.top)
    square = Frame(frame.left, frame.left + side, frame.bottom - side, frame.bottom)
    panel = Panel(square, Scale(-1.1, 1.1, square.left, square.right), Scale(-1.1, 1.1, square.bottom, square.top))
    turn = np.linspace(0, 2 * np.pi, 121)
    body = panel.title(title)
    body += panel.line([(-1.1, 0), (1.1, 0)], "grid") + panel.line([(0, -1.1), (0, 1.1)], "grid")
    body += panel.line(zip(np.cos(turn).tolist(), np.sin(turn).tolist(), strict=True), "axis")
    for k, own in enumerate(poles):
        used = own[own != 0]
        spots = zip(np.real(used).tolist(), np.imag(used).tolist(), strict=True)
        body += panel.marks(spots, f"f{shade(k, len(poles))}", size=4.5)
    return body + panel.below([(-1, "-1"), (0, "0"), (1, "1")], "real part")


def _magnitude(frame: Frame, system: DiagonalSSM, deep: DeepSSM) -> str:
    """|H| in decibels over the angle from 0 to half the sample rate; nothing is drawn below -120."""
    omega = np.linspace(0, np.pi, 257)
    one, many = (20 * np.log10(np.maximum(np.abs(form.frequency(omega)), 1e-6)) for form in (system, deep))
    panel = plain_panel(frame, [0.0, 1.0], [*one.tolist(), *many.tolist()])
    frequency = (omega / np.pi).tolist()
    body = panel.axes + panel.title("Frequency response, decibels")
    body += panel.line(zip(frequency, one.tolist(), strict=True), "bold ks0")
    body += panel.line(zip(frequency, many.tolist(), strict=True), "thin ks1")
    body += legend(["one layer", f"depth {deep.depth}"], frame.right - 90, frame.top + 10)
    places = [(0.0, "0"), (0.25, "1/4"), (0.5, "1/2"), (0.75, "3/4"), (1.0, "1")]
    return body + panel.below(places, "frequency over half the sample rate")


def _entries(frame: Frame, system: DiagonalSSM, deep: DeepSSM) -> str:
    columns = [np.sqrt(np.abs(system.residues)), *(np.abs(layer.weights).ravel() for layer in deep.layers)]
    columns = [c[c > 1e-9 * c.max(initial=1e-300)].tolist() for c in (*columns, np.abs(deep.readout))]
    ends = [system.largest_entry, deep.largest_entry]
    panel = log_panel(frame, [0, len(columns) - 1], [*ends, *(v for column in columns for v in column)])
    body = panel.axes + panel.title(f"Entries: {ends[0]:.3g} becomes {ends[1]:.3g}")
    body += panel.level(ends[0], "thin dots ks0") + panel.level(ends[1], "thin dots ks1")
    for place, column in enumerate(columns):
        tone = 0 if place == 0 else f"f{shade(min(place - 1, deep.depth - 1), deep.depth)}"
        body += panel.marks([(place, v) for v in column], tone, "dash", 7.0 if deep.depth < 20 else 3.0)
    names = dict.fromkeys([(0, "one"), (1, "1"), (deep.depth, str(deep.depth)), (deep.depth + 1, "C")])
    return body + panel.below(list(names), "weights of each layer, then the read-out")


def _response(frame: Frame, system: DiagonalSSM, deep: DeepSSM, samples: int) -> str:
    one, many = (np.real(form.impulse(samples)).tolist() for form in (system, deep))
    panel = plain_panel(frame, [0, samples - 1], [*one, *many])
    body = panel.axes + panel.title("Impulse response" + ("" if system.is_real else " (real part)"))
    body += panel.line(enumerate(one), "bold ks0") + panel.marks(enumerate(many), 1, size=2.5)
    body += legend(["one layer", f"depth {deep.depth}"], frame.right - 90, frame.top + 10)
    return body + panel.below([(t, str(t)) for t in range(0, samples, max(1, samples // 6))], "sample")


def _bits(frame: Frame, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    forms = list(dict.fromkeys(row["form"] for row in rows))
    bits = sorted({row["bits"] for row in rows})
    shown = [min(row["gap"], MOST) for row in rows if 0 < row["gap"] < math.inf]
    panel = log_panel(frame, bits, [*shown, 1.0, MOST])
    body = panel.axes + panel.title(name) + panel.level(1.0, "thin dots s15")
    for number, form in enumerate(forms):
        points = [(row["bits"], row["gap"]) for row in rows if row["form"] == form]
        finite = [(b, min(gap, MOST)) for b, gap in points if 0 < gap < math.inf]
        body += panel.line(finite, f"line ks{number % 4}") + panel.marks(finite, number % 4)
        body += panel.marks([(b, MOST) for b, gap in points if not math.isfinite(gap)], number % 4, "cross")
    body += legend(forms, frame.left + 12, frame.bottom - 17 * len(forms))
    return body + panel.below([(b, str(b)) for b in bits], "bits per number; upwards: share of the response lost")
