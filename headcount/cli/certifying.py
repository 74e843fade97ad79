"""`headcount certify`: the worst error of trained networks over their whole domain, proved."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.infoflow import With
from headcount.cli.printing import AsJson, Out, conclude, emit_json, out_file, say, show_table, tell_written
from headcount.cli.sweeping import SpecName, one_spec
from headcount.cli.task_options import Length, task_of
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.certificates.worst_case.worst_error import Worst
    from headcount.nets.target_units import TargetUnits
    from headcount.results import Study
    from headcount.tasks import Task

Subject = Annotated[
    Path, typer.Argument(metavar="RUN|FILE", help="Folder of a sweep run with --save, or one network's file.")
]
TaskName = Annotated[str, typer.Option("--task", help="The task of a FILE; a RUN knows its own.", show_default=False)]
Ratio = Annotated[float, typer.Option(help="Stop when the proof is within this factor of the largest error met.")]
Seconds = Annotated[float, typer.Option(help="The most to spend on the proof.")]
Bounds = Annotated[str, typer.Option(help="The box, as -3,3; the task's own by default.", show_default=False)]
Vnnlib = Annotated[bool, typer.Option("--vnnlib", help="Also write ONNX and VNN-LIB problems into --out.")]
Balls = Annotated[bool, typer.Option("--balls", help="Recheck every leaf of the proof in ball arithmetic.")]
Above = Annotated[float | None, typer.Option(help="Also the share of the domain above this error.", show_default=False)]


LEAVES = 50_000  # as many as are kept for a recheck


def register(app: typer.Typer) -> None:
    @app.command("certify")
    def certify(
        subject: Subject,
        task: TaskName = "",
        length: Length = None,
        fields: With = None,
        ratio: Ratio = 1.5,
        seconds: Seconds = 60.0,
        box: Bounds = "",
        above: Above = None,
        balls: Balls = False,
        vnnlib: Vnnlib = False,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        spec: SpecName = None,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Prove the worst error of trained networks over their whole domain.

        A RUN: every network kept, and the page of the best one; rows with worst_lower and worst_upper are written as a
        study that `headcount fit --norm worst` reads. A FILE: that network, on the task named.
        """
        if vnnlib and out is None:
            raise ValueError("--vnnlib writes files: say where with --out DIR")
        facts: dict[str, Any] = {}
        if subject.is_dir():
            spec = one_spec(subject, spec)
            study, (net, target) = _rows(subject, spec, ratio, seconds, _ends(box), device)
            facts["networks"] = _table(study)
        else:
            study, net, target = None, _network(subject), _task(task, length, fields)
        found = _one(net, target, ratio, seconds, _ends(box), device, LEAVES if balls else 0)
        record = found.record(target, net)
        facts |= record.to_json()
        if balls:
            facts["balls"] = _rechecked(found, net, target)
        if above is not None:
            facts["share"] = _share(found, above)
        command = f"headcount certify {subject}"
        files = [] if out is None else _written(out, study, record, command)
        if vnnlib and out is not None:
            from headcount.certificates.worst_case.vnn_lib import write_problems

            files += write_problems(out, "error", net, target, found)
        if as_json:
            emit_json({**facts, "files": [str(f) for f in files]})
            return
        _print(facts, record.rows(), files)
        conclude(record.sentence)


def _network(file: Path) -> TargetUnits:
    from headcount.nets.saved import load_in_units

    return load_in_units(file)


def _task(name: str, length: int | None, fields: list[str] | None) -> Task:
    if not name:
        raise ValueError("a file of a network does not say its task: give --task NAME, --length and --with")
    return task_of(name, length, fields)


def _ends(box: str) -> tuple[float, float] | None:
    if not box:
        return None
    try:
        low, high = map(float, box.split(","))
    except ValueError:
        raise ValueError(f"--box takes two numbers, as -3,3; got {box!r}") from None
    return low, high


