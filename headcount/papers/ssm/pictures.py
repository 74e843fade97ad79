"""Pictures of what depth does to a system: its poles, its entries, its response, and what rounding costs it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bits_picture", "deep_picture", "svg", "training_picture"]

INK, SOFT, RULE, ACCENT = "#1b2430", "#5b6675", "#d5dae1", "#c2410c"
RAMP = ("#83c5c6", "#4299b8", "#23679f", "#182f63")  # light to deep: first layer to last
FORMS = (ACCENT, "#23679f", "#0f766e", "#7c3aed", "#5b6675")
# An opaque white ground reads the same on a light page and on a dark one.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "headcount",
    "svg.fonttype": "path",
    "figure.facecolor": "#ffffff",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "font.size": 10,
    "legend.frameon": False,
}


def svg(figure: Figure) -> str:
    """The figure as SVG text, the same for the same figure."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        page = io.StringIO()
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()


def deep_picture(system: DiagonalSSM, deep: DeepSSM, samples: int = 48) -> Figure:
    """Poles layer by layer, all entries before and after, and both responses on top of each other."""
    with _figure(3, width=11.0) as (figure, (poles, entries, response)):
        _draw_poles(poles, deep)
        _draw_entries(entries, system, deep)
        _draw_response(response, system, deep, samples)
    return figure


def bits_picture(panels: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """What each form's response loses against the bits a number is given; a panel for each list of `bits_rows`."""
    with _figure(len(panels), width=5.2 * len(panels)) as (figure, axes):
        for ax, (name, rows) in zip(axes, panels.items(), strict=True):
            _draw_bits(ax, rows)
            ax.set_title(name)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    return figure


def training_picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The best error of trained students against depth, a line for each bound on their entries."""
    with _figure(1, width=6.0) as (figure, (ax,)):
        bounds = sorted({row["max_entry"] for row in rows})
        for number, bound in enumerate(bounds):
            mine: dict[int, float] = {}
            for row in rows:
                if row["max_entry"] == bound:
                    mine[row["depth"]] = min(row["nmse"], mine.get(row["depth"], math.inf))
            colour = _shade(number / max(len(bounds) - 1, 1))
            ax.plot(list(mine), list(mine.values()), "o-", color=colour, ms=4, label=f"entries up to {bound:g}")
        ax.set(yscale="log", xlabel="depth", ylabel="squared error / square of the kernel")
        ax.set_title("Students with bounded entries, best seed")
        ax.legend()
    return figure


@contextmanager
def _figure(panels: int, width: float) -> Iterator[tuple[Figure, list[Axes]]]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, 3.9), layout="constrained")
        yield figure, list(np.atleast_1d(figure.subplots(1, panels)))


def _shade(share: float) -> str:
    return RAMP[round(share * (len(RAMP) - 1))]


def _draw_poles(ax: Axes, deep: DeepSSM) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=SOFT, lw=1)
    for k, layer in enumerate(deep.layers):
        used = layer.poles[layer.poles != 0]
        shade = _shade(k / max(deep.depth - 1, 1))
        ax.plot(used.real, used.imag, "o", color=shade, ms=6, mec="white", mew=0.6)
    ax.set(aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    ax.set_title("Poles: first layer light, last dark")


def _draw_entries(ax: Axes, system: DiagonalSSM, deep: DeepSSM) -> None:
    columns = [np.sqrt(np.abs(system.residues)), *(np.abs(layer.weights).ravel() for layer in deep.layers)]
    columns.append(np.abs(deep.readout))
    for place, column in enumerate(columns):
        size = column[column > 1e-9 * column.max(initial=1e-300)]
        colour = ACCENT if place == 0 else _shade((place - 1) / max(deep.depth, 1))
        ax.plot(np.full(len(size), place), size, "_", color=colour, ms=10 if deep.depth < 20 else 4, mew=1.6)
    ax.axhline(system.largest_entry, color=ACCENT, lw=1, ls=":")
    ax.axhline(deep.largest_entry, color=RAMP[2], lw=1, ls=":")
    ax.set(yscale="log", xlabel="weights of each layer, then the read-out")
    ax.set_xticks([0, 1, deep.depth, deep.depth + 1], ["one", "1", "" if deep.depth == 1 else str(deep.depth), "C"])
    ax.set_title(f"Entries: {system.largest_entry:.3g} becomes {deep.largest_entry:.3g}")


def _draw_response(ax: Axes, system: DiagonalSSM, deep: DeepSSM, samples: int) -> None:
    t = np.arange(samples)
    ax.plot(t, np.real(system.impulse(samples)), color=ACCENT, lw=3, alpha=0.45, label="one layer")
    ax.plot(t, np.real(deep.impulse(samples)), ".", color=RAMP[3], ms=5, label=f"depth {deep.depth}")
    ax.set(xlabel="sample")
    ax.set_title("Impulse response" + ("" if system.is_real else " (real part)"))
    ax.legend()


def _draw_bits(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    for number, form in enumerate(dict.fromkeys(row["form"] for row in rows)):
        mine = [(row["bits"], row["gap"]) for row in rows if row["form"] == form]
        kept = [(b, min(g, 10.0)) for b, g in mine if math.isfinite(g)]
        lost = [b for b, g in mine if not math.isfinite(g)]
        colour = FORMS[number % len(FORMS)]
        ax.plot(*zip(*kept, strict=True) if kept else ([], []), "o-", color=colour, ms=4, lw=1.8, label=form)
        ax.plot(lost, np.full(len(lost), 10.0), "x", color=colour, ms=6)
    ax.axhline(1.0, color=SOFT, lw=1, ls=":")
    ax.set(yscale="log", xlabel="bits a number", ylabel="response lost (rms, relative)")
    ax.legend(fontsize=9)
