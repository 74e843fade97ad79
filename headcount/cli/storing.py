"""`headcount runs`: the studies of a folder, listed, exported, verified, repaired, merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.opening import folder_of, one_spec, tell_damaged
from headcount.cli.options import BoxEnds, Run, SpecName, box_ends
from headcount.cli.printing import Listing, Printout, json_wanted, warn
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.results.export import Exported

Folder = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a study, as `headcount sweep` writes it.")]


def list_runs(folder: Annotated[Path, typer.Argument(help="Folder that holds studies.")] = Path("runs")) -> Printout:
    """List the studies in a folder.

    Every spec of each: how many networks it wants, and how many are trained.
    """
    from headcount.results.overview import studies_in, unfinished_in_words

    rows, odd = studies_in(folder)
    for problem in odd:
        warn(problem)
    columns = ("study", "spec", "task", "trained", "wanted", "diverged", "device")
    return Printout(rows, [Listing(rows, columns)], unfinished_in_words(rows))


def export(
    run: Run,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write into. Default: RUN.")] = None,
    spec: SpecName = None,
    vnnlib: Annotated[
        bool, typer.Option("--vnnlib", help="Also write kept networks as ONNX and VNN-LIB problems.")
    ] = False,
    domain: BoxEnds = "",
) -> Printout:
    """Write a study as rows.csv, rows.jsonl and study.json.

    With --vnnlib, also the error of every kept network (network minus target) as ONNX, and in VNN-LIB two questions
    whose answers a proof knows: instances.csv, answers.csv.
    """
    from headcount.results.export import Exported

    study = Exported.of(run, one_spec(run, spec))
    problems = _problems(run, folder_of(run, out), spec, box_ends(domain)) if vnnlib else []
    if json_wanted():
        return Printout(_all_rows(study, run))
    written = study.write(folder_of(run, out))
    tell_damaged(run, study.head)
    others = " and ".join(path.name for path in written[1:])
    so = f"{counted(study.count, 'row')} are in {written[0]}, and again in {others}"
    if problems:
        graphs = sum(path.suffix == ".onnx" for path in problems)
        so += f"; {counted(graphs, 'network')} with two questions each are in {problems[-2].name}"
    return Printout(None, [], so, [*written, *problems[-2:]])


def _problems(run: Path, out: Path, spec: str | None, ends: tuple[float, float] | None) -> list[Path]:
    """The worst errors of the kept networks, proved, and written for other verifiers."""
    from headcount.certificates import Box
    from headcount.certificates.worst_case.certified_rows import certify_all
    from headcount.certificates.worst_case.vnn_lib import ErrorProblem, write_problems
    from headcount.certificates.worst_case.worst_error import domain_of
    from headcount.training.kept_networks import kept_study

    stored = kept_study(run, one_spec(run, spec))
    problems = []
    for row, (net, task), worst in zip(
        stored.study, stored.networks, certify_all(stored.networks, box=ends), strict=True
    ):
        domain = domain_of(task) if ends is None else Box(task.length, task.token_dim, *ends)
        name = f"error_{row['run'][:12]}"
        problems.append(ErrorProblem(name, net, task, domain, worst.worst_lower, worst.worst_upper))
    return write_problems(out, problems)


def _all_rows(study: Exported, run: Path) -> Iterator[str]:
    yield from study.json_list()
    tell_damaged(run, study.head)


def verify(folder: Folder) -> Printout:
    """Read every row of a store and say which are damaged.

    Every page of the file, too; nothing is changed.
    """
    from headcount.results.upkeep import verify_store

    verified = verify_store(folder)
    rows, specs = counted(verified.rows, "row"), counted(verified.specs, "spec")
    lines = [f"{verified.path}: {rows}, {specs}, {counted(len(verified.damaged), 'row')} damaged."]
    lines += [*_named(verified.damaged), *(f"  {problem}" for problem in verified.problems[:3])]
    so = "every row and every spec is as it was written" if verified.sound else "`headcount runs repair` saves the rest"
    return Printout({**asdict(verified), "sound": verified.sound}, lines, so, code=0 if verified.sound else 2)


def repair(folder: Folder) -> Printout:
    """Write a sound store from what a damaged one still holds.

    The damaged one is put aside. A sound one is left as it is; one that others use is refused.
    """
    from headcount.results.upkeep import repair_store

    mended = repair_store(folder)
    if not mended.aside:
        so = f"nothing was done: every one of the {mended.rows} rows of {mended.path} is as it was written"
        return Printout(asdict(mended), [], so)
    lines = [f"{mended.rows} rows are in {mended.path}; the file as it was is {mended.aside}.", *_named(mended.dropped)]
    so = f"run the sweep again to train the {len(mended.dropped)} rows known to be lost, and any page's rows"
    return Printout(asdict(mended), lines, so)


def merge(
    into: Annotated[Path, typer.Argument(metavar="INTO", help="Folder of the store that grows; made if missing.")],
    others: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Folders of the stores to bring in.")],
) -> Printout:
    """Bring the rows and specs of other stores into one.

    Rows that are there already stay.
    """
    from headcount.results.upkeep import merge_stores

    merged = merge_stores(into, *others)
    lines = [f"{merged.added} rows and {merged.specs} specs came into {merged.path}.", *_named(merged.differing)]
    so = f"{len(merged.differing)} rows differ from those that were there, which stand"
    return Printout(asdict(merged), lines, so)


def _named(runs: tuple[str, ...]) -> list[str]:
    more = f" and {len(runs) - 10} more" if len(runs) > 10 else ""
    return [f"  {', '.join(runs[:10])}{more}"] if runs else []
