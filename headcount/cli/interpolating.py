"""`headcount theory interpolate`: a narrow network that takes given sequences exactly to given outputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table

if TYPE_CHECKING:
    from headcount.certificates import Built

ROWS = (
    ("layers", "layers", "layers_at_most", None),
    ("blocks", "blocks", "blocks_at_most", "published_blocks"),
)


def register(app: typer.Typer) -> None:
    @app.command("interpolate")
    def interpolate(
        data: Annotated[Path, typer.Argument(help=".npz: x (count, length, token_dim), y labels, outputs or sets.")],
        seed: Annotated[int, typer.Option(help="Seed of the directions.")] = 0,
        net: Annotated[
            Path | None, typer.Option(help="Try a network written by --out on this data.", show_default=False)
        ] = None,
        onnx: Annotated[bool, typer.Option("--onnx", help="Also write net.onnx into --out.")] = False,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Build a network that memorises given sequences exactly.

        A hardmax network takes every sequence to its label, output or set of outputs.
        """
        from headcount.papers.hardmax.interpolation_page import interpolation_facts
        from headcount.papers.hardmax.networks import interpolate as construct
        from headcount.papers.hardmax.pair_files import read_pairs

        if onnx and out is None:
            raise ValueError("--onnx writes a file: say where with --out DIR")
        rows, outputs, _ = read_pairs(data)
        start = time.perf_counter()
        built = construct(rows, outputs, seed) if net is None else _reread(net, rows, outputs)
        facts = interpolation_facts(built, round(time.perf_counter() - start, 3) if net is None else None)
        facts["promised_for"] = len(rows) if net is None else _promised_for(net, rows, outputs)
        if out is not None:
            facts["files"] = _write(built, facts, out, onnx)
        emit_json(facts) if as_json else _show(built, facts)


def _reread(path: Path, rows: list[Any], outputs: list[Any]) -> Built:
    """The network of a file, asked for these pairs."""
    from dataclasses import replace

    from headcount.certificates import Drawn, load
    from headcount.papers.hardmax.narrow import NarrowNet
    from headcount.papers.hardmax.sequence_pairs import as_pairs

    built = load(path)
    if not isinstance(built.net, NarrowNet):
        raise ValueError(f"{path} holds a {type(built.net).__name__}; `theory interpolate --out` writes a NarrowNet")
    pairs = as_pairs(rows, outputs)
    if pairs.token_dim != built.net.shape.token_dim:
        raise ValueError(f"{path} takes tokens of {built.net.shape.token_dim} numbers, the data have {pairs.token_dim}")
    return replace(built, task=pairs, domain=Drawn(pairs))


def _promised_for(path: Path, rows: list[Any], outputs: list[Any]) -> int:
    """How many of these pairs the file's own certificate speaks of."""
    from headcount.certificates import load
    from headcount.papers.hardmax.sequence_pairs import SequencePairs, as_pairs

    own, pairs = load(path).task, as_pairs(rows, outputs)
    assert isinstance(own, SequencePairs)
    places = own.find(pairs.batch)
    return sum(p is not None and own.outputs[p] == y for p, y in zip(places, pairs.outputs, strict=True))


def _write(built: Built, facts: dict[str, Any], out: Path, onnx: bool) -> list[str]:
    from headcount.papers.hardmax.interpolation_page import interpolation_page

    files = [
        built.save(out / "net.safetensors"),
        out_file(out, "interpolation.html", interpolation_page(built, facts)),
    ]
    if onnx:
        files.append(built.export(out / "net.onnx"))
    return [str(f) for f in files]


def _show(built: Built, facts: dict[str, Any]) -> None:
    from headcount.papers.hardmax.interpolation_page import so_sentence

    sizes = [
        {"count": name, "built": facts[ours], "at most": facts[most], "published": facts[paper] if paper else None}
        for name, ours, most, paper in ROWS
    ]
    show_table(sizes, ("count", "built", "at most", "published"))
    say()
    show_table([{"term": t.name, "at most": t.value, "because": t.why} for t in built.certificate.terms],
               ("term", "at most", "because"))  # fmt: skip
    for file in facts.get("files", []):
        say(f"wrote {file}")
    if facts["promised_for"] < facts["sequences"]:
        say(f"The file promises {facts['promised_for']} of these {facts['sequences']} sequences, the others are tried.")
    failed = f"So: this network does not give these outputs: off by {facts['gap']:.3g}."
    say(so_sentence(facts) if facts["holds"] else failed)
