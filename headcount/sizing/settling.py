"""The experiment that would settle it: two shapes, new seeds, the same data order, and the interval it promises.

A small TOML file that `headcount sweep` runs: what is trained stands under [trial], what it will show under [promise].
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.files import text_in, write_json
from headcount.fits.student import half_width
from headcount.frozen import decode
from headcount.refusals import positive
from headcount.sizing.evidence import EvidenceTable
from headcount.sizing.model_shape import BARE, LayerShape, ModelShape
from headcount.sizing.paired_difference import PairedDifference, paired_differences
from headcount.sizing.power import promised_width, seeds_for

if TYPE_CHECKING:
    from headcount.sizing.ranked_shapes import ShapeAnswer

LAYERS = 4  # of the small copies that are trained
FIRST_SEED = 1000  # no seed that chose the shapes settles between them
RATES = (7.5e-4, 1.5e-3, 3e-3)  # the best of our own grid's base, half of it and twice it
LEAST, MOST = 4, 64  # seeds
TOKENS = 20  # for each parameter, at most: more is not a small experiment
AS_SEEN = 1.3  # tokens for each parameter in our own grid: the noise was measured there, and shorter runs have another


@dataclass(frozen=True)
class _Training:
    """How both shapes are trained."""

    text: str
    length: int
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    batch: int
    steps: int


@dataclass(frozen=True)
class _Entry:
    """One shape as it stands in the file."""

    name: str
    embed_dim: int
    vocab: int
    layers: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class _Trial(_Training):
    """The [trial] of the file."""

    shapes: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class _Promise:
    """The [promise] of the file."""

    half_width: float
    low: float
    high: float
    finds: float
    noise: float
    free: int


@dataclass(frozen=True)
class SettlingExperiment(_Training, _Promise):
    """Two shapes at equal parameters, how they are trained, and what is promised of their difference.

    `half_width` is the expected half of the 95% interval in percent of the loss, `low` and `high` where nine of ten
    such experiments end; `finds` the least difference found with a power of 0.8.
    """

    name: str
    shapes: dict[str, ModelShape]

    @property
    def runs(self) -> int:
        return len(self.shapes) * len(self.rates) * len(self.seeds)

    @property
    def flops(self) -> float:
        """Arithmetic of all runs: six for each parameter and token."""
        size = max(shape.parameters for shape in self.shapes.values())
        return 6.0 * size * self.batch * self.length * self.steps * self.runs

    @property
    def sentence(self) -> str:
        first, second = self.shapes
        size = max(shape.parameters for shape in self.shapes.values())
        tokens_per_parameter = self.batch * self.length * self.steps / size
        short = (
            ""
            if tokens_per_parameter >= 0.9 * AS_SEEN
            else f"; at {tokens_per_parameter:.2g} tokens a parameter, where noise was not measured"
        )
        return (
            f"{self.runs} runs of {len(self.seeds)} paired seeds decide between {first} and {second} with an interval "
            f"of ± {self.half_width:.2f}% (nine of ten between {self.low:.2f} and {self.high:.2f}); a difference of "
            f"{self.finds:.2f}% is found four times in five{short}"
        )

    def to_toml(self) -> str:
        lines = [
            f"# {self.sentence}.",
            f"# {self.flops:.1e} FLOPs in all. Run it: headcount sweep FILE",
            f'name = "{self.name}"',
            "",
            "[trial]",
            f"text = {json.dumps(self.text)}  # token windows (.npz) or a plain text file, read as bytes",
            f"length = {self.length}",
            f"rates = {list(self.rates)}",
            f"seeds = {list(self.seeds)}",
            f"batch = {self.batch}",
            f"steps = {self.steps}",
        ]
        for name, shape in self.shapes.items():
            lines += ["", "[[trial.shapes]]", f"name = {json.dumps(name)}", f"embed_dim = {shape.embed_dim}"]
            lines += [f"vocab = {shape.vocab}", "# heads, head_dim, key-value heads, feed-forward width of each layer"]
            rows = ", ".join(str([o.heads, o.head_dim, o.kv_heads, o.width]) for o in shape.layers)
            lines += [f"layers = [{rows}]"]
        promise = ("half_width", "low", "high", "finds", "noise")
        lines += ["", "[promise]", *(f"{key} = {getattr(self, key):.6g}" for key in promise), f"free = {self.free}"]
        return "\n".join(lines) + "\n"


def settling_experiment(
    answer: ShapeAnswer,
    *,
    text: str,
    flops: float = 1e17,
    difference: float = 0.25,
    length: int = 256,
    vocab: int = 2048,
) -> SettlingExperiment:
    """The experiment between the first two shapes of an answer: small copies of them, as many seeds as it takes.

    The copies keep heads, head_dim, key-value heads and embed_dim, and have four layers at most. The noise of a paired
    difference is that of our own grid where it has been entered, else what seeds elsewhere show, twice. Seeds are as
    many as the difference asks, and no more than the budget trains as long as that grid was trained.
    """
    positive(flops=flops, difference=difference)
    if answer.first.shape.wiring.encoder:
        raise ValueError("an encoder is settled on its data: `headcount measure` trains head counts on them")
    noise, free = paired_noise(answer.table)
    shapes = {_name(r.shape): _copy(r.shape, vocab) for r in (answer.first, answer.second)}
    if len(shapes) < 2:
        raise ValueError("the first two shapes are the same: there is nothing to settle")
    size, batch = max(s.parameters for s in shapes.values()), 16
    affordable = int(flops / (2 * len(RATES) * 6 * AS_SEEN * size**2))
    seeds = max(LEAST, min(MOST, affordable, seeds_for(noise, difference)))
    each = flops / (2 * len(RATES) * seeds)
    steps = max(50, int(min(each / (6 * size), TOKENS * size) / (batch * length)))
    middle, low, high = promised_width(noise, free, seeds)
    name = "settle-" + "-".join(key.replace(" ", "") for key in shapes)
    return SettlingExperiment(
        name="".join(c for c in name if c.isalnum() or c in "-_"), shapes=shapes,
        text=text, rates=RATES, seeds=tuple(range(FIRST_SEED, FIRST_SEED + seeds)), batch=batch, steps=steps,
        length=length, half_width=middle, low=low, high=high, finds=found_with(noise, seeds), noise=noise, free=free,
    )  # fmt: skip


def paired_noise(table: EvidenceTable) -> tuple[float, int]:
    """The deviation of one seed's paired difference in percent, and its degrees of freedom."""
    if table.paired:
        return float(table.paired["deviation"]), int(table.paired["free"])
    return math.sqrt(2) * max(n.deviation for n in table.noise), sum(n.seeds - 1 for n in table.noise)