def _one(
    net: Any, target: Task, ratio: float, seconds: float, box: tuple[float, float] | None, device: str, leaves: int
) -> Worst:
    from headcount.certificates import Box, certify

    domain = None if box is None else Box(target.length, target.token_dim, *box)
    return certify(
        net, target, ratio=ratio, budget=seconds, domain=domain, device=device, leaves=leaves, on_progress=_progress()
    )


def _progress() -> Callable[[int, int], None] | None:
    """A line that is written over, on a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(looked: int, left: int) -> None:
        sys.stderr.write(f"\r{looked:,} boxes looked at, {left:,} waiting ")
        sys.stderr.flush()

    return tell


def _rows(
    folder: Path, spec: str | None, ratio: float, seconds: float, box: tuple[float, float] | None, device: str
) -> tuple[Study, tuple[TargetUnits, Task]]:
    """The kept rows with their worst errors, and the best network with its task."""
    from dataclasses import replace

    from headcount.certificates.worst_case.branching import SearchLimits
    from headcount.certificates.worst_case.certified_rows import certify_all
    from headcount.results import Store
    from headcount.training.attention_maps import task_of as task_in
    from headcount.training.kept_networks import NetworksIn

    store = Store.open(folder)
    study, kept = store.study(spec), NetworksIn(store.path.parent)
    rows = [row for row in study if kept.has(row)]
    if not rows:
        raise ValueError(f"{folder} keeps no networks: a sweep keeps them when its `save` is best or all")
    networks = [(kept(row), task_in(store, row["run"])) for row in rows]
    limits = SearchLimits(seconds=seconds)
    found = certify_all(networks, ratio=ratio, box=box, budget=limits, device=device, on_progress=_progress())
    known = [
        {**r, "worst_lower": f.worst_lower, "worst_upper": f.worst_upper} for r, f in zip(rows, found, strict=True)
    ]
    best = min(range(len(rows)), key=lambda k: rows[k]["nmse"])
    return replace(study, rows=tuple(known)), networks[best]  # type: ignore[arg-type]


def _table(study: Study) -> list[dict[str, Any]]:
    names = ("length", "heads", "seed", "nmse", "worst_lower", "worst_upper")
    return [{name: row.get(name) for name in names} for row in study]


def _share(found: Worst, above: float) -> dict[str, Any]:
    mass = found.mass(above)
    return {"above": above, "low": mass.low, "high": mass.high, "measured": mass.measured, "said": str(mass)}


def _rechecked(found: Worst, net: Any, target: Task) -> dict[str, Any]:
    from dataclasses import asdict

    from headcount.certificates.worst_case.leaf_recheck import recheck_leaves

    again = recheck_leaves(found, net, target)
    return {**asdict(again), "holds": again.holds}


def _written(out: Path, study: Study | None, record: Any, command: str) -> list[Path]:
    from headcount.report.worst_page import worst_page

    files = [out_file(out, "worst.html", worst_page(record, command=command))]
    if study is not None:
        files.append(out_file(out, "study.json", "".join(study.json_pieces(study.rows))))
    return files


def _print(facts: dict[str, Any], errors: list[dict[str, Any]], files: list[Path]) -> None:
    if "networks" in facts:
        show_table(facts["networks"], ("length", "heads", "seed", "nmse", "worst_lower", "worst_upper"))
        say(f"\n{counted(len(facts['networks']), 'network')}; the one of smallest NMSE:")
    say(f"{facts['task']} by {facts['layers']} at length {facts['length']}, on [{facts['low']:g}, {facts['high']:g}]\n")
    show_table(errors, ("error", "size", "basis"))
    where = "; ".join(", ".join(f"{v:.3g}" for v in token) for token in facts["where"])
    say(f"\nThe worst input, token by token: {where}")
    say(f"By {facts['road']}; {facts['arithmetic']}; {facts['boxes']:,} boxes in {facts['seconds']:.1f} s.")
    if "balls" in facts:
        again = facts["balls"]
        held = f"{again['held']:,} of {again['leaves']:,} leaves hold, at most {again['upper']:.6g}"
        say(f"In ball arithmetic: {held}; the domain is {'covered' if again['covers'] else 'NOT covered'}.")
    if "share" in facts:
        say(facts["share"]["said"])
    tell_written(files)
