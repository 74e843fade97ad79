"""`headcount measure`: how many heads given data need, measured on this machine, on a page."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headcount.cli.printing import Listing, Printout, out_file, say

if TYPE_CHECKING:
    from headcount.fits import Measurement

Data = Annotated[
    str,
    typer.Argument(help=".npz, .csv, .parquet, a folder of safetensors, or module:function.", show_default=False),
]
Target = Annotated[str, typer.Option(metavar="COLUMN", help="Table: the column to predict.")]
Sequence = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Table: a row per token; this column tells sequences apart.", show_default=False
    ),
]
Window = Annotated[
    int | None, typer.Option(metavar="N", help="Table: a row per moment; predict from N on end.", show_default=False)
]
Horizon = Annotated[int, typer.Option(metavar="N", help="With --window: so many rows ahead.")]
Group = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Table: sequences of a group stay together.", show_default=False)
]
SplitOf = Annotated[
    str | None,
    typer.Option("--split", metavar="COLUMN", help="Table: says training or validation.", show_default=False),
]
KindOf = Annotated[str | None, typer.Option("--kind", help="regression or classification.", show_default=False)]
Heads = Annotated[str, typer.Option(help="Head counts to try, as 1-8 or 1,2,4.")]
Positions = Annotated[str, typer.Option(help="Position features a token sees, or auto: measured first.")]
Budget = Annotated[str | None, typer.Option(help="Time to keep to, as 90s or 5m.", show_default=False)]
To = Annotated[Path | None, typer.Option("--out", help="Folder for page and rows. Default: out/measure-NAME.")]


def measure(
    data: Data,
    target: Target = "target",
    sequence: Sequence = None,
    window: Window = None,
    horizon: Horizon = 1,
    group: Group = None,
    split: SplitOf = None,
    kind: KindOf = None,
    heads: Heads = "1-8",
    seeds: Annotated[int, typer.Option(help="Networks for each head count.")] = 4,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 3000,
    embed_dim: Annotated[int, typer.Option(help="Width of the state, shared by the heads.")] = 24,
    width: Annotated[int, typer.Option(help="Hidden size of the feed-forwards.")] = 32,
    layers: Annotated[int, typer.Option(help="Attention layers.")] = 1,
    positions: Positions = "auto",
    lr: Annotated[str, typer.Option(help="Peak learning rate, or best: chosen for every head count.")] = "0.01",
    split_seed: Annotated[int, typer.Option(help="Another split of the data.")] = 0,
    budget: Budget = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    model: Annotated[Path | None, typer.Option(help="Save a network here, for apply.", show_default=False)] = None,
    out: To = None,
) -> Printout:
    """Say how many heads your data need.

    Trains networks of 1 to 8 heads on them, beside baselines, and writes a page.
    """
    began = time.monotonic()  # before torch is loaded
    from headcount.cli.door import Interrupted
    from headcount.measuring import StudyPlan, measure
    from headcount.measuring.planning import seconds
    from headcount.measuring.tables import Reading
    from headcount.training.progress import bar

    plan = StudyPlan(
        _counts(heads), seeds, steps, embed_dim=embed_dim, width=width, layers=layers, positions=_places(positions),
        lr=_rate(lr),
    )  # fmt: skip
    reading = Reading(target, sequence, window, horizon, group, kind, split)
    folder = out or Path("out") / f"measure-{_name(data)}"
    try:
        found = measure(
            data,
            reading=reading,
            model=model,
            plan=plan,
            budget=None if budget is None else seconds(budget),
            split_seed=split_seed,
            device=device,
            store=folder / "study",
            command=_command(),
            say=say,
            on_progress=bar,
            began=began,
        )
    except KeyboardInterrupt:
        raise Interrupted(f"Finished head counts are kept in {folder}; run the same command to go on.") from None
    paths = {name: str(out_file(folder, name, text)) for name, text in found.files.items()}
    so = f"{found.advice[:1].lower()}{found.advice[1:]}"
    facts = {**found.as_row(), "rows": list(found.study.rows)}
    return Printout(facts, _told(found), so, paths.values())


def apply(
    model: Annotated[Path, typer.Argument(help="What measure --model wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help=".npz with x, or .csv.", show_default=False)],
    sequence: Sequence = None,
    out: Annotated[Path, typer.Option(help="The CSV to write.")] = Path("predictions.csv"),
) -> Printout:
    """Predict new sequences with a saved model.

    In your units, into a CSV of one line per sequence.
    """
    from headcount.measuring.applying import predictions, write_predictions
    from headcount.measuring.fitted import load

    rows = predictions(load(model), data, sequence)
    write_predictions(rows, out)
    return Printout({"predictions": rows}, [], f"{len(rows)} predictions are in {out}", [out])


def _told(found: Measurement) -> list[str | Listing]:
    without = [
        {
            "heads": base["name"],
            found.words: f"{base['level']:.3g}",
            "wrong": None if base["error_rate"] is None else f"{base['error_rate']:.1%}",
        }
        for base in found.baselines
    ]
    rows = [
        {
            "heads": row["heads"],
            found.words: f"{row['level']:.3g}",
            "seeds": f"{row['best']:.2g} to {row['worst']:.2g}",
            "weights": row["parameters"],
            "kB": f"{row['bytes'] / 1000:.3g}",
            "ms": "-" if row["milliseconds"] is None else f"{row['milliseconds']:.2g}",
            "wrong": None if row["error_rate"] is None else f"{row['error_rate']:.1%}",
            "against": "the knee" if row["against"] is None else _factor(row["against"]),
        }
        for row in found.by_heads()
    ]
    wrong = ("wrong",) if rows[0]["wrong"] is not None else ()
    columns = ("heads", found.words, "seeds", *wrong, "against", "weights", "kB", "ms")
    sentence = found.sentence
    notes = [f"Note: {warning}." for warning in found.warnings]
    return ["", Listing([*without, *rows], columns), "", f"{sentence[:1].upper()}{sentence[1:]}.", *notes]


def _factor(worth) -> str:
    return f"x {worth.factor.value:.3g} [{worth.factor.low:.3g}, {worth.factor.high:.3g}]"


def _counts(text: str) -> tuple[int, ...]:
    """Head counts as 1-8 or 1,2,4.

    >>> _counts("1-3,6")
    (1, 2, 3, 6)
    """
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
        counts = tuple(count for part in ends for count in range(part[0], part[-1] + 1))
    except ValueError:
        raise ValueError(f"--heads must be counts such as 1-8 or 1,2,4, got {text!r}") from None
    if any(len(part) > 2 for part in ends) or max(counts, default=0) > 64:
        raise ValueError(f"--heads must be counts from 1 to 64 such as 1-8 or 1,2,4, got {text!r}")
    return counts


def _rate(text: str) -> float | Literal["best"]:
    """A learning rate, or best.

    >>> _rate("0.01"), _rate("best")
    (0.01, 'best')
    """
    if text == "best":
        return "best"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--lr must be a rate such as 0.01, or best, got {text!r}") from None


def _places(text: str) -> int | None:
    """How many position features, None where that is to be measured.

    >>> _places("8"), _places("auto")
    (8, None)
    """
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--positions must be a number such as 8, or auto, got {text!r}") from None


def _name(data: str) -> str:
    return Path(data.partition(":")[2] if ":" in data and "/" not in data else data).stem or "data"


def _command() -> str:
    import shlex

    return shlex.join(["headcount", *sys.argv[1:]])
