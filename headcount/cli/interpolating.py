"""`headcount theory interpolate`: a narrow network that takes given sequences exactly to given outputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.options import Out
from headcount.cli.printing import Listing, Printout

COUNTS = ("count", "built", "at most", "published")


def interpolate(
    data: Annotated[Path, typer.Argument(help=".npz: x (count, length, token_dim), y labels, outputs or sets.")],
    seed: Annotated[int, typer.Option(help="Seed of the directions.")] = 0,
    net: Annotated[
        Path | None, typer.Option(help="Try a network written by --out on this data.", show_default=False)
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write net.onnx into --out.")] = False,
    out: Out = None,
) -> Printout:
    """Build a network that memorises given sequences exactly.

    A hardmax network takes every sequence to its label, output or set of outputs.
    """
    from headcount.papers.hardmax.interpolation_page import InterpolationReport
    from headcount.papers.hardmax.network_files import read_network
    from headcount.papers.hardmax.networks import interpolate as construct
    from headcount.papers.hardmax.pair_files import read_pairs

    if onnx and out is None:
        raise ValueError("--onnx writes a file: say where with --out DIR")
    rows, outputs, _ = read_pairs(data)
    if net is None:
        start = time.perf_counter()
        built = construct(rows, outputs, seed)
        report = InterpolationReport.of(built, seconds=round(time.perf_counter() - start, 3))
    else:
        built, promised = read_network(net, rows, outputs)
        report = InterpolationReport.of(built, promised_for=promised)
    facts = report.facts
    lines = [Listing(report.rows, COUNTS), "", Listing(report.terms, ("term", "at most", "because"))]
    if facts["promised_for"] < facts["sequences"]:
        few = f"{facts['promised_for']} of these {facts['sequences']} sequences"
        lines.append(f"The file promises {few}, the others are tried.")
    return Printout(facts, lines, report.sentence, [] if out is None else report.files(out, onnx=onnx))
