"""`headcount certify`: the worst error of trained networks over their whole domain, proved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import BoxEnds, Device, Out, SpecName, TaskLength, With, box_ends, task_of
from headcount.cli.printing import Listing, Printout
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.certificates import Worst
    from headcount.nets.target_units import TargetUnits
    from headcount.results import Study
    from headcount.results.worst_record import WorstRecord
    from headcount.tasks import Task


LEAVES = 50_000  # as many as are kept for a recheck
NETWORK = ("length", "heads", "seed", "nmse", "worst_lower", "worst_upper")


@dataclass(frozen=True)
class CertifyOptions:
    """What `headcount certify` takes."""

    subject: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="Folder of a sweep run with --save, or one network's file.")
    ]
    task: Annotated[
        str, typer.Option("--task", help="The task of a FILE; a RUN knows its own.", show_default=False)
    ] = ""
    length: TaskLength = None
    fields: With = None
    ratio: Annotated[
        float, typer.Option(help="Stop when the proof is within this factor of the largest error met.")
    ] = 1.5
    seconds: Annotated[float, typer.Option(help="The most to spend on the proof.")] = 60.0
    domain: BoxEnds = ""
    above: Annotated[
        float | None, typer.Option(help="Also the share of the domain above this error.", show_default=False)
    ] = None
    balls: Annotated[bool, typer.Option("--balls", help="Recheck every leaf of the proof in ball arithmetic.")] = False
    vnnlib: Annotated[bool, typer.Option("--vnnlib", help="Also write ONNX and VNN-LIB problems into --out.")] = False
    device: Device = "cpu"
    spec: SpecName = None
    out: Out = None


def certify(options: CertifyOptions) -> Printout:
    """Prove the worst error of trained networks over a domain.

    A RUN: every network kept, and the page of the best one; rows with worst_lower and worst_upper are written as a
    study that `headcount fit --norm worst` reads. A FILE: that network, on the task named.
    """
    from headcount.certificates import certify as prove
    from headcount.certificates.worst_case.branching import SearchLimits

    if options.vnnlib and options.out is None:
        raise ValueError("--vnnlib writes files: say where with --out DIR")
    ends = box_ends(options.domain)
    limits = SearchLimits(seconds=options.seconds)
    search = {"ratio": options.ratio, "budget": limits, "device": options.device, "on_progress": _progress()}
    if options.subject.is_dir():
        study, net, target = _of_run(options.subject, options.spec, ends, search)
    else:
        study, net, target = None, *_of_file(options.subject, options.task, options.length, options.fields)
    worst = prove(net, target, domain=_domain(target, ends), leaves=LEAVES if options.balls else 0, **search)
    record = worst.record(target, net)
    facts, lines = _looked(worst, net, target, balls=options.balls, above=options.above)
    files = [] if options.out is None else _files(options.out, study, record, f"headcount certify {options.subject}")
    files += [] if options.out is None or not options.vnnlib else _problems(options.out, net, target, worst)
    networks = [] if study is None else [{name: row.get(name) for name in NETWORK} for row in study]
    facts = ({"networks": networks} if networks else {}) | record.to_json() | facts
    return Printout(facts, [*_networks(networks), *_lines(record), *lines], record.sentence, files)


def _of_file(file: Path, name: str, length: int | None, fields: list[str] | None) -> tuple[TargetUnits, Task]:
    from headcount.nets.saved import load_in_units

    net = load_in_units(file)
    if not name:
        raise ValueError("a file of a network does not say its task: give --task NAME, --length and --with")
    return net, task_of(name, length, fields)


def _of_run(folder: Path, spec: str | None, ends: tuple[float, float] | None, search: Any) -> tuple[Study, Any, Task]:
    """The rows kept with their worst errors, and the best network with its task."""
    from headcount.certificates.worst_case.certified_rows import certified_study, certify_all
    from headcount.cli.opening import one_spec
    from headcount.training.kept_networks import kept_study

    stored = kept_study(folder, one_spec(folder, spec))
    return certified_study(stored.study, certify_all(stored.networks, box=ends, **search)), *stored.best


def _domain(task: Task, ends: tuple[float, float] | None) -> Any:
    from headcount.certificates import Box

    return None if ends is None else Box(task.length, task.token_dim, *ends)


def _progress() -> Callable[[int, int], None] | None:
    """A line that is written over, on a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(looked: int, left: int) -> None:
        sys.stderr.write(f"\r{looked:,} boxes looked at, {left:,} waiting ")
        sys.stderr.flush()

    return tell


def _looked(
    worst: Worst, net: Any, task: Task, *, balls: bool, above: float | None
) -> tuple[dict[str, object], list[str]]:
    """The recheck and the share above an error, where they are wanted: for programs, and for people."""
    facts: dict[str, object] = {}
    lines: list[str] = []
    if balls:
        from headcount.certificates.worst_case.leaf_recheck import recheck_leaves

        again = recheck_leaves(worst, net, task)
        facts["balls"] = again.to_json()
        lines.append(again.sentence)
    if above is not None:
        mass = worst.mass(above)
        facts["share"] = mass.to_json()
        lines.append(str(mass))
    return facts, lines


def _files(out: Path, study: Study | None, record: WorstRecord, command: str) -> list[Path]:
    from headcount.files import write_text
    from headcount.report.worst_page import worst_page

    page = write_text(out / "worst.html", worst_page(record, command=command))
    return [page, *([] if study is None else study.files(out))]


def _problems(out: Path, net: Any, task: Task, worst: Worst) -> list[Path]:
    from headcount.certificates.worst_case.vnn_lib import ErrorProblem, write_problems

    return write_problems(out, [ErrorProblem("error", net, task, worst.domain, worst.lower, worst.upper)])


def _networks(rows: Sequence[Mapping[str, object]]) -> list[str | Listing]:
    if not rows:
        return []
    return [Listing(rows, NETWORK), f"\n{counted(len(rows), 'network')}; the one of smallest NMSE:"]


def _lines(record: WorstRecord) -> list[str | Listing]:
    at = f"{record.task} by {record.layers} at length {record.length}, on [{record.low:g}, {record.high:g}]"
    where = "; ".join(", ".join(f"{v:.3g}" for v in token) for token in record.where)
    return [
        f"{at}\n",
        Listing(record.rows, ("error", "size", "basis")),
        f"\nThe worst input, token by token: {where}",
        f"By {record.road}; {record.arithmetic}; {record.boxes:,} boxes in {record.seconds:.1f} s.",
    ]
