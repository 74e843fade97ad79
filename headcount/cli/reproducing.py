"""`headcount reproduce`: every published table beside ours, with a verdict and a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import Device
from headcount.cli.printing import Listing, Printout, say
from headcount.listings import known_reproductions

if TYPE_CHECKING:
    from headcount.reproduction.side_by_side import ComparedRecords
    from headcount.results.record import Record, Reproduction, Setting

HOW = "One: headcount reproduce allocation:e-128. Everything, smaller: headcount reproduce --quick all --data DIR"


@dataclass(frozen=True)
class ReproduceOptions:
    """What `headcount reproduce` takes."""

    names: Annotated[
        list[str] | None,
        typer.Argument(help="paper:table, a paper, or all; none lists what there is.", show_default=False),
    ] = None
    quick: Annotated[bool, typer.Option(help="A smaller version, in minutes on a CPU.")] = False
    device: Device = "cpu"
    data: Annotated[Path | None, typer.Option(help="Folder of data sets.", show_default=False)] = None
    out: Annotated[Path, typer.Option(help="Folder for results and the page.")] = Path("out/reproduce")
    budget: Annotated[
        float | None, typer.Option(help="Seconds for each, of those that take what fits.", show_default=False)
    ] = None
    again: Annotated[bool, typer.Option(help="Run again what is kept already.")] = False
    redraw: Annotated[
        Path | None, typer.Option(help="Only draw the page, from this folder of results.", show_default=False)
    ] = None


def reproduce(options: ReproduceOptions) -> Printout:
    """Reproduce published tables; without a name, list them."""
    if options.redraw is not None:
        from headcount.reproduction.runner import read_records
        from headcount.reproduction.side_by_side import ComparedRecords

        return _drawn(ComparedRecords(read_records(options.redraw)), options.out)
    if not options.names:
        return _listed(options.out)
    from headcount.reproduction.index import chosen
    from headcount.results.record import Setting
    from headcount.training.sweeps import check_device

    check_device(options.device)
    if options.budget is not None and not options.budget > 0:
        raise ValueError(f"--budget is a time in seconds, above 0; got {options.budget:g}")
    setting = Setting(options.device, options.quick, options.data, options.out / "kept", options.budget)
    return _run(chosen(options.names), setting, options.out, options.again)


def _listed(out: Path) -> Printout:
    rows = known_reproductions(out)
    so = f"{len(rows)} reproductions are known, and {sum(row['done'] for row in rows)} of them have results in {out}"
    return Printout(rows, [Listing(rows, ("name", "quick", "CPU", "GPU", "needs")), HOW], so)


def _run(wanted: list[Reproduction], setting: Setting, out: Path, again: bool) -> Printout:
    from headcount.cli.door import Interrupted
    from headcount.reproduction.runner import read_records, reproduce
    from headcount.reproduction.side_by_side import ComparedRecords

    missing: list[str] = []
    done: dict[str, Record] = {}
    for reproduction in wanted:
        try:
            done |= {r.name: r for r in reproduce([reproduction], setting, out, again=again, on_progress=_tell)}
        except FileNotFoundError as problem:
            if len(wanted) == 1:
                raise
            missing.append(f"{reproduction.name} skipped: {problem}")
        except KeyboardInterrupt:
            raise Interrupted(f"Finished tables are kept in {out}; run the same command to go on.") from None
    return _drawn(ComparedRecords({**read_records(out), **done}, frozenset(done)), out, missing)


def _tell(reproduction: Reproduction, record: Record | None) -> None:
    from headcount.reproduction.side_by_side import outcome_lines

    if record is None:
        say(f"{reproduction.name}: {reproduction.says} ...")
        return
    for line in outcome_lines(record, reproduction):
        say(f"  {line}")


def _drawn(compared: ComparedRecords, out: Path, missing: list[str] | None = None) -> Printout:
    """The page of all records, and the verdicts of those that were run now."""
    skipped, files = missing or [], compared.files(out)
    lines = [Listing(compared.rows, ("name", "table", "verdict", "run")), *skipped]
    return Printout(
        {"verdicts": compared.rows, "skipped": skipped}, lines, f"{compared.sentence}, in {files[-1]}", files
    )
