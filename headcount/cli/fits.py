"""`headcount fit`: how many heads are enough, how an error falls with a size, or where the best rate moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.opening import opened, tell_damaged
from headcount.cli.options import Run, SpecName
from headcount.cli.printing import Listing, Printout
from headcount.files import write_text
from headcount.numerals import percent

if TYPE_CHECKING:
    from headcount.fits import Knee
    from headcount.results import Study


@dataclass(frozen=True)
class FitOptions:
    """What `headcount fit` takes."""

    run: Run
    law: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Fit a power law of NMSE in this column.", show_default=False)
    ] = None
    learning_rate: Annotated[
        bool, typer.Option("--learning-rate", help="Fit the best learning rate in parameters and steps.")
    ] = False
    predicted: Annotated[
        float | None, typer.Option(help="Value to judge; for heads, the task's own by default.", show_default=False)
    ] = None
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95
    norm: Annotated[str, typer.Option(help="Which error: nmse, or worst (as `headcount certify RUN` bounds it).")] = (
        "nmse"
    )
    out: Annotated[
        Path | None,
        typer.Option("--out", help="With --learning-rate, write the page into this folder.", show_default=False),
    ] = None
    spec: SpecName = None


def fit(options: FitOptions) -> Printout:
    """Say how many heads are enough, or fit a law of scale.

    With intervals; --law fits a power law, --learning-rate the law of the best rate, also from a CSV of your own with
    the columns parameters, steps, lr and loss.
    """
    if options.learning_rate:
        _refuse_beside(options.law, options.predicted)
        losses = _losses(options.run, options.spec, options.norm)
        return _learning_rate(losses, options.confidence, options.out, f"headcount fit {options.run} --learning-rate")
    if options.run.suffix == ".csv":
        raise ValueError(f"{options.run.name} is a table of losses: it is read with --learning-rate")
    if options.out is not None:
        raise ValueError("--out writes the page of --learning-rate; for the page of a study see `headcount report`")
    study = _swept(options.run, options.spec, options.norm)
    if options.law is None:
        return _knees_printed(_knees(study, options.predicted, options.confidence))
    return _laws_printed(_laws(study, options.law, options.predicted, options.confidence))


def _swept(run: Path, spec: str | None, norm: str) -> Study:
    """The study, unless `headcount measure` made it: its contestants were judged on the same splits, in pairs."""
    study = opened(run, spec)
    if study.spec.get("measured"):
        raise ValueError(f"{run} was measured, not swept: `headcount report {run}` has what it says of heads")
    return _in_norm(study, norm)


def _losses(run: Path, spec: str | None, norm: str) -> Study:
    """The rows of a CSV of losses, of one spec, or of all horizons of a store."""
    from headcount.papers.lr_law.loss_tables import joined_study, read_losses

    if run.suffix == ".csv":
        return read_losses(run)
    if spec is not None or run.suffix == ".json":
        return _swept(run, spec, norm)
    study = joined_study(run)
    tell_damaged(run, study)
    return _in_norm(study, norm)


def _in_norm(study: Study, norm: str) -> Study:
    """The study with the error that is asked for in the place of the NMSE."""
    from headcount.refusals import nearest

    if norm not in ("nmse", "worst"):
        raise ValueError(f"no error is called {norm!r}; {nearest(norm, ('nmse', 'worst'))}")
    if norm == "nmse":
        return study
    rows = tuple(row for row in study.rows if row.get("worst_upper") is not None)
    if not rows:
        raise ValueError("no row has worst_upper: `headcount certify RUN --out DIR` writes DIR/study.json that has it")
    return replace(study, rows=tuple({**row, "nmse": row["worst_upper"]} for row in rows))  # type: ignore[arg-type]


def _refuse_beside(law: str | None, predicted: float | None) -> None:
    if law is not None or predicted is not None:
        name = "--law" if law is not None else "--predicted"
        raise ValueError(f"{name} has no meaning beside --learning-rate, which is judged by the published exponents")


def _learning_rate(study: Study, confidence: float, out: Path | None, command: str) -> Printout:
    from headcount.papers.lr_law.rate_page import fitted, rate_page

    findings = fitted(study, confidence=confidence)
    page = rate_page(study, confidence=confidence, command=command) if out is not None else ""
    files = [] if out is None else [write_text(out / "learning_rate.html", page)]
    cells = Listing(
        findings.cell_rows, ("parameters", "steps", "best lr", "interval", "NMSE", "R2", "seeds", "diverged")
    )
    laws = Listing(findings.law_rows, ("road", "exponent in", "measured", "interval", "published", "verdict", "R2"))
    return Printout(findings.as_row(), [cells, "", laws, ""], findings.sentence, files)


def _knees(study: Study, predicted: float | None, confidence: float) -> list[dict[str, Any]]:
    from headcount.fits import knee, knees, variants

    if predicted is not None and predicted != int(predicted):
        raise ValueError(f"--predicted counts heads, so it must be whole, got {predicted:g}")
    count = None if predicted is None else int(predicted)
    designs = []
    for design, part in variants(study).items():
        pooled = knee(part, predicted=count, confidence=confidence)
        each = knees(part, predicted=count, confidence=confidence)
        sizes = {"design": design, "rows": len(part), "unfinished": max(0, study.spec.get("asked", 0) - len(study))}
        designs.append({**sizes, **_row(pooled), "by_length": [_row(k) for k in each.values()]})
    return designs


def _row(knee: Knee) -> dict[str, Any]:
    return {**knee.as_row(), "interval": knee.interval, "sentence": knee.sentence}


def _knees_printed(designs: list[dict[str, Any]]) -> Printout:
    lines: list[str | Listing] = []
    for part in designs:
        rows = [_line(row, ", ".join(map(str, row["lengths"]))) for row in part["by_length"]]
        rows += [_line(part, "all")] if len(rows) > 1 else []
        verdict = ("verdict",) if part["predicted"] is not None else ()
        columns = ("length", "heads", "interval", "best NMSE", "seeds", "diverged", *verdict)
        lines += [Listing(rows, columns, part["design"] or None), ""]
        lines += [_capital(part["sentence"])] if len(designs) > 1 else []
    if left := designs[0]["unfinished"]:
        lines.append(f"{left} of the networks of the spec are not trained yet; they may move this.")
    return Printout(designs, lines, designs[0]["sentence"] if len(designs) == 1 else _of_designs(designs))


def _of_designs(designs: list[dict[str, Any]]) -> str:
    """Several designs in one sentence."""
    met = sum(part["verdict"] == "consistent" for part in designs)
    if designs[0]["predicted"] is None:
        return f"{len(designs)} designs were fitted, each by itself; nothing was predicted of them"
    return f"{met} of {len(designs)} designs agree with the prediction of {designs[0]['predicted']} heads"


def _line(row: dict[str, Any], length: str) -> dict[str, Any]:
    few, many = row["seeds"]
    return {
        "length": length,
        "heads": row["text"],
        "interval": row["interval"],
        "best NMSE": f"{row['best']:.1e}",
        "seeds": few if few == many else f"{few} to {many}",
        "diverged": row["diverged"],
        "verdict": row["verdict"],
    }


def _laws(study: Study, column: str, predicted: float | None, confidence: float) -> list[dict[str, Any]]:
    from headcount.fits import power_laws

    laws = power_laws(study, column, predicted=predicted, confidence=confidence)
    return [{"design": design, **law.as_row(), "law": str(law)} for design, law in laws.items()]


def _laws_printed(fitted: list[dict[str, Any]]) -> Printout:
    rows = [
        {
            "design": row["design"] or "all rows",
            "exponent": f"{row['exponent']:.3g}",
            "interval": f"[{row['exponent_low']:.3g}, {row['exponent_high']:.3g}]",
            "floor": f"{row['floor']:.1e}",
            "gap": f"{row['gap']:.2f}",
            "verdict": row["verdict"],
        }
        for row in fitted
    ]
    verdict = ("verdict",) if fitted[0]["predicted"] is not None else ()
    one, column = fitted[0], fitted[0]["column"]
    note = f"\nNMSE = floor + scale * {column}^-exponent; gap in decades; {percent(one['confidence'])} intervals."
    law = _law(column, one["exponent"], one["exponent_low"], one["exponent_high"], one["confidence"])
    so = law if len(fitted) == 1 else f"{law} for {one['design']}, the first of {len(fitted)} designs"
    return Printout(fitted, [Listing(rows, ("design", "exponent", "interval", "floor", "gap", *verdict)), note], so)


def _law(column: str, exponent: float, low: float, high: float, level: float) -> str:
    """Whether the error falls or rises with a size, as far as the interval of the exponent tells.

    >>> _law("width", 0.5, 0.4, 0.6, 0.95), _law("length", -0.2, -0.3, -0.1, 0.5)
    ('NMSE falls like width^-0.5 (95% interval [0.4, 0.6])', 'NMSE rises like length^0.2 (50% interval [0.1, 0.3])')
    """
    lower, upper = (-high, -low) if high < 0 else (low, high)
    interval = f"({percent(level)} interval [{lower:.3g}, {upper:.3g}])"
    if low > 0:
        return f"NMSE falls like {column}^-{exponent:.3g} {interval}"
    if high < 0:
        return f"NMSE rises like {column}^{-exponent:.3g} {interval}"
    return f"whether NMSE falls or rises with {column} is open: {column}^-e, e = {exponent:.3g} {interval}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