def found_with(noise: float, seeds: int, power: float = 0.8) -> float:
    """The least difference that so many seeds find with this power.

    >>> round(found_with(1.0, 10), 2)
    1.0
    """
    low, high = 0.0, 100.0 * noise
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if seeds_for(noise, middle, power=power) <= seeds else (middle, high)
    return high


def is_trial(path: Path) -> bool:
    """Whether a TOML file describes such an experiment; a file that is no TOML is none."""
    try:
        return "trial" in tomllib.loads(text_in(path, "utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, ValueError):
        return False


def read_experiment(path: Path) -> SettlingExperiment:
    """The experiment that a file describes; a misspelt key is refused with the nearest right one."""
    content = tomllib.loads(text_in(path, "utf-8-sig"))
    trial = decode(_Trial, content["trial"], "[trial]")
    promise = decode(_Promise, content.get("promise", {}), "[promise]")
    entries = [decode(_Entry, entry, "[[trial.shapes]]") for entry in trial.shapes]
    if len(entries) != 2:
        raise ValueError(f"{path}: two shapes are settled between, got {len(entries)}")
    shapes = {entry.name: _bare(entry) for entry in entries}
    return SettlingExperiment(
        **vars(promise), **(vars(trial) | {"name": content.get("name", path.stem), "shapes": shapes})
    )


def settle(
    path: Path, folder: Path, *, device: str = "cpu", say: Callable[[str], None] = lambda _: None
) -> tuple[SettlingExperiment, PairedDifference]:
    """Run the experiment, or what is left of it, and measure the difference; rows are kept in the folder."""
    from headcount.sizing.paired_trial import PairedTrial, TrialRows, run
    from headcount.sizing.windows import TokenWindows

    planned = read_experiment(path)
    file = path.parent / planned.text if not Path(planned.text).is_absolute() else Path(planned.text)
    text = TokenWindows.read(file) if file.suffix == ".npz" else TokenWindows.of_bytes(file, planned.length)
    largest = int(max(text.train.max(), text.valid.max()))
    for name, shape in planned.shapes.items():
        if largest >= shape.vocab:
            raise ValueError(f"token {largest} of {file} is none of the {shape.vocab} that {name} knows")
    trial_rows = TrialRows.open(folder / "trial.json", {"toml": text_in(path), "text": text.facts()})
    run(PairedTrial(planned.shapes, planned.rates, planned.seeds, planned.batch, planned.steps), text, trial_rows,
        device=device, say=say)  # fmt: skip
    (difference,) = paired_differences(trial_rows.rows, next(iter(planned.shapes)))
    write_json(folder / "settled.json", settled_row(planned, difference))
    return planned, difference


def settled_row(planned: SettlingExperiment, found: PairedDifference) -> dict[str, object]:
    """What was promised and what was reached, side by side."""
    low, high = found.interval()
    return {
        "first": found.base,
        "second": found.shape,
        "seeds": len(found.percents),
        "promised half-width": planned.half_width,
        "promised range": [planned.low, planned.high],
        "percent": found.mean,
        "interval": [low, high],
        "half-width": half_width(found.deviation, len(found.percents)),
        "decided": not low <= 0 <= high,
        "rate at an end": found.edge,
    }


def _name(shape: ModelShape) -> str:
    return str(shape.layers[0]) if shape.is_uniform else "by layer"


def _copy(shape: ModelShape, vocab: int) -> ModelShape:
    """A small copy with the same heads: four layers at most, the wiring of the trained decoders.

    A gated feed-forward's three matrices become two of as many parameters.
    """
    layers = [
        LayerShape(o.heads, o.head_dim, o.kv_heads, round(o.width * shape.wiring.matrices / BARE.matrices))
        for o in shape.layers[:LAYERS]
    ]
    return ModelShape(tuple(layers), shape.embed_dim, vocab, BARE)


def _bare(entry: _Entry) -> ModelShape:
    layers = tuple(LayerShape(h, n, g, width) for h, n, g, width in entry.layers)
    return ModelShape(layers, entry.embed_dim, entry.vocab, BARE)


def facts_of(row: Mapping[str, Any]) -> str:
    """A settled row in words."""
    low, high = row["interval"]
    word = "decided" if row["decided"] else "not decided"
    return (
        f"{row['second']} less {row['first']}: {row['percent']:+.2f}% [{low:+.2f}, {high:+.2f}] over {row['seeds']} "
        f"seeds, {word}; the interval came out ± {row['half-width']:.2f}% where ± {row['promised half-width']:.2f}% "
        "was promised"
    )
