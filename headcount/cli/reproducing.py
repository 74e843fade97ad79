"""`headcount reproduce`: every published table beside ours, with a verdict and a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, out_file, say, show_table
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.results.record import Record, Reproduction


def register(app: typer.Typer) -> None:
    @app.command("reproduce")
    def reproduce(
        names: Annotated[
            list[str] | None,
            typer.Argument(help="paper:table, a paper, or all; none lists what there is.", show_default=False),
        ] = None,
        quick: Annotated[bool, typer.Option(help="A smaller version, in minutes on a CPU.")] = False,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        data: Annotated[Path | None, typer.Option(help="Folder of data sets.", show_default=False)] = None,
        out: Annotated[Path, typer.Option(help="Folder for results and the page.")] = Path("out/reproduce"),
        budget: Annotated[
            float | None, typer.Option(help="Seconds for each; CIFAR-10 and text take what fits.", show_default=False)
        ] = None,
        again: Annotated[bool, typer.Option(help="Run again what is kept already.")] = False,
        redraw: Annotated[
            Path | None, typer.Option(help="Only draw the page, from this folder of results.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Reproduce published tables; without a name, list them."""
        from headcount.reproduction.index import REPRODUCTIONS, chosen
        from headcount.reproduction.runner import read_records

        if redraw is not None:
            _draw(read_records(redraw), out, as_json)
        elif not names:
            _list(REPRODUCTIONS, out, as_json)
        else:
            from headcount.results.record import Setting
            from headcount.training.sweeps import check_device

            check_device(device)
            if budget is not None and not budget > 0:
                raise ValueError(f"--budget is a time in seconds, above 0; got {budget:g}")
            setting = Setting(device, quick, data, out / "kept", budget)
            _run(chosen(names), setting, out, again, as_json)


def _list(found: tuple[Reproduction, ...], out: Path, as_json: bool) -> None:
    rows = [
        {
            "name": r.name,
            "reproduces": r.says,
            "quick": r.times[0],
            "CPU": r.times[1],
            "GPU": r.times[2],
            "needs": r.needs or None,
            "done": any((out / r.file(quick=quick)).exists() for quick in (True, False)),
        }
        for r in found
    ]
    if as_json:
        emit_json(rows)
        return
    show_table(rows, ("name", "quick", "CPU", "GPU", "needs"))
    say("One: headcount reproduce allocation:e-128. Everything, smaller: headcount reproduce --quick all --data DIR")
    done = sum(row["done"] for row in rows)
    conclude(f"{len(rows)} reproductions are known, and {done} of them have results in {out}")


def _run(asked: list[Reproduction], setting: Any, out: Path, again: bool, as_json: bool) -> None:
    from headcount.cli.door import Interrupted
    from headcount.reproduction.runner import read_records, reproduce

    missing: list[str] = []

    def on_progress(reproduction: Reproduction, record: Record | None) -> None:
        if as_json:
            return
        if record is None:
            say(f"{reproduction.name}: {reproduction.says} ...")
        else:
            _tell(reproduction, record)

    done: dict[str, Record] = {}
    for reproduction in asked:
        try:
            done |= {r.name: r for r in reproduce([reproduction], setting, out, again=again, on_progress=on_progress)}
        except FileNotFoundError as problem:
            if len(asked) == 1:
                raise
            missing.append(f"{reproduction.name} skipped: {problem}")
        except KeyboardInterrupt:
            raise Interrupted(f"Finished tables are kept in {out}; run the same command to go on.") from None
    _draw({**read_records(out), **done}, out, as_json, missing, shown=set(done))


def _tell(reproduction: Reproduction, record: Record) -> None:
    from headcount.fits.agreement import comparisons

    smaller = " (quick: smaller than published)" if record.quick else ""
    for comparison in comparisons(record, reproduction):
        say(f"  {comparison.published.title}: {comparison.verdict}{smaller}")
    for claim in record.measured.claims:
        say(f"  {'holds' if claim.holds else 'does not hold'}: {claim.says}. Here: {claim.ours}")
    for note in record.measured.remarks:
        say(f"  {note}")


def _draw(
    records: dict[str, Record],
    out: Path,
    as_json: bool,
    missing: list[str] | None = None,
    shown: set[str] | None = None,
) -> None:
    """The page of all records, and the verdicts of those that were `shown` now (None: of all)."""
    from headcount.reproduction.side_by_side import entries, html, markdown

    files = [out_file(out, name, text) for name, text in _pages(records, markdown, html)]
    rows = [
        {"name": e.reproduction.name, "table": table, "verdict": v.outcome, "reason": v.reason, "run": e.size}
        for e in entries(records)
        if e.record is not None and (shown is None or e.reproduction.name in shown)
        for table, v in e.outcomes
    ]
    if as_json:
        emit_json({"verdicts": rows, "skipped": missing or [], "files": [str(f) for f in files]})
        return
    show_table(rows, ("name", "table", "verdict", "run"))
    for line in missing or []:
        say(line)
    stand = "stands" if len(records) == 1 else "stand"
    say(f"So: {counted(len(records), 'table')} {stand} beside the published ones in {files[-1]}.")


def _pages(records: dict[str, Record], markdown: Any, html: Any) -> list[tuple[str, str]]:
    return [("reproduction.md", markdown(records)), ("reproduction.html", html(records))]
